//! Divides the daily check of the log entries among concurrent runs. Each run claims a range of entries. A claim
//! expires after two minutes, so another run takes over the range of a run that failed.

use crate::{
    find::{FINDING, LogReader, unverified_statement_subject},
    index::{self, About},
    objects::ObjectVersion,
};
use purser_domain::{Duration, Error, Result, Timestamp};
use purser_evidence::read_unverified_entries;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// The key of the object that stores the progress of the daily check.
const CHECKED: &str = "checked";
/// The time after which another run may take over a claimed range. It exceeds the timeout of the claiming Lambda
/// function.
const CLAIM_DURATION: Duration = Duration::from_secs_u32(120);
/// A claimed range with at least this many entries gets no further batch.
const MIN_ENTRIES: u64 = 1_024;
const MAX_BATCHES: usize = 20;
/// How long several runs share the daily check after a run found more entries than fit into one range.
const BUSY_DURATION: Duration = Duration::from_secs_u32(600);
/// The maximum number of unfinished claims, which keeps the stored object small.
const MAX_CLAIMS: usize = 100;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Progress {
    /// The number of log entries before the first entry that no run has claimed yet.
    size: u64,
    /// The commit time of the last claimed entry, in microseconds.
    at: i64,
    /// The time until which several runs share the daily check, in microseconds.
    #[serde(default)]
    busy_until: i64,
    #[serde(default)]
    claims: Vec<ClaimedEntries>,
}

/// A range of log entries that a run has claimed for the daily check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimedEntries {
    first: u64,
    end: u64,
    /// The log index of the first entry that is not compared yet.
    next: u64,
    /// The commit time of the entry before `first`, in microseconds.
    after: i64,
    /// The commit time of the last entry in the range, in microseconds.
    at: i64,
    /// The expiry time of the claim, in microseconds.
    claimed_until: i64,
}

/// Log entries that must be compared with the rows of the database tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntriesToCheck {
    /// The log index and the exact statement of each entry.
    pub statements: Vec<(u64, String)>,
    /// The ranges of log entries whose index object is missing or differs from the entries.
    pub misindexed: Vec<Range<u64>>,
}

impl ClaimedEntries {
    /// Returns the commit time of the last entry in the range.
    pub fn committed_at(&self) -> Timestamp {
        Timestamp::from_micros(self.at).unwrap_or(Timestamp::EPOCH)
    }

    /// Returns the log index after the last entry in the range.
    pub const fn end(&self) -> u64 {
        self.end
    }
}

impl LogReader {
    /// Returns whether several runs should share the daily check, because the check has a backlog.
    pub async fn has_check_backlog(&self, now: Timestamp) -> Result<bool> {
        let (progress, _) = self.read_progress().await?;
        Ok(progress.busy_until > now.micros())
    }

    /// Claims entries that are at least a day old. Returns `None` if there are none, or if too many claims are
    /// unfinished.
    pub async fn claim_entries(&self, now: Timestamp) -> Result<Option<ClaimedEntries>> {
        loop {
            let (mut progress, version) = self.read_progress().await?;
            let Some(size) = self.size().await? else {
                return Ok(None);
            };
            if progress.size > size {
                return Err(Error::internal(FINDING, "more entries are checked than the log has"));
            }
            let claimed_until = now.after(CLAIM_DURATION).micros();
            let ended = |claim: &&mut ClaimedEntries| claim.claimed_until <= now.micros();
            let claim = if let Some(claim) = progress.claims.iter_mut().find(ended) {
                claim.claimed_until = claimed_until;
                claim.clone()
            } else {
                let (first, after) = (progress.size, progress.at);
                let at = Timestamp::from_micros(after).unwrap_or(Timestamp::EPOCH);
                let batches = index::read_batches_from(&self.0, first, at, size, MAX_BATCHES).await?;
                let day_ago = now.before(Duration::DAY);
                for batch in batches.iter().take_while(|batch| batch.at <= day_ago) {
                    if progress.size.saturating_sub(first) >= MIN_ENTRIES {
                        progress.busy_until = now.after(BUSY_DURATION).micros();
                        break;
                    }
                    (progress.size, progress.at) = (batch.end, batch.at.micros());
                }
                let (end, at) = (progress.size, progress.at);
                if end == first || progress.claims.len() >= MAX_CLAIMS {
                    return Ok(None);
                }
                let next = first;
                let claim = ClaimedEntries {
                    first,
                    end,
                    next,
                    after,
                    at,
                    claimed_until,
                };
                progress.claims.push(claim.clone());
                claim
            };
            if self.try_replace_progress(&progress, version.as_ref()).await? {
                return Ok(Some(claim));
            }
        }
    }

    /// Reads the claimed entries, and compares the entries with the log's index.
    pub async fn read_claimed_entries(&self, claim: &ClaimedEntries) -> Result<EntriesToCheck> {
        let size = self.size().await?.unwrap_or_default();
        let entries = read_unverified_entries(&self.0, size, claim.first..claim.end).await;
        let entries = entries.map_err(|error| Error::internal(FINDING, error))?;
        let entries = entries.iter().map(|entry| String::from_utf8_lossy(entry).into_owned());
        let mut statements: Vec<(u64, String)> = (claim.first..).zip(entries).collect();
        let after = Timestamp::from_micros(claim.after).unwrap_or(Timestamp::EPOCH);
        let (mut misindexed, mut indexed) = (Vec::new(), claim.first);
        for batch in index::read_batches_from(&self.0, claim.first, after, claim.end, usize::MAX).await? {
            let range = batch.first..batch.end;
            let of_batch = statements.iter().filter(|(index, _)| range.contains(index));
            let about: Option<Vec<About>> = of_batch
                .map(|(_, statement)| unverified_statement_subject(statement))
                .collect();
            // The caller reports entries without a subject.
            if let Some(about) = about
                && !batch.has_exact_entries(&self.0, &about).await?
            {
                misindexed.push(range);
            }
            indexed = batch.end;
        }
        if indexed < claim.end {
            misindexed.push(indexed..claim.end);
        }
        statements.retain(|(index, _)| *index >= claim.next);
        Ok(EntriesToCheck { statements, misindexed })
    }

    /// Records that the claimed entries before the log index `next` are compared, and ends the claim.
    pub async fn record_checked_entries(&self, claim: &ClaimedEntries, next: u64) -> Result<()> {
        loop {
            let (mut progress, version) = self.read_progress().await?;
            for claim in progress.claims.iter_mut().filter(|known| known.first == claim.first) {
                claim.next = claim.next.max(next);
                claim.claimed_until = 0;
            }
            progress.claims.retain(|claim| claim.next < claim.end);
            if self.try_replace_progress(&progress, version.as_ref()).await? {
                return Ok(());
            }
        }
    }

    async fn read_progress(&self) -> Result<(Progress, Option<ObjectVersion>)> {
        let Some(object) = self.0.get(CHECKED).await? else {
            return Ok((Progress::default(), None));
        };
        let progress = serde_json::from_slice(&object.bytes).map_err(|error| Error::internal(FINDING, error))?;
        Ok((progress, Some(object.version)))
    }

    /// Replaces the stored progress. Returns `false` if another run has replaced it.
    async fn try_replace_progress(&self, progress: &Progress, version: Option<&ObjectVersion>) -> Result<bool> {
        let bytes = serde_json::to_vec(progress).map_err(|error| Error::internal(FINDING, error))?;
        self.0.put_if_version(CHECKED, &bytes, version).await
    }
}
