//! A provider's payment requirements in a 402 response of x402 version 1 or 2.

use crate::charset::decode_text;
use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Number, Value};

/// The header that contains the payment requirements in x402 version 2.
const REQUIRED_HEADER: &str = "payment-required";
/// Base64 with or without padding (RFC 4648 §4).
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);
/// The byte order mark of UTF-8, which JSON parsers skip (RFC 8259 §8.1).
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// The headers that contain the settlement, in x402 version 2 and version 1.
const RESPONSE_HEADERS: [&str; 2] = ["payment-response", "x-payment-response"];
/// The maximum length of the payment requirements, in bytes. Purser accepts bodies of 64 KiB.
pub(crate) const MAX_TERMS_BYTES: usize = 48 * 1024;

/// A provider's payment requirements, exactly as the provider wrote the JSON.
#[derive(Clone, Debug)]
pub struct PaymentTerms(Box<RawValue>);

/// The fields that distinguish x402 payment requirements from other 402 responses.
#[derive(Deserialize)]
struct Outline<'a> {
    #[serde(rename = "x402Version")]
    version: Number,
    #[serde(borrow)]
    accepts: Vec<&'a RawValue>,
}

/// The reason why a 402 response can't be paid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TermsError {
    /// The payment requirements are longer than 48 KiB.
    #[error("the provider's payment terms are longer than 48 KiB")]
    TooLong,
    /// The response has neither the version 2 header nor a version 1 body.
    #[error("the provider's 402 is not x402: it has no terms of version 1 or 2")]
    NotX402,
}

impl PaymentTerms {
    /// Reads the payment requirements from the header (version 1 or 2) or from the body (version 1).
    pub fn read(headers: &HeaderMap, body: &[u8]) -> Result<Self, TermsError> {
        let (json, versions) = if header(headers).is_some() {
            (payment_required(headers).ok_or(TermsError::NotX402)?, &["1", "2"][..])
        } else {
            let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
            let text = decode_text(kind, body, true).ok_or(TermsError::NotX402)?;
            (text.into_bytes(), &["1"][..])
        };
        if json.len() > MAX_TERMS_BYTES {
            return Err(TermsError::TooLong);
        }
        let text = json.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&json);
        let terms: &RawValue = serde_json::from_slice(text).map_err(|_| TermsError::NotX402)?;
        let outline: Outline<'_> = serde_json::from_str(terms.get()).map_err(|_| TermsError::NotX402)?;
        // Some encoders write the number 2 as `2.0`.
        let is_version = versions.contains(&outline.version.to_string().trim_end_matches(".0"));
        let is_object = |offer: &&RawValue| offer.get().starts_with('{');
        if is_version && !outline.accepts.is_empty() && outline.accepts.iter().all(is_object) {
            Ok(Self(terms.to_owned()))
        } else {
            Err(TermsError::NotX402)
        }
    }

    /// Returns the provider's signed offers (x402 extension `offer-receipt`) without verifying them.
    pub(crate) fn offers(&self) -> Vec<Value> {
        let terms: Value = serde_json::from_str(self.0.get()).unwrap_or_default();
        let offers = terms.pointer(&format!("{OFFER_RECEIPT}/offers"));
        offers.and_then(Value::as_array).cloned().unwrap_or_default()
    }

    /// Returns the payment requirements as JSON.
    pub const fn as_json(&self) -> &RawValue {
        &self.0
    }
}

/// Returns the header that contains the payment requirements, unless the header is empty.
fn header(headers: &HeaderMap) -> Option<&HeaderValue> {
    headers.get(REQUIRED_HEADER).filter(|value| !value.is_empty())
}

/// Decodes the payment requirements in the header from base64, in either alphabet (RFC 4648 §4, §5).
pub(crate) fn payment_required(headers: &HeaderMap) -> Option<Vec<u8>> {
    let digits: Vec<u8> = header(headers)?
        .as_bytes()
        .iter()
        .filter(|digit| !digit.is_ascii_whitespace())
        .map(|digit| match digit {
            b'-' => b'+',
            b'_' => b'/',
            digit => *digit,
        })
        .collect();
    BASE64.decode(digits).ok()
}

/// The JSON Pointer to the `offer-receipt` extension in the payment requirements and in the settlement header.
const OFFER_RECEIPT: &str = "/extensions/offer-receipt/info";

/// Returns the provider's signed receipt (x402 extension `offer-receipt`) without verifying it.
pub(crate) fn provider_receipt(headers: &HeaderMap) -> Option<Value> {
    let header = RESPONSE_HEADERS.iter().find_map(|name| headers.get(*name))?;
    let settled: Value = serde_json::from_slice(&BASE64.decode(header.as_bytes()).ok()?).ok()?;
    settled.pointer(&format!("{OFFER_RECEIPT}/receipt")).cloned()
}

