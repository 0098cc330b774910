//! The archive: the log's entries by day, as compressed JSON lines for queries.
//!
//! Each published batch becomes one object that is never replaced. The lines depend only on the log, so a repeated run
//! writes the same lines. An object in the log's bucket stores the number of archived entries, so the next run archives
//! what a failed run left.

use crate::{
    append::{CHECKPOINT, parse_tree_head},
    index::{self, IndexedBatch},
    objects::ObjectStore,
};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use flate2::{Compression, GzBuilder, read::GzDecoder};
use purser_domain::{Day, Error, Result, Timestamp};
use purser_evidence::{StatementKind, read_unverified_entries};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::io::{Read as _, Write as _};

/// The key of the object in the log's bucket that stores the number of archived entries.
const ARCHIVED: &str = "archived";
const ARCHIVING: &str = "archiving the log";
/// The number of batches that are read at a time.
const MAX_BATCHES: usize = 100;

/// Each archive column with the JSON pointers to the value in the payloads of a decision, a receipt and a change.
/// `docs/archive.schema.json` describes the columns.
const COLUMNS: [(&str, [&str; 3]); 12] = [
    ("issuer", ["/iss"; 3]),
    (
        "transaction_id",
        ["/transaction_id", "/transaction_id", "/changed_decision/transaction_id"],
    ),
    ("settlement_id", ["/settlement_id"; 3]),
    ("approval_id", ["/approval_id", "", "/approval/approval_id"]),
    ("key_id", ["/facts/key_id", "", ""]),
    ("wallet", ["", "/settlement/wallet", "/settlement/wallet"]),
    (
        "stated_at",
        ["/facts/decided_at", "/settlement/settled_at", "/changed_at"],
    ),
    ("result", ["/result", "", "/change"]),
    ("reason", ["/reason", "", ""]),
    (
        "decision_hash",
        ["/decision_hash", "", "/changed_decision/decision_hash"],
    ),
    ("tx_hash", ["", "/settlement/tx_hash", "/changed_receipt/tx_hash"]),
    ("block_number", ["", "/settlement/block_number", ""]),
];

/// The archive columns that describe the payment, named like the fields of the statement's payload.
const PAYMENT_COLUMNS: [&str; 7] = [
    "agent_id",
    "service_id",
    "operation_id",
    "network",
    "asset",
    "amount_units",
    "pay_to",
];

/// A log's archive.
#[derive(Clone, Debug)]
pub struct Archive {
    log: ObjectStore,
    objects: ObjectStore,
}

/// The result of a run that archives entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArchiveResult {
    /// The number of entries that the run archived.
    pub entries: u64,
    /// The keys of existing archive objects that differ from the log. These objects stay unchanged.
    pub differing: Vec<String>,
}

/// The stored progress of the archive.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Position {
    /// The number of archived entries.
    size: u64,
    /// The time at which the last archived batch was committed, in microseconds.
    at: i64,
}

impl Archive {
    /// Opens the archive in `objects` for the log in `log`.
    pub const fn new(log: ObjectStore, objects: ObjectStore) -> Self {
        Self { log, objects }
    }

    /// Returns the archive's objects.
    pub const fn objects(&self) -> &ObjectStore {
        &self.objects
    }

    /// Archives published batches until none is left or `is_past_deadline` returns `true`. Concurrent runs are safe.
    pub async fn archive_batches(&self, is_past_deadline: impl Fn() -> bool + Send) -> Result<ArchiveResult> {
        let mut differing = Vec::new();
        let mut archived = self.read_archive_position().await?;
        let began = archived.size;
        while !is_past_deadline() {
            let at = Timestamp::from_micros(archived.at).unwrap_or(Timestamp::EPOCH);
            let published = match self.log.get(CHECKPOINT).await? {
                Some(checkpoint) => parse_tree_head(&checkpoint.bytes)?.size,
                None => 0,
            };
            let batches = index::read_batches_from(&self.log, archived.size, at, published, MAX_BATCHES).await?;
            if batches.is_empty() {
                break;
            }
            for batch in &batches {
                if is_past_deadline() {
                    break;
                }
                differing.extend(self.put_batch_if_absent(batch, published).await?);
                archived = Position {
                    size: batch.end,
                    at: batch.at.micros(),
                };
                let bytes = serde_json::to_vec(&archived).map_err(|error| Error::internal(ARCHIVING, error))?;
                self.log.put(ARCHIVED, &bytes).await?;
            }
        }
        Ok(ArchiveResult {
            entries: archived.size.saturating_sub(began),
            differing,
        })
    }

