//! The weekly audit: proves each log entry against the newest checkpoint, and compares the entries with the archive.

use crate::{
    append::{CHECKPOINT, parse_tree_head},
    archive::Archive,
    find::unverified_statement_subject,
    index::{self, IndexedBatch},
    objects::ObjectStore,
};
use purser_domain::{Duration, Error, Result, Timestamp};
use purser_evidence::{ReadError, TreeHead, read_proven_entries};
use serde::{Deserialize, Serialize};

/// The key of the object that stores the audit's progress.
const AUDITED: &str = "audited";
const AUDITING: &str = "auditing the log";
/// The time from the start of an audit to the start of the next audit.
const PERIOD: Duration = Duration::from_secs_u32(7 * 86_400);
/// The number of runs per audit. With one run a minute, an audit takes half a week.
const RUNS: u64 = 5_000;
const MAX_BATCHES: usize = 20;

/// The progress of an audit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Position {
    /// The number of audited entries.
    size: u64,
    /// The time at which the last audited entry was committed, in microseconds.
    at: i64,
    /// The start of the audit, in microseconds.
    began: i64,
}

/// Continues the weekly audit by at least 1/5,000 of the log, unless the log ends or `is_past_deadline`
/// returns `true` earlier. Reports each difference before the progress is stored.
pub async fn continue_log_audit(
    log: &ObjectStore,
    archive: Option<&Archive>,
    now: Timestamp,
    is_past_deadline: impl Fn() -> bool + Send,
    report: impl Fn(&str, &str) + Send + Sync,
) -> Result<()> {
    let Some(checkpoint) = log.get(CHECKPOINT).await? else {
        return Ok(());
    };
    let head = parse_tree_head(&checkpoint.bytes)?;
    let object = log.get(AUDITED).await?;
    // Without a readable position, a new audit starts.
    let position = object.and_then(|object| serde_json::from_slice(&object.bytes).ok());
    let new = Position {
        size: 0,
        at: 0,
        began: now.micros(),
    };
    let mut position: Position = position.unwrap_or(new);
    if position.size >= head.size {
        let began = Timestamp::from_micros(position.began).unwrap_or(Timestamp::EPOCH);
        if now.since(began) < PERIOD {
            return Ok(());
        }
        position = new;
    }
    let part = head.size.checked_div(RUNS).unwrap_or_default();
    let stop = position.size.saturating_add(part.max(1));
    while position.size < stop.min(head.size) && !is_past_deadline() {
        let at = Timestamp::from_micros(position.at).unwrap_or(Timestamp::EPOCH);
        let batches = index::read_batches_from(log, position.size, at, head.size, MAX_BATCHES).await?;
        if batches.is_empty() {
            break;
        }
        for batch in batches {
            if is_past_deadline() {
                break;
            }
            audit_batch(log, archive, &head, &batch, &report).await?;
            position.size = batch.end;
            position.at = batch.at.micros();
        }
    }
    let bytes = serde_json::to_vec(&position).map_err(|error| Error::internal(AUDITING, error))?;
    log.put(AUDITED, &bytes).await
}

async fn audit_batch(
    log: &ObjectStore,
    archive: Option<&Archive>,
    head: &TreeHead,
    batch: &IndexedBatch,
    report: &(impl Fn(&str, &str) + Sync),
) -> Result<()> {
    let subject = format!("entries {} to {}", batch.first, batch.end.saturating_sub(1));
    let entries = match read_proven_entries(log, head, batch.first..batch.end).await {
        Ok(entries) => entries,
        Err(ReadError::Reader(error)) => return Err(error),
        Err(error) => {
            report(&subject, &error.to_string());
            return Ok(());
        }
    };
    let about = entries
        .iter()
        .map(|entry| unverified_statement_subject(&String::from_utf8_lossy(entry)));
    let is_indexed = match about.collect::<Option<Vec<_>>>() {
        Some(about) => batch.has_exact_entries(log, &about).await?,
        // An entry has no readable subject, which the daily check reports. The audit then requires only that
        // the batch's index object exists.
        None => batch.has_object(),
    };
    if !is_indexed {
        report(&subject, "the index object of these entries differs or is missing");
    }
    // Without the index object, the commit time in the archive object can't be compared.
    if let Some(archive) = archive
        && batch.has_object()
        && let Some(key) = archive.find_difference(batch, &entries).await?
    {
        report(&key, "the archived object differs from the log or is missing");
    }
    Ok(())
}
