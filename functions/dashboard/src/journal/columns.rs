//! Decisions and settlements as CSV.

use crate::csv::{csv_line, text_or_empty, time_cell};
use purser_domain::{Catalog, HistoryEntry, SettlementState};

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

pub(crate) fn decision_csv_header() -> String {
    csv_line(&COLUMNS.map(str::to_owned))
}

/// Formats a decision as a CSV line.
pub(crate) fn csv_row(entry: &HistoryEntry, catalog: &Catalog) -> String {
    let (rejection, payment) = (entry.refusal.as_ref(), entry.payment.as_ref());
    let service = entry.service.and_then(|id| catalog.find_by_id(id));
    let confirmed = match entry.settlement_state() {
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
    csv_line(&[
        time_cell(entry.at),
        entry.transaction.to_string(),
        entry.result.name().to_owned(),
        entry.reason.clone(),
        text_or_empty(rejection.map(|rejection| &rejection.error)),
        text_or_empty(rejection.map(|rejection| &rejection.rule)),
        text_or_empty(rejection.and_then(|rejection| rejection.hostname.as_ref())),
        entry.agent.to_string(),
        entry.agent_name.clone(),
        labels.join(" "),
        text_or_empty(entry.service),
        text_or_empty(service.map(|service| &service.name)),
        text_or_empty(entry.operation.as_ref()),
        text_or_empty(payment.map(|payment| payment.network.name())),
        text_or_empty(payment.map(|payment| payment.network.token_symbol())),
        entry.amount.to_usdc(),
        entry.amount.to_string(),
        entry.pay_to.to_string(),
        text_or_empty(entry.key),
        text_or_empty(entry.policy_version),
        text_or_empty(entry.approval),
        text_or_empty(entry.settlement_id()),
        text_or_empty(entry.settlement_state().map(SettlementState::state_name)),
        text_or_empty(confirmed.map(|(tx_hash, _, _)| tx_hash)),
        text_or_empty(confirmed.map(|(_, block_number, _)| block_number)),
        text_or_empty(confirmed.map(|(_, _, settled_at)| time_cell(settled_at))),
        text_or_empty(payment.map(|payment| payment.wallet)),
        text_or_empty(payment.map(|payment| time_cell(payment.valid_before))),
        text_or_empty(rejection.map(|rejection| rejection.latency_ms)),
    ])
}
