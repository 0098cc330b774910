//! What makes two requests the same request.

use serde::{Serialize, Serializer};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::fmt;

/// SHA-256 over the RFC 8785 form of a request without its idempotency key and approval id (`docs/decisions.md` §5).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// The fingerprint of a request body, leaving out the members that say which attempt this is rather than what is
    /// asked.
    ///
    /// RFC 8785 writes numbers as IEEE doubles do, so integers beyond 2^53 would fall together. A request with such a
    /// number is therefore hashed over its plain serialization, in which they stay apart.
    pub fn of_request(body: &Value, leave_out: &[&str]) -> Self {
        if !has_unsafe_integer(body)
            && let Ok(canonical) = serde_json_canonicalizer::to_vec(&WithoutMembers { body, leave_out })
        {
            return Self::of_bytes(b"rfc8785\0", &canonical);
        }
        let mut body = body.clone();
        if let Value::Object(object) = &mut body {
            object.retain(|key, _| !leave_out.contains(&key.as_str()));
        }
        Self::of_bytes(b"plain\0", body.to_string().as_bytes())
    }

    /// The fingerprint of one text, such as an idempotency key, so that stored keys have one length.
    pub fn of_text(text: &str) -> Self {
        Self::of_bytes(b"text\0", text.as_bytes())
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

/// A value that is written without some of its own members, so that nobody copies it to drop them.
struct WithoutMembers<'a> {
    body: &'a Value,
    leave_out: &'a [&'a str],
}

impl Serialize for WithoutMembers<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.body {
            Value::Object(members) => serializer.collect_map(
                members
                    .iter()
                    .filter(|(name, _)| !self.leave_out.contains(&name.as_str())),
            ),
            other => other.serialize(serializer),
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

/// Sixty-four lower-case hexadecimal digits.
impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
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
