//! Changes without a statement: finds the oldest pending change, and makes quarantined changes pending again.

use crate::{
    objects::ObjectStore,
    pending::{PendingBatch, PendingChange},
    state::State,
};
use purser_domain::{Error, Result, Timestamp};
use serde::Deserialize;

/// The key prefix of quarantined changes: changes for which no statement could be signed.
pub(crate) const QUARANTINE_PREFIX: &str = "aside/";
/// A quarantined change, with the reason why no statement about the change could be signed.
#[derive(Deserialize)]
pub(crate) struct Aside {
    pub(crate) fact: PendingChange,
    pub(crate) reason: String,
}

/// The shard name for changes that an operator makes pending again.
const AGAIN: &str = "again";

/// Returns the time of the oldest pending change; `None` if no change is pending.
pub async fn read_oldest_pending_time(objects: &ObjectStore) -> Result<Option<Timestamp>> {
    let (state, _) = State::read_state(objects).await?;
    let mut times: Vec<Timestamp> = state.later.iter().map(|change| change.changed_at).collect();
    for shard in PendingBatch::list_shards(objects).await? {
        for cursor in PendingBatch::list_batches(objects, &shard, 1).await? {
            let batch = PendingBatch::read_batch(objects, &cursor).await?;
            let changes = batch.into_iter().flat_map(|batch| batch.facts);
            times.extend(changes.map(|change| change.changed_at));
        }
    }
    Ok(times.into_iter().min())
}

/// Makes up to 1,000 quarantined changes pending again. Returns their number. An operator calls this after the cause is
/// fixed.
pub async fn make_quarantined_changes_pending(objects: &ObjectStore, now: Timestamp) -> Result<usize> {
    const READING: &str = "reading set-aside change events";
    let (mut changes, mut keys) = (Vec::new(), Vec::new());
    for key in objects.list(QUARANTINE_PREFIX, None, 1_000).await? {
        let Some(object) = objects.get(&key).await? else {
            continue;
        };
        let row: Option<Aside> = serde_json::from_slice(&object.bytes).ok();
        if let Some(Aside { fact: mut change, .. }) = row {
            // Sequence numbers start at the current time, so that each call assigns higher numbers than all
            // earlier calls.
            let number = i64::try_from(changes.len()).map_err(|error| Error::internal(READING, error))?;
            change.sequence = format!("{:040}", now.micros().saturating_add(number));
            changes.push(change);
            keys.push(key);
        }
    }
    let shard = AGAIN.to_owned();
    PendingBatch { shard, facts: changes }.write_batch(objects).await?;
    for key in &keys {
        objects.delete(key).await?;
    }
    Ok(keys.len())
}
