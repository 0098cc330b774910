//! x402's extension `payment-identifier`: an id of the payer's, by which a provider knows a payment that it is sent again.
//!
//! A provider declares `{"info": {"required": …}, "schema": …}`, and the payer answers the same with `info.id` added:
//! 16 to 128 of `A-Z a-z 0-9 _ -` (x402 v2 specification, extensions/payment-identifier). The declared members may not
//! change.

use alloy_primitives::B256;
use serde_json::Value;

const KEY: &str = "payment-identifier";

/// Whether the payer put an id into this extension that no provider takes.
pub(super) fn is_unusable(extensions: &Value) -> bool {
    info(extensions)
        .and_then(|info| info.get("id"))
        .is_some_and(|id| !id.is_null() && !id.as_str().is_some_and(is_identifier))
}

/// The extensions with an id, where the provider declared that it takes one and the payer has put none.
///
/// It is derived from the payment's nonce, which the provider sees in any case, and is the same for each signature.
pub(super) fn identified(extensions: &Value, nonce: B256) -> Value {
    let mut extensions = extensions.clone();
    let declared = extensions.get_mut(KEY).and_then(|declared| declared.get_mut("info"));
    if let Some(info) = declared.and_then(Value::as_object_mut) {
        let digits = alloy_primitives::hex::encode(nonce);
        info.entry("id").or_insert_with(|| format!("pay_{digits}").into());
    }
    extensions
}

fn info(extensions: &Value) -> Option<&Value> {
    extensions.get(KEY)?.get("info")
}

fn is_identifier(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    (16..=128).contains(&text.len()) && text.bytes().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_id_is_added_where_one_is_taken_and_none_was_given() {
        let nonce = B256::repeat_byte(0xa7);
        let own = format!("pay_{}", "a7".repeat(32));
        assert!(is_identifier(&own));
        let declared = json!({KEY: {"info": {"required": true}, "schema": {"type": "object"}}, "a": {"info": {}}});
        let mut expected = declared.clone();
        expected[KEY]["info"]["id"] = own.into();
        assert_eq!(identified(&declared, nonce), expected);
        for unchanged in [
            expected,
            json!({KEY: {"info": {"required": false, "id": "an_order_of_the_agent"}}}),
            json!({"a": {"info": {"required": true}}}),
            json!({KEY: {"schema": {}}}),
            json!({KEY: {"info": "yes"}}),
            json!({KEY: true}),
        ] {
            assert_eq!(identified(&unchanged, nonce), unchanged);
        }
    }

    #[test]
    fn an_id_has_sixteen_to_a_hundred_and_twenty_eight_of_its_alphabet() {
        let unusable = |id: Value| is_unusable(&json!({KEY: {"info": {"required": true, "id": id}}}));
        for id in ["a".repeat(16), "Z9_-".repeat(32)] {
            assert!(!unusable(json!(id)), "{id}");
        }
        for id in [
            "a".repeat(15),
            "a".repeat(129),
            format!("{} ", "a".repeat(16)),
            "é".repeat(16),
        ] {
            assert!(unusable(json!(id)), "{id}");
        }
        assert!(unusable(json!(1_234_567_890_123_456_u64)));
        assert!(!unusable(Value::Null), "a declaration may say that there is none");
        assert!(!is_unusable(&json!({KEY: {"info": {"required": true}}})));
        assert!(!is_unusable(&json!({"other": {"info": {"id": "short"}}})));
    }
}
