//! Replay keys of preflights: a row of their own for each, which says whose request it is. Nothing rests on them: authorize
//! never reads them, and DynamoDB deletes them.

use crate::{
    codec::attribute::Attribute as _, codec::item::Draft, codec::key::Key, codec::ledger::Ledger,
    codec::transact::was_made,
};
use purser_domain::{AgentId, Duration, Fingerprint, Result, Timestamp};

/// Whose a replay key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayKey {
    /// This request's, for a day from now.
    Held,
    /// Another request's, which used it less than a day ago.
    Taken,
}

impl Ledger {
    /// Holds a replay key for a request, unless another one has it: 1 write unit.
    pub async fn hold_replay_key(
        &self,
        agent: AgentId,
        replay_key: &Fingerprint,
        fingerprint: &Fingerprint,
        now: Timestamp,
    ) -> Result<ReplayKey> {
        let row = Draft::of(&Key::preflight(agent, replay_key))
            .with("rh", fingerprint)
            // In seconds, as DynamoDB deletes by it; that happens days later, so the condition below asks the time itself.
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
