//! A statement with its proof, the newest checkpoint, and the keys that verify both.

use crate::{
    append::{CHECKPOINT, head_of},
    index::{self, About},
    objects::ObjectStore,
    trust::{TRUST, TrustDocument},
};
use purser_domain::{Error, Result, SettlementId, Timestamp, TransactionId};
use purser_evidence::{StatementKind, TlogProof, inclusion_proof, unverified_entry};

/// The readers' side of the log.
#[derive(Clone, Debug)]
pub struct LogReader(ObjectStore);

/// A statement in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundStatement {
    /// The exact statement: a JWS in the compact serialization.
    pub statement: String,
    /// The proof that it is in the log, with the statement and the checkpoint (c2sp.org/tlog-proof).
    pub proof: String,
    /// Its index in the log.
    pub index: u64,
}

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

    /// The newest checkpoint; `None` before the first statement.
    pub async fn checkpoint(&self) -> Result<Option<Vec<u8>>> {
        Ok(self.0.get(CHECKPOINT).await?.map(|object| object.bytes))
    }

    /// The keys that verify statements and checkpoints; `None` before they are published.
    pub async fn trust(&self) -> Result<Option<TrustDocument>> {
        let object = self.0.get(TRUST).await?;
        object.map(|object| TrustDocument::parse(&object.bytes)).transpose()
    }
}
