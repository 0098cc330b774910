//! Decisions and settlements as CSV.

use crate::csv::{line, or_empty, time};
use purser_domain::{Catalog, JournalEntry, SettlementState};

/// The column names.
const COLUMNS: [&str; 29] = [
    "decided_at",
    "transaction_id",
    "result",
    "reason",
    "error",
    "rule_triggered",
    "hostname",
    "agent_id",
    "agent_name",
    "labels",
    "service_id",
    "service_name",
    "operation_id",
    "network",
    "token",
    "amount",
    "amount_units",
    "pay_to",
    "key_id",
    "policy_version",
    "approval_id",
    "settlement_id",
    "receipt_status",
    "tx_hash",
    "block_number",
    "settled_at",
    "wallet_address",
    "expires_at",
    "latency_ms",
];

/// Returns the CSV header line.
pub(crate) fn header() -> String {
    line(&COLUMNS.map(str::to_owned))
}

/// Formats a decision as a CSV line.
pub(crate) fn row(entry: &JournalEntry, catalog: &Catalog) -> String {
    let (refusal, payment) = (entry.refusal.as_ref(), entry.payment.as_ref());
    let service = entry.service.and_then(|id| catalog.by_id(id));
    let confirmed = match entry.state() {
        Some(SettlementState::Confirmed {
            tx_hash,
            block_number,
            settled_at,
        }) => Some((tx_hash, block_number, settled_at)),
        _ => None,
    };
    let labels: Vec<String> = entry
        .labels
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    line(&[
        time(entry.at),
        entry.transaction.to_string(),
        entry.result.name().to_owned(),
        entry.reason.clone(),
        or_empty(refusal.map(|refusal| &refusal.error)),
        or_empty(refusal.map(|refusal| &refusal.rule)),
        or_empty(refusal.and_then(|refusal| refusal.hostname.as_ref())),
        entry.agent.to_string(),
        entry.agent_name.clone(),
        labels.join(" "),
        or_empty(entry.service),
        or_empty(service.map(|service| &service.name)),
        or_empty(entry.operation.as_ref()),
        or_empty(payment.map(|payment| payment.network.name())),
        or_empty(payment.map(|payment| payment.network.token_symbol())),
        entry.amount.to_usdc(),
        entry.amount.to_string(),
        entry.pay_to.to_string(),
        or_empty(entry.key),
        or_empty(entry.policy_version),
        or_empty(entry.approval),
        or_empty(entry.settlement()),
        or_empty(entry.state().map(SettlementState::name)),
        or_empty(confirmed.map(|(tx_hash, _, _)| tx_hash)),
        or_empty(confirmed.map(|(_, block_number, _)| block_number)),
        or_empty(confirmed.map(|(_, _, settled_at)| time(settled_at))),
        or_empty(payment.map(|payment| payment.wallet)),
        or_empty(payment.map(|payment| time(payment.valid_before))),
        or_empty(refusal.map(|refusal| refusal.latency_ms)),
    ])
}
