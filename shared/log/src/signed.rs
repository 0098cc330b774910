//! Statements that the Lambda function `events` signs before the run that appends them to the log. That run therefore
//! signs fewer statements.

use crate::{
    objects::{MAX_CONCURRENT_REQUESTS, ObjectStore},
    pending::PendingChange,
};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use purser_domain::{AgentId, Duration, Error, Result, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const PREFIX: &str = "signed/";
/// The maximum number of objects that a run reads, oldest first.
const MAX_OBJECTS: u16 = 256;
/// The maximum total size of an object's statements, in bytes. The run that commits the changes signs the remaining
/// statements.
const MAX_BYTES: usize = 256 << 10;
/// The age at which an object is deleted, even with unused statements. By then, the object's changes have a statement,
/// are quarantined, or will be retried.
const RETENTION: Duration = Duration::from_secs_u32(600);

#[derive(Serialize, Deserialize)]
struct StoredStatement {
    fact: PendingChange,
    statement: String,
}

/// Writes the statements of a stream batch, if there are any.
pub async fn write_signed_statements(objects: &ObjectStore, signed: &[(PendingChange, String)]) -> Result<()> {
    let Some((first, _)) = signed.first() else {
        return Ok(());
    };
    let key = format!(
        "{PREFIX}{:012}-{}-{}",
        first.changed_at.secs(),
        first.sequence,
        first.agent
    );
    let mut bytes = 0_usize;
    let stored = signed.iter().take_while(|(_, statement)| {
        bytes = bytes.saturating_add(statement.len());
        bytes <= MAX_BYTES
    });
    let stored = stored.map(|(change, statement)| StoredStatement {
        fact: change.clone(),
        statement: statement.clone(),
    });
    let stored: Vec<StoredStatement> = stored.collect();
    let bytes = serde_json::to_vec(&stored).map_err(|error| Error::internal("writing signed statements", error))?;
    objects.put(&key, &bytes).await
}

/// The statements that were signed before the run and that the run has not used yet.
#[derive(Default)]
pub(crate) struct SignedBatch {
    /// The statements by agent and sequence number, each with an index into `objects`.
    statements: BTreeMap<(AgentId, String), (PendingChange, String, usize)>,
    /// The key of each object, the number of unused statements, and the time of the newest change.
    objects: Vec<(String, usize, Timestamp)>,
}

impl SignedBatch {
    /// Reads the oldest objects with signed statements. Ignores unreadable objects.
    pub(crate) async fn read_all(objects: &ObjectStore) -> Result<Self> {
        let keys = objects.list(PREFIX, None, MAX_OBJECTS).await?;
        let read = keys.into_iter().map(|key| async move {
            let object = objects.get(&key).await?;
            Ok::<_, Error>(object.map(|object| (key, object.bytes)))
        });
        let read: Vec<_> = stream::iter(read)
            .buffered(MAX_CONCURRENT_REQUESTS)
            .try_collect()
            .await?;
        let mut signed = Self::default();
        for (index, (key, bytes)) in read.into_iter().flatten().enumerate() {
            let stored: Vec<StoredStatement> = serde_json::from_slice(&bytes).unwrap_or_default();
            let (mut count, mut newest) = (0_usize, Timestamp::EPOCH);
            for StoredStatement {
                fact: change,
                statement,
            } in stored
            {
                count = count.saturating_add(1);
                newest = newest.max(change.changed_at);
                let of = (change.agent, change.sequence.clone());
                signed.statements.insert(of, (change, statement, index));
            }
            signed.objects.push((key, count, newest));
        }
        Ok(signed)
    }

    /// Removes and returns the statement about exactly this change.
    pub(crate) fn take_statement(&mut self, change: &PendingChange) -> Option<String> {
        let (signed, statement, place) = self.statements.remove(&(change.agent, change.sequence.clone()))?;
        if let Some((_, left, _)) = self.objects.get_mut(place) {
            *left = left.saturating_sub(1);
        }
        (signed == *change).then_some(statement)
    }

    /// Returns the keys of the objects whose statements are all used, or whose newest change is older than
    /// [`RETENTION`].
    pub(crate) fn deletable_object_keys(self, now: Timestamp) -> Vec<String> {
        let objects = self.objects.into_iter();
        let spent = objects.filter(|(_, left, newest)| *left == 0 || now.since(*newest) >= RETENTION);
        spent.map(|(key, ..)| key).collect()
    }
}
