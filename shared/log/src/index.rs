//! Which entries of the log state a decision or a payment. Each committed batch has one object, whose key has the range
//! of times of what it states, so that a search reads only the objects that may have it.

use crate::objects::ObjectStore;
use purser_domain::{Duration, Error, Result, Timestamp};
use purser_evidence::StatementKind;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use uuid::Uuid;

const PREFIX: &str = "index/";
const READING: &str = "reading the log's index";

/// The time by which the clock of the writer may be behind that of the facts.
const SKEW: Duration = Duration::from_secs_u32(120);
/// The number of objects whose keys one call lists.
const LISTED: u16 = 1_000;
/// The number of lists of a search. At four commits a minute these are the objects of three days; a fact is tried again
/// for one.
const MAX_PAGES: u8 = 18;

/// What an entry states: a decision by its transaction, a receipt and a payment's change by the settlement. All ids are
/// `UUIDv7`s of the time of the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct About {
    pub(crate) kind: StatementKind,
    pub(crate) id: Uuid,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    decisions: Vec<Option<Uuid>>,
    receipts: Vec<Option<Uuid>>,
    #[serde(default)]
    changes: Vec<Option<Uuid>>,
}

/// The microseconds of a `UUIDv7` with the layout of [`purser_domain::SettlementId`].
fn micros(id: Uuid) -> i64 {
    purser_domain::SettlementId::from_uuid(id).authorized_at().micros()
}

/// Writes the index of a batch, whose first entry has this index in the log.
pub(crate) async fn write(objects: &ObjectStore, at: Timestamp, first: u64, entries: &[About]) -> Result<()> {
    let times = entries.iter().map(|entry| micros(entry.id));
    let (Some(least), Some(most)) = (times.clone().min(), times.max()) else {
        return Ok(());
    };
    let of = |kind| {
        entries
            .iter()
            .map(|entry| (entry.kind == kind).then_some(entry.id))
            .collect()
    };
    let stored = Stored {
        decisions: of(StatementKind::Decision),
        receipts: of(StatementKind::Receipt),
        changes: of(StatementKind::Change),
    };
    let bytes = serde_json::to_vec(&stored).map_err(|error| Error::internal("writing the log's index", error))?;
    let key = format!("{PREFIX}{:016}-{first:016}-{least:016}-{most:016}", at.micros());
    objects.put(&key, &bytes).await
}

/// A batch of the log.
pub(crate) struct IndexedBatch {
    /// The time at which it was committed.
    pub(crate) at: Timestamp,
    pub(crate) first: u64,
    pub(crate) count: usize,
}

/// Up to `max` batches that begin with the entry `first` and follow each other, in order. The batch before `first` was
/// committed at `at`.
pub(crate) async fn batches_from(
    objects: &ObjectStore,
    first: u64,
    at: Timestamp,
    max: usize,
) -> Result<Vec<IndexedBatch>> {
    let (mut batches, mut next) = (Vec::new(), first);
    for (begins, key) in keys_from(objects, first, at).await? {
        if begins != next || batches.len() >= max {
            break;
        }
        let Some(batch) = read_batch(objects, key).await? else {
            break;
        };
        next = u64::try_from(batch.count).map_or(next, |count| next.saturating_add(count));
        batches.push(batch);
    }
    Ok(batches)
}

/// The first entry of the next batch after `first` that has an object, and the time at which the batch was committed.
pub(crate) async fn next_batch(objects: &ObjectStore, first: u64, at: Timestamp) -> Result<Option<(u64, Timestamp)>> {
    let keys = keys_from(objects, first, at).await?;
    let Some((begins, key)) = keys.into_iter().find(|(begins, _)| *begins > first) else {
        return Ok(None);
    };
    let (committed_at, _) = read_key(&key)?;
    Ok(Timestamp::from_micros(committed_at).map(|at| (begins, at)))
}

/// The keys of the batches that begin with the entry `first` or a later one, in order.
async fn keys_from(objects: &ObjectStore, first: u64, at: Timestamp) -> Result<BTreeMap<u64, String>> {
    let after = format!("{PREFIX}{:016}", at.before(SKEW).micros());
    let mut found = BTreeMap::new();
    for key in objects.list(PREFIX, Some(&after), LISTED).await? {
        let (_, [begins, ..]) = read_key(&key)?;
        let begins = u64::try_from(begins).map_err(|error| Error::internal(READING, error))?;
        if begins >= first {
            found.insert(begins, key);
        }
    }
    Ok(found)
}

/// The batch of an index object; `None` if there is no such object.
async fn read_batch(objects: &ObjectStore, key: String) -> Result<Option<IndexedBatch>> {
    let (at, [first, ..]) = read_key(&key)?;
    let Some(stored) = read(objects, &key).await? else {
        return Ok(None);
    };
    Ok(Some(IndexedBatch {
        at: Timestamp::from_micros(at).unwrap_or(Timestamp::EPOCH),
        first: u64::try_from(first).map_err(|error| Error::internal(READING, error))?,
        count: stored.decisions.len(),
    }))
}

/// The time at which a batch was committed, the index of its first entry, and its range of times.
fn read_key(key: &str) -> Result<(i64, [i64; 3])> {
    let mut parts = key.strip_prefix(PREFIX).unwrap_or_default().split('-');
    let mut number = || parts.next().and_then(|part| part.parse::<i64>().ok());
    match (number(), number(), number(), number()) {
        (Some(at), Some(first), Some(least), Some(most)) => Ok((at, [first, least, most])),
        _ => Err(Error::internal(READING, key.to_owned())),
    }
}

async fn read(objects: &ObjectStore, key: &str) -> Result<Option<Stored>> {
    let Some(object) = objects.get(key).await? else {
        return Ok(None);
    };
    let stored = serde_json::from_slice(&object.bytes).map_err(|error| Error::internal(READING, error))?;
    Ok(Some(stored))
}

/// The indexes in the log of the entries that state this, which were stated at or after `since`, in order.
pub(crate) async fn find(objects: &ObjectStore, about: About, since: Timestamp) -> Result<Vec<u64>> {
    let mut after = format!("{PREFIX}{:016}", since.before(SKEW).micros());
    let mut found = Vec::new();
    for _ in 0..MAX_PAGES {
        let keys = objects.list(PREFIX, Some(&after), LISTED).await?;
        for key in &keys {
            // A payment may be confirmed again after a reorganization; a decision is stated once.
            if about.kind == StatementKind::Decision && !found.is_empty() {
                return Ok(found);
            }
            found.extend(find_in(objects, about, key).await?);
        }
        match keys.last() {
            Some(last) if keys.len() >= usize::from(LISTED) => after.clone_from(last),
            _ => break,
        }
    }
    Ok(found)
}

async fn find_in(objects: &ObjectStore, about: About, key: &str) -> Result<Vec<u64>> {
    let (_, [first, least, most]) = read_key(key)?;
    if !(least..=most).contains(&micros(about.id)) {
        return Ok(Vec::new());
    }
    let Some(stored) = read(objects, key).await? else {
        return Ok(Vec::new());
    };
    let ids = match about.kind {
        StatementKind::Decision => &stored.decisions,
        StatementKind::Receipt => &stored.receipts,
        StatementKind::Change => &stored.changes,
    };
    let first = u64::try_from(first).map_err(|error| Error::internal(READING, error))?;
    let numbered = (first..).zip(ids);
    Ok(numbered
        .filter(|(_, id)| **id == Some(about.id))
        .map(|(index, _)| index)
        .collect())
}
