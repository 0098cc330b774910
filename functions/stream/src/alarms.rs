//! Logs changes that may be a sign of a compromised function. The metric `ChangesSeen` counts these log lines for
//! alarms.

use crate::Inner;
use purser_store::Change;
use serde_json::Value;

impl Inner {
    /// Logs the suspicious changes in these records. Skips unreadable rows, which raise the alarm `event-set-aside`.
    pub(crate) fn log_suspicious_changes(&self, records: &[Value]) {
        for change in records.iter().filter_map(|record| Change::parse(record).ok()) {
            for sign in self.ledger.compromise_indicators(&change).unwrap_or_default() {
                let key = change.row_key();
                tracing::warn!(change = sign.name(), row = key, "change.seen");
            }
        }
    }
}
