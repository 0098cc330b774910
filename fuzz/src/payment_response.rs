//! A provider's payment response: `transaction_hash_in` over the raw text of a header, decoded objects and objects of
//! headers.
//!
//! The input is a header's text, or JSON. A hash is returned only if the input contains it, and the same response in
//! another wrapping gives the same hash.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use purser_api::{CompleteRequest, ProviderProof};
use purser_domain::{TxHash, is_no_proof, parse_json, transaction_hash_in};
use serde_json::{Map, Value, json};

/// See the module's documentation.
pub fn payment_response(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        a_text_means_the_same_under_every_header(text);
        holds(&Value::from(text));
    }
    if let Ok(value) = parse_json(bytes) {
        holds(&value);
    }
    // As a header would contain these bytes.
    holds(&Value::from(STANDARD.encode(bytes)));
}

fn holds(response: &Value) {
    let named = transaction_hash_in(response);
    match &named {
        Ok(Some(hash)) => {
            let digits = hash.to_string().to_ascii_lowercase();
            assert!(mentions(response, &digits), "{response} does not mention {digits}");
        }
        Ok(None) => {}
        Err(problem) => {
            assert!(problem.path.starts_with("/payment_response_header"), "{problem:?}");
            assert!(!problem.message.is_empty());
        }
    }
    header_names_have_no_case(response, named.as_ref().ok());
    complete_looks_up_what_it_is_told(response, named.as_ref().ok().copied());
}

/// Whether the digits occur anywhere in the value, as plain text or in base64.
fn mentions(value: &Value, digits: &str) -> bool {
    match value {
        Value::String(text) => {
            let unescaped = parse_json(text.as_bytes()).ok();
            let decoded = STANDARD.decode(text).ok().and_then(|bytes| parse_json(&bytes).ok());
            text.to_ascii_lowercase() == digits
                || [unescaped, decoded]
                    .into_iter()
                    .flatten()
                    .any(|inner| inner.is_object() && mentions(&inner, digits))
        }
        Value::Object(members) => members.values().any(|member| mentions(member, digits)),
        Value::Array(values) => values.iter().any(|value| mentions(value, digits)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

fn a_text_means_the_same_under_every_header(text: &str) {
    let bare = transaction_hash_in(&Value::from(text)).ok();
    for name in ["PAYMENT-RESPONSE", "x-payment-response", "X-Payment-Response"] {
        let named = transaction_hash_in(&json!({name: text, "content-type": "application/json"})).ok();
        assert_eq!(named, bare, "{name}: {text}");
    }
}

fn header_names_have_no_case(response: &Value, named: Option<&Option<TxHash>>) {
    let Value::Object(members) = response else { return };
    let is_header = |name: &str| {
        ["payment-response", "x-payment-response"]
            .iter()
            .any(|header| header.eq_ignore_ascii_case(name))
    };
    let upper: Map<String, Value> = members
        .iter()
        .map(|(name, value)| {
            let name = if is_header(name) {
                name.to_uppercase()
            } else {
                name.clone()
            };
            (name, value.clone())
        })
        .collect();
    if upper.len() == members.len() {
        assert_eq!(
            transaction_hash_in(&Value::Object(upper)).ok().as_ref(),
            named,
            "{response}"
        );
    }
}

/// Asserts that `tx_hash` takes precedence over the proof's own hash, which is used without it; without either there is
/// none.
fn complete_looks_up_what_it_is_told(response: &Value, named: Option<Option<TxHash>>) {
    const GIVEN: &str = "0x7014000000000000000000000000000000000000000000000000000000abb2d8";
    let look_up = |body: &Value| {
        CompleteRequest::parse(body, ProviderProof::Required)
            .ok()
            .map(|request| request.tx_hash)
    };
    let proof_is_there = !is_no_proof(response);
    let proven = look_up(&json!({"payment_response_header": response}));
    assert_eq!(proven, named.flatten().filter(|_| proof_is_there));
    let given = look_up(&json!({"payment_response_header": response, "tx_hash": GIVEN}));
    assert_eq!(
        given,
        named.filter(|_| proof_is_there).and_then(|_| TxHash::parse(GIVEN))
    );
}
