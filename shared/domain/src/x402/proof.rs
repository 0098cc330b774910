//! The provider's payment response, of which only the transaction hash is read.
//!
//! Nothing in it is proof. A response may claim success where no money moved, and failure where it did; so the hash
//! only says where to look, and the chain decides (`transfer.rs`). `success: false` therefore changes nothing: an
//! honest facilitator that stopped waiting answers `settlement_pending` with the hash of a transaction mined later.
//!
//! Two kinds of wrong input are distinguished. A response that can't be decoded, or names no EVM transaction, is the
//! provider's fault and counts as one without a hash. A value of the wrong type is the caller's mistake and a
//! [`Problem`]. If nothing was received, there is no proof at all: [`is_no_proof`].

use crate::{Problem, TxHash, parse_json};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value};
use std::borrow::Cow;

/// The response headers of x402 v2 and v1; compared case-insensitively, as header names are (RFC 9110 §5.1).
const HEADERS: [&str; 2] = ["PAYMENT-RESPONSE", "X-PAYMENT-RESPONSE"];

/// The longest header text that is decoded. Responses with the known extensions measure 1.5 KiB; 16 KiB is about the
/// longest header line that servers accept.
const MAX_TEXT_BYTES: usize = 16 * 1024;

/// The JSON Pointer of the response in a request body.
const ROOT: &str = "/payment_response_header";

/// The transaction that a provider's payment response names; `None` when it names none.
///
/// The response is the header's text (base64 of JSON, or the JSON itself), the decoded object, or an object keyed by
/// header name in any case with either of these, or with an array of the one text: the form of clients that allow a
/// header several times.
pub fn transaction_hash_in(payment_response_header: &Value) -> Result<Option<TxHash>, Problem> {
    match payment_response_header {
        Value::String(text) => in_text(text, ROOT),
        Value::Object(object) => in_headers(object),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
            Err(Problem::at(ROOT, "must be the header's text or an object"))
        }
    }
}

/// Whether it holds no payment response at all, as when a provider sent none: a blank text, an empty object, or an
/// object whose response headers are all empty in this sense.
pub fn is_no_proof(payment_response_header: &Value) -> bool {
    match payment_response_header {
        Value::Null => true,
        Value::String(text) => text.trim().is_empty(),
        Value::Object(object) => {
            let mut headers = object.iter().filter(|(name, _)| is_header(name)).peekable();
            if headers.peek().is_none() {
                return object.is_empty();
            }
            headers.all(|(_, value)| is_blank_header(value)) && in_response(object).is_none()
        }
        Value::Bool(_) | Value::Number(_) | Value::Array(_) => false,
    }
}

