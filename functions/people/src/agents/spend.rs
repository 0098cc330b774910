//! What an agent has and spends, for the overview.

use crate::agents::owned::Owned;
use crate::rules::operations::RuleUsage;
use crate::services::operations::GovernedService;
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
