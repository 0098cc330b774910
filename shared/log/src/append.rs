//! Signs statements about the pending changes, appends the statements to the log, and publishes the log.
//!
//! 1. The new entries are written to one object.
//! 2. The log's state object is replaced if it is unchanged since it was read. This commits the entries.
//! 3. The tiles, the index and the checkpoint are written from the committed entries.
//! 4. The log's state object is replaced again. This publishes the entries.
//!
//! A run that stops after step 2 is completed by the next run, which writes the same objects. A run that stops before
//! step 2 leaves only unused objects.

use crate::{
    aside::QUARANTINE_PREFIX,
    index::{self, About},
    objects::{MAX_CONCURRENT_REQUESTS, ObjectStore},
    pending::{PendingBatch, PendingChange, PendingPosition, ReadBatch},
    signed::SignedBatch,
    state::{Batch, State},
    witnesses::Witnesses,
};
use futures_util::{
    future::try_join,
    stream::{self, StreamExt as _, TryStreamExt as _},
};
use purser_domain::{AgentId, Causes, DocumentHash, Duration, Error, Result, Timestamp};
use purser_evidence::{
    AppendResult, Checkpoint, Edge, MAX_STATEMENT_BYTES, Note, NoteSigner, StatementKind, TilePath, TileReader,
    TreeHead, VerifierKey, build_consistency_proof,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    pin::pin,
    sync::Arc,
};
use uuid::Uuid;

/// The number of read changes after which a run reads no further batch. With the default `GatewayRateLimit`, a minute
/// of requests causes fewer changes.
const MAX_READ_CHANGES: usize = 40_000;
/// The maximum number of statements that a run signs.
const MAX_CHANGES: usize = 5_000;
/// The maximum total size of a run's statements, in bytes. Further statements wait for the next run.
const MAX_BYTES: usize = 8 << 20;
/// The maximum number of batches that a run lists.
const MAX_BATCHES: u16 = 500;
/// The maximum number of unreadable changes that later runs retry. Further unreadable changes are set aside for an
/// operator.
const MAX_DEFERRED: usize = 1_000;
/// The maximum number of changes that a run retries.
const MAX_RETRIED: usize = 100;
/// How long an unreadable change is retried before it is set aside for an operator.
pub(crate) const MAX_RETRY_DURATION: Duration = Duration::DAY;
/// The number of statements that are signed concurrently. By default, KMS signs up to 1,000 digests a second.
const MAX_CONCURRENT_SIGNATURES: usize = 32;
/// A run with at least this many pending changes fails if the run can read none of the changes, because the
/// database tables are then probably unavailable.
const OUTAGE: usize = 100;
/// The checkpoint's key (c2sp.org/tlog-tiles).
pub(crate) const CHECKPOINT: &str = "checkpoint";
/// The key prefix of the checkpoints in the archive bucket.
const ANCHORS: &str = "checkpoints/";

const PUBLISHING: &str = "publishing the log";

/// A deployment's log of signed statements about decisions, receipts and later changes.
#[derive(Debug)]
pub struct Log {
    pub(crate) objects: ObjectStore,
    /// The archive bucket, which also stores checkpoints because nobody can replace archived objects; `None` without an
    /// archive.
    anchor: Option<ObjectStore>,
    origin: String,
    signer: NoteSigner,
    /// `None` if the deployment has no witnesses.
    witnesses: Option<Arc<Witnesses>>,
}

/// The result of [`Log::append_pending_statements`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// The number of appended statements.
    pub statements: usize,
    /// Whether changes remain for the next run.
    pub has_more: bool,
}

/// A signed statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedStatement {
    /// The kind of the statement's subject: a decision, a receipt or a later change.
    pub kind: StatementKind,
    /// The id of the statement's subject: the transaction id of a decision, the settlement id of a receipt or
    /// of a payment's change, or the transaction id of the decision that required the changed approval.
    pub id: Uuid,
    /// The exact bytes of the statement, as text.
    pub statement: String,
}

/// The result of signing a statement about a change.
#[derive(Debug)]
pub enum Outcome {
    /// The signed statement about the change.
    Stated(SignedStatement),
    /// The log needs no statement about this change.
    Nothing,
    /// No statement about the change can be signed, for this reason. The run sets the change aside for an operator.
    SetAside(String),
    /// The change can't be read now. A later run reads the change again.
    Later(Error),
}

