//! Appends statements to the log and publishes it.
//!
//! 1. The entries are written to an object of their own.
//! 2. The state is replaced, on the condition that it is the one that was read: the entries are committed.
//! 3. Tiles, bundles, the index and the checkpoint are written from the committed entries.
//! 4. The state is replaced again: the entries are published.
//!
//! A run that stops after step 2 is completed by the next one, which writes the same objects. Before step 2 nothing but
//! an unused object was written.

use crate::{
    index::{self, About},
    objects::ObjectStore,
    pending::{PendingBatch, PendingFact, PendingPlace},
    state::{Batch, State},
};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use purser_domain::{Error, Result, Timestamp};
use purser_evidence::{Checkpoint, Edge, Note, NoteSigner, StatementKind, TilePath, TileReader, TreeHead, VerifierKey};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use uuid::Uuid;

/// The number of facts after which a run reads no further batch.
const MOST_FACTS: usize = 1_000;
/// The number of statements that are made at once: each waits for some five reads of tables, and for KMS if it signs. At
/// 30 ms each, 16 at once are some 500 a second.
const AT_ONCE: usize = 16;
/// The number of batches that a run lists.
const MOST_BATCHES: u16 = 500;
/// The checkpoint's key (c2sp.org/tlog-tiles).
pub(crate) const CHECKPOINT: &str = "checkpoint";

const PUBLISHING: &str = "publishing the log";

/// The log of a deployment.
#[derive(Debug)]
pub struct Log {
    pub(crate) objects: ObjectStore,
    origin: String,
    signer: NoteSigner,
}

/// The result of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// The number of statements that were appended.
    pub statements: usize,
    /// Whether facts are left for the next run.
    pub has_more: bool,
}

/// A signed statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stated {
    /// Its kind.
    pub kind: StatementKind,
    /// What it is about: the transaction of a decision, the settlement of a receipt.
    pub id: Uuid,
    /// The exact statement.
    pub statement: String,
}

/// Whoever signs the statement of a fact.
pub trait Stating: Sync {
    /// The statement; `None` if there is nothing to state any more.
    fn state(&self, fact: &PendingFact) -> impl Future<Output = Result<Option<Stated>>> + Send;
}

/// An entry that is committed: what it states, and the exact statement.
#[derive(Serialize, Deserialize)]
struct StoredEntry {
    kind: String,
    id: Uuid,
    statement: String,
}

impl StoredEntry {
    fn about(&self) -> Result<About> {
        let kind = StatementKind::of(&self.kind).ok_or_else(|| Error::internal(PUBLISHING, self.kind.clone()))?;
        Ok(About { kind, id: self.id })
    }
}

/// The facts of a run, and the batches that they are from.
struct Gathered {
    facts: Vec<PendingFact>,
    places: Vec<PendingPlace>,
    /// The last sequence number of each shard.
    shards: BTreeMap<String, String>,
    has_more: bool,
}

impl TileReader for ObjectStore {
    type Error = Error;

    async fn get(&self, path: &TilePath) -> Result<Option<Vec<u8>>> {
        let object = Self::get(self, &path.to_string()).await?;
        Ok(object.map(|object| object.bytes))
    }
}

impl Log {
    /// The log with these objects. `origin` is its name in checkpoints, which `signer` signs.
    pub fn new(objects: ObjectStore, origin: impl Into<String>, signer: NoteSigner) -> Self {
        Self {
            objects,
            origin: origin.into(),
            signer,
        }
    }

    /// The objects of the log.
    pub const fn objects(&self) -> &ObjectStore {
        &self.objects
    }

    /// The key that verifies checkpoints.
    pub const fn verifier(&self) -> &VerifierKey {
        self.signer.verifier()
    }

    /// States the pending facts, appends the statements and publishes them.
    ///
    /// A concurrent run may do the same work; only one of them commits it.
    pub async fn write(&self, now: Timestamp, stating: &impl Stating) -> Result<Written> {
        self.publish().await?;
        let (mut state, version) = State::read(&self.objects).await?;
        if state.batch().is_some() {
            // Another run has committed since. Its entries must be published before others are committed.
            return Ok(Written {
                statements: 0,
                has_more: true,
            });
        }
        // The first run publishes the checkpoint of the empty log.
        self.put_checkpoint(state.published()?).await?;
        let gathered = self.gather(&state).await?;
        let stated: Vec<_> = gathered.facts.iter().map(|fact| stating.state(fact)).collect();
        let stated: Vec<Option<Stated>> = stream::iter(stated).buffered(AT_ONCE).try_collect().await?;
        let entries = stated.into_iter().flatten().map(|Stated { kind, id, statement }| {
            let kind = kind.typ().to_owned();
            StoredEntry { kind, id, statement }
        });
        let entries: Vec<StoredEntry> = entries.collect();
        for (shard, sequence) in &gathered.shards {
            state.note(shard, sequence, now);
        }
        let statements = entries.len();
        if statements > 0 {
            let edge = self.edge(&state.committed()?).await?;
            let head = append(&edge, &entries)?.head;
            let key = format!("batch/{:016}-{}", edge.size(), Uuid::new_v4());
            let bytes = serde_json::to_vec(&entries).map_err(|error| Error::internal(PUBLISHING, error))?;
            self.objects.put(&key, &bytes).await?;
            let at = now.micros();
            state.commit(&head, Batch { key, at });
        }
        if !gathered.shards.is_empty() && !state.replace(&self.objects, version.as_ref()).await? {
            // Another run was faster, and states these facts.
            return Ok(Written {
                statements: 0,
                has_more: true,
            });
        }
        self.publish().await?;
        for place in &gathered.places {
            PendingBatch::delete(&self.objects, place).await?;
        }
        Ok(Written {
            statements,
            has_more: gathered.has_more,
        })
    }

