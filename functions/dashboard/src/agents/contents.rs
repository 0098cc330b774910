//! The data that an agent's page shows.

use crate::keys::operations::ListedKey;
use crate::payouts::operations::Withdrawals;
use crate::rules::operations::RuleUsage;
use crate::services::operations::GovernedService;
use purser_domain::{Agent, Amount, Catalog, Network, OperatorFreeze, RuleFinding, Timestamp};

#[derive(Debug)]
pub(crate) struct AgentPage<'a> {
    pub(crate) agent: &'a Agent,
    pub(crate) catalog: &'a Catalog,
    /// Every service that was ever enabled for the agent, including disabled services.
    pub(crate) services: Vec<GovernedService>,
    pub(crate) keys: Vec<ListedKey>,
    pub(crate) rules: Vec<RuleUsage>,
    /// Findings about the agent's rules, for example that a rule never blocks a payment.
    pub(crate) findings: Vec<RuleFinding>,
    /// `None` if the chain can't be reached.
    pub(crate) balance: Option<Amount>,
    pub(crate) network: Network,
    pub(crate) payouts: Withdrawals,
    /// The idempotency key of the page's withdrawal form.
    pub(crate) payout_key: String,
    pub(crate) freeze: Option<OperatorFreeze>,
    /// When the agent's shadow policy was attached; `None` without a shadow policy.
    pub(crate) shadowed_since: Option<Timestamp>,
    /// The agent key that this request created. No other page shows this key.
    pub(crate) new_key: Option<String>,
}
