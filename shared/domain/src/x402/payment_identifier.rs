//! x402's `payment-identifier` extension: an id from the payer, so that the provider recognizes a repeated payment
//! (x402 v2 specification, extensions/payment-identifier).

use alloy_primitives::B256;
use serde_json::value::{RawValue, to_raw_value};
use std::collections::BTreeMap;

const KEY: &str = "payment-identifier";

/// Adds a payment id to the extensions. `None` if the provider does not accept an id or has set one.
///
/// The id is derived from the payment's nonce, so it is the same for every signature.
pub(super) fn add_payment_identifier(extensions: &RawValue, nonce: B256) -> Option<Box<RawValue>> {
    let extensions = object_fields(extensions)?;
    let declared = object_fields(extensions.get(KEY)?)?;
    let info = object_fields(declared.get("info")?)?;
    if info.contains_key("id") {
        return None;
    }
    let id = to_raw_value(&format!("pay_{}", alloy_primitives::hex::encode(nonce))).ok()?;
    let info = with_field(info, "id", &id)?;
    let declared = with_field(declared, "info", &info)?;
    with_field(extensions, KEY, &declared)
}

type Members<'a> = BTreeMap<String, &'a RawValue>;

fn object_fields(value: &RawValue) -> Option<Members<'_>> {
    serde_json::from_str(value.get()).ok()
}

fn with_field<'a>(mut fields: Members<'a>, name: &str, value: &'a RawValue) -> Option<Box<RawValue>> {
    fields.insert(name.to_owned(), value);
    to_raw_value(&fields).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_missing_payment_identifier_is_added_when_supported() {
        let nonce = B256::repeat_byte(0xa7);
        let own = format!("pay_{}", "a7".repeat(32));
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        assert!((16..=128).contains(&own.len()) && own.bytes().all(is_allowed));
        let identified = |extensions: &Value| {
            let added = add_payment_identifier(&to_raw_value(extensions).unwrap(), nonce)?;
            Some(serde_json::from_str::<Value>(added.get()).unwrap())
        };
        let declared = json!({KEY: {"info": {"required": true}, "schema": {"type": "object"}}, "a": {"info": {}}});
        let mut expected = declared.clone();
        expected[KEY]["info"]["id"] = own.into();
        assert_eq!(identified(&declared).as_ref(), Some(&expected));
        for unchanged in [
            expected,
            json!({KEY: {"info": {"required": false, "id": "an_order_of_the_agent"}}}),
            json!({KEY: {"info": {"required": true, "id": "short"}}}),
            json!({KEY: {"info": {"required": true, "id": null}}}),
            json!({"a": {"info": {"required": true}}}),
            json!({KEY: {"schema": {}}}),
            json!({KEY: {"info": "yes"}}),
            json!({KEY: true}),
            json!([]),
            json!("text"),
        ] {
            assert_eq!(identified(&unchanged), None, "{unchanged}");
        }
    }
}
