//! A line for each change that a takeover of a function makes, of which the metric `ChangesSeen` and the alarms are made.
//! Changed payees have theirs in `payees.rs`.

use crate::Shared;
use purser_store::Change;
use serde_json::Value;

impl Shared {
    /// Logs the signs in these records. A row that can't be read has no sign; it raises the alarm `event-set-aside`.
    pub(crate) fn log_signs(&self, records: &[Value]) {
        for change in records.iter().filter_map(|record| Change::parse(record).ok()) {
            for sign in self.ledger.signs_of(&change).unwrap_or_default() {
                let key = change.key();
                tracing::warn!(change = sign.name(), row = key, "change.seen");
            }
        }
    }
}
