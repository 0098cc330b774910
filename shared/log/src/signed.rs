//! Statements that were signed ahead, in parallel: `events` writes an object for each busy batch of a stream. The run
//! that commits their facts takes them from there, and neither reads tables nor signs.

use crate::{
    objects::{AT_ONCE, ObjectStore},
    pending::{PendingFact, StoredFact},
};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use purser_domain::{AgentId, Duration, Error, Result, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const PREFIX: &str = "signed/";
/// The number of objects that a run reads, the oldest first, as it takes the oldest facts of each shard.
const MAX_OBJECTS: u16 = 256;
/// The size of the statements of an object. Further ones are left to the run that commits them.
const MAX_BYTES: usize = 256 << 10;
/// The time after which what is left of an object is deleted. Its facts are stated by then, or wait for a reason.
const KEPT: Duration = Duration::from_secs_u32(600);

#[derive(Serialize, Deserialize)]
struct StoredStatement {
    fact: StoredFact,
    statement: String,
}

/// Writes the statements of a batch of a stream, unless there are none.
pub async fn write_signed(objects: &ObjectStore, signed: &[(PendingFact, String)]) -> Result<()> {
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
    let stored = stored.map(|(fact, statement)| StoredStatement {
        fact: fact.to_stored(),
        statement: statement.clone(),
    });
    let stored: Vec<StoredStatement> = stored.collect();
    let bytes = serde_json::to_vec(&stored).map_err(|error| Error::internal("writing signed statements", error))?;
    objects.put(&key, &bytes).await
}

/// The statements that were signed ahead.
#[derive(Default)]
pub(crate) struct SignedBatch {
    /// Each with its fact and the place of its object, by the agent and the sequence number of the fact.
    statements: BTreeMap<(AgentId, String), (PendingFact, String, usize)>,
    /// The objects, each with the number of statements that are not taken, and the time of the newest.
    objects: Vec<(String, usize, Timestamp)>,
}

impl SignedBatch {
    /// Reads the first objects. What can't be read is as if it were not signed.
    pub(crate) async fn read(objects: &ObjectStore) -> Result<Self> {
        let keys = objects.list(PREFIX, None, MAX_OBJECTS).await?;
        let read = keys.into_iter().map(|key| async move {
            let object = objects.get(&key).await?;
            Ok::<_, Error>(object.map(|object| (key, object.bytes)))
        });
        let read: Vec<_> = stream::iter(read).buffered(AT_ONCE).try_collect().await?;
        let mut signed = Self::default();
        for (place, (key, bytes)) in read.into_iter().flatten().enumerate() {
            let stored: Vec<StoredStatement> = serde_json::from_slice(&bytes).unwrap_or_default();
            let (mut count, mut newest) = (0_usize, Timestamp::EPOCH);
            for StoredStatement { fact, statement } in stored {
                let Some(fact) = PendingFact::from_stored(&fact) else {
                    continue;
                };
                count = count.saturating_add(1);
                newest = newest.max(fact.changed_at);
                let of = (fact.agent, fact.sequence.clone());
                signed.statements.insert(of, (fact, statement, place));
            }
            signed.objects.push((key, count, newest));
        }
        Ok(signed)
    }

    /// The statement of exactly this fact.
    pub(crate) fn take(&mut self, fact: &PendingFact) -> Option<String> {
        let (signed, statement, place) = self.statements.remove(&(fact.agent, fact.sequence.clone()))?;
        if let Some((_, left, _)) = self.objects.get_mut(place) {
            *left = left.saturating_sub(1);
        }
        (signed == *fact).then_some(statement)
    }

    /// The keys of the objects of which nothing is left, or whose rest is old.
    pub(crate) fn spent(self, now: Timestamp) -> Vec<String> {
        let objects = self.objects.into_iter();
        let spent = objects.filter(|(_, left, newest)| *left == 0 || now.since(*newest) >= KEPT);
        spent.map(|(key, ..)| key).collect()
    }
}