/// Builds and signs statements about changes.
pub trait Stating: Sync {
    /// Signs a statement about a change. An `Err` ends the run, because a failure of the signer affects all changes.
    fn sign_change(&self, change: &PendingChange) -> impl Future<Output = Result<Outcome>> + Send;

    /// Verifies a statement that was signed before this run. Returns `None` if the statement can't be used,
    /// for example because the signer's key or the change differs. The run then signs a new statement.
    fn verify_stored_statement(
        &self,
        change: &PendingChange,
        statement: String,
    ) -> impl Future<Output = Option<SignedStatement>> + Send;

    /// Reports that a change without a statement was written to the object `key`. A repeated run reports the object
    /// again.
    fn report_quarantined_change(&self, key: &str, reason: &str);
}

#[derive(Serialize, Deserialize)]
struct StoredEntry {
    kind: String,
    id: Uuid,
    statement: String,
}

impl StoredEntry {
    fn subject(&self) -> Result<About> {
        let kind = StatementKind::from_typ(&self.kind).ok_or_else(|| Error::internal(PUBLISHING, self.kind.clone()))?;
        Ok(About { kind, id: self.id })
    }
}

/// The changes that a run processes, and the batches that contain the changes.
#[derive(Default)]
struct GatheredChanges {
    facts: Vec<GatheredChange>,
    /// Values that can't be parsed as changes.
    unreadable: Vec<Value>,
    places: Vec<PendingPosition>,
    /// The sequence number of the last gathered change in each DynamoDB stream shard.
    shards: BTreeMap<String, String>,
    has_more: bool,
}

struct GatheredChange {
    shard: String,
    /// The index of the change's batch in [`GatheredChanges::places`].
    place: usize,
    fact: PendingChange,
}

impl GatheredChanges {
    fn add_batch(&mut self, state: &State, position: PendingPosition, batch: ReadBatch) {
        for change in batch.facts {
            let known = self.shards.get(&batch.shard);
            let is_known = known.is_some_and(|known| *known >= change.sequence);
            if !is_known && !state.is_processed(&batch.shard, &change.sequence) {
                self.shards.insert(batch.shard.clone(), change.sequence.clone());
                self.facts.push(GatheredChange {
                    shard: batch.shard.clone(),
                    place: self.places.len(),
                    fact: change,
                });
            }
        }
        self.unreadable.extend(batch.unreadable);
        self.places.push(position);
    }

    /// Interleaves the changes of different agents, so that one agent can't delay the others. Keeps the order per
    /// agent.
    fn interleave_changes_by_agent(&mut self) {
        let mut turns: BTreeMap<AgentId, usize> = BTreeMap::new();
        let changes = std::mem::take(&mut self.facts).into_iter().map(|gathered| {
            let turn = turns.entry(gathered.fact.agent).or_default();
            *turn = turn.saturating_add(1);
            (*turn, gathered)
        });
        let mut changes: Vec<_> = changes.collect();
        changes.sort_by_key(|(turn, _)| *turn);
        self.facts = changes.into_iter().map(|(_, gathered)| gathered).collect();
    }

    /// Marks the first `count` gathered changes as processed. The next run processes the remaining changes.
    fn record_processed_changes(&mut self, state: &mut State, count: usize, now: Timestamp) {
        self.has_more |= count < self.facts.len();
        let mut changes: Vec<_> = self.facts.iter().enumerate().collect();
        changes.sort_by_key(|(_, gathered)| (&gathered.shard, &gathered.fact.sequence));
        let (mut open_shards, mut open_places) = (BTreeSet::new(), BTreeSet::new());
        for (
            position,
            GatheredChange {
                shard,
                place,
                fact: change,
            },
        ) in changes
        {
            if position >= count {
                open_shards.insert(shard);
                open_places.insert(*place);
            } else {
                state.record_processed_changes(shard, &change.sequence, open_shards.contains(shard), now);
            }
        }
        let cursors = std::mem::take(&mut self.places).into_iter().enumerate();
        let done = cursors.filter(|(place, _)| !open_places.contains(place));
        self.places = done.map(|(_, place)| place).collect();
    }
}

impl TileReader for ObjectStore {
    type Error = Error;

    async fn get(&self, path: &TilePath) -> Result<Option<Vec<u8>>> {
        let object = Self::get(self, &path.to_string()).await?;
        Ok(object.map(|object| object.bytes))
    }
}

