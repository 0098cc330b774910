//! Settlements as CSV: the members of `GET /settlements`, and the names of the agent and the service and the amount in
//! the token.

use crate::csv::{line, or_empty};
use purser_domain::{Agent, Catalog, Settlement};

/// The names of the columns.
const COLUMNS: [&str; 22] = [
    "authorized_at",
    "settlement_id",
    "transaction_id",
    "kind",
    "agent_id",
    "agent_name",
    "service_id",
    "service_name",
    "operation_id",
    "network",
    "token",
    "amount",
    "amount_units",
    "pay_to",
    "receipt_status",
    "tx_hash",
    "settled_at",
    "key_id",
    "wallet_address",
    "expires_at",
    "approval_id",
    "policy_version",
];

/// The CSV line of the column names.
pub(crate) fn header() -> String {
    line(&COLUMNS.map(str::to_owned))
}

/// The CSV line of a settlement of this agent.
pub(crate) fn row(settlement: &Settlement, agent: &Agent, catalog: &Catalog) -> String {
    let terms = &settlement.terms;
    let purchase = terms.purchase();
    let service = purchase.and_then(|purchase| catalog.by_id(purchase.service));
    line(&[
        terms.authorized_at.to_string(),
        terms.id.to_string(),
        terms.transaction.to_string(),
        if purchase.is_some() { "purchase" } else { "payout" }.to_owned(),
        terms.agent.to_string(),
        agent.name.clone(),
        or_empty(purchase.map(|purchase| purchase.service)),
        or_empty(service.map(|service| &service.name)),
        or_empty(purchase.map(|purchase| &purchase.operation)),
        terms.network.name().to_owned(),
        terms.network.token_symbol().to_owned(),
        terms.amount.to_usdc(),
        terms.amount.to_string(),
        terms.pay_to.to_string(),
        settlement.state.name().to_owned(),
        or_empty(settlement.tx_hash()),
        or_empty(settlement.settled_at()),
        or_empty(purchase.map(|purchase| purchase.key)),
        terms.wallet.to_string(),
        terms.valid_before.to_string(),
        or_empty(purchase.and_then(|purchase| purchase.approval)),
        or_empty(purchase.map(|purchase| purchase.policy_version)),
    ])
}
