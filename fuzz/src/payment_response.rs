//! Fuzzes a provider's payment response: `find_transaction_hash`, for a header's text and for JSON.
//!
//! A returned hash must occur in the input, and the other formats of the same response must give the same hash.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use purser_api::{CompleteRequest, ProviderProof};
use purser_domain::{NoTransaction, TxHash, find_transaction_hash, is_proof_absent, parse_json};
use serde_json::{Map, Value, json};

/// Checks that `find_transaction_hash` returns only hashes that occur in the input.
pub fn payment_response(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        a_text_means_the_same_under_every_header(text);
        holds(&Value::from(text));
    }
    if let Ok(value) = parse_json(bytes) {
        holds(&value);
    }
    holds(&Value::from(STANDARD.encode(bytes)));
}

fn holds(response: &Value) {
    let named = find_transaction_hash(response);
    match &named {
        Ok(Ok(hash)) => {
            let digits = hash.to_string().to_ascii_lowercase().replacen("0x", "", 1);
            assert!(mentions(response, &digits), "{response} does not mention {digits}");
        }
        Ok(Err(_)) => {}
        Err(problem) => {
            assert!(problem.path.starts_with("/payment_response_header"), "{problem:?}");
            assert!(!problem.message.is_empty());
        }
    }
    header_names_have_no_case(response, named.as_ref().ok());
    complete_looks_up_what_it_is_told(response, named.as_ref().ok().copied());
}

/// Returns whether the hexadecimal digits occur in the value, as plain text or in base64 of either alphabet.
fn mentions(value: &Value, digits: &str) -> bool {
    match value {
        Value::String(text) => {
            let letters = text
                .chars()
                .filter(|letter| letter.is_ascii_alphanumeric() || "+/-_".contains(*letter));
            let standard: String = letters.collect::<String>().replace('-', "+").replace('_', "/");
            // An incomplete last group of four base64 characters is ignored.
            let whole = standard.len() / 4 * 4;
            let decoded = STANDARD.decode(&standard[..whole]).unwrap_or_default();
            [text.as_bytes(), &decoded].iter().any(|bytes| {
                let text = String::from_utf8_lossy(bytes).to_ascii_lowercase();
                // A JSON escape such as `\u0030` may replace a digit, so every value with such an escape passes.
                text.contains(digits) || text.contains("\\u00")
            })
        }
        Value::Object(members) => members.values().any(|member| mentions(member, digits)),
        Value::Array(values) => values.iter().any(|value| mentions(value, digits)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

fn a_text_means_the_same_under_every_header(text: &str) {
    let bare = find_transaction_hash(&Value::from(text)).ok();
    for name in ["PAYMENT-RESPONSE", "x-payment-response", "X-Payment-Response"] {
        let named = find_transaction_hash(&json!({name: text, "content-type": "application/json"})).ok();
        assert_eq!(named, bare, "{name}: {text}");
    }
}

fn header_names_have_no_case(response: &Value, named: Option<&Result<TxHash, NoTransaction>>) {
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
            find_transaction_hash(&Value::Object(upper)).ok().as_ref(),
            named,
            "{response}"
        );
    }
}

/// Asserts that a request is rejected if it has no transaction hash, or a `tx_hash` other than the hash in the proof.
fn complete_looks_up_what_it_is_told(response: &Value, named: Option<Result<TxHash, NoTransaction>>) {
    const GIVEN: &str = "0x7014000000000000000000000000000000000000000000000000000000abb2d8";
    let look_up = |body: &Value| {
        CompleteRequest::parse(body, ProviderProof::Required)
            .ok()
            .map(|request| request.tx_hash)
    };
    let proof_is_there = !is_proof_absent(response);
    let proven = look_up(&json!({"payment_response_header": response}));
    assert_eq!(proven, named.and_then(Result::ok).filter(|_| proof_is_there));
    let given = look_up(&json!({"payment_response_header": response, "tx_hash": GIVEN}));
    let agrees = |named: &Result<TxHash, NoTransaction>| named.is_err() || named.ok() == TxHash::parse(GIVEN);
    let may_be_given = named.filter(|named| proof_is_there && agrees(named)).is_some();
    assert_eq!(given, TxHash::parse(GIVEN).filter(|_| may_be_given));
}