impl Log {
    /// Opens the log that `objects` contains. `origin` is the log's name in checkpoints. `signer` signs the
    /// checkpoints.
    pub fn new(objects: ObjectStore, origin: impl Into<String>, signer: NoteSigner) -> Self {
        Self {
            objects,
            anchor: None,
            origin: origin.into(),
            signer,
            witnesses: None,
        }
    }

    /// Also writes checkpoints to the archive bucket `anchor`. The log must extend the checkpoints in the bucket.
    #[must_use]
    pub fn with_anchor(self, anchor: Option<ObjectStore>) -> Self {
        Self { anchor, ..self }
    }

    /// Requests cosignatures of checkpoints from these witnesses.
    #[must_use]
    pub fn with_witnesses(self, witnesses: Option<Arc<Witnesses>>) -> Self {
        Self { witnesses, ..self }
    }

    /// Returns the store with the log's state, entries, tiles and checkpoints.
    pub const fn objects(&self) -> &ObjectStore {
        &self.objects
    }

    /// Returns the key that verifies checkpoints.
    pub const fn verifier_key(&self) -> &VerifierKey {
        self.signer.verifier_key()
    }

    /// Signs statements about the pending changes, appends the statements and publishes them.
    ///
    /// Concurrent runs are safe: only one of them can commit.
    pub async fn append_pending_statements(&self, now: Timestamp, stating: &impl Stating) -> Result<Written> {
        self.publish_entries().await?;
        let (mut state, version) = State::read_state(&self.objects).await?;
        if state.batch().is_some() {
            // A concurrent run has committed entries. They must be published before further entries are committed.
            return Ok(Written {
                statements: 0,
                has_more: true,
            });
        }
        // The first run publishes the checkpoint of the empty log.
        self.put_checkpoint(state.published_tree()?).await?;
        self.reject_rolled_back_log(&state.published_tree()?).await?;
        let (mut gathered, mut signed) = try_join(
            self.gather_pending_changes(&state),
            SignedBatch::read_all(&self.objects),
        )
        .await?;
        for value in &gathered.unreadable {
            let key = format!("{QUARANTINE_PREFIX}unreadable/{}", DocumentHash::for_document(value));
            self.quarantine_change(&key, value, "the value is not a pending change", now, stating)
                .await?;
        }
        let (again, waiting) = split_into_retried_and_skipped(std::mem::take(&mut state.later), now);
        gathered.interleave_changes_by_agent();
        let pending = gathered.facts.iter().map(|gathered| &gathered.fact);
        let changes: Vec<&PendingChange> = again.iter().chain(pending.take(MAX_CHANGES)).collect();
        let outcomes = self.sign_changes(&changes, &mut signed, stating).await?;
        if gathered.facts.len() >= OUTAGE && outcomes.iter().all(|outcome| matches!(outcome, Outcome::Later(_))) {
            return Err(Error::temporarily_unavailable(
                PUBLISHING,
                "none of the pending changes can be signed",
            ));
        }
        let (mut entries, mut later) = (Vec::new(), waiting.clone());
        let count = outcomes.len();
        for (change, outcome) in changes.into_iter().zip(outcomes) {
            let reason = match outcome {
                Outcome::Stated(SignedStatement { statement, .. }) if !fits_in_log_entry(&statement) => {
                    "the statement is longer than a log entry may be".to_owned()
                }
                Outcome::Stated(SignedStatement { kind, id, statement }) => {
                    let kind = kind.typ().to_owned();
                    entries.push(StoredEntry { kind, id, statement });
                    continue;
                }
                Outcome::Nothing => continue,
                Outcome::Later(_)
                    if now.since(change.changed_at) < MAX_RETRY_DURATION && later.len() < MAX_DEFERRED =>
                {
                    later.push(change.clone());
                    continue;
                }
                Outcome::Later(error) => Causes(&error).to_string(),
                Outcome::SetAside(reason) => reason,
            };
            let key = format!("{QUARANTINE_PREFIX}{}/{}", change.agent, change.sequence);
            let stored = serde_json::to_value(change).map_err(|error| Error::internal(PUBLISHING, error))?;
            self.quarantine_change(&key, &stored, &reason, now, stating).await?;
        }
        // Changes from `again` that this run did not process are retried by later runs.
        later.extend(again.iter().skip(count).cloned());
        let is_changed = count > 0;
        state.later = later;
        gathered.record_processed_changes(&mut state, count.saturating_sub(again.len()), now);
        let statements = entries.len();
        if statements > 0 {
            let edge = self.read_tree_edge(&state.committed_tree()?).await?;
            let head = append_entries(&edge, &entries)?.head;
            let key = format!("batch/{:016}-{}", edge.size(), Uuid::new_v4());
            let bytes = serde_json::to_vec(&entries).map_err(|error| Error::internal(PUBLISHING, error))?;
            self.objects.put(&key, &bytes).await?;
            let at = now.micros();
            state.record_committed_batch(&head, Batch { key, at });
        }
        if is_changed && !state.try_replace_state(&self.objects, version.as_ref()).await? {
            // A concurrent run committed first and has signed these statements.
            return Ok(Written {
                statements: 0,
                has_more: true,
            });
        }
        self.publish_entries().await?;
        let stated = gathered.places.iter().map(ToString::to_string);
        let spent: Vec<String> = stated.chain(signed.deletable_object_keys(now)).collect();
        let deleted: Vec<_> = spent.iter().map(|key| self.objects.delete(key)).collect();
        stream::iter(deleted)
            .buffered(MAX_CONCURRENT_REQUESTS)
            .try_collect::<()>()
            .await?;
        Ok(Written {
            statements,
            has_more: gathered.has_more,
        })
    }

