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

/// What an entry states: a decision by its transaction, a receipt and a payment's change by the settlement, and a change
/// of an approval by the transaction of the decision that required it. All ids are `UUIDv7`s of the time of the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct About {
    pub(crate) kind: StatementKind,
    pub(crate) id: Uuid,
}

#[derive(PartialEq, Eq, Serialize, Deserialize)]
struct StoredIndex {
    decisions: Vec<Option<Uuid>>,
    receipts: Vec<Option<Uuid>>,
    #[serde(default)]
    changes: Vec<Option<Uuid>>,
}

impl StoredIndex {
    fn new(entries: &[About]) -> Self {
        let of = |kind| {
            let ids = entries.iter().map(|entry| (entry.kind == kind).then_some(entry.id));
            ids.collect()
        };
        Self {
            decisions: of(StatementKind::Decision),
            receipts: of(StatementKind::Receipt),
            changes: of(StatementKind::Change),
        }
    }
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
    let bytes = serde_json::to_vec(&StoredIndex::new(entries))
        .map_err(|error| Error::internal("writing the log's index", error))?;
    let key = format!("{PREFIX}{:016}-{first:016}-{least:016}-{most:016}", at.micros());
    objects.put(&key, &bytes).await
}

/// The cause of the error for an object of the index that the log did not write.
#[derive(Debug, thiserror::Error)]
#[error("the object `{0}` can't be read")]
pub struct UnreadableObject(String);

impl UnreadableObject {
    /// Whether an error is about such an object, now and later.
    pub fn is_cause_of(error: &Error) -> bool {
        error.cause().is_some_and(|cause| cause.source().is::<Self>())
    }
}

/// A batch of the log, as the keys of the index have it.
pub(crate) struct IndexedBatch {
    /// The time at which it was committed; that of the next batch if it has no object.
    pub(crate) at: Timestamp,
    pub(crate) first: u64,
    /// The entry after its last.
    pub(crate) end: u64,
    /// `None` if it has no object.
    key: Option<String>,
}

impl IndexedBatch {
    /// Whether it has an object.
    pub(crate) const fn has_object(&self) -> bool {
        self.key.is_some()
    }

    /// Whether its object has exactly these entries.
    pub(crate) async fn has(&self, objects: &ObjectStore, entries: &[About]) -> Result<bool> {
        let object = match &self.key {
            Some(key) => objects.get(key).await?,
            None => None,
        };
        let stored: Option<StoredIndex> = object.and_then(|object| serde_json::from_slice(&object.bytes).ok());
        Ok(stored.is_some_and(|stored| stored == StoredIndex::new(entries)))
    }
}

/// Up to `max` batches of a log of `size` entries that begin with the entry `first` and follow each other, in order. The
/// batch before `first` was committed at `at`. Only keys are read, so an unreadable object stops nobody. The last batch
/// is left out while it has no object. `size` must have been read before: a batch is indexed before it is published.
pub(crate) async fn batches_from(
    objects: &ObjectStore,
    first: u64,
    at: Timestamp,
    size: u64,
    max: usize,
) -> Result<Vec<IndexedBatch>> {
    let after = format!("{PREFIX}{:016}", at.before(SKEW).micros());
    let listed = objects.list(PREFIX, Some(&after), LISTED).await?;
    let is_cut = listed.len() >= usize::from(LISTED);
    let mut keys = BTreeMap::new();
    for key in listed {
        // No object of the index has another key.
        let Some((at, [begins, ..])) = read_key(&key) else {
            continue;
        };
        if let (Some(at), Ok(begins)) = (Timestamp::from_micros(at), u64::try_from(begins))
            && (first..size).contains(&begins)
        {
            // Of two objects of a batch, the earlier one is the log's, or is reported.
            keys.entry(begins).or_insert((at, key));
        }
    }
    let (mut batches, mut next) = (Vec::new(), first);
    while let Some((begins, (at, key))) = keys.pop_first()
        && batches.len() < max
    {
        if begins > next {
            let (first, end, key) = (next, begins, None);
            batches.push(IndexedBatch { at, first, end, key });
        }
        let end = match keys.first_key_value() {
            Some((end, _)) => *end,
            None if is_cut => break,
            None => size,
        };
        let key = Some(key);
        batches.push(IndexedBatch {
            at,
            first: begins,
            end,
            key,
        });
        next = end;
    }
    Ok(batches)
}

/// The time of the earliest decision of the first batch; `None` without a batch.
pub(crate) async fn first_stated(objects: &ObjectStore) -> Result<Option<Timestamp>> {
    let first = objects.list(PREFIX, None, 1).await?.pop();
    let key = first.as_deref().and_then(read_key);
    Ok(key.and_then(|(_, [_, least, _])| Timestamp::from_micros(least)))
}

/// The time at which a batch was committed, the index of its first entry, and its range of times; `None` if it is no key
/// of a batch.
fn read_key(key: &str) -> Option<(i64, [i64; 3])> {
    let mut parts = key.strip_prefix(PREFIX)?.split('-');
    let mut number = || parts.next()?.parse::<i64>().ok();
    Some((number()?, [number()?, number()?, number()?]))
}

async fn read(objects: &ObjectStore, key: &str) -> Result<Option<StoredIndex>> {
    let Some(object) = objects.get(key).await? else {
        return Ok(None);
    };
    let stored = serde_json::from_slice(&object.bytes);
    stored
        .map(Some)
        .map_err(|_| Error::internal(READING, UnreadableObject(key.to_owned())))
}

/// The indexes in the log of the entries that state this, which were stated at or after `since`, in order.
///
/// An unreadable object is an error only for what it may have: for a decision that no other object has, and for every
/// receipt and change of its time, because the object may have a later one.
pub(crate) async fn find(objects: &ObjectStore, about: About, since: Timestamp) -> Result<Vec<u64>> {
    let mut after = format!("{PREFIX}{:016}", since.before(SKEW).micros());
    let (mut found, mut unreadable) = (Vec::new(), None);
    for _ in 0..MAX_PAGES {
        let keys = objects.list(PREFIX, Some(&after), LISTED).await?;
        for key in &keys {
            // A payment may be confirmed again after a reorganization; a decision is stated once.
            if about.kind == StatementKind::Decision && !found.is_empty() {
                return Ok(found);
            }
            match find_in(objects, about, key).await {
                Ok(indexes) => found.extend(indexes),
                Err(error) if UnreadableObject::is_cause_of(&error) => unreadable = Some(error),
                Err(error) => return Err(error),
            }
        }
        match keys.last() {
            Some(last) if keys.len() >= usize::from(LISTED) => after.clone_from(last),
            _ => break,
        }
    }
    match unreadable {
        Some(error) if about.kind != StatementKind::Decision || found.is_empty() => Err(error),
        _ => Ok(found),
    }
}

async fn find_in(objects: &ObjectStore, about: About, key: &str) -> Result<Vec<u64>> {
    let Some((_, [first, least, most])) = read_key(key) else {
        return Ok(Vec::new());
    };
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
