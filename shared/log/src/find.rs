//! A statement with its proof, the newest checkpoint, and the keys that verify both.

use crate::{
    append::{CHECKPOINT, head_of},
    index::{self, About},
    objects::ObjectStore,
    trust::{TRUST, TrustDocument},
};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use purser_domain::{AgentId, Error, Result, ServiceId, SettlementId, Timestamp, TransactionId};
use purser_evidence::{StatementKind, TilePath, TlogProof, inclusion_proof, unverified_entries, unverified_entry};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

/// The readers' side of the log.
#[derive(Clone, Debug)]
pub struct LogReader(ObjectStore);

/// A signed statement, with the proof that it is in the log of this deployment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = SignedStatement)]
pub struct FoundStatement {
    /// The statement: a JWS in the compact serialization. `/.well-known/jwks.json` has its key.
    pub statement: String,
    /// The proof: the statement, its index, hashes and a checkpoint (c2sp.org/tlog-proof). `purser verify` reads it.
    pub proof: String,
    /// The index of the statement in the log.
    pub index: u64,
}

/// The agent, the service and the settlement that a decision's statement names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecisionSubject {
    /// The agent.
    pub agent: AgentId,
    /// The service.
    pub service: ServiceId,
    /// The settlement, if the decision allowed the payment.
    pub settlement: Option<SettlementId>,
}

impl FoundStatement {
    /// What a decision's statement is about; `None` for any other statement.
    pub fn decision_subject(&self) -> Option<DecisionSubject> {
        let payload = self.statement.split('.').nth(1)?;
        let payload: Value = serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(payload).ok()?).ok()?;
        let text = |at: &str| payload.pointer(at).and_then(Value::as_str);
        Some(DecisionSubject {
            agent: AgentId::parse(text("/facts/agent_id")?)?,
            service: ServiceId::parse(text("/facts/service_id")?)?,
            settlement: text("/settlement_id").and_then(SettlementId::parse),
        })
    }
}

/// A tile of hashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HashTile {
    /// The hashes.
    pub bytes: Vec<u8>,
    /// Whether it is full, so that it never changes.
    pub is_full: bool,
}

/// Statements that are to be evaluated again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToReplay {
    /// The exact statements.
    pub statements: Vec<String>,
    /// The last batch that they are from.
    place: String,
}

/// The object with the key of the last batch whose statements were evaluated again.
const REPLAYED: &str = "replayed";

const FINDING: &str = "finding a statement";

impl LogReader {
    /// The reader of these objects.
    pub const fn new(objects: ObjectStore) -> Self {
        Self(objects)
    }

    /// The statement of a decision at this time; `None` until it is in the log.
    pub async fn decision(&self, id: TransactionId, at: Timestamp) -> Result<Option<FoundStatement>> {
        let kind = StatementKind::Decision;
        self.find(About { kind, id: id.uuid() }, at).await
    }

    /// The newest statement of a payment that was settled at this time; `None` until it is in the log.
    pub async fn receipt(&self, id: SettlementId, settled_at: Timestamp) -> Result<Option<FoundStatement>> {
        let kind = StatementKind::Receipt;
        self.find(About { kind, id: id.uuid() }, settled_at).await
    }

    async fn find(&self, about: About, since: Timestamp) -> Result<Option<FoundStatement>> {
        let Some(index) = index::find(&self.0, about, since).await? else {
            return Ok(None);
        };
        let Some(checkpoint) = self.0.get(CHECKPOINT).await? else {
            return Ok(None);
        };
        let head = head_of(&checkpoint.bytes)?;
        if index >= head.size {
            return Ok(None);
        }
        let entry = unverified_entry(&self.0, head.size, index).await;
        let entry = entry.map_err(|error| Error::internal(FINDING, error))?;
        let hashes = inclusion_proof(&self.0, &head, index, &entry).await;
        let hashes = hashes.map_err(|error| Error::internal(FINDING, error))?;
        let checkpoint = String::from_utf8(checkpoint.bytes).map_err(|error| Error::internal(FINDING, error))?;
        let proof = TlogProof::new(Some(&entry), index, hashes, &checkpoint);
        let proof = proof.map_err(|error| Error::internal(FINDING, error))?;
        Ok(Some(FoundStatement {
            statement: String::from_utf8(entry).map_err(|error| Error::internal(FINDING, error))?,
            proof: proof.to_string(),
            index,
        }))
    }

    /// The tile of hashes at this path below the log's prefix (c2sp.org/tlog-tiles); `None` for any other path. A hash
    /// reveals nothing, because each leaf ends in a signature. Entries are private.
    pub async fn hash_tile(&self, path: &str) -> Result<Option<HashTile>> {
        let Ok(path) = path.parse::<TilePath>() else {
            return Ok(None);
        };
        if path.is_entries() {
            return Ok(None);
        }
        let tile = self.0.get(&path.to_string()).await?;
        Ok(tile.map(|tile| HashTile {
            bytes: tile.bytes,
            is_full: path.is_full(),
        }))
    }

    /// The newest checkpoint; `None` before the first statement.
    pub async fn checkpoint(&self) -> Result<Option<Vec<u8>>> {
        Ok(self.0.get(CHECKPOINT).await?.map(|object| object.bytes))
    }

    /// The keys that verify statements and checkpoints; `None` before they are published.
    pub async fn trust(&self) -> Result<Option<TrustDocument>> {
        let object = self.0.get(TRUST).await?;
        object.map(|object| TrustDocument::parse(&object.bytes)).transpose()
    }

    /// The statements of the next batches that [`Self::note_replayed`] has not noted and that were committed by `until`;
    /// `None` if there are none.
    pub async fn next_to_replay(&self, until: Timestamp) -> Result<Option<ToReplay>> {
        /// The number of batches: of a busy minute, one has up to some 2,000 statements.
        const BATCHES: u16 = 2;
        let noted = self.0.get(REPLAYED).await?;
        let after = noted.and_then(|object| String::from_utf8(object.bytes).ok());
        let batches = index::batches(&self.0, after.as_deref(), until, BATCHES).await?;
        let (Some(last), Some(checkpoint)) = (batches.last(), self.0.get(CHECKPOINT).await?) else {
            return Ok(None);
        };
        let size = head_of(&checkpoint.bytes)?.size;
        let place = last.key.clone();
        let mut statements = Vec::new();
        for batch in &batches {
            let count = u64::try_from(batch.count).map_err(|error| Error::internal(FINDING, error))?;
            let end = batch.first.saturating_add(count).min(size);
            let entries = unverified_entries(&self.0, size, batch.first..end).await;
            for entry in entries.map_err(|error| Error::internal(FINDING, error))? {
                statements.push(String::from_utf8(entry).map_err(|error| Error::internal(FINDING, error))?);
            }
        }
        Ok(Some(ToReplay { statements, place }))
    }

    /// Notes that the statements up to these were evaluated again.
    pub async fn note_replayed(&self, replayed: &ToReplay) -> Result<()> {
        self.0.put(REPLAYED, replayed.place.as_bytes()).await
    }
}