    /// Signs statements about the changes, in order, up to a total of [`MAX_BYTES`] bytes. A repeated change gets only
    /// one statement.
    async fn sign_changes(
        &self,
        changes: &[&PendingChange],
        signed: &mut SignedBatch,
        stating: &impl Stating,
    ) -> Result<Vec<Outcome>> {
        let mut seen = HashSet::new();
        let stated = changes.iter().map(|change| {
            let is_repeated = !seen.insert(&change.fact);
            let ahead = signed.take_statement(change);
            async move {
                if is_repeated {
                    return Ok(Outcome::Nothing);
                }
                if let Some(statement) = ahead
                    && let Some(stated) = stating.verify_stored_statement(change, statement).await
                {
                    return Ok(Outcome::Stated(stated));
                }
                stating.sign_change(change).await
            }
        });
        let stated: Vec<_> = stated.collect();
        let (mut outcomes, mut bytes) = (Vec::new(), 0_usize);
        let mut stated = pin!(stream::iter(stated).buffered(MAX_CONCURRENT_SIGNATURES));
        while bytes < MAX_BYTES
            && let Some(outcome) = stated.try_next().await?
        {
            if let Outcome::Stated(SignedStatement { statement, .. }) = &outcome {
                bytes = bytes.saturating_add(statement.len());
            }
            outcomes.push(outcome);
        }
        Ok(outcomes)
    }

    /// Reads the pending changes without a statement, in record order, with an equal share per stream shard.
    async fn gather_pending_changes(&self, state: &State) -> Result<GatheredChanges> {
        let shards = PendingBatch::list_shards(&self.objects).await?;
        let count = u16::try_from(shards.len()).unwrap_or(MAX_BATCHES);
        let share = MAX_BATCHES.checked_div(count).unwrap_or(MAX_BATCHES).max(1);
        let mut gathered = GatheredChanges::default();
        let listed: Vec<_> = shards
            .iter()
            .map(|shard| PendingBatch::list_batches(&self.objects, shard, share))
            .collect();
        let listed: Vec<Vec<PendingPosition>> = stream::iter(listed)
            .buffered(MAX_CONCURRENT_REQUESTS)
            .try_collect()
            .await?;
        gathered.has_more = listed.iter().any(|cursors| cursors.len() >= usize::from(share));
        // Batches of all shards alternate, because the run stops after `MAX_READ_CHANGES` changes.
        let mut cursors: Vec<(usize, PendingPosition)> = listed
            .into_iter()
            .flat_map(|cursors| cursors.into_iter().enumerate())
            .collect();
        cursors.sort_by_key(|(turn, _)| *turn);
        let read = cursors.into_iter().map(|(_, cursor)| async move {
            let batch = PendingBatch::read_batch(&self.objects, &cursor).await?;
            Ok::<_, Error>((cursor, batch))
        });
        let mut read = pin!(stream::iter(read).buffered(MAX_CONCURRENT_REQUESTS));
        while let Some((cursor, batch)) = read.try_next().await? {
            if gathered.facts.len() >= MAX_READ_CHANGES {
                gathered.has_more = true;
                break;
            }
            if let Some(batch) = batch {
                gathered.add_batch(state, cursor, batch);
            }
        }
        Ok(gathered)
    }

