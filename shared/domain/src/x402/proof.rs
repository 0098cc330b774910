//! The provider's payment response, of which only the transaction hash is used.
//!
//! A response proves nothing: the hash only identifies the transaction to check on chain (`transfer.rs`). It is
//! therefore decoded leniently. Only the known field names are searched for a hash, because another field may contain
//! another transaction, for example the payment of a fee. `success: false` changes nothing, because a transaction can
//! be mined after the facilitator stopped waiting.
//!
//! A response without an EVM transaction is the provider's fault ([`NoTransaction`]). A value of the wrong type is the
//! caller's fault ([`ValidationError`]).

use crate::{TxHash, ValidationError, value::json::UnreadMembers};
use base64::{
    Engine as _,
    alphabet::STANDARD,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use serde_json::{Map, Value};
use std::borrow::Cow;

/// The names of the response header in x402 v2 and v1, in any case (RFC 9110 §5.1).
const HEADERS: [&str; 2] = ["PAYMENT-RESPONSE", "X-PAYMENT-RESPONSE"];

/// The maximum length of the payment response as text, in bytes, before base64 is decoded. Usual responses
/// take 1.5 KiB, and servers accept about 16 KiB.
const MAX_TEXT_BYTES: usize = 16 * 1024;

/// The JSON Pointer of the payment response in a request body.
const ROOT: &str = "/payment_response_header";

/// The field names of the transaction hash: in the specification, then in earlier drafts and other libraries.
const NAMES: [&str; 5] = [
    "transaction",
    "txHash",
    "tx_hash",
    "transactionHash",
    "transaction_hash",
];

/// Decodes like `atob` in browsers: padding is optional, and excess bits are ignored.
const LENIENT_BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Why a payment response contains no transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoTransaction {
    /// The response is neither a JSON object nor base64 of a JSON object.
    Undecodable,
    /// The response contains no transaction, or a transaction on a chain that is not an EVM chain.
    Unnamed,
}

type FoundHash = Result<TxHash, NoTransaction>;

/// Returns the transaction hash in a provider's payment response.
///
/// The response is the header's text, the decoded object, or an object with the header's name as the key. A text is
/// base64 of JSON or the JSON itself.
pub fn find_transaction_hash(payment_response_header: &Value) -> Result<FoundHash, ValidationError> {
    match payment_response_header {
        Value::String(text) => find_hash_in_text(text, ROOT),
        Value::Object(object) => find_hash_in_headers(object),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
            Err(ValidationError::at_path(ROOT, "must be the header's text or an object"))
        }
    }
}

