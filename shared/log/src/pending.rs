//! The facts that are to be stated. `events` writes an object for each batch of a shard, in which a fact has the
//! sequence number of its record; a repeated batch writes the same facts again.

use crate::objects::ObjectStore;
use purser_domain::{AgentId, Error, Result, SettlementId, TransactionId, TxHash};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The prefix of the objects.
const PREFIX: &str = "pending/";

/// A fact that is to be stated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatedFact {
    /// A payment was authorized.
    Allowed(SettlementId),
    /// A payment was blocked or escalated.
    Refused(TransactionId),
    /// A payment or a payout was confirmed by this transaction of the chain.
    Confirmed(SettlementId, TxHash),
}

/// A fact, with its agent and the sequence number of its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingFact {
    /// The sequence number, padded so that text order is the order of the shard's records.
    pub sequence: String,
    /// The agent.
    pub agent: AgentId,
    /// The fact.
    pub fact: StatedFact,
}

/// The facts of a batch of records of a shard, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingBatch {
    /// The shard.
    pub shard: String,
    /// The facts.
    pub facts: Vec<PendingFact>,
}

/// The object of a batch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PendingPlace(String);

#[derive(Serialize, Deserialize)]
struct Stored {
    seq: String,
    agent: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    settlement: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    transaction: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tx_hash: Option<String>,
}

impl PendingFact {
    fn stored(&self) -> Stored {
        let (settlement, transaction, tx_hash) = match &self.fact {
            StatedFact::Allowed(id) => (Some(id.to_string()), None, None),
            StatedFact::Refused(id) => (None, Some(id.to_string()), None),
            StatedFact::Confirmed(id, hash) => (Some(id.to_string()), None, Some(hash.to_string())),
        };
        Stored {
            seq: self.sequence.clone(),
            agent: self.agent.to_string(),
            settlement,
            transaction,
            tx_hash,
        }
    }

    fn of(stored: &Stored) -> Option<Self> {
        let settlement = stored.settlement.as_deref().map(SettlementId::parse);
        let transaction = stored.transaction.as_deref().map(TransactionId::parse);
        let fact = match (settlement, transaction, stored.tx_hash.as_deref()) {
            (Some(id), None, None) => StatedFact::Allowed(id?),
            (Some(id), None, Some(hash)) => StatedFact::Confirmed(id?, TxHash::parse(hash)?),
            (None, Some(id), None) => StatedFact::Refused(id?),
            _ => return None,
        };
        Some(Self {
            sequence: stored.seq.clone(),
            agent: AgentId::parse(&stored.agent)?,
            fact,
        })
    }
}

impl fmt::Display for PendingPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl PendingBatch {
    /// Writes the object of a batch, unless it has no facts.
    pub async fn write(&self, objects: &ObjectStore) -> Result<()> {
        let (Some(first), Some(last)) = (self.facts.first(), self.facts.last()) else {
            return Ok(());
        };
        let key = format!("{PREFIX}{}/{}-{}", self.shard, first.sequence, last.sequence);
        let facts: Vec<Stored> = self.facts.iter().map(PendingFact::stored).collect();
        let bytes = serde_json::to_vec(&facts).map_err(|error| Error::internal("writing facts", error))?;
        objects.put(&key, &bytes).await
    }

    /// The first objects, by shard and in the order of its records.
    pub(crate) async fn places(objects: &ObjectStore, most: u16) -> Result<Vec<PendingPlace>> {
        let keys = objects.list(PREFIX, None, most).await?;
        Ok(keys.into_iter().map(PendingPlace).collect())
    }

    /// Reads the batch of an object; `None` if it was deleted meanwhile.
    pub(crate) async fn read(objects: &ObjectStore, place: &PendingPlace) -> Result<Option<Self>> {
        const READING: &str = "reading facts";
        let Some(object) = objects.get(&place.0).await? else {
            return Ok(None);
        };
        let stored: Vec<Stored> =
            serde_json::from_slice(&object.bytes).map_err(|error| Error::internal(READING, error))?;
        let facts: Option<Vec<PendingFact>> = stored.iter().map(PendingFact::of).collect();
        let shard = place.0.strip_prefix(PREFIX).and_then(|rest| rest.split_once('/'));
        let (Some(facts), Some((shard, _))) = (facts, shard) else {
            return Err(Error::internal(READING, place.0.clone()));
        };
        Ok(Some(Self {
            shard: shard.to_owned(),
            facts,
        }))
    }

    pub(crate) async fn delete(objects: &ObjectStore, place: &PendingPlace) -> Result<()> {
        objects.delete(&place.0).await
    }
}