    /// Writes a change without a statement to the object `key`, with the reason.
    async fn quarantine_change(
        &self,
        key: &str,
        change: &Value,
        reason: &str,
        now: Timestamp,
        stating: &impl Stating,
    ) -> Result<()> {
        let row = json!({"fact": change, "reason": reason, "at": now.to_string()});
        self.objects.put(key, row.to_string().as_bytes()).await?;
        stating.report_quarantined_change(key, reason);
        Ok(())
    }

    async fn publish_entries(&self) -> Result<()> {
        let (mut state, version) = State::read_state(&self.objects).await?;
        let Some(batch) = state.batch() else { return Ok(()) };
        let (before, head) = (state.published_tree()?, state.committed_tree()?);
        let object = self.objects.get(&batch.key).await?;
        let object = object.ok_or_else(|| Error::internal(PUBLISHING, "the committed entries are missing"))?;
        let entries: Vec<StoredEntry> =
            serde_json::from_slice(&object.bytes).map_err(|error| Error::internal(PUBLISHING, error))?;
        let edge = self.read_tree_edge(&before).await?;
        let appended = append_entries(&edge, &entries)?;
        if appended.head != head {
            return Err(Error::internal(
                PUBLISHING,
                "the root of the committed entries differs from the state",
            ));
        }
        let tiles = appended.bundles.iter().chain(&appended.tiles);
        let puts = tiles.map(|(path, bytes)| async move { self.objects.put(&path.to_string(), bytes).await });
        let puts: Vec<_> = puts.collect();
        stream::iter(puts)
            .buffered(MAX_CONCURRENT_REQUESTS)
            .try_collect::<()>()
            .await?;
        let about: Result<Vec<About>> = entries.iter().map(StoredEntry::subject).collect();
        let at = Timestamp::from_micros(batch.at).unwrap_or(Timestamp::EPOCH);
        index::write_batch_index(&self.objects, at, before.size, &about?).await?;
        self.put_checkpoint(head).await?;
        let key = batch.key.clone();
        state.record_published_batch();
        // If a concurrent run also published the entries and replaced the state, that run deletes the
        // objects.
        if state.try_replace_state(&self.objects, version.as_ref()).await? {
            self.objects.delete(&key).await?;
            self.delete_partial_tiles(before.size, &appended).await?;
        }
        Ok(())
    }

    /// Deletes the partial tiles and bundles that became full in this append (c2sp.org/tlog-tiles). `before` is the
    /// number of entries before the append. If a run stops before this step, the partial objects remain and do no harm.
    async fn delete_partial_tiles(&self, before: u64, result: &AppendResult) -> Result<()> {
        let written = |path: &TilePath| result.tiles.iter().chain(&result.bundles).any(|(item, _)| item == path);
        let full = Edge::object_paths(before)
            .into_iter()
            .map(TilePath::to_full)
            .filter(written);
        for path in full {
            let keys = self.objects.list(&format!("{path}.p/"), None, MAX_BATCHES).await?;
            let deleted: Vec<_> = keys.iter().map(|key| self.objects.delete(key)).collect();
            stream::iter(deleted)
                .buffered(MAX_CONCURRENT_REQUESTS)
                .try_collect::<()>()
                .await?;
        }
        Ok(())
    }

    /// Fails if the log was rolled back, because the log must not sign a checkpoint that contradicts an earlier
    /// checkpoint.
    async fn reject_rolled_back_log(&self, published_head: &TreeHead) -> Result<()> {
        let checkpoint = self.objects.get(CHECKPOINT).await?;
        let is_of_state =
            checkpoint.is_some_and(|object| parse_tree_head(&object.bytes).is_ok_and(|head| head == *published_head));
        if !is_of_state {
            // A concurrent run may have published a newer checkpoint after this run read the state.
            let (state, _) = State::read_state(&self.objects).await?;
            if state.published_tree()? == *published_head && state.batch().is_none() {
                return Err(Error::internal(
                    PUBLISHING,
                    "the checkpoint and the state have different trees",
                ));
            }
        }
        let Some(anchored) = self.read_last_anchored_head().await? else {
            return Ok(());
        };
        let is_grown = anchored.size <= published_head.size
            && build_consistency_proof(&self.objects, &anchored, published_head)
                .await
                .is_ok();
        if is_grown {
            return Ok(());
        }
        Err(Error::internal(
            PUBLISHING,
            format!(
                "the tree of the archived checkpoint of {} entries is not part of the log",
                anchored.size
            ),
        ))
    }