/// Returns the provider's settlement header in the format of the `complete` request.
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

    fn sent_as(text: &str) -> HeaderMap {
        [(REQUIRED_HEADER.parse().unwrap(), text.parse().unwrap())]
            .into_iter()
            .collect()
    }

    fn header(terms: &Value) -> HeaderMap {
        sent_as(&BASE64.encode(terms.to_string()))
    }

    fn read(headers: &HeaderMap, body: &str) -> Result<String, TermsError> {
        PaymentTerms::read(headers, body.as_bytes()).map(|terms| terms.as_json().get().to_owned())
    }

    /// The x402 extension `offer-receipt` contains the signed objects.
    #[test]
    fn signed_offers_and_receipts_of_a_provider_are_extracted() {
        let info = |info: Value| json!({"offer-receipt": {"info": info, "schema": {}}});
        let offers = json!([{"format": "jws", "signature": "a.b.c"}]);
        let terms = json!({
            "x402Version": 2, "accepts": [{}], "extensions": info(json!({"offers": offers})),
        });
        let terms = PaymentTerms::read(&header(&terms), b"").unwrap();
        assert_eq!(json!(terms.offers()), offers);
        let none = PaymentTerms::read(&header(&json!({"x402Version": 2, "accepts": [{}]})), b"").unwrap();
        assert_eq!(none.offers(), Vec::<Value>::new());

        let receipt = json!({"format": "eip712", "payload": {}, "signature": "0x"});
        let settled = json!({"success": true, "extensions": info(json!({"receipt": receipt}))});
        let sent = |text: String| {
            [("payment-response".parse().unwrap(), text.parse().unwrap())]
                .into_iter()
                .collect()
        };
        assert_eq!(
            provider_receipt(&sent(BASE64.encode(settled.to_string()))),
            Some(receipt)
        );
        assert_eq!(provider_receipt(&sent("e30=".to_owned())), None);
        assert_eq!(provider_receipt(&sent("no base64".to_owned())), None);
    }

    #[test]
    fn payment_requirements_are_returned_exactly_as_received() {
        let of = |version| json!({"x402Version": version, "accepts": [{"scheme": "exact"}], "vendor": {"a": 1}});
        let (v1, v2, v3) = (of(1), of(2), of(3));
        let none = HeaderMap::new();
        assert_eq!(read(&header(&v2), "").unwrap(), v2.to_string());
        assert_eq!(read(&header(&v1), "").unwrap(), v1.to_string());
        for headers in [none.clone(), sent_as("")] {
            assert_eq!(read(&headers, &v1.to_string()).unwrap(), v1.to_string());
            assert_eq!(read(&headers, &format!("\u{feff}{v1}")).unwrap(), v1.to_string());
        }
        let odd = r#"{"x402Version":1.0,"accepts":[{"precise":12345678901234567890.10}],"error":"\ud800"}"#;
        assert_eq!(read(&none, odd).unwrap(), odd);

        let not_x402 = [
            (header(&v3), String::new()),
            (none.clone(), v2.to_string()),
            (none.clone(), json!({"x402Version": 1, "accepts": []}).to_string()),
            (
                none.clone(),
                json!({"x402Version": 1, "accepts": ["exact"]}).to_string(),
            ),
            (none.clone(), json!({"x402Version": "1", "accepts": [{}]}).to_string()),
            (
                none.clone(),
                r#"{"x402Version":1,"accepts":[{}],"accepts":[{}]}"#.to_owned(),
            ),
            (none.clone(), "Pay me".to_owned()),
        ];
        for (headers, body) in not_x402 {
            assert_eq!(read(&headers, &body), Err(TermsError::NotX402), "{body}");
        }
        let long = " ".repeat(MAX_TERMS_BYTES + 1);
        assert_eq!(read(&none, &long), Err(TermsError::TooLong));
    }

    #[test]
    fn payment_header_accepts_all_base64_variants() {
        let terms = r#"{"x402Version":2.0,"accepts":[{}],"error":">>>>>?????!"}"#;
        let good = BASE64.encode(terms);
        assert!(good.contains('+') && good.contains('/') && good.contains('='), "{good}");
        let url_safe = good.replace('+', "-").replace('/', "_");
        let (start, end) = good.split_at(40);
        for form in [
            &good,
            good.trim_end_matches('='),
            &url_safe,
            url_safe.trim_end_matches('='),
            &format!(" {good}\t"),
            &format!("{start} \t{end}"),
        ] {
            assert_eq!(read(&sent_as(form), "").unwrap(), terms, "{form}");
        }
        for wrong in ["=", "%%%", &format!("{good}, {good}"), &format!("{good}{good}")] {
            assert_eq!(read(&sent_as(wrong), ""), Err(TermsError::NotX402), "{wrong}");
        }
    }
}