    /// Writes a batch's archive object unless it exists. Returns the key of an existing object that differs.
    async fn put_batch_if_absent(&self, batch: &IndexedBatch, published_size: u64) -> Result<Option<String>> {
        let entries = read_unverified_entries(&self.log, published_size, batch.first..batch.end).await;
        let entries = entries.map_err(|error| Error::internal(ARCHIVING, error))?;
        let (key, text) = archive_key_and_lines(batch, &entries)?;
        let bytes = compress(&text).map_err(|error| Error::internal(ARCHIVING, error))?;
        if self.objects.put_if_version(&key, &bytes, None).await? {
            return Ok(None);
        }
        // The object exists. An earlier run or an earlier attempt of this call wrote it.
        match self.has_same_object_text(&key, &text).await? {
            Some(true) => Ok(None),
            Some(false) => Ok(Some(key)),
            None => Err(Error::temporarily_unavailable(ARCHIVING, key)),
        }
    }

    /// Returns whether the archive object contains this text; `None` if the object does not exist.
    async fn has_same_object_text(&self, key: &str, text: &[u8]) -> Result<Option<bool>> {
        let present = self.objects.get(key).await?;
        Ok(present.map(|object| decompress(&object.bytes).is_ok_and(|present| present == text)))
    }

    /// Returns the key of the batch's archive object if the object is missing or differs from these entries.
    pub(crate) async fn find_difference(&self, batch: &IndexedBatch, entries: &[Vec<u8>]) -> Result<Option<String>> {
        let position = self.read_archive_position().await?;
        if batch.first >= position.size {
            return Ok(None);
        }
        let (key, text) = archive_key_and_lines(batch, entries)?;
        Ok((self.has_same_object_text(&key, &text).await? != Some(true)).then_some(key))
    }

    async fn read_archive_position(&self) -> Result<Position> {
        let object = self.log.get(ARCHIVED).await?;
        let position = object.map(|object| serde_json::from_slice(&object.bytes)).transpose();
        Ok(position
            .map_err(|error| Error::internal(ARCHIVING, error))?
            .unwrap_or_default())
    }
}

fn archive_key_and_lines(batch: &IndexedBatch, entries: &[Vec<u8>]) -> Result<(String, Vec<u8>)> {
    let (mut text, mut last) = (Vec::new(), batch.first);
    for (log_index, entry) in (batch.first..).zip(entries) {
        let entry = std::str::from_utf8(entry).map_err(|error| Error::internal(ARCHIVING, error))?;
        let line = archive_line(log_index, batch.at, entry);
        serde_json::to_writer(&mut text, &line).map_err(|error| Error::internal(ARCHIVING, error))?;
        text.push(b'\n');
        last = log_index;
    }
    let day = Day::containing(batch.at);
    Ok((
        format!("statements/date={day}/{:016}-{last:016}.jsonl.gz", batch.first),
        text,
    ))
}

fn archive_line(log_index: u64, committed_at: Timestamp, entry: &str) -> Value {
    let decoded = |part: Option<&str>| {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(part?).ok()?;
        serde_json::from_slice::<Value>(&bytes).ok()
    };
    let mut parts = entry.split('.');
    let header = decoded(parts.next()).unwrap_or_default();
    let payload = decoded(parts.next()).unwrap_or_default();
    let typ = header.get("typ").and_then(Value::as_str).unwrap_or_default();
    let kind = StatementKind::from_typ(typ);
    let name = kind.map(|kind| match kind {
        StatementKind::Decision => "decision",
        StatementKind::Receipt => "receipt",
        StatementKind::Change => "change",
    });
    let mut line = Map::new();
    let own = COLUMNS.map(|(column, pointers)| (column, pointers.map(str::to_owned)));
    let payment = PAYMENT_COLUMNS.map(|column| {
        let [decision, settlement] = ["facts", "settlement"].map(|field| format!("/{field}/{column}"));
        (column, [decision, settlement.clone(), settlement])
    });
    for (column, [of_decision, of_receipt, of_change]) in own.into_iter().chain(payment) {
        let pointer = match kind {
            Some(StatementKind::Decision) => of_decision,
            Some(StatementKind::Receipt) => of_receipt,
            Some(StatementKind::Change) => of_change,
            None => String::new(),
        };
        // The pointer is empty if the kind of statement has no such value. The filter discards the result,
        // because an empty JSON Pointer selects the whole payload. Statements about approvals have the values
        // under `/approval/` instead of `/settlement/`.
        let of_approval = || payload.pointer(&pointer.replace("/settlement/", "/approval/"));
        let value = payload
            .pointer(&pointer)
            .or_else(of_approval)
            .filter(|_| !pointer.is_empty());
        line.insert(column.to_owned(), value.cloned().unwrap_or_default());
    }
    line.insert("log_index".to_owned(), log_index.into());
    line.insert("logged_at".to_owned(), committed_at.to_string().into());
    line.insert("kind".to_owned(), name.into());
    line.insert("statement".to_owned(), entry.into());
    Value::Object(line)
}

/// Compresses with gzip. Omits the time and the file name, so that equal texts give equal bytes.
fn compress(text: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzBuilder::new().write(Vec::new(), Compression::default());
    encoder.write_all(text)?;
    encoder.finish()
}

fn decompress(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    GzDecoder::new(bytes).read_to_end(&mut text)?;
    Ok(text)
}
