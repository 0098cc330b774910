//! Replay keys of preflights, one row each, with the fingerprint of the request. Spending does not depend on them:
//! authorize never reads them, and DynamoDB deletes them by TTL.

use crate::{
    codec::attribute::Attribute as _, codec::item::Draft, codec::key::Key, codec::ledger::Ledger,
    codec::transact::was_made,
};
use purser_domain::{AgentId, Duration, Fingerprint, Result, Timestamp};

/// The request that a replay key belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayKey {
    /// This request holds the key, for a day from now.
    Held,
    /// Another request used the key less than a day ago.
    Taken,
}

impl Ledger {
    /// Stores a replay key for a request, unless another request has it: 1 write unit.
    pub async fn hold_replay_key(
        &self,
        agent: AgentId,
        replay_key: &Fingerprint,
        fingerprint: &Fingerprint,
        now: Timestamp,
    ) -> Result<ReplayKey> {
        let row = Draft::of(&Key::preflight(agent, replay_key))
            .with("rh", fingerprint)
            // In seconds, as TTL requires. Deletion can lag by days, so the condition below compares the time itself.
            .with("ttl", &now.after(Duration::DAY).secs());
        let put = self
            .db
            .put_item()
            .table_name(&*self.table)
            .set_item(Some(row.into_item()))
            .condition_expression("attribute_not_exists(pk) OR #ttl <= :now OR rh = :rh")
            .expression_attribute_names("#ttl", "ttl")
            .expression_attribute_values(":now", now.secs().write())
            .expression_attribute_values(":rh", fingerprint.write());
        Ok(if was_made(put.send().await, "holding a replay key")? {
            ReplayKey::Held
        } else {
            ReplayKey::Taken
        })
    }
}
