//! The fingerprint of a request, by which two requests are the same.

use alloy_primitives::hex;
use serde::{Serialize, Serializer};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::fmt;

/// SHA-256 over the RFC 8785 form of a request without its idempotency key and approval id (`docs/decisions.md` §5).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// The fingerprint of a request body, without the members that only identify the attempt, and without members that
    /// are null: of the body itself, and of its description of the call. The provider's own object counts unchanged.
    ///
    /// RFC 8785 writes numbers as IEEE doubles do, so integers beyond 2^53 would become equal. A request with such a
    /// number is therefore hashed over its plain serialization, in which they stay distinct.
    pub fn of_request(body: &Value, leave_out: &[&str]) -> Self {
        let asked = Asked { body, leave_out };
        // Serializing a value into a vector does not fail.
        let plain = || serde_json::to_vec(&asked).unwrap_or_default();
        let canonical = if has_unsafe_integer(body) {
            None
        } else if is_plainly_canonical(body) {
            Some(plain())
        } else {
            serde_json_canonicalizer::to_vec(&asked).ok()
        };
        match canonical {
            Some(canonical) => Self::of_bytes(b"rfc8785\0", &canonical),
            None => Self::of_bytes(b"plain\0", &plain()),
        }
    }

    /// The fingerprint of one text, such as an idempotency key, so that stored keys have one length.
    pub fn of_text(text: &str) -> Self {
        Self::of_bytes(b"text\0", text.as_bytes())
    }

    /// The fingerprint of a set of services.
    pub(crate) fn of_set(bytes: &[u8]) -> Self {
        Self::of_bytes(b"services\0", bytes)
    }

    /// The fingerprint of the catalog's object.
    pub fn of_catalog(bytes: &[u8]) -> Self {
        Self::of_bytes(b"catalog\0", bytes)
    }

    /// The SHA-256 of a row of the audit log and of nothing else, so that any tool can compute it.
    pub fn of_audit_row(bytes: &[u8]) -> Self {
        Self::of_bytes(b"", bytes)
    }

    fn of_bytes(domain: &[u8], bytes: &[u8]) -> Self {
        let mut hash = Sha256::new();
        hash.update(domain);
        hash.update(bytes);
        Self(hash.finalize().into())
    }

    /// The fingerprint that was stored as these bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The hash.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// A request that is serialized without the members that don't count, so that it need not be copied.
struct Asked<'a> {
    body: &'a Value,
    leave_out: &'a [&'a str],
}

/// The members in which null counts as absent (`docs/decisions.md` §9).
const OURS: [&str; 2] = ["original_request", "metadata"];

impl Serialize for Asked<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Value::Object(members) = self.body else {
            return self.body.serialize(serializer);
        };
        let counts = |name: &str, value: &Value| !value.is_null() && !self.leave_out.contains(&name);
        let members = members.iter().filter(|(name, value)| counts(name, value));
        serializer.collect_map(members.map(|(name, value)| {
            let is_ours = OURS.contains(&name.as_str());
            (
                name,
                if is_ours {
                    Said::WithoutNulls(value)
                } else {
                    Said::Whole(value)
                },
            )
        }))
    }
}

enum Said<'a> {
    Whole(&'a Value),
    WithoutNulls(&'a Value),
}

impl Serialize for Said<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::WithoutNulls(Value::Object(members)) => {
                serializer.collect_map(members.iter().filter(|(_, value)| !value.is_null()))
            }
            Self::Whole(value) | Self::WithoutNulls(value) => value.serialize(serializer),
        }
    }
}

