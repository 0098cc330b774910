//! Logs a line for each change that may be a sign of a compromised function. The metric `ChangesSeen` counts these
//! lines, and alarms watch the metric. `payees.rs` logs changed payees.

use crate::Inner;
use purser_store::Change;
use serde_json::Value;

impl Inner {
    /// Logs a line for each suspicious change in these records. An unreadable row has no line here, because it raises
    /// the alarm `event-set-aside`.
    pub(crate) fn log_suspicious_changes(&self, records: &[Value]) {
        for change in records.iter().filter_map(|record| Change::parse(record).ok()) {
            for sign in self.ledger.suspicious_signs(&change).unwrap_or_default() {
                let key = change.row_key();
                tracing::warn!(change = sign.name(), row = key, "change.seen");
            }
        }
    }
}
