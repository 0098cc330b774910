//! An agent's services, rules and spending on the overview.

use crate::agents::owned::OwnedAgent;
use crate::rules::operations::RuleUsage;
use crate::services::operations::GovernedService;
use purser_domain::OperatorFreeze;

#[derive(Debug)]
pub(crate) struct AgentSpend {
    pub(crate) agent: OwnedAgent,
    pub(crate) freeze: Option<OperatorFreeze>,
    /// Every service that was ever enabled for the agent.
    pub(crate) services: Vec<GovernedService>,
    pub(crate) rules: Vec<RuleUsage>,
}