    /// Returns the tree of the newest checkpoint in the archive.
    async fn read_last_anchored_head(&self) -> Result<Option<TreeHead>> {
        let Some(anchor) = &self.anchor else { return Ok(None) };
        let Some(key) = anchor.list(ANCHORS, None, 1).await?.pop() else {
            return Ok(None);
        };
        let object = anchor.get(&key).await?;
        object.map(|object| parse_tree_head(&object.bytes)).transpose()
    }

    /// Writes the checkpoint to the archive. The key starts with the maximum size minus `size`, so the newest
    /// checkpoint sorts first.
    async fn anchor_checkpoint(&self, size: u64, note: &str) -> Result<()> {
        if let Some(anchor) = &self.anchor {
            let key = format!("{ANCHORS}{:020}", u64::MAX.saturating_sub(size));
            // Keeps an existing checkpoint of the same size. `reject_rolled_back_log` compares that checkpoint with the
            // log.
            anchor.put_if_version(&key, note.as_bytes(), None).await?;
        }
        Ok(())
    }

    /// Writes the checkpoint with the cosignatures. Never replaces a larger checkpoint, or a checkpoint of another tree
    /// of the same size.
    async fn put_checkpoint(&self, head: TreeHead) -> Result<()> {
        let checkpoint = Checkpoint::new(&self.origin, head).map_err(|error| Error::internal(PUBLISHING, error))?;
        let signed = checkpoint
            .sign_as_note(&self.signer)
            .map_err(|error| Error::internal(PUBLISHING, error))?;
        loop {
            let present = self.objects.get(CHECKPOINT).await?;
            let bytes = present.as_ref().map_or(&[][..], |object| &object.bytes);
            let stored = parse_tree_head(bytes).ok();
            if stored.is_some_and(|stored| stored.size > head.size || (stored.size == head.size && stored != head)) {
                return Ok(());
            }
            let note = match &self.witnesses {
                Some(witnesses) => {
                    let older = stored.map_or(0, |stored| stored.size);
                    let present = String::from_utf8_lossy(bytes);
                    witnesses
                        .add_cosignatures(&self.objects, &signed, &head, older, &present)
                        .await
                }
                None => signed.clone(),
            };
            if bytes == note.as_bytes() {
                return Ok(());
            }
            let version = present.map(|object| object.version);
            if self
                .objects
                .put_if_version(CHECKPOINT, note.as_bytes(), version.as_ref())
                .await?
            {
                return self.anchor_checkpoint(head.size, &note).await;
            }
        }
    }

    async fn read_tree_edge(&self, head: &TreeHead) -> Result<Edge> {
        let edge = Edge::read_right_edge(&self.objects, head).await;
        edge.map_err(|error| Error::internal("reading the right edge of the log's tree", error))
    }
}

fn fits_in_log_entry(statement: &str) -> bool {
    (1..=MAX_STATEMENT_BYTES).contains(&statement.len())
}

/// Chooses the unreadable changes that this run retries. The choice rotates every minute, so every change is retried.
fn split_into_retried_and_skipped(
    mut later_changes: Vec<PendingChange>,
    now: Timestamp,
) -> (Vec<PendingChange>, Vec<PendingChange>) {
    let minute = usize::try_from(now.secs() / 60).unwrap_or_default();
    let begin = minute
        .saturating_mul(MAX_RETRIED)
        .checked_rem(later_changes.len())
        .unwrap_or_default();
    later_changes.rotate_left(begin);
    let waiting = later_changes.split_off(later_changes.len().min(MAX_RETRIED));
    (later_changes, waiting)
}

fn append_entries(edge: &Edge, entries: &[StoredEntry]) -> Result<AppendResult> {
    let statements: Vec<&str> = entries.iter().map(|entry| entry.statement.as_str()).collect();
    let appended = edge.append_entries(&statements);
    appended.map_err(|error| Error::internal(PUBLISHING, error))
}

pub(crate) fn parse_tree_head(checkpoint: &[u8]) -> Result<TreeHead> {
    const READING: &str = "reading the checkpoint";
    let text = std::str::from_utf8(checkpoint).map_err(|error| Error::internal(READING, error))?;
    let note = Note::parse(text).map_err(|error| Error::internal(READING, error))?;
    let checkpoint = Checkpoint::parse(note.unverified_text()).map_err(|error| Error::internal(READING, error))?;
    Ok(checkpoint.tree_head())
}
