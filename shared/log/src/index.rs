//! The index from decisions and payments to log entries. Each committed batch has an index object whose key contains a
//! time range, so a search reads only few objects.

use crate::objects::ObjectStore;
use purser_domain::{Duration, Error, Result, Timestamp};
use purser_evidence::StatementKind;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use uuid::Uuid;

const PREFIX: &str = "index/";
const READING: &str = "reading the log's index";

/// The maximum clock difference between the run that commits an entry and the function that made the change.
const SKEW: Duration = Duration::from_secs_u32(120);
const MAX_LISTED_KEYS: u16 = 1_000;
/// The maximum number of list calls per search: enough for three days at four commits a minute. Changes are retried for
/// one day.
const MAX_PAGES: u8 = 18;

/// The subject of a log entry: the kind of statement and an id. The id of a decision is the transaction id. The id of a
/// receipt or a payment's change is the settlement id. The id of an approval's change is the transaction id of the
/// decision that required the approval. Each id is a `UUIDv7` that contains the time of the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct About {
    pub(crate) kind: StatementKind,
    pub(crate) id: Uuid,
}

#[derive(PartialEq, Eq, Serialize, Deserialize)]
struct StoredIndex {
    decisions: Vec<Option<Uuid>>,
    receipts: Vec<Option<Uuid>>,
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

/// Returns the time in a `UUIDv7` with the layout of [`purser_domain::SettlementId`], in microseconds.
fn uuid_micros(id: Uuid) -> i64 {
    purser_domain::SettlementId::from_uuid(id).authorized_at().micros()
}

/// Writes a batch's index object. `first` is the log index of the batch's first entry.
pub(crate) async fn write_batch_index(
    objects: &ObjectStore,
    at: Timestamp,
    first: u64,
    entries: &[About],
) -> Result<()> {
    let times = entries.iter().map(|entry| uuid_micros(entry.id));
    let (Some(least), Some(max)) = (times.clone().min(), times.max()) else {
        return Ok(());
    };
    let bytes = serde_json::to_vec(&StoredIndex::new(entries))
        .map_err(|error| Error::internal("writing the log's index", error))?;
    let key = format!("{PREFIX}{:016}-{first:016}-{least:016}-{max:016}", at.micros());
    objects.put(&key, &bytes).await
}

/// The cause of an error about a malformed index object. This crate writes only valid index objects, so another program
/// changed the object.
#[derive(Debug, thiserror::Error)]
#[error("the object `{0}` can't be read")]
pub struct UnreadableObject(String);

impl UnreadableObject {
    /// Returns whether a malformed index object caused this error. A retry then fails too.
    pub fn is_cause_of(error: &Error) -> bool {
        error.cause().is_some_and(|cause| cause.source().is::<Self>())
    }
}

/// A batch of log entries. The keys of the index objects determine the range and the commit time.
pub(crate) struct IndexedBatch {
    /// The commit time of the batch. If the batch has no index object, this is the commit time of
    /// the next batch.
    pub(crate) at: Timestamp,
    pub(crate) first: u64,
    /// The log index after the batch's last entry.
    pub(crate) end: u64,
    /// The key of the index object; `None` if the object is missing.
    key: Option<String>,
}

impl IndexedBatch {
    /// Returns whether the batch has an index object.
    pub(crate) const fn has_object(&self) -> bool {
        self.key.is_some()
    }