    /// The pending facts that are not stated yet.
    async fn gather(&self, state: &State) -> Result<Gathered> {
        let places = PendingBatch::places(&self.objects, MOST_BATCHES).await?;
        let mut gathered = Gathered {
            facts: Vec::new(),
            places: Vec::new(),
            shards: BTreeMap::new(),
            has_more: false,
        };
        for place in places {
            if gathered.facts.len() >= MOST_FACTS {
                gathered.has_more = true;
                break;
            }
            let Some(batch) = PendingBatch::read(&self.objects, &place).await? else {
                continue;
            };
            for fact in batch.facts {
                let known = gathered.shards.get(&batch.shard);
                let is_known = known.is_some_and(|known| *known >= fact.sequence);
                if !is_known && !state.has(&batch.shard, &fact.sequence) {
                    gathered.shards.insert(batch.shard.clone(), fact.sequence.clone());
                    gathered.facts.push(fact);
                }
            }
            gathered.places.push(place);
        }
        Ok(gathered)
    }

    /// Publishes what is committed.
    async fn publish(&self) -> Result<()> {
        let (mut state, version) = State::read(&self.objects).await?;
        let Some(batch) = state.batch() else { return Ok(()) };
        let (before, head) = (state.published()?, state.committed()?);
        let object = self.objects.get(&batch.key).await?;
        let object = object.ok_or_else(|| Error::internal(PUBLISHING, "the committed entries are missing"))?;
        let entries: Vec<StoredEntry> =
            serde_json::from_slice(&object.bytes).map_err(|error| Error::internal(PUBLISHING, error))?;
        let edge = self.edge(&before).await?;
        let appended = append(&edge, &entries)?;
        if appended.head != head {
            return Err(Error::internal(PUBLISHING, "the committed entries have another root"));
        }
        for (path, bytes) in appended.bundles.iter().chain(&appended.tiles) {
            self.objects.put(&path.to_string(), bytes).await?;
        }
        let about: Result<Vec<About>> = entries.iter().map(StoredEntry::about).collect();
        let at = Timestamp::from_micros(batch.at).unwrap_or(Timestamp::EPOCH);
        index::write(&self.objects, at, before.size, &about?).await?;
        self.put_checkpoint(head).await?;
        let key = batch.key.clone();
        state.publish();
        // If another run has published it too, it has replaced the state.
        if state.replace(&self.objects, version.as_ref()).await? {
            self.objects.delete(&key).await?;
        }
        Ok(())
    }

    /// Writes the checkpoint, unless there is one of this size or a larger one.
    async fn put_checkpoint(&self, head: TreeHead) -> Result<()> {
        let checkpoint = Checkpoint::new(&self.origin, head).map_err(|error| Error::internal(PUBLISHING, error))?;
        let note = checkpoint
            .sign(&self.signer)
            .map_err(|error| Error::internal(PUBLISHING, error))?;
        loop {
            let present = self.objects.get(CHECKPOINT).await?;
            if let Some(present) = &present
                && head_of(&present.bytes)?.size >= head.size
            {
                return Ok(());
            }
            let version = present.map(|object| object.version);
            if self
                .objects
                .put_if(CHECKPOINT, note.as_bytes(), version.as_ref())
                .await?
            {
                return Ok(());
            }
        }
    }

    /// The right edge of the tree with this head.
    async fn edge(&self, head: &TreeHead) -> Result<Edge> {
        let edge = Edge::read(&self.objects, head).await;
        edge.map_err(|error| Error::internal("reading the log's edge", error))
    }
}

fn append(edge: &Edge, entries: &[StoredEntry]) -> Result<purser_evidence::Appended> {
    let statements: Vec<&str> = entries.iter().map(|entry| entry.statement.as_str()).collect();
    let appended = edge.append(&statements);
    appended.map_err(|error| Error::internal(PUBLISHING, error))
}

/// The tree of a checkpoint that this log has written.
pub(crate) fn head_of(checkpoint: &[u8]) -> Result<TreeHead> {
    const READING: &str = "reading the checkpoint";
    let text = std::str::from_utf8(checkpoint).map_err(|error| Error::internal(READING, error))?;
    let note = Note::parse(text).map_err(|error| Error::internal(READING, error))?;
    let checkpoint = Checkpoint::parse(note.unverified_text()).map_err(|error| Error::internal(READING, error))?;
    Ok(checkpoint.head())
}