fn has_unsafe_integer(value: &Value) -> bool {
    const SAFE: u64 = 9_007_199_254_740_991;
    match value {
        Value::Number(number) => {
            number.as_u64().is_some_and(|n| n > SAFE) || number.as_i64().is_some_and(|n| n.unsigned_abs() > SAFE)
        }
        Value::Array(items) => items.iter().any(has_unsafe_integer),
        Value::Object(members) => members.values().any(has_unsafe_integer),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}

/// Whether `serde_json` writes the RFC 8785 form by itself, in a fifth of the time: it sorts names by their bytes and
/// writes whole numbers by their digits, which differs only for names outside ASCII and for other numbers.
fn is_plainly_canonical(value: &Value) -> bool {
    match value {
        Value::Number(number) => !number.is_f64(),
        Value::Array(items) => items.iter().all(is_plainly_canonical),
        Value::Object(members) => members
            .iter()
            .all(|(name, value)| name.is_ascii() && is_plainly_canonical(value)),
        Value::Null | Value::Bool(_) | Value::String(_) => true,
    }
}

/// Sixty-four lower-case hexadecimal digits.
impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(hex::Buffer::<32>::new().format(&self.0))
    }
}

/// As [`fmt::Display`].
impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse_json;
    use serde_json::json;

    fn of(text: &str) -> Fingerprint {
        Fingerprint::of_request(
            &parse_json(text.as_bytes()).unwrap(),
            &["idempotency_key", "approval_id"],
        )
    }

    #[test]
    fn spelling_and_attempt_do_not_change_a_request() {
        let one = of(r#"{"a": 1, "b": {"c": "\u00e9", "d": 2.0}, "idempotency_key": "x"}"#);
        let two = of("{\"b\":{\"d\":2,\"c\":\"\u{e9}\"},\"approval_id\":\"y\",\"a\":1}");
        assert_eq!(one, two);
    }

    /// Fingerprints are stored, so the shorter way must never give another one.
    #[test]
    fn what_is_plainly_canonical_is_the_same_as_by_rfc_8785() {
        let every_letter: String = (0..0x0003_0000).filter_map(char::from_u32).collect();
        let rows = [
            (
                json!({"b": [1, -1, true, null], "a": {"z": 0, "B": every_letter, "": 9_007_199_254_740_991_u64}}),
                true,
            ),
            (json!({"a": [{"\u{e9}": 1}]}), false),
            (json!({"a": {"b": [0.5]}}), false),
            (json!({"a": -0.0}), false),
        ];
        for (value, plainly) in rows {
            assert_eq!(is_plainly_canonical(&value), plainly);
            if plainly {
                assert_eq!(
                    serde_json::to_vec(&value).unwrap(),
                    serde_json_canonicalizer::to_vec(&value).unwrap()
                );
            }
        }
        assert_eq!(
            of(r#"{"b": 1, "a": {"d": "x", "c": 2}}"#),
            of(r#"{"a": {"c": 2, "d": "x"}, "b": 1}"#)
        );
    }

    #[test]
    fn null_is_absent() {
        let base = of(r#"{"a": 1, "metadata": {"b": 1}, "original_request": {}}"#);
        for same in [
            r#"{"a": 1, "metadata": {"b": 1, "target_url": null}, "original_request": {"body_hash": null}}"#,
            r#"{"a": 1, "metadata": {"b": 1}, "original_request": {}, "service_id": null}"#,
        ] {
            assert_eq!(of(same), base, "{same}");
        }
        assert_eq!(
            of(r#"{"a": 9007199254740993, "metadata": null}"#),
            of(r#"{"a": 9007199254740993}"#)
        );
        let offered = |text: &str| of(&format!(r#"{{"payment_requirement": {text}}}"#));
        assert_ne!(
            offered(r#"{"extensions": null}"#),
            offered("{}"),
            "the provider's object is as it is"
        );
    }

    #[test]
    fn what_is_asked_does() {
        assert_ne!(of(r#"{"a":1}"#), of(r#"{"a":2}"#));
        assert_ne!(
            of(r#"{"a":{"idempotency_key":"x"}}"#),
            of(r#"{"a":{}}"#),
            "only the request's own members are left out"
        );
        assert_ne!(
            of(r#"{"a":9007199254740993}"#),
            of(r#"{"a":9007199254740992}"#),
            "beyond 2^53 integers stay apart"
        );
    }
}