    /// Returns whether the index object contains exactly these entries.
    pub(crate) async fn has_exact_entries(&self, objects: &ObjectStore, entries: &[About]) -> Result<bool> {
        let object = match &self.key {
            Some(key) => objects.get(key).await?,
            None => None,
        };
        let stored: Option<StoredIndex> = object.and_then(|object| serde_json::from_slice(&object.bytes).ok());
        Ok(stored.is_some_and(|stored| stored == StoredIndex::new(entries)))
    }
}

/// Returns up to `max` consecutive batches of the log, starting with the entry `first`.
///
/// `at` is the commit time of the batch before `first`. All returned batches end at or before the log index
/// `size`. The caller must read `size` before this call: a batch is indexed before the batch is published, so
/// all batches before `size` are then indexed. Only keys are read, so a malformed index object does not stop
/// the caller.
pub(crate) async fn read_batches_from(
    objects: &ObjectStore,
    first: u64,
    at: Timestamp,
    size: u64,
    max: usize,
) -> Result<Vec<IndexedBatch>> {
    let after = format!("{PREFIX}{:016}", at.before(SKEW).micros());
    let listed = objects.list(PREFIX, Some(&after), MAX_LISTED_KEYS).await?;
    let is_cut = listed.len() >= usize::from(MAX_LISTED_KEYS);
    let mut keys = BTreeMap::new();
    for key in listed {
        let Some((at, [begins, ..])) = parse_index_object_key(&key) else {
            continue;
        };
        if let (Some(at), Ok(begins)) = (Timestamp::from_micros(at), u64::try_from(begins))
            && (first..size).contains(&begins)
        {
            // If two index objects start at the same entry, the object with the earlier commit time is used.
            // The daily check reports the used object if the object differs from the log.
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

/// Returns the time of the earliest decision in the first batch; `None` without a batch.
pub(crate) async fn read_first_decision_time(objects: &ObjectStore) -> Result<Option<Timestamp>> {
    let first = objects.list(PREFIX, None, 1).await?.pop();
    let key = first.as_deref().and_then(parse_index_object_key);
    Ok(key.and_then(|(_, [_, least, _])| Timestamp::from_micros(least)))
}

/// Parses the commit time, the first log index and the time range from the key of an index object.
fn parse_index_object_key(key: &str) -> Option<(i64, [i64; 3])> {
    let mut parts = key.strip_prefix(PREFIX)?.split('-');
    let mut number = || parts.next()?.parse::<i64>().ok();
    Some((number()?, [number()?, number()?, number()?]))
}

async fn read_index_object(objects: &ObjectStore, key: &str) -> Result<Option<StoredIndex>> {
    let Some(object) = objects.get(key).await? else {
        return Ok(None);
    };
    let stored = serde_json::from_slice(&object.bytes);
    stored
        .map(Some)
        .map_err(|_| Error::internal(READING, UnreadableObject(key.to_owned())))
}

/// Returns the log indices of the statements about this subject at or after `since`, in ascending order.
///
/// Fails if an unreadable index object may contain an entry about the subject. A decision has only one entry, so a
/// found decision is returned nevertheless.
pub(crate) async fn find_entries(objects: &ObjectStore, subject: About, since: Timestamp) -> Result<Vec<u64>> {
    let mut after = format!("{PREFIX}{:016}", since.before(SKEW).micros());
    let (mut found, mut unreadable) = (Vec::new(), None);
    for _ in 0..MAX_PAGES {
        let keys = objects.list(PREFIX, Some(&after), MAX_LISTED_KEYS).await?;
        for key in &keys {
            // A decision has only one log entry. A payment can have several receipts after a reorganization.
            if subject.kind == StatementKind::Decision && !found.is_empty() {
                return Ok(found);
            }
            match find_entries_in_object(objects, subject, key).await {
                Ok(indexes) => found.extend(indexes),
                Err(error) if UnreadableObject::is_cause_of(&error) => unreadable = Some(error),
                Err(error) => return Err(error),
            }
        }
        match keys.last() {
            Some(last) if keys.len() >= usize::from(MAX_LISTED_KEYS) => after.clone_from(last),
            _ => break,
        }
    }
    match unreadable {
        Some(error) if subject.kind != StatementKind::Decision || found.is_empty() => Err(error),
        _ => Ok(found),
    }
}

async fn find_entries_in_object(objects: &ObjectStore, subject: About, key: &str) -> Result<Vec<u64>> {
    let Some((_, [first, least, max])) = parse_index_object_key(key) else {
        return Ok(Vec::new());
    };
    if !(least..=max).contains(&uuid_micros(subject.id)) {
        return Ok(Vec::new());
    }
    let Some(stored) = read_index_object(objects, key).await? else {
        return Ok(Vec::new());
    };
    let ids = match subject.kind {
        StatementKind::Decision => &stored.decisions,
        StatementKind::Receipt => &stored.receipts,
        StatementKind::Change => &stored.changes,
    };
    let first = u64::try_from(first).map_err(|error| Error::internal(READING, error))?;
    let numbered = (first..).zip(ids);
    Ok(numbered
        .filter(|(_, id)| **id == Some(subject.id))
        .map(|(index, _)| index)
        .collect())
}
