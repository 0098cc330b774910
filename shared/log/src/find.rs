//! Finds a statement with the proof, the newest checkpoint, and the keys that verify both.

use crate::{
    append::{CHECKPOINT, MAX_RETRY_DURATION, parse_tree_head},
    index::{self, About},
    objects::ObjectStore,
    trust::{TRUST, TrustDocument},
};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use purser_domain::{
    AgentId, CHANGE_STATEMENT, DECISION_STATEMENT, Error, RECEIPT_STATEMENT, Result, ServiceId, Settlement,
    SettlementId, Timestamp, TransactionId, has_different_payment,
};
use purser_evidence::{StatementKind, TilePath, TlogProof, build_inclusion_proof, read_unverified_entry};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

/// Reads statements and proofs from the log.
#[derive(Clone, Debug)]
pub struct LogReader(pub(crate) ObjectStore);

/// A signed statement, with the proof that this deployment's log contains the statement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = SignedStatement)]
pub struct FoundStatement {
    /// The statement: a JWS in the compact serialization. `/.well-known/jwks.json` contains the key.
    pub statement: String,
    /// The proof: the statement, its index, hashes and a checkpoint (c2sp.org/tlog-proof). `purser verify` checks the
    /// proof.
    pub proof: String,
    /// The index of the statement in the log.
    pub index: u64,
}

/// A payment's receipt and change statements, without the decision's statement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PaymentStatements {
    /// The newest receipt of the payment; `None` while the log contains no receipt.
    pub receipt: Option<FoundStatement>,
    /// The statements about the payment's later changes, in log order.
    pub changes: Vec<FoundStatement>,
}

impl PaymentStatements {
    /// Returns the statement about the withdrawal or reversal with this `transaction_id`.
    pub fn find_change_statement(&self, decision: TransactionId) -> Option<&FoundStatement> {
        self.changes.iter().find(|change| {
            let payload = unverified_payload(&change.statement).unwrap_or_default();
            payload.get("transaction_id") == Some(&decision.to_string().into())
        })
    }

    /// Returns the names of the statements, such as `receipt`, whose payment differs from `settlement`.
    pub fn differing_statement_names(
        &self,
        decision: Option<&FoundStatement>,
        settlement: &Settlement,
    ) -> Vec<&'static str> {
        let statements = [("decision", decision), ("receipt", self.receipt.as_ref())];
        let differs = |found: &FoundStatement| {
            unverified_payload(&found.statement).is_none_or(|payload| has_different_payment(&payload, settlement))
        };
        let differing = statements.into_iter().filter(|(_, found)| found.is_some_and(differs));
        differing.map(|(name, _)| name).collect()
    }
}

/// Why a decision has no statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum MissingReason {
    /// The statement is not in the log yet. Usually it is added within about a minute after the decision, and within a
    /// day if the log is behind.
    Pending,
    /// The decision was made before the deployment had a log.
    BeforeLog,
    /// No statement about the decision could be signed, or the deployment has no log. Report this to the operator.
    NotStated,
}

/// The agent, the service and the settlement in a decision's statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecisionSubject {
    /// The agent that requested the payment.
    pub agent: AgentId,
    /// The service that the agent wanted to pay.
    pub service: ServiceId,
    /// The settlement, if the decision allowed the payment.
    pub settlement: Option<SettlementId>,
}

impl FoundStatement {
    /// Returns the subject of a decision's statement; `None` for any other statement.
    pub fn decision_subject(&self) -> Option<DecisionSubject> {
        let payload = unverified_payload(&self.statement)?;
        let text = |at: &str| payload.pointer(at).and_then(Value::as_str);
        Some(DecisionSubject {
            agent: AgentId::parse(text("/facts/agent_id")?)?,
            service: ServiceId::parse(text("/facts/service_id")?)?,
            settlement: text("/settlement_id").and_then(SettlementId::parse),
        })
    }
}

