//! A provider's payment terms: the 402 answer of x402 v1 and v2, read strictly and with a size limit.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::HeaderMap;
use serde_json::Value;

/// The header that carries the v2 terms.
const REQUIRED_HEADER: &str = "payment-required";
/// The headers that carry the settlement: v2's, v1's.
const RESPONSE_HEADERS: [&str; 2] = ["payment-response", "x-payment-response"];
/// The longest terms that are read, in bytes. Purser reads 64 KiB of request, of which the URL may take 8 KiB.
pub(crate) const MAX_TERMS_BYTES: usize = 48 * 1024;

/// A provider's decoded payment requirement, with every member that the provider sent.
#[derive(Clone, Debug, PartialEq)]
pub struct PaymentTerms(Value);

/// The reason that a 402 answer can't be paid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TermsError {
    /// The terms are longer than 48 KiB.
    #[error("the provider's payment terms are longer than 48 KiB")]
    TooLong,
    /// The answer has neither the v2 header nor a v1 body.
    #[error("the provider's 402 is not x402: it has no terms of version 1 or 2")]
    NotX402,
}

impl PaymentTerms {
    /// Reads the terms from the v2 header or, if it is absent, from the v1 body.
    pub fn read(headers: &HeaderMap, body: &[u8]) -> Result<Self, TermsError> {
        let (json, version) = match headers.get(REQUIRED_HEADER) {
            Some(_) => (payment_required(headers).ok_or(TermsError::NotX402)?, 2),
            None => (body.to_owned(), 1),
        };
        if json.len() > MAX_TERMS_BYTES {
            return Err(TermsError::TooLong);
        }
        let terms: Value = serde_json::from_slice(&json).map_err(|_| TermsError::NotX402)?;
        let is_version = terms.get("x402Version").and_then(Value::as_u64) == Some(version);
        let has_offers = terms
            .get("accepts")
            .and_then(Value::as_array)
            .is_some_and(|offers| !offers.is_empty() && offers.iter().all(Value::is_object));
        if is_version && has_offers {
            Ok(Self(terms))
        } else {
            Err(TermsError::NotX402)
        }
    }

    /// Returns the terms as JSON.
    pub const fn as_json(&self) -> &Value {
        &self.0
    }
}

/// Decodes the v2 terms of a header from base64.
pub(crate) fn payment_required(headers: &HeaderMap) -> Option<Vec<u8>> {
    STANDARD.decode(headers.get(REQUIRED_HEADER)?.as_bytes()).ok()
}

/// Returns the provider's settlement header as `complete` takes it: an object keyed by the header's name.
pub(crate) fn provider_proof(headers: &HeaderMap) -> Option<Value> {
    RESPONSE_HEADERS.iter().find_map(|name| {
        let text = headers.get(*name)?.to_str().ok()?;
        Some(serde_json::json!({ *name: text }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn header(terms: &Value) -> HeaderMap {
        let text = STANDARD.encode(terms.to_string());
        [(REQUIRED_HEADER.parse().unwrap(), text.parse().unwrap())]
            .into_iter()
            .collect()
    }

    #[test]
    fn terms_are_in_the_header_of_v2_or_the_body_of_v1_and_keep_every_member() {
        let v2 = json!({"x402Version": 2, "accepts": [{"scheme": "exact"}], "vendor": {"a": 1}});
        let v1 = json!({"x402Version": 1, "accepts": [{"scheme": "exact"}], "vendor": [2]});
        assert_eq!(PaymentTerms::read(&header(&v2), b"").unwrap().as_json(), &v2);
        let none = HeaderMap::new();
        assert_eq!(
            PaymentTerms::read(&none, v1.to_string().as_bytes()).unwrap().as_json(),
            &v1
        );

        let not_x402 = [
            (header(&v1), String::new()),
            (none.clone(), v2.to_string()),
            (none.clone(), json!({"x402Version": 1, "accepts": []}).to_string()),
            (
                none.clone(),
                json!({"x402Version": 1, "accepts": ["exact"]}).to_string(),
            ),
            (none.clone(), "Pay me".to_owned()),
        ];
        for (headers, body) in not_x402 {
            assert_eq!(
                PaymentTerms::read(&headers, body.as_bytes()),
                Err(TermsError::NotX402),
                "{body}"
            );
        }
        let long = vec![b' '; MAX_TERMS_BYTES + 1];
        assert_eq!(PaymentTerms::read(&none, &long), Err(TermsError::TooLong));
    }
}