fn is_blank_header(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.trim().is_empty(),
        Value::Object(response) => response.is_empty(),
        Value::Array(values) => matches!(values.as_slice(), [Value::String(text)] if text.trim().is_empty()),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

fn is_header(name: &str) -> bool {
    HEADERS.iter().any(|header| header.eq_ignore_ascii_case(name))
}

/// The hash in an object that is either the decoded response or keyed by header name.
fn in_headers(object: &Map<String, Value>) -> Result<Option<TxHash>, Problem> {
    let mut hash = in_response(object);
    for (name, value) in object {
        if !is_header(name) {
            continue;
        }
        let path = format!("{ROOT}/{name}");
        let named = match value {
            Value::String(text) => in_text(text, &path)?,
            Value::Object(response) => in_response(response),
            Value::Null => None,
            Value::Array(values) => match values.as_slice() {
                [Value::String(text)] => in_text(text, &path)?,
                _ => return Err(wrong_header(&path)),
            },
            Value::Bool(_) | Value::Number(_) => return Err(wrong_header(&path)),
        };
        if hash.is_some() && named.is_some() && hash != named {
            return Err(Problem::at(ROOT, "names two different transactions"));
        }
        hash = hash.or(named);
    }
    Ok(hash)
}

/// The hash in a header's text: strict base64 of a JSON object, or the object itself.
fn in_text(text: &str, path: &str) -> Result<Option<TxHash>, Problem> {
    if text.len() > MAX_TEXT_BYTES {
        return Err(Problem::at(path, format!("must be at most {MAX_TEXT_BYTES} bytes")));
    }
    // No base64 text begins with a brace, so the two forms can't be confused.
    let json = if text.trim_start().starts_with('{') {
        Some(Cow::Borrowed(text.as_bytes()))
    } else {
        STANDARD.decode(text).ok().map(Cow::Owned)
    };
    let response = json.and_then(|json| parse_json(&json).ok());
    Ok(response.as_ref().and_then(Value::as_object).and_then(in_response))
}

/// `transaction` of a `SettleResponse`, the same in v1 and v2; an empty string if nothing was sent to the chain.
fn in_response(response: &Map<String, Value>) -> Option<TxHash> {
    TxHash::parse(response.get("transaction")?.as_str()?)
}

fn wrong_header(path: &str) -> Problem {
    Problem::at(path, "must be the header's text, an array of one text, or an object")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    const HASH: &str = "0x7014000000000000000000000000000000000000000000000000000000abb2d8";
    const OTHER: &str = "0x8198000000000000000000000000000000000000000000000000000000ab014b";

    fn response(transaction: &Value) -> Value {
        json!({"success": true, "transaction": transaction, "network": "base-sepolia", "payer": "0x7099"})
    }

    fn encoded(response: &Value) -> String {
        STANDARD.encode(response.to_string())
    }

    #[test]
    fn the_hash_is_found_in_every_form_of_the_response() {
        let plain = response(&json!(HASH));
        let pending = json!({
            "success": false, "errorReason": "settlement_pending", "transaction": HASH, "network": "eip155:84532"
        });
        let upper = response(&json!(HASH.to_uppercase().replace("0X", "0x")));
        let cases = [
            json!(encoded(&plain)),
            json!(plain.to_string()),
            json!(encoded(&pending)),
            json!(encoded(&upper)),
            plain.clone(),
            pending.clone(),
            json!({"X-PAYMENT-RESPONSE": encoded(&plain)}),
            json!({"x-payment-response": encoded(&plain)}),
            json!({"Payment-Response": encoded(&pending)}),
            json!({"payment-response": pending}),
            json!({"payment-response": plain.to_string(), "content-type": ["a"], "date": 1}),
            json!({"payment-response": encoded(&plain), "X-Payment-Response": encoded(&pending)}),
            json!({"payment-response": null, "x-payment-response": encoded(&plain)}),
            json!({"payment-response": [encoded(&plain)]}),
            json!({"X-PAYMENT-RESPONSE": [plain.to_string()], "set-cookie": ["a", "b"]}),
            json!({"payment-response": [""], "x-payment-response": [encoded(&plain)]}),
            json!({"payment-response": encoded(&response(&json!(""))), "x-payment-response": encoded(&plain)}),
        ];
        for case in cases {
            assert_eq!(transaction_hash_in(&case), Ok(TxHash::parse(HASH)), "{case}");
        }
    }

    #[test]
    fn a_response_without_a_usable_hash_carries_none() {
        let unpadded = STANDARD
            .encode(format!(r#"{{"transaction":"{HASH}","ab":1}}"#))
            .trim_end_matches('=')
            .to_owned();
        assert!(!unpadded.len().is_multiple_of(4), "the example must need padding");
        let cases = [
            json!(""),
            json!("not base64"),
            json!(unpadded),
            json!(HASH),
            json!(STANDARD.encode("[1]")),
            json!(STANDARD.encode("\"text\"")),
            json!(STANDARD.encode([0xff, 0xfe])),
            json!("{\"transaction\":"),
            json!(STANDARD.encode(format!(r#"{{"transaction":"{HASH}","transaction":"{OTHER}"}}"#))),
            json!(encoded(&response(&json!("")))),
            json!(encoded(&response(&Value::Null))),
            json!(encoded(&response(&json!(7)))),
            json!(encoded(&response(&json!(
                "5VERv8NMvzbJMEkV8xnrLkEaWRtSz9CosKDYjCJjBRnbJLgp8uirBgmQpjKhoR4tjF3ZpRzrFmBV6UjKdiSZkQUW"
            )))),
            json!({}),
            json!({"success": true}),
            json!({"content-type": "application/json"}),
            json!({"x-payment-response": {}}),
            json!({"x-payment-response": ""}),
        ];
        for case in cases {
            assert_eq!(transaction_hash_in(&case), Ok(None), "{case}");
        }
    }

    #[test]
    fn what_was_not_received_is_blank() {
        let blank = [
            json!(""),
            json!(" \t\n"),
            json!({}),
            json!({"payment-response": ""}),
            json!({"X-Payment-Response": "  ", "payment-response": null}),
            json!({"payment-response": [""], "content-type": "application/json"}),
            json!({"payment-response": {}}),
        ];
        for case in blank {
            assert!(is_no_proof(&case), "{case}");
            assert_eq!(transaction_hash_in(&case), Ok(None), "{case}");
        }
        let there = [
            json!("e30="),
            json!("{}"),
            json!({"success": false}),
            json!({"content-type": "application/json"}),
            json!({"payment-response": "e30="}),
            json!({"payment-response": "", "x-payment-response": "e30="}),
            json!({"payment-response": "", "transaction": HASH}),
            // The caller's mistakes, reported as problems.
            json!([]),
            json!([""]),
            json!({"payment-response": []}),
            json!({"payment-response": ["", ""]}),
            json!({"payment-response": 0}),
        ];
        for case in there {
            assert!(!is_no_proof(&case), "{case}");
        }
    }

    #[test]
    fn the_callers_mistakes_are_named() {
        let (one, two) = (response(&json!(HASH)), response(&json!(OTHER)));
        let cases = [
            (json!(7), ROOT),
            (json!(true), ROOT),
            (json!([encoded(&one)]), ROOT),
            (Value::Null, ROOT),
            (
                json!({"X-Payment-Response": []}),
                "/payment_response_header/X-Payment-Response",
            ),
            (
                json!({"X-Payment-Response": [encoded(&one), encoded(&one)]}),
                "/payment_response_header/X-Payment-Response",
            ),
            (
                json!({"payment-response": [one]}),
                "/payment_response_header/payment-response",
            ),
            (
                json!({"payment-response": 1}),
                "/payment_response_header/payment-response",
            ),
            (json!("A".repeat(16_385)), ROOT),
            (
                json!({"payment-response": "A".repeat(16_385)}),
                "/payment_response_header/payment-response",
            ),
            (
                json!({"payment-response": encoded(&one), "x-payment-response": encoded(&two)}),
                ROOT,
            ),
            (
                json!({"payment-response": encoded(&one), "Payment-Response": two}),
                ROOT,
            ),
            (json!({"payment-response": encoded(&one), "transaction": OTHER}), ROOT),
        ];
        for (case, path) in cases {
            assert_eq!(transaction_hash_in(&case).unwrap_err().path, path, "{case}");
        }
    }

    proptest! {
        /// The reader fails on no text, except one that is too long.
        #[test]
        fn any_text_is_read(text in ".*") {
            let too_long = text.len() > MAX_TEXT_BYTES;
            prop_assert_eq!(transaction_hash_in(&Value::String(text)).is_err(), too_long);
        }
    }
}