/// Parses a statement's payload without verifying the signature; `None` if the text is not a statement.
pub fn unverified_payload(statement: &str) -> Option<Value> {
    let payload = statement.split('.').nth(1)?;
    serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(payload).ok()?).ok()
}

pub(crate) fn unverified_statement_subject(statement: &str) -> Option<About> {
    let payload = unverified_payload(statement)?;
    let id = |name| SettlementId::parse(payload.get(name)?.as_str()?).map(SettlementId::uuid);
    let (kind, id) = match payload.get("statement")?.as_str()? {
        DECISION_STATEMENT => (
            StatementKind::Decision,
            TransactionId::parse(payload.get("transaction_id")?.as_str()?)?.uuid(),
        ),
        RECEIPT_STATEMENT => (StatementKind::Receipt, id("settlement_id")?),
        CHANGE_STATEMENT => {
            let decision = || TransactionId::parse(payload.pointer("/changed_decision/transaction_id")?.as_str()?);
            let id = id("settlement_id").or_else(|| decision().map(TransactionId::uuid));
            (StatementKind::Change, id?)
        }
        _ => return None,
    };
    Some(About { kind, id })
}

/// A tile of the log's Merkle tree: up to 256 hashes of one level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HashTile {
    /// The concatenated SHA-256 hashes, 32 bytes each.
    pub bytes: Vec<u8>,
    /// Whether the tile is full. A full tile never changes.
    pub is_full: bool,
}

pub(crate) const FINDING: &str = "finding a statement";

impl LogReader {
    /// Creates a reader of the log in this object store.
    pub const fn new(objects: ObjectStore) -> Self {
        Self(objects)
    }

    /// Finds the statement of a decision that was made at `at`. Returns `None` until the log contains the statement.
    pub async fn find_decision_statement(&self, id: TransactionId, at: Timestamp) -> Result<Option<FoundStatement>> {
        let kind = StatementKind::Decision;
        self.find_statement(About { kind, id: id.uuid() }, at).await
    }

    /// Finds the newest receipt of a payment that was settled at `settled_at`. Returns `None` until the log contains a
    /// receipt.
    pub async fn find_receipt(&self, id: SettlementId, settled_at: Timestamp) -> Result<Option<FoundStatement>> {
        let kind = StatementKind::Receipt;
        self.find_statement(About { kind, id: id.uuid() }, settled_at).await
    }

    /// Finds the statements about a payment after the decision, including receipts of reverted confirmations.
    pub async fn find_payment_statements(&self, settlement: &Settlement) -> Result<PaymentStatements> {
        let (id, since) = (settlement.id(), settlement.terms.authorized_at);
        let changes = self.find_change_statements(id.uuid(), since).await?;
        let receipt = match settlement.settled_at() {
            Some(settled_at) => self.find_receipt(id, settled_at).await?,
            None if changes.is_empty() => None,
            None => self.find_receipt(id, since).await?,
        };
        Ok(PaymentStatements { receipt, changes })
    }

    /// Finds the statements about changes of a payment or an approval, in log order. `id` is the settlement id, or the
    /// transaction id of the decision that required the approval.
    pub async fn find_change_statements(&self, id: Uuid, since: Timestamp) -> Result<Vec<FoundStatement>> {
        let kind = StatementKind::Change;
        let mut changes = Vec::new();
        for index in index::find_entries(&self.0, About { kind, id }, since).await? {
            changes.extend(self.read_statement_with_proof(index).await?);
        }
        Ok(changes)
    }

    /// Returns the log index and the entry of each receipt of a payment that was settled at or after `since`.
    pub async fn read_indexed_receipts(&self, id: SettlementId, since: Timestamp) -> Result<Vec<(u64, Vec<u8>)>> {
        let kind = StatementKind::Receipt;
        let mut receipts = Vec::new();
        for index in index::find_entries(&self.0, About { kind, id: id.uuid() }, since).await? {
            receipts.extend(self.read_entry(index).await?.map(|entry| (index, entry)));
        }
        Ok(receipts)
    }

