//! The fingerprint of a request. Two requests with the same fingerprint are the same request.

use crate::{Network, Offer, x402::requirement::SCHEME};
use alloy_primitives::hex;
use serde::{Serialize, Serializer};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::fmt;

/// A SHA-256 hash, for example of a request and the payment that would be signed (`docs/decisions.md` §5).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Computes the fingerprint of a payment request from `request`, the body's fingerprint, and the chosen
    /// payment requirements. The other payment requirements may differ from call to call.
    pub fn for_payment(request: &Self, network: Network, offer: &Offer) -> Self {
        let (token, pay_to) = (network.token().address, offer.pay_to());
        let terms = [
            request.0.as_slice(),
            SCHEME.as_bytes(),
            &network.chain_id().to_be_bytes(),
            token.as_slice(),
            pay_to.as_slice(),
            &offer.amount().units().to_be_bytes(),
        ];
        Self::domain_hash(b"payment\0", &terms.concat())
    }

    /// Computes the fingerprint of a request body in RFC 8785 form, without null fields and without `excluded_fields`.
    ///
    /// RFC 8785 would make different integers above 2^53 equal. A request with such a number is therefore hashed as
    /// `serde_json` serializes it.
    pub fn for_request(body: &Value, excluded_fields: &[&str]) -> Self {
        let request = RequestBody {
            body,
            leave_out: excluded_fields,
        };
        // Serializing a `Value` into a `Vec` can't fail.
        let plain = || serde_json::to_vec(&request).unwrap_or_default();
        let canonical = if request.has_value_where(has_unsafe_integer) {
            None
        } else if !request.has_value_where(|value| !is_canonical_in_serde_json(value))
            && request.has_ascii_field_names()
        {
            Some(plain())
        } else {
            serde_json_canonicalizer::to_vec(&request).ok()
        };
        match canonical {
            Some(canonical) => Self::domain_hash(b"rfc8785\0", &canonical),
            None => Self::domain_hash(b"plain\0", &plain()),
        }
    }

    /// Computes the fingerprint of a text, such as an idempotency key, so that stored keys have equal lengths.
    pub fn for_text(text: &str) -> Self {
        Self::domain_hash(b"text\0", text.as_bytes())
    }

    /// Computes the fingerprint of a set of services.
    pub(crate) fn for_service_set(bytes: &[u8]) -> Self {
        Self::domain_hash(b"services\0", bytes)
    }

    /// Computes the fingerprint of the stored catalog.
    pub fn for_catalog(bytes: &[u8]) -> Self {
        Self::domain_hash(b"catalog\0", bytes)
    }

    /// Computes the SHA-256 of exactly these bytes, without the domain prefix of other fingerprints, so that
    /// any tool can recompute an audit row's hash.
    pub fn for_audit_row(bytes: &[u8]) -> Self {
        Self::domain_hash(b"", bytes)
    }

    fn domain_hash(domain: &[u8], bytes: &[u8]) -> Self {
        let mut hash = Sha256::new();
        hash.update(domain);
        hash.update(bytes);
        Self(hash.finalize().into())
    }

    /// Creates a fingerprint from the stored bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the hash as bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// Serializes a request body without null fields and without the fields in `leave_out`. Avoids a copy of the body.
struct RequestBody<'a> {
    body: &'a Value,
    leave_out: &'a [&'a str],
}

impl<'a> RequestBody<'a> {
    fn fingerprinted_fields(&self) -> impl Iterator<Item = (&'a String, &'a Value)> {
        let fields = self.body.as_object().into_iter().flatten();
        fields.filter(|(name, value)| !value.is_null() && !self.leave_out.contains(&name.as_str()))
    }

    /// Returns whether the predicate is true for the value of a serialized field. Tests a body that is not an
    /// object as a whole.
    fn has_value_where(&self, predicate: impl Fn(&Value) -> bool) -> bool {
        if self.body.is_object() {
            self.fingerprinted_fields().any(|(_, value)| predicate(value))
        } else {
            predicate(self.body)
        }
    }

    fn has_ascii_field_names(&self) -> bool {
        self.fingerprinted_fields().all(|(name, _)| name.is_ascii())
    }
}

/// The objects in which null fields count as absent (`docs/decisions.md` §9).
const OWN_FIELDS: [&str; 2] = ["original_request", "metadata"];

impl Serialize for RequestBody<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if !self.body.is_object() {
            return self.body.serialize(serializer);
        }
        serializer.collect_map(self.fingerprinted_fields().map(|(name, value)| {
            let is_ours = OWN_FIELDS.contains(&name.as_str());
            (
                name,
                if is_ours {
                    FieldValue::WithoutNulls(value)
                } else {
                    FieldValue::Whole(value)
                },
            )
        }))
    }
}

