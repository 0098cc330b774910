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
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Confirmation {
    /// The hash of the on-chain transaction.
    pub tx_hash: TxHash,
    /// The number of the block that contains the on-chain transaction.
    pub block_number: u64,
    /// The time at which the payment was confirmed.
    pub settled_at: Timestamp,
}

/// A change of a payment or an approval that needs a statement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
        let bytes =
            serde_json::to_vec(&self.facts).map_err(|error| Error::internal("writing pending changes", error))?;
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
            match PendingChange::deserialize(&value) {
                Ok(change) => batch.facts.push(change),
                Err(_) => batch.unreadable.push(value),
            }
        }
        Ok(Some(batch))
    }
}

fn shard_of_key(key: &str) -> Option<&str> {
    let (shard, _) = key.strip_prefix(PREFIX)?.split_once('/')?;
    Some(shard)
}
