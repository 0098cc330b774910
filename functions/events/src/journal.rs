//! Folds a batch of a shard into the journal, notes what of it has to be stated, and judges it by anomaly brakes.
//!
//! The mappings of the journal have a tumbling window, by which their batches differ from those that are published
//! (developer guide, "Implementing stateful `DynamoDB` stream processing in Lambda"). The window's state is not used.

use crate::{Shared, brakes};
use purser_domain::Result;
use purser_store::Change;
use serde_json::Value;
use std::collections::BTreeSet;

impl Shared {
    /// Folds a batch. On an error part of it may be folded, and the whole batch must be repeated.
    ///
    /// Unreadable rows are left out. The call that publishes the same records reports them.
    pub(crate) async fn fold_batch(&self, shard: &str, records: &[Value]) -> Result<()> {
        let changes: Vec<Change> = records.iter().filter_map(|record| Change::parse(record).ok()).collect();
        if let Some(oldest) = changes.iter().map(|change| change.at).min() {
            self.usage.report_lag(oldest, self.clock.now()).await?;
        }
        let changes = changes
            .iter()
            .filter_map(|change| self.ledger.journal_change(change).ok().flatten());
        let changes: Vec<_> = changes.collect();
        let agents: BTreeSet<_> = changes.iter().map(|change| change.agent).collect();
        let owners = self.ledger.owners(&agents).await?;
        self.note_facts(shard, &changes).await?;
        let judged = brakes::judged_hours(&changes);
        self.usage.fold(changes, &owners).await?;
        // Also of a batch that was folded before, since the call may have been killed here.
        self.judge(&judged, &owners).await
    }
}

/// The shard of a batch of the journal; `None` for any other event.
pub(crate) fn shard_of(event: &Value) -> Option<&str> {
    event.get("shardId")?.as_str()
}
