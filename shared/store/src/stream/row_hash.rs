//! Hashes the attributes of a decision's row that never change, so that a later change is detected before the statement
//! is signed.

use crate::{
    codec::{attribute::Item, item::read_field, key, key::Key, ledger::Ledger},
    payments::settlement::CONFIRMED,
};
use aws_sdk_dynamodb::types::AttributeValue;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use purser_domain::{AgentId, DocumentHash, Result, Settlement, SettlementId};
use serde_json::{Map, Value, json};
use std::fmt;

/// The attributes of a settlement's row that may change, for example when the payment is confirmed.
const MOVES: [&str; 10] = ["rs", "txh", "blk", "settled", "ct", "hp", "hs", "fp", "fph", "unc"];

/// The attributes of an approval's row that a decision, a payment or an ownership transfer may change.
const APPROVAL_MOVES: [&str; 8] = ["st", "resolved", "by", "note", "os", "sid", "owner", "granted"];

/// The state of an approval (attribute `st`) before and after the owner approves.
const PENDING: &str = "pending";
const APPROVED: &str = "approved";

/// The SHA-256 of a row's permanent attributes, as 64 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowHash(String);

impl RowHash {
    /// Computes the hash of the row's permanent attributes as DynamoDB JSON, with sorted sets.
    pub(crate) fn from_item(item: &Item) -> Self {
        Self(DocumentHash::for_document(&Value::Object(immutable_attributes(item))).to_string())
    }

    /// Creates the hash from 64 hexadecimal digits, which are not checked.
    pub fn from_digits(digits: impl Into<String>) -> Self {
        Self(digits.into())
    }
}

impl fmt::Display for RowHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn immutable_attributes(item: &Item) -> Map<String, Value> {
    let moves: &[&str] = match key::partition_key_text(item).split('#').next() {
        Some("S") => &MOVES,
        Some("AP") => &APPROVAL_MOVES,
        _ => &[],
    };
    let kept = item.iter().filter(|(name, _)| !moves.contains(&name.as_str()));
    kept.map(|(name, value)| (name.clone(), attribute_json(value)))
        .collect()
}

/// Returns whether an attribute changed that must not change, for example the transaction of a confirmed payment.
pub(crate) fn has_changed_immutable_attribute(old: &Item, new: &Item) -> bool {
    let is_confirmed = |row: &Item| read_field::<String>(row, "rs").is_some_and(|state| state == CONFIRMED);
    let differs = |name| old.get(name) != new.get(name);
    let is_reconfirmed = is_confirmed(old) && is_confirmed(new) && (differs("txh") || differs("settled"));
    let (mut old_permanent, mut new_permanent) = (immutable_attributes(old), immutable_attributes(new));
    // The approval of a limit increase replaces `ends` by the expiry time of the increase.
    if old_permanent.contains_key("raise") {
        old_permanent.remove("ends");
        new_permanent.remove("ends");
    }
    // The row gets the attribute `granted` once: when the owner approves a request for a limit increase.
    let has_state = |row: &Item, state| read_field::<String>(row, "st").is_some_and(|stored| stored == state);
    let may_be_granted = old.contains_key("raise")
        && !old.contains_key("granted")
        && has_state(old, PENDING)
        && has_state(new, APPROVED);
    let is_grant_changed = differs("granted") && !may_be_granted;
    is_reconfirmed || is_grant_changed || old_permanent != new_permanent
}

pub(crate) fn attribute_json(value: &AttributeValue) -> Value {
    let bytes = |bytes: &aws_sdk_dynamodb::primitives::Blob| BASE64_STANDARD.encode(bytes);
    let sorted = |mut texts: Vec<String>| {
        texts.sort_unstable();
        texts
    };
    match value {
        AttributeValue::S(text) => json!({"S": text}),
        AttributeValue::N(digits) => json!({"N": digits}),
        AttributeValue::B(blob) => json!({"B": bytes(blob)}),
        AttributeValue::Bool(value) => json!({"BOOL": value}),
        AttributeValue::Ss(texts) => json!({"SS": sorted(texts.clone())}),
        AttributeValue::Ns(digits) => json!({"NS": sorted(digits.clone())}),
        AttributeValue::Bs(blobs) => json!({"BS": sorted(blobs.iter().map(bytes).collect())}),
        AttributeValue::L(values) => json!({"L": values.iter().map(attribute_json).collect::<Vec<_>>()}),
        AttributeValue::M(item) => {
            let fields = item.iter().map(|(name, value)| (name.clone(), attribute_json(value)));
            json!({"M": fields.collect::<Map<_, _>>()})
        }
        // `NULL`, or a type that DynamoDB may add later.
        _ => json!({"NULL": true}),
    }
}

impl Ledger {
    /// Reads a settlement and the row hash, strongly consistent.
    pub async fn read_settlement_with_hash(
        &self,
        agent: AgentId,
        id: SettlementId,
    ) -> Result<Option<(Settlement, RowHash)>> {
        let item = self.get_item(&Key::settlement(agent, id)).await?;
        item.map(|item| Ok((self.read_settlement_item(&item)?, RowHash::from_item(&item))))
            .transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn granted_caps_are_written_only_with_the_approval_of_an_increase() {
        let row = |state: &str, others: &[&str]| -> Item {
            let text = |name: &str, value: &str| (name.to_owned(), AttributeValue::S(value.to_owned()));
            let others = others.iter().map(|name| text(name, "caps"));
            others.chain([text("pk", "AP#1"), text("st", state)]).collect()
        };
        let rows = [
            (
                ("pending", &["raise"][..]),
                ("approved", &["raise", "granted"][..]),
                false,
            ),
            (("pending", &["raise"]), ("approved", &["raise"]), false),
            (
                ("approved", &["raise", "granted"]),
                ("rejected", &["raise", "granted"]),
                false,
            ),
            (("pending", &[]), ("approved", &["granted"]), true),
            (("pending", &["raise"]), ("rejected", &["raise", "granted"]), true),
            (("pending", &["raise"]), ("pending", &["raise", "granted"]), true),
            (("approved", &["raise"]), ("approved", &["raise", "granted"]), true),
            (("approved", &["raise", "granted"]), ("approved", &["raise"]), true),
        ];
        for ((old_state, old), (new_state, new), expected) in rows {
            let (old, new) = (row(old_state, old), row(new_state, new));
            assert_eq!(has_changed_immutable_attribute(&old, &new), expected, "{old:?} {new:?}");
        }
    }
}