/// Returns whether the provider sent no payment response: a blank text, an empty object, or only empty headers.
pub fn is_proof_absent(payment_response_header: &Value) -> bool {
    match payment_response_header {
        Value::Null => true,
        Value::String(text) => text.trim().is_empty(),
        Value::Object(object) => {
            let mut headers = object
                .iter()
                .filter(|(name, _)| is_payment_response_header(name))
                .peekable();
            if headers.peek().is_none() {
                return object.is_empty();
            }
            headers.all(|(_, value)| is_blank_header(value)) && find_tx_hash_in_response(object).is_err()
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

fn is_payment_response_header(name: &str) -> bool {
    HEADERS.iter().any(|header| header.eq_ignore_ascii_case(name))
}

/// Returns the hash in a decoded payment response, or in an object with header names as keys.
fn find_hash_in_headers(object: &Map<String, Value>) -> Result<FoundHash, ValidationError> {
    let mut named = find_tx_hash_in_response(object);
    for (name, value) in object {
        if !is_payment_response_header(name) {
            continue;
        }
        let path = format!("{ROOT}/{name}");
        let here = match value {
            Value::String(text) => find_hash_in_text(text, &path)?,
            Value::Object(response) => find_tx_hash_in_response(response),
            Value::Null => continue,
            Value::Array(values) => match values.as_slice() {
                [Value::String(text)] => find_hash_in_text(text, &path)?,
                _ => return Err(invalid_header_error(&path)),
            },
            Value::Bool(_) | Value::Number(_) => return Err(invalid_header_error(&path)),
        };
        named = match (named, here) {
            (Ok(item), Ok(other)) if item != other => {
                return Err(ValidationError::at_path(ROOT, "names two different transactions"));
            }
            (Ok(hash), _) | (Err(_), Ok(hash)) => Ok(hash),
            (Err(NoTransaction::Undecodable), Err(_)) => Err(NoTransaction::Undecodable),
            (Err(NoTransaction::Unnamed), Err(reason)) => Err(reason),
        };
    }
    Ok(named)
}

/// Returns the hash in a text: base64 of a JSON object, or the JSON object.
fn find_hash_in_text(text: &str, path: &str) -> Result<FoundHash, ValidationError> {
    if text.len() > MAX_TEXT_BYTES {
        return Err(ValidationError::at_path(
            path,
            format!("must be at most {MAX_TEXT_BYTES} bytes"),
        ));
    }
    // Base64 never begins with a brace.
    let text = text.trim();
    let json = if text.starts_with('{') {
        Some(Cow::Borrowed(text))
    } else {
        decode_lenient_base64(text).map(Cow::Owned)
    };
    let fields: Option<UnreadMembers<'_>> = json.as_deref().and_then(|json| serde_json::from_str(json).ok());
    let Some(UnreadMembers(fields)) = fields else {
        return Ok(Err(NoTransaction::Undecodable));
    };
    Ok(find_first_tx_hash(|name| {
        // As in the reference client, the last of repeated keys counts.
        let (_, value) = fields.iter().rev().find(|(field, _)| field == name)?;
        serde_json::from_str(value.get()).ok()
    }))
}

/// Decodes base64 in either alphabet, with or without padding and white space. UTF-8 is decoded like `TextDecoder`
/// does.
fn decode_lenient_base64(text: &str) -> Option<String> {
    let letters = text.trim_matches('"').chars().filter(|letter| !letter.is_whitespace());
    let standard: String = letters
        .map(|letter| match letter {
            '-' => '+',
            '_' => '/',
            other => other,
        })
        .collect();
    let bytes = LENIENT_BASE64.decode(standard.trim_end_matches('=')).ok()?;
    let json = String::from_utf8_lossy(&bytes);
    Some(json.strip_prefix('\u{feff}').unwrap_or(&json).to_owned())
}

/// Returns the hash in a decoded `SettleResponse`.
pub(crate) fn find_tx_hash_in_response(response: &Map<String, Value>) -> FoundHash {
    find_first_tx_hash(|name| Some(Cow::Borrowed(response.get(name)?.as_str()?)))
}

/// Returns the first valid hash in the order of [`NAMES`]. Ignores invalid values, such as an empty text.
fn find_first_tx_hash<'a>(text_of: impl Fn(&str) -> Option<Cow<'a, str>>) -> FoundHash {
    let hash = NAMES.iter().find_map(|name| {
        let text = text_of(name)?;
        let digits = text.trim();
        let digits = digits
            .strip_prefix("0x")
            .or(digits.strip_prefix("0X"))
            .unwrap_or(digits);
        TxHash::parse(&format!("0x{digits}"))
    });
    hash.ok_or(NoTransaction::Unnamed)
}

fn invalid_header_error(path: &str) -> ValidationError {
    ValidationError::at_path(path, "must be the header's text, an array of one text, or an object")
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
        LENIENT_BASE64.encode(response.to_string())
    }

    fn hash(text: &str) -> TxHash {
        TxHash::parse(text).unwrap()
    }

    #[test]
    fn the_transaction_hash_is_found_in_all_encodings() {
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
            assert_eq!(find_transaction_hash(&case), Ok(Ok(hash(HASH))), "{case}");
        }
    }

    #[test]
    fn transaction_hashes_are_decoded_from_any_base64_variant() {
        // The letters exist in only one alphabet, and the length requires padding.
        let text = format!(
            "{{\"transaction\":\"{HASH}\",\"\u{fe}\u{ff}?\":\"\u{7bff}\u{fffd}\",\"network\":\"eip155:8453\"}}"
        );
        let padded = LENIENT_BASE64.encode(&text);
        let unpadded = padded.trim_end_matches('=');
        assert!(padded != unpadded && padded.contains('/'), "{padded}");
        let url = unpadded.replace('+', "-").replace('/', "_");
        let folded: String = padded.chars().flat_map(|letter| [letter, '\n']).collect();
        let texts = [
            unpadded.to_owned(),
            format!("{unpadded}==="),
            url.clone(),
            format!("{url}=="),
            format!(" \t{padded}\r\n"),
            folded,
            format!("\"{padded}\""),
            format!("  {text}\n"),
            LENIENT_BASE64.encode(format!("\u{feff}{text}")),
            LENIENT_BASE64.encode([b"{\"a\":\"\xff\",", &text.as_bytes()[1..]].concat()),
            LENIENT_BASE64.encode(text.replace("8453", "\\ud800")),
            LENIENT_BASE64.encode(text.replace(r#""eip155:8453""#, "1e999")),
            LENIENT_BASE64.encode(format!(r#"{{"transaction":"{OTHER}","transaction":"{HASH}"}}"#)),
        ];
        for text in texts {
            assert_eq!(find_transaction_hash(&json!(text)), Ok(Ok(hash(HASH))), "{text}");
            let keyed = json!({"X-Payment-Response": text});
            assert_eq!(find_transaction_hash(&keyed), Ok(Ok(hash(HASH))), "{text}");
        }
    }

    #[test]
    fn a_transaction_hash_is_only_found_under_a_known_name() {
        let bare = HASH.trim_start_matches("0x");
        let same = [
            json!({"txHash": HASH}),
            json!({"transaction": null, "txHash": HASH}),
            json!({"transaction": "", "transactionHash": HASH}),
            json!({"tx_hash": HASH, "fee": OTHER}),
            json!({"transaction_hash": HASH}),
            json!({"transaction": HASH, "txHash": OTHER}),
            json!({"transaction": bare}),
            json!({"transaction": format!(" 0X{}", bare.to_uppercase())}),
        ];
        let none = [
            json!({"details": {"transaction": HASH, "fee_tx_hash": HASH}}),
            json!({"fee_tx_hash": HASH, "hash": HASH, "id": HASH, "TRANSACTION": HASH}),
            json!({"transaction": [HASH]}),
            json!({"transaction": {"hash": HASH}}),
            json!({"extensions": {"txHash": HASH}, "transaction": ""}),
        ];
        let expected = same.into_iter().map(|case| (case, Ok(hash(HASH))));
        let expected = expected.chain(none.into_iter().map(|case| (case, Err(NoTransaction::Unnamed))));
        for (case, expected) in expected {
            assert_eq!(find_transaction_hash(&json!(encoded(&case))), Ok(expected), "{case}");
            assert_eq!(find_transaction_hash(&case), Ok(expected), "{case}");
        }
    }

    #[test]
    fn undecodable_payment_responses_differ_from_missing_hashes() {
        let undecodable = [
            json!(""),
            json!("not base64"),
            json!("%7B%7D"),
            json!(HASH),
            json!(LENIENT_BASE64.encode("[1]")),
            json!(LENIENT_BASE64.encode("\"text\"")),
            json!(LENIENT_BASE64.encode([0xff, 0xfe])),
            json!("{\"transaction\":"),
            json!({"x-payment-response": "not base64"}),
            json!({"x-payment-response": ["e"], "payment-response": encoded(&json!({}))}),
        ];
        for case in undecodable {
            let told = find_transaction_hash(&case);
            assert_eq!(told, Ok(Err(NoTransaction::Undecodable)), "{case}");
        }
        let cases = [
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
            json!({"x-payment-response": null}),
        ];
        for case in cases {
            assert_eq!(find_transaction_hash(&case), Ok(Err(NoTransaction::Unnamed)), "{case}");
        }
    }

    #[test]
    fn a_blank_payment_response_counts_as_absent() {
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
            assert!(is_proof_absent(&case), "{case}");
            assert!(find_transaction_hash(&case).unwrap().is_err(), "{case}");
        }
        let there = [
            json!("e30="),
            json!("{}"),
            json!({"success": false}),
            json!({"content-type": "application/json"}),
            json!({"payment-response": "e30="}),
            json!({"payment-response": "", "x-payment-response": "e30="}),
            json!({"payment-response": "", "transaction": HASH}),
            // These values are the caller's mistakes.
            json!([]),
            json!([""]),
            json!({"payment-response": []}),
            json!({"payment-response": ["", ""]}),
            json!({"payment-response": 0}),
        ];
        for case in there {
            assert!(!is_proof_absent(&case), "{case}");
        }
    }

    #[test]
    fn malformed_payment_responses_have_specific_errors() {
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
            assert_eq!(find_transaction_hash(&case).unwrap_err().path, path, "{case}");
        }
    }

    proptest! {
        #[test]
        fn payment_responses_are_rejected_only_if_too_long(text in ".*") {
            let too_long = text.len() > MAX_TEXT_BYTES;
            prop_assert_eq!(find_transaction_hash(&Value::String(text)).is_err(), too_long);
        }
    }
}
