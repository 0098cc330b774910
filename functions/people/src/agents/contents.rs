//! The contents of an agent's page.

use crate::keys::operations::ListedKey;
use crate::payouts::operations::Payouts;
use crate::rules::operations::RuleUsage;
use crate::services::operations::GovernedService;
use purser_domain::{Agent, Amount, Catalog, Network, OperatorFreeze, Timestamp};

/// An agent with everything that its page shows.
#[derive(Debug)]
pub(crate) struct AgentPage<'a> {
    pub(crate) agent: &'a Agent,
    pub(crate) catalog: &'a Catalog,
    /// Every service that was ever enabled.
    pub(crate) services: Vec<GovernedService>,
    pub(crate) keys: Vec<ListedKey>,
    pub(crate) rules: Vec<RuleUsage>,
    /// `None` while the chain can't be reached.
    pub(crate) balance: Option<Amount>,
    pub(crate) network: Network,
    pub(crate) payouts: Payouts,
    /// The idempotency key that the page's payout form sends.
    pub(crate) payout_key: String,
    /// The operator's freeze of the agent, if it is frozen by one.
    pub(crate) freeze: Option<OperatorFreeze>,
    /// The time at which the agent's shadow was attached, if it has one.
    pub(crate) shadowed_since: Option<Timestamp>,
    /// The key that was just created. It is shown only once, on this page.
    pub(crate) new_key: Option<String>,
}