    /// Returns why the log has no statement of a decision that was made at `at`.
    pub async fn find_reason_for_missing_statement(&self, at: Timestamp, now: Timestamp) -> Result<MissingReason> {
        if now.since(at) < MAX_RETRY_DURATION {
            return Ok(MissingReason::Pending);
        }
        Ok(match index::read_first_decision_time(&self.0).await? {
            Some(first) if first <= at => MissingReason::NotStated,
            _ => MissingReason::BeforeLog,
        })
    }

    async fn find_statement(&self, subject: About, since: Timestamp) -> Result<Option<FoundStatement>> {
        match index::find_entries(&self.0, subject, since).await?.pop() {
            Some(index) => self.read_statement_with_proof(index).await,
            None => Ok(None),
        }
    }

    /// Returns the entry with this index, without a proof; `None` if the log has no such entry.
    pub async fn read_entry(&self, index: u64) -> Result<Option<Vec<u8>>> {
        let Some(size) = self.size().await?.filter(|size| index < *size) else {
            return Ok(None);
        };
        let entry = read_unverified_entry(&self.0, size, index).await;
        entry.map(Some).map_err(|error| Error::internal(FINDING, error))
    }

    async fn read_statement_with_proof(&self, index: u64) -> Result<Option<FoundStatement>> {
        let Some(checkpoint) = self.0.get(CHECKPOINT).await? else {
            return Ok(None);
        };
        let head = parse_tree_head(&checkpoint.bytes)?;
        if index >= head.size {
            return Ok(None);
        }
        let entry = read_unverified_entry(&self.0, head.size, index).await;
        let entry = entry.map_err(|error| Error::internal(FINDING, error))?;
        let hashes = build_inclusion_proof(&self.0, &head, index, &entry).await;
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

    /// Returns the hash tile at this path (c2sp.org/tlog-tiles); `None` for any other path. Entries are private. A hash
    /// reveals nothing, because each entry ends in a signature.
    pub async fn read_hash_tile(&self, path: &str) -> Result<Option<HashTile>> {
        let Ok(path) = path.parse::<TilePath>() else {
            return Ok(None);
        };
        if path.is_entry_bundle() {
            return Ok(None);
        }
        let tile = self.0.get(&path.to_string()).await?;
        Ok(tile.map(|tile| HashTile {
            bytes: tile.bytes,
            is_full: path.is_full(),
        }))
    }

    /// Returns the newest checkpoint; `None` before the first run of `Log::append_pending_statements`.
    pub async fn read_checkpoint(&self) -> Result<Option<Vec<u8>>> {
        Ok(self.0.get(CHECKPOINT).await?.map(|object| object.bytes))
    }

    /// Returns the size of the newest checkpoint's tree; `None` if there is no checkpoint.
    pub(crate) async fn size(&self) -> Result<Option<u64>> {
        let checkpoint = self.read_checkpoint().await?;
        checkpoint.map(|bytes| Ok(parse_tree_head(&bytes)?.size)).transpose()
    }

    /// Returns the keys that verify statements and checkpoints; `None` before the keys are published.
    pub async fn read_trust(&self) -> Result<Option<TrustDocument>> {
        let object = self.0.get(TRUST).await?;
        object.map(|object| TrustDocument::parse(&object.bytes)).transpose()
    }

    /// Returns whether an entry after `index` is also a receipt of this payment.
    pub async fn has_later_receipt(&self, id: SettlementId, settled_at: Timestamp, index: u64) -> Result<bool> {
        let kind = StatementKind::Receipt;
        let found = index::find_entries(&self.0, About { kind, id: id.uuid() }, settled_at).await?;
        Ok(found.last().is_some_and(|found| *found > index))
    }
}
