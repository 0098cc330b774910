//! KMS keys whose agents were not stored. The next agents use them, because a new key is unusable for some minutes.

use crate::{
    codec::attribute::Item,
    codec::fault::store_error,
    codec::item::{Draft, read_field},
    codec::key::Key,
    codec::ledger::Ledger,
    codec::table::update_request,
};
use aws_sdk_dynamodb::{error::ProvideErrorMetadata as _, types::AttributeValue, types::ReturnValue};
use purser_domain::{AgentId, KmsKeyId, Result};

/// A KMS key whose agent was not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpareKey {
    /// The id of the KMS key.
    pub key: KmsKeyId,
    /// The agent's id in the key's tags. Only an agent with this id may use the key's wallet.
    pub agent: AgentId,
}

impl Ledger {
    /// Removes and returns the oldest spare key. If the response is lost, the key can be found by the tags.
    pub async fn take_spare_key(&self) -> Result<Option<SpareKey>> {
        const OPERATION: &str = "removing a spare KMS key";
        let update = update_request(&self.db, &self.table, &Key::spare_kms_keys())
            .update_expression("REMOVE spare[0]")
            .condition_expression("attribute_exists(spare[0])")
            .return_values(ReturnValue::AllOld);
        let old = match update.send().await {
            Ok(taken) => taken.attributes.unwrap_or_default(),
            Err(error) if error.code() == Some("ConditionalCheckFailedException") => return Ok(None),
            Err(error) => return Err(store_error(OPERATION)(error)),
        };
        let first = old.get("spare").and_then(parse_first_spare_key);
        first
            .map(Some)
            .ok_or_else(|| self.item_row(&old).corrupt_error("spare"))
    }

    /// Adds a key at the end of the list of spare keys.
    pub async fn add_spare_key(&self, spare_key: SpareKey) -> Result<()> {
        let entry = Draft::new_map()
            .with("key", &spare_key.key)
            .with("agent", &spare_key.agent);
        let update = update_request(&self.db, &self.table, &Key::spare_kms_keys())
            .update_expression("SET spare = list_append(if_not_exists(spare, :none), :added)")
            .expression_attribute_values(":none", AttributeValue::L(Vec::new()))
            .expression_attribute_values(":added", AttributeValue::L(vec![AttributeValue::M(entry.into_item())]));
        update.send().await.map_err(store_error("storing a spare KMS key"))?;
        Ok(())
    }
}

fn parse_first_spare_key(spare_key: &AttributeValue) -> Option<SpareKey> {
    let entry: &Item = spare_key.as_l().ok()?.first()?.as_m().ok()?;
    Some(SpareKey {
        key: read_field(entry, "key")?,
        agent: read_field(entry, "agent")?,
    })
}
