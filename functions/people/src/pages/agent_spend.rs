//! What an agent has and spends, for the overview.

use crate::ops::owned::Owned;
use crate::ops::rules::RuleUsage;
use crate::ops::services::GovernedService;
use purser_domain::OperatorFreeze;

/// An agent's spend.
#[derive(Debug)]
pub(crate) struct AgentSpend {
    pub(crate) agent: Owned,
    /// The freeze by an operator that it is under.
    pub(crate) freeze: Option<OperatorFreeze>,
    /// Every service that was ever enabled.
    pub(crate) services: Vec<GovernedService>,
    pub(crate) rules: Vec<RuleUsage>,
}
