//! The pending changes: changes that need a statement. The Lambda function `history` writes one object per batch of a
//! stream shard. A change contains the sequence number of the stream record, so a repeated batch writes the same
//! changes again.

use crate::objects::ObjectStore;
use purser_domain::{
    AgentId, ApprovalChange, ApprovalId, Error, Result, SettlementId, Timestamp, TransactionId, TxHash,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;

pub(crate) const PREFIX: &str = "pending/";

/// A change of a payment or an approval. The log gets a signed statement about each such change.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum StatedChange {
    /// The payment with this settlement id was authorized.
    Allowed(SettlementId),
    /// The decision with this id blocked a payment or required an approval.
    Refused(TransactionId),
    /// A payment or a withdrawal was confirmed.
    Confirmed(SettlementId, Confirmation),
    /// A confirmation was reverted. Contains the id of the reversal in the decision log.
    Reverted(TransactionId),
    /// A payment or a withdrawal expired. The amount was released at this time, in whole seconds.
    Released(SettlementId, Timestamp),
    /// The withdrawal with this settlement id was authorized.
    Withdrawn(SettlementId),
    /// An approval was decided, withdrawn or expired at this time.
    ApprovalChanged(ApprovalId, ApprovalChange, Timestamp),
}

/// The on-chain transaction that confirmed a payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Confirmation {
    /// The hash of the on-chain transaction.
    pub tx_hash: TxHash,
    /// The number of the block that contains the on-chain transaction.
    pub block_number: u64,
    /// The time at which the payment was confirmed.
    pub settled_at: Timestamp,
}

/// A change, with its agent and its stream record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingChange {
    /// The sequence number of the stream record, padded so that text order is record order.
    pub sequence: String,
    /// The time of the stream record, in whole seconds.
    pub changed_at: Timestamp,
    /// The agent whose payment or approval changed.
    pub agent: AgentId,
    /// What happened to the payment or the approval.
    pub fact: StatedChange,
    /// The hash of the row in the stream record, in hexadecimal. No statement is signed if the table's row has another
    /// hash.
    pub row: String,
}

/// The changes of one batch of a shard, in record order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingBatch {
    /// The id of the DynamoDB stream shard.
    pub shard: String,
    /// The changes of the batch, in record order.
    pub facts: Vec<PendingChange>,
}

/// The key of a pending batch's object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PendingPosition(String);

pub(crate) struct ReadBatch {
    pub(crate) shard: String,
    pub(crate) facts: Vec<PendingChange>,
    /// JSON values that are not valid changes.
    pub(crate) unreadable: Vec<Value>,
}

