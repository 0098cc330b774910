//! Replay keys of preflights. They do not affect spending, because the authorization of a payment never reads them.

use crate::{
    codec::attribute::Attribute as _, codec::fault::store_error, codec::item::Draft, codec::key::Key,
    codec::ledger::Ledger, codec::table::put_request,
};
use aws_sdk_dynamodb::{operation::put_item::PutItemError, types::ReturnValuesOnConditionCheckFailure};
use purser_domain::{AgentId, Duration, Fingerprint, Result, Timestamp};

/// The result of storing a preflight's replay key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayKey {
    /// The replay key is stored for this request, for a day from now.
    Held,
    /// Another request used the replay key less than a day ago. Contains the fingerprint of that request.
    Taken(Fingerprint),
}

impl Ledger {
    /// Stores a replay key for a request, unless another request has the key. Takes 1 write unit.
    pub async fn try_reserve_replay_key(
        &self,
        agent: AgentId,
        replay_key: &Fingerprint,
        fingerprint: &Fingerprint,
        now: Timestamp,
    ) -> Result<ReplayKey> {
        let row = Draft::new(&Key::preflight_replay_key(agent, replay_key))
            .with("rh", fingerprint)
            // TTL requires seconds. DynamoDB may delete the row days later, so the condition below compares the time.
            .with("ttl", &now.after(Duration::DAY).secs());
        let put = put_request(&self.db, &self.table, row.into_item())
            .condition_expression("attribute_not_exists(pk) OR #ttl <= :now OR rh = :rh")
            .expression_attribute_names("#ttl", "ttl")
            .expression_attribute_values(":now", now.secs().write())
            .expression_attribute_values(":rh", fingerprint.write())
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        let Err(error) = put.send().await else {
            return Ok(ReplayKey::Held);
        };
        if let Some(PutItemError::ConditionalCheckFailedException(failure)) = error.as_service_error()
            && let Some(item) = failure.item()
        {
            return self.item_row(item).get("rh").map(ReplayKey::Taken);
        }
        Err(store_error("reserving a replay key")(error))
    }
}
