//! The data that an agent's page shows.

use crate::keys::operations::ListedKey;
use crate::payouts::operations::Withdrawals;
use crate::rules::operations::RuleUsage;
use crate::services::operations::GovernedService;
use purser_domain::{Agent, Amount, Catalog, Network, OperatorFreeze, RuleFinding, Timestamp};

/// An agent, with the data that the agent's page shows.
#[derive(Debug)]
pub(crate) struct AgentPage<'a> {
    pub(crate) agent: &'a Agent,
    pub(crate) catalog: &'a Catalog,
    /// Every service that was ever enabled for the agent, including disabled services.
    pub(crate) services: Vec<GovernedService>,
    pub(crate) keys: Vec<ListedKey>,
    pub(crate) rules: Vec<RuleUsage>,
    /// The findings about the rules.
    pub(crate) findings: Vec<RuleFinding>,
    /// The wallet's balance; `None` while the chain can't be reached.
    pub(crate) balance: Option<Amount>,
    pub(crate) network: Network,
    pub(crate) payouts: Withdrawals,
    /// The idempotency key that the page's withdrawal form sends.
    pub(crate) payout_key: String,
    /// The operator's freeze of the agent, if any.
    pub(crate) freeze: Option<OperatorFreeze>,
    /// The time at which the agent's shadow policy was attached, if the agent has a shadow policy.
    pub(crate) shadowed_since: Option<Timestamp>,
    /// The text of an agent key that was just created. Only one page shows this text, once.
    pub(crate) new_key: Option<String>,
}