/// The stored JSON of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredPendingChange {
    seq: String,
    /// The time of the stream record, in seconds.
    at: u64,
    agent: String,
    row: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    settlement: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    transaction: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    confirmed: Option<StoredConfirmation>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    change: Option<StoredChange>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    approval: Option<StoredApproval>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct StoredApproval {
    id: String,
    /// The approval's change, as [`ApprovalChange::name`] returns it.
    change: String,
    /// The time of the change, in microseconds.
    at: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoredChange {
    Reversal,
    Release,
    Withdrawal,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct StoredConfirmation {
    tx_hash: String,
    block: u64,
    /// The time of the settlement, in microseconds.
    at: i64,
}

impl PendingChange {
    pub(crate) fn to_stored(&self) -> StoredPendingChange {
        let (settlement, transaction, confirmed) = match &self.fact {
            StatedChange::Allowed(id) | StatedChange::Released(id, _) | StatedChange::Withdrawn(id) => {
                (Some(id.to_string()), None, None)
            }
            StatedChange::Refused(id) | StatedChange::Reverted(id) => (None, Some(id.to_string()), None),
            StatedChange::Confirmed(id, confirmation) => {
                let confirmed = StoredConfirmation {
                    tx_hash: confirmation.tx_hash.to_string(),
                    block: confirmation.block_number,
                    at: confirmation.settled_at.micros(),
                };
                (Some(id.to_string()), None, Some(confirmed))
            }
            StatedChange::ApprovalChanged(..) => (None, None, None),
        };
        let change = match &self.fact {
            StatedChange::Reverted(_) => Some(StoredChange::Reversal),
            StatedChange::Released(..) => Some(StoredChange::Release),
            StatedChange::Withdrawn(_) => Some(StoredChange::Withdrawal),
            StatedChange::Allowed(_)
            | StatedChange::Refused(_)
            | StatedChange::Confirmed(..)
            | StatedChange::ApprovalChanged(..) => None,
        };
        let approval = match &self.fact {
            StatedChange::ApprovalChanged(id, change, at) => Some(StoredApproval {
                id: id.to_string(),
                change: change.name().to_owned(),
                at: at.micros(),
            }),
            _ => None,
        };
        StoredPendingChange {
            seq: self.sequence.clone(),
            at: self.changed_at.secs(),
            agent: self.agent.to_string(),
            row: self.row.clone(),
            settlement,
            transaction,
            confirmed,
            change,
            approval,
        }
    }

    pub(crate) fn from_stored(stored: &StoredPendingChange) -> Option<Self> {
        let settlement = stored.settlement.as_deref().map(SettlementId::parse);
        let transaction = stored.transaction.as_deref().map(TransactionId::parse);
        let changed_at = Timestamp::from_secs(stored.at)?;
        let pending_change = match (settlement, transaction, &stored.confirmed, stored.change) {
            (None, None, None, None) => {
                let StoredApproval { id, change, at } = stored.approval.as_ref()?;
                let change = ApprovalChange::from_name(change)?;
                StatedChange::ApprovalChanged(ApprovalId::parse(id)?, change, Timestamp::from_micros(*at)?)
            }
            (Some(id), None, None, None) => StatedChange::Allowed(id?),
            (Some(id), None, None, Some(StoredChange::Release)) => StatedChange::Released(id?, changed_at),
            (Some(id), None, None, Some(StoredChange::Withdrawal)) => StatedChange::Withdrawn(id?),
            (None, Some(id), None, Some(StoredChange::Reversal)) => StatedChange::Reverted(id?),
            (Some(id), None, Some(confirmed), None) => {
                let confirmation = Confirmation {
                    tx_hash: TxHash::parse(&confirmed.tx_hash)?,
                    block_number: confirmed.block,
                    settled_at: Timestamp::from_micros(confirmed.at)?,
                };
                StatedChange::Confirmed(id?, confirmation)
            }
            (None, Some(id), None, None) => StatedChange::Refused(id?),
            _ => return None,
        };
        Some(Self {
            sequence: stored.seq.clone(),
            changed_at,
            agent: AgentId::parse(&stored.agent)?,
            fact: pending_change,
            row: stored.row.clone(),
        })
    }
}

impl fmt::Display for PendingPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl PendingBatch {
    /// Writes a batch's object, unless the batch has no changes.
    pub async fn write_batch(&self, objects: &ObjectStore) -> Result<()> {
        let (Some(first), Some(last)) = (self.facts.first(), self.facts.last()) else {
            return Ok(());
        };
        let key = format!("{PREFIX}{}/{}-{}", self.shard, first.sequence, last.sequence);
        let changes: Vec<StoredPendingChange> = self.facts.iter().map(PendingChange::to_stored).collect();
        let bytes = serde_json::to_vec(&changes).map_err(|error| Error::internal("writing facts", error))?;
        objects.put(&key, &bytes).await
    }

    /// Lists the shards that have pending objects.
    pub(crate) async fn list_shards(objects: &ObjectStore) -> Result<Vec<String>> {
        let (mut shards, mut after) = (Vec::new(), None::<String>);
        loop {
            let keys = objects.list(PREFIX, after.as_deref(), 1).await?;
            let Some(key) = keys.first() else { return Ok(shards) };
            let shard = shard_of_key(key).unwrap_or_default().to_owned();
            // `~` sorts after every character of a key, so the next list call starts at the next shard.
            after = Some(format!("{PREFIX}{shard}/~"));
            shards.push(shard);
        }
    }

    pub(crate) async fn list_batches(objects: &ObjectStore, shard: &str, max: u16) -> Result<Vec<PendingPosition>> {
        let keys = objects.list(&format!("{PREFIX}{shard}/"), None, max).await?;
        Ok(keys.into_iter().map(PendingPosition).collect())
    }

    /// Reads the batch in an object; `None` if the object no longer exists.
    pub(crate) async fn read_batch(objects: &ObjectStore, position: &PendingPosition) -> Result<Option<ReadBatch>> {
        let Some(object) = objects.get(&position.0).await? else {
            return Ok(None);
        };
        let stored: Vec<Value> = serde_json::from_slice(&object.bytes)
            .unwrap_or_else(|_| vec![String::from_utf8_lossy(&object.bytes).into_owned().into()]);
        let mut batch = ReadBatch {
            shard: shard_of_key(&position.0).unwrap_or_default().to_owned(),
            facts: Vec::new(),
            unreadable: Vec::new(),
        };
        for value in stored {
            let change = StoredPendingChange::deserialize(&value).ok();
            match change.and_then(|change| PendingChange::from_stored(&change)) {
                Some(change) => batch.facts.push(change),
                None => batch.unreadable.push(value),
            }
        }
        Ok(Some(batch))
    }
}

fn shard_of_key(key: &str) -> Option<&str> {
    let (shard, _) = key.strip_prefix(PREFIX)?.split_once('/')?;
    Some(shard)
}
