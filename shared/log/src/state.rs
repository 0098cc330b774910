//! The object with the log's state: the committed tree, the published tree, and the progress per stream shard.

use crate::{
    objects::{ObjectStore, ObjectVersion},
    pending::PendingChange,
};
use purser_domain::{Duration, Error, Result, Timestamp};
use purser_evidence::{Hash, TreeHead};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

const KEY: &str = "state.json";

/// How long a shard's last sequence number is kept. DynamoDB streams keep their records for a day.
const SHARD_RETENTION: Duration = Duration::from_secs_u32(3 * 86_400);

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    /// The tree with all committed entries. It can be ahead of `published`.
    committed: Option<Head>,
    /// The tree of the published tiles; `None` before the first publication.
    published: Option<Head>,
    /// The object with the entries that are committed but not yet published; `None` if all are published.
    batch: Option<Batch>,
    /// The progress of each stream shard, by the shard's name.
    shards: BTreeMap<String, Shard>,
    /// The unreadable changes that later runs retry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) later: Vec<PendingChange>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Head {
    size: u64,
    root: String,
}

/// A stored object with committed entries that are not yet published.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Batch {
    pub(crate) key: String,
    /// The time at which the entries were committed, in microseconds.
    pub(crate) at: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Shard {
    /// All changes up to this sequence number are processed.
    sequence: String,
    at: i64,
    /// The sequence numbers of processed changes after `sequence`. A run interleaves the changes of different
    /// agents, so changes are not processed in record order.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    ahead: BTreeSet<String>,
}

fn tree_head_or_empty(head: Option<&Head>) -> Result<TreeHead> {
    let Some(head) = head else { return Ok(TreeHead::empty()) };
    let root: Result<Hash, _> = head.root.parse();
    Ok(TreeHead {
        size: head.size,
        root: root.map_err(|error| Error::internal("reading the log's state", error))?,
    })
}

fn stored_tree_head(head: &TreeHead) -> Head {
    Head {
        size: head.size,
        root: head.root.to_string(),
    }
}

impl State {
    /// Reads the log's state, with the version of the object. Returns an empty state if there is no object.
    pub(crate) async fn read_state(objects: &ObjectStore) -> Result<(Self, Option<ObjectVersion>)> {
        let Some(object) = objects.get(KEY).await? else {
            return Ok((Self::default(), None));
        };
        let state = serde_json::from_slice(&object.bytes);
        let state = state.map_err(|error| Error::internal("reading the log's state", error))?;
        Ok((state, Some(object.version)))
    }

    /// Replaces the log's state object. Returns `false` if another run has replaced it.
    pub(crate) async fn try_replace_state(
        &self,
        objects: &ObjectStore,
        version: Option<&ObjectVersion>,
    ) -> Result<bool> {
        let bytes = serde_json::to_vec(self).map_err(|error| Error::internal("writing the log's state", error))?;
        objects.put_if_version(KEY, &bytes, version).await
    }

    pub(crate) fn committed_tree(&self) -> Result<TreeHead> {
        tree_head_or_empty(self.committed.as_ref())
    }

    pub(crate) fn published_tree(&self) -> Result<TreeHead> {
        tree_head_or_empty(self.published.as_ref())
    }

    pub(crate) const fn batch(&self) -> Option<&Batch> {
        self.batch.as_ref()
    }

    pub(crate) fn is_processed(&self, shard: &str, sequence: &str) -> bool {
        self.shards
            .get(shard)
            .is_some_and(|known| known.sequence.as_str() >= sequence || known.ahead.contains(sequence))
    }

    /// Records that the change with this sequence number is processed. If `is_ahead` is `false`, all earlier changes of
    /// the shard count as processed.
    pub(crate) fn record_processed_changes(&mut self, shard: &str, sequence: &str, is_ahead: bool, now: Timestamp) {
        let known = self.shards.entry(shard.to_owned()).or_default();
        known.at = now.micros();
        if is_ahead {
            known.ahead.insert(sequence.to_owned());
        } else {
            sequence.clone_into(&mut known.sequence);
            while known.ahead.first().is_some_and(|ahead| ahead.as_str() <= sequence) {
                known.ahead.pop_first();
            }
        }
        let oldest = now.before(SHARD_RETENTION).micros();
        self.shards.retain(|_, shard| shard.at >= oldest);
    }

    pub(crate) fn record_committed_batch(&mut self, head: &TreeHead, batch: Batch) {
        self.committed = Some(stored_tree_head(head));
        self.batch = Some(batch);
    }

    pub(crate) fn record_published_batch(&mut self) {
        self.published.clone_from(&self.committed);
        self.batch = None;
    }
}