enum FieldValue<'a> {
    Whole(&'a Value),
    WithoutNulls(&'a Value),
}

impl Serialize for FieldValue<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::WithoutNulls(Value::Object(fields)) => {
                serializer.collect_map(fields.iter().filter(|(_, value)| !value.is_null()))
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
        Value::Object(fields) => fields.values().any(has_unsafe_integer),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}

/// Returns whether `serde_json`, which is five times as fast, writes the value in RFC 8785 form. Returns
/// `false` for `f64` numbers and names outside ASCII, because `serde_json` may write them differently.
fn is_canonical_in_serde_json(value: &Value) -> bool {
    match value {
        Value::Number(number) => !number.is_f64(),
        Value::Array(items) => items.iter().all(is_canonical_in_serde_json),
        Value::Object(fields) => fields
            .iter()
            .all(|(name, value)| name.is_ascii() && is_canonical_in_serde_json(value)),
        Value::Null | Value::Bool(_) | Value::String(_) => true,
    }
}

/// Writes 64 lower-case hexadecimal digits.
impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(hex::Buffer::<32>::new().format(&self.0))
    }
}

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

    fn fingerprint(text: &str) -> Fingerprint {
        Fingerprint::for_request(
            &parse_json(text.as_bytes()).unwrap(),
            &["idempotency_key", "approval_id"],
        )
    }

    #[test]
    fn request_fingerprints_ignore_spelling_and_attempt() {
        let one = fingerprint(r#"{"a": 1, "b": {"c": "\u00e9", "d": 2.0}, "idempotency_key": "x"}"#);
        let two = fingerprint("{\"b\":{\"d\":2,\"c\":\"\u{e9}\"},\"approval_id\":\"y\",\"a\":1}");
        assert_eq!(one, two);
    }

    /// Fingerprints are stored, so the faster serialization must give the same fingerprint as RFC 8785.
    #[test]
    fn plain_serialization_matches_rfc_8785() {
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
            assert_eq!(is_canonical_in_serde_json(&value), plainly);
            if plainly {
                assert_eq!(
                    serde_json::to_vec(&value).unwrap(),
                    serde_json_canonicalizer::to_vec(&value).unwrap()
                );
            }
        }
        assert_eq!(
            fingerprint(r#"{"b": 1, "a": {"d": "x", "c": 2}}"#),
            fingerprint(r#"{"a": {"c": 2, "d": "x"}, "b": 1}"#)
        );
    }

    #[test]
    fn null_fields_do_not_change_a_request_fingerprint() {
        let base = fingerprint(r#"{"a": 1, "metadata": {"b": 1}, "original_request": {}}"#);
        for same in [
            r#"{"a": 1, "metadata": {"b": 1, "target_url": null}, "original_request": {"body_hash": null}}"#,
            r#"{"a": 1, "metadata": {"b": 1}, "original_request": {}, "service_id": null}"#,
        ] {
            assert_eq!(fingerprint(same), base, "{same}");
        }
        assert_eq!(
            fingerprint(r#"{"a": 9007199254740993, "metadata": null}"#),
            fingerprint(r#"{"a": 9007199254740993}"#)
        );
    }

    #[test]
    fn payment_fingerprints_cover_only_the_signed_requirements() {
        let entry = json!({
            "scheme": "exact", "network": "eip155:84532", "amount": "10000", "maxTimeoutSeconds": 60,
            "asset": "0x036CbD53842c5426634e7929541eC2318f3dCF7e", "payTo": "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC",
            "extra": {"name": "USDC", "version": "2"}
        });
        let asked = Fingerprint::for_text("asked");
        let of = |pointer: &str, value: Value| {
            let mut requirement = json!({"x402Version": 2, "accepts": [entry]});
            if pointer == "first" {
                requirement["accepts"].as_array_mut().unwrap().insert(0, value);
            } else {
                requirement["accepts"][0][pointer] = value;
            }
            let network = Network::BaseSepolia;
            Fingerprint::for_payment(&asked, network, &Offer::choose_cheapest(&requirement, network).unwrap())
        };
        let first = of("error", Value::Null);
        let same = [
            ("maxTimeoutSeconds", json!(61)),
            ("description", json!("now")),
            ("asset", json!("0x036cbd53842c5426634e7929541ec2318f3dcf7e")),
            ("payTo", json!("0x3c44cdddb6a900fa2b585dd299e03d12fa4293bc")),
            ("first", json!({"scheme": "upto"})),
        ];
        for (pointer, value) in same {
            assert_eq!(of(pointer, value), first, "{pointer}");
        }
        let other = [
            ("amount", json!("10001")),
            ("payTo", json!("0x70997970C51812dc3A010C7d01b50e0d17dc79C8")),
        ];
        for (pointer, value) in other {
            assert_ne!(of(pointer, value), first, "{pointer}");
        }
        let offer = Offer::choose_cheapest(&entry, Network::BaseSepolia).unwrap();
        let of = |asked: &str, network| Fingerprint::for_payment(&Fingerprint::for_text(asked), network, &offer);
        assert_eq!(of("asked", Network::BaseSepolia), first);
        assert_ne!(of("other", Network::BaseSepolia), first);
        assert_ne!(of("asked", Network::Base), first);
    }

    #[test]
    fn excluded_fields_do_not_change_a_request_fingerprint() {
        let of = |offer: &str| {
            let body = parse_json(format!(r#"{{"a": 1.5, "offer": {offer}}}"#).as_bytes()).unwrap();
            Fingerprint::for_request(&body, &["offer"])
        };
        for offer in ["9007199254740993", "{}", r#"{"\u00e9": 0.5}"#] {
            assert_eq!(of(offer), of("1"), "{offer}");
        }
    }

    #[test]
    fn different_field_values_change_the_request_fingerprint() {
        assert_ne!(fingerprint(r#"{"a":1}"#), fingerprint(r#"{"a":2}"#));
        assert_ne!(
            fingerprint(r#"{"a":{"idempotency_key":"x"}}"#),
            fingerprint(r#"{"a":{}}"#),
            "only the request's own members are left out"
        );
        assert_ne!(
            fingerprint(r#"{"a":9007199254740993}"#),
            fingerprint(r#"{"a":9007199254740992}"#),
            "beyond 2^53 integers stay apart"
        );
    }
}
