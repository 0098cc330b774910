//! Decisions and settlements as CSV.

use crate::csv::{cell, time_cell};
use purser_domain::{
    Catalog, HistoryDenial, HistoryEntry, HistoryPayment, Labels, Service, SettlementState, Timestamp, TxHash,
};

pub(crate) struct CsvRow<'a> {
    entry: &'a HistoryEntry,
    denial: Option<&'a HistoryDenial>,
    payment: Option<&'a HistoryPayment>,
    service: Option<&'a Service>,
    state: Option<&'a SettlementState>,
    /// The transaction, the block and the time of a confirmed payment.
    confirmed: Option<(TxHash, u64, Timestamp)>,
}

impl<'a> CsvRow<'a> {
    pub(crate) fn new(entry: &'a HistoryEntry, catalog: &'a Catalog) -> Self {
        let state = entry.settlement_state();
        Self {
            entry,
            denial: entry.refusal.as_ref(),
            payment: entry.payment.as_ref(),
            service: entry.service.and_then(|id| catalog.find_by_id(id)),
            state,
            confirmed: match state {
                Some(SettlementState::Confirmed {
                    tx_hash,
                    block_number,
                    settled_at,
                }) => Some((*tx_hash, *block_number, *settled_at)),
                _ => None,
            },
        }
    }
}

/// The name of a column, and the function that formats a cell.
type Column = (&'static str, fn(&CsvRow<'_>) -> String);

pub(crate) const COLUMNS: &[Column] = &[
    ("decided_at", |row| time_cell(row.entry.at)),
    ("transaction_id", |row| row.entry.transaction.to_string()),
    ("result", |row| row.entry.result.name().to_owned()),
    ("reason", |row| row.entry.reason.clone()),
    ("error", |row| cell(row.denial.map(|denial| &denial.error))),
    ("rule_triggered", |row| cell(row.denial.map(|denial| &denial.rule))),
    ("hostname", |row| {
        cell(row.denial.and_then(|denial| denial.hostname.as_ref()))
    }),
    ("agent_id", |row| row.entry.agent.to_string()),
    ("agent_name", |row| row.entry.agent_name.clone()),
    ("labels", |row| labels_cell(&row.entry.labels)),
    ("service_id", |row| cell(row.entry.service)),
    ("service_name", |row| cell(row.service.map(|service| &service.name))),
    ("operation_id", |row| cell(row.entry.operation.as_ref())),
    ("network", |row| cell(row.payment.map(|paid| paid.network.name()))),
    ("token", |row| cell(row.payment.map(|paid| paid.network.token_symbol()))),
    ("amount", |row| row.entry.amount.to_usdc()),
    ("amount_units", |row| row.entry.amount.to_string()),
    ("pay_to", |row| row.entry.pay_to.to_string()),
    ("key_id", |row| cell(row.entry.key)),
    ("policy_version", |row| cell(row.entry.policy_version)),
    ("approval_id", |row| cell(row.entry.approval)),
    ("settlement_id", |row| cell(row.entry.settlement_id())),
    ("receipt_status", |row| cell(row.state.map(SettlementState::state_name))),
    ("tx_hash", |row| cell(row.confirmed.map(|(hash, ..)| hash))),
    ("block_number", |row| cell(row.confirmed.map(|(_, block, _)| block))),
    ("settled_at", |row| cell(row.confirmed.map(|(.., at)| time_cell(at)))),
    ("wallet_address", |row| cell(row.payment.map(|paid| paid.wallet))),
    ("expires_at", |row| {
        cell(row.payment.map(|paid| time_cell(paid.valid_before)))
    }),
    ("latency_ms", |row| cell(row.denial.map(|denial| denial.latency_ms))),
];

fn labels_cell(labels: &Labels) -> String {
    let labels = labels.iter().map(|(key, value)| format!("{key}={value}"));
    labels.collect::<Vec<_>>().join(" ")
}
