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
/// The number of objects whose keys a search lists.
const LISTED: u16 = 1_000;

/// What an entry states: a decision by its transaction, a receipt by its settlement. Both ids are `UUIDv7`s of the time
/// of the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct About {
    pub(crate) kind: StatementKind,
    pub(crate) id: Uuid,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    decisions: Vec<Option<Uuid>>,
    receipts: Vec<Option<Uuid>>,
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
    };
    let bytes = serde_json::to_vec(&stored).map_err(|error| Error::internal("writing the log's index", error))?;
    let key = format!("{PREFIX}{:016}-{first:016}-{least:016}-{most:016}", at.micros());
    objects.put(&key, &bytes).await
}

/// A batch of the log.
pub(crate) struct IndexedBatch {
    pub(crate) key: String,
    /// The time at which it was committed.
    pub(crate) at: Timestamp,
    pub(crate) first: u64,
    pub(crate) count: usize,
}

/// The batches after the one with this key that were committed by `until`, in order, at most `most`.
pub(crate) async fn batches(
    objects: &ObjectStore,
    after: Option<&str>,
    until: Timestamp,
    most: u16,
) -> Result<Vec<IndexedBatch>> {
    let mut batches = Vec::new();
    for key in objects.list(PREFIX, after, most).await? {
        let (at, _) = read_key(&key)?;
        if at > until.micros() {
            break;
        }
        batches.extend(read_batch(objects, key).await?);
    }
    Ok(batches)
}

/// Some of the batches that begin with the entry `first` and follow each other, in order. The batch before `first` was
/// committed at `at`.
pub(crate) async fn batches_from(objects: &ObjectStore, first: u64, at: Timestamp) -> Result<Vec<IndexedBatch>> {
    let after = format!("{PREFIX}{:016}", at.before(SKEW).micros());
    let mut found = BTreeMap::new();
    for key in objects.list(PREFIX, Some(&after), LISTED).await? {
        let (_, [begins, ..]) = read_key(&key)?;
        let begins = u64::try_from(begins).map_err(|error| Error::internal(READING, error))?;
        if begins >= first {
            found.insert(begins, key);
        }
    }
    let (mut batches, mut next) = (Vec::new(), first);
    for (begins, key) in found {
        if begins != next {
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

/// The batch of an index object; `None` if there is no such object.
async fn read_batch(objects: &ObjectStore, key: String) -> Result<Option<IndexedBatch>> {
    let (at, [first, ..]) = read_key(&key)?;
    let Some(stored) = read(objects, &key).await? else {
        return Ok(None);
    };
    Ok(Some(IndexedBatch {
        key,
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

/// The index in the log of the entry that states this, which was stated at or after `since`; the newest, if there are
/// several.
pub(crate) async fn find(objects: &ObjectStore, about: About, since: Timestamp) -> Result<Option<u64>> {
    let after = format!("{PREFIX}{:016}", since.before(SKEW).micros());
    let time = micros(about.id);
    let mut found = None;
    for key in objects.list(PREFIX, Some(&after), LISTED).await? {
        let (_, [first, least, most]) = read_key(&key)?;
        if !(least..=most).contains(&time) {
            continue;
        }
        let Some(stored) = read(objects, &key).await? else {
            continue;
        };
        let ids = match about.kind {
            StatementKind::Decision => &stored.decisions,
            StatementKind::Receipt => &stored.receipts,
        };
        if let Some(place) = ids.iter().position(|id| *id == Some(about.id)) {
            let first = u64::try_from(first).map_err(|error| Error::internal(READING, error))?;
            found = u64::try_from(place).ok().and_then(|place| first.checked_add(place));
            // A payment may be confirmed again after a reorganization; a decision is stated once.
            if about.kind == StatementKind::Decision {
                break;
            }
        }
    }
    Ok(found)
}
