//! The arguments of the tools. Unknown fields are rejected.
//!
//! Each type accepts exactly the values that the type's schema allows. `tools.rs` adds `null` to the schema of each
//! optional argument, and removes `null` values before parsing. A string argument without a pattern may be empty. An
//! empty string means that the argument is absent.

use crate::kept::ResponseId;
use crate::schema::inline_schema;
use chrono::{DateTime, Utc};
use purser_client::{IdempotencyKey, Usdc};
use schemars::{JsonSchema, json_schema};
use serde::Deserialize;
use serde_json::{Map, Number, Value};
use std::fmt;
use uuid::Uuid;

/// The arguments of `find_services`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FindServices {
    /// Words to search for in a service's slug, name, description and category. Services with more matching words come
    /// first. Without words, all services match.
    #[serde(default)]
    pub(crate) text: String,
    /// Return only services in this category.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Category")]
    pub(crate) category: Option<Category>,
    /// Return only services with an operation at this price or less, in decimal USD.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Usd")]
    pub(crate) max_usd: Option<Usd>,
    /// The maximum number of services; 20 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Count<50>")]
    pub(crate) limit: Option<Count<50>>,
}

/// The arguments of `get_service`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GetService {
    /// The service's slug from `find_services`.
    pub(crate) service: String,
}

/// The arguments of `list_enabled`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListEnabled {
    /// Return only the service with this slug.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) service: Option<String>,
}

/// The arguments of `check_payment`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CheckPayment {
    /// The service's slug.
    pub(crate) service: String,
    /// The operation's slug from `get_service`.
    pub(crate) operation: String,
    /// The operation's parameters by name, as `get_service` describes them. Include the parameters of the path, the
    /// query and the body. Either an object, or a list of `{"name": …, "value": …}` for hosts that do not support
    /// objects with arbitrary fields.
    #[serde(default)]
    pub(crate) parameters: Parameters,
    /// The maximum price of the call, in decimal USD, for example "0.05". A number with more than six decimal places is
    /// truncated.
    pub(crate) max_usd: Usd,
    /// The URL of the page that a scrape or crawl operation fetches. The URL must be the value of one of the
    /// parameters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) target_url: Option<String>,
}

/// The arguments of `call_service`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CallService {
    /// The service's slug.
    pub(crate) service: String,
    /// The operation's slug from `get_service`.
    pub(crate) operation: String,
    /// The operation's parameters by name, as `get_service` describes them. Include the parameters of the path, the
    /// query and the body. Either an object, or a list of `{"name": …, "value": …}` for hosts that do not support
    /// objects with arbitrary fields.
    #[serde(default)]
    pub(crate) parameters: Parameters,
    /// The maximum price of the call, in decimal USD, for example "0.05". A number with more than six decimal places is
    /// truncated.
    pub(crate) max_usd: Usd,
    /// The URL of the page that a scrape or crawl operation fetches. The URL must be the value of one of the
    /// parameters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) target_url: Option<String>,
    /// Identifies the purchase, so that a repeated call does not pay twice. Choose a new key for each purchase, and
    /// send the same key when you repeat the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Key")]
    pub(crate) idempotency_key: Option<Key>,
    /// The approval's id from an earlier `approval_required` error. Send the id with the same arguments and idempotency
    /// key as before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Id")]
    pub(crate) approval_id: Option<Id>,
    /// The maximum size of the provider's text in the result, in bytes; 48000 by default, because common hosts show
    /// this size completely. `read_response` returns the rest of a paid response. Images, audio and files are never cut
    /// to this size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "MaxBytes")]
    pub(crate) max_bytes: Option<MaxBytes>,
}

/// The arguments of `read_response`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReadResponse {
    /// The `cursor` in the field `rest` of the previous result.
    pub(crate) cursor: Cursor,
    /// The maximum size of the text in the result, in bytes; 48000 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "MaxBytes")]
    pub(crate) max_bytes: Option<MaxBytes>,
}

/// The arguments of `get_approval`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GetApproval {
    /// The approval's id.
    pub(crate) approval_id: Id,
    /// The number of seconds to wait for the user's decision; at most 20.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Count<20>")]
    pub(crate) wait_seconds: Option<Count<20>>,
}

/// The arguments of `request_raise`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RequestRaise {
    /// The `transaction_id` of the rejected call.
    pub(crate) transaction_id: Id,
    /// The requested limit per call, in decimal USD, if the price exceeded the limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Usd")]
    pub(crate) max_per_call_usd: Option<Usd>,
    /// The requested limit per 24 hours, in decimal USD, if the call exceeded the limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Usd")]
    pub(crate) max_per_day_usd: Option<Usd>,
    /// The requested end of the increase, at most seven days from now, for example "2026-12-31T18:00:00Z".
    pub(crate) until: Instant,
    /// The reason, for the user who decides; at most 500 characters.
    pub(crate) reason: String,
}

/// The arguments of `list_receipts`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListReceipts {
    /// The maximum number of receipts; 20 by default. The newest receipts come first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Count<100>")]
    pub(crate) limit: Option<Count<100>>,
}

/// The arguments of `get_receipt`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GetReceipt {
    /// The settlement's id.
    pub(crate) settlement_id: Id,
}

/// An amount in decimal USD, as a JSON string or number.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "UsdText")]
pub(crate) struct Usd(pub(crate) Usdc);

/// An amount as a JSON string or a JSON number.
#[derive(Deserialize)]
#[serde(untagged, expecting = "an amount is decimal USD, as \"0.05\"")]
enum UsdText {
    Text(String),
    Number(Number),
}

/// An integer from 1 to `MAX`, which JSON may write as `5` or `5.0`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "Number")]
pub(crate) struct Count<const MAX: u8>(pub(crate) u8);

/// The maximum size of the text in a result, in bytes.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "Number")]
pub(crate) struct MaxBytes(pub(crate) usize);

/// The position in a stored response from which `read_response` continues.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub(crate) struct Cursor {
    pub(crate) id: ResponseId,
    /// The number of bytes before this position.
    pub(crate) offset: usize,
}

/// An id that Purser issued: a UUID with hyphens.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Id(pub(crate) Uuid);

/// A time in RFC 3339 format.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Instant(pub(crate) DateTime<Utc>);

#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Key(pub(crate) IdempotencyKey);

#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Category(pub(crate) String);

/// An operation's parameters by name.
#[derive(Debug, Default, Deserialize)]
#[serde(from = "ParametersForm")]
pub(crate) struct Parameters(pub(crate) Map<String, Value>);

/// The parameters as a JSON object or as a JSON list.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "`parameters` is an object, or a list of {\"name\": …, \"value\": a text, number or boolean}"
)]
enum ParametersForm {
    Object(Map<String, Value>),
    List(Vec<Parameter>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameter {
    name: String,
    value: Scalar,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Scalar {
    Text(String),
    Number(Number),
    Truth(bool),
}

impl From<ParametersForm> for Parameters {
    fn from(form: ParametersForm) -> Self {
        let list = match form {
            ParametersForm::Object(parameters) => return Self(parameters),
            ParametersForm::List(list) => list,
        };
        let mut parameters = Map::new();
        for Parameter { name, value } in list {
            let value = match value {
                Scalar::Text(text) => Value::String(text),
                Scalar::Number(number) => Value::Number(number),
                Scalar::Truth(truth) => Value::Bool(truth),
            };
            // A repeated name gets a list of values, as in a query string.
            match parameters.get_mut(&name) {
                Some(Value::Array(values)) => values.push(value),
                Some(first) => *first = Value::Array(vec![first.take(), value]),
                None => {
                    parameters.insert(name, value);
                }
            }
        }
        Self(parameters)
    }
}

/// The categories of the catalog.
const CATEGORIES: [&str; 8] = [
    "search",
    "scrape",
    "ai",
    "data",
    "infrastructure",
    "security",
    "finance",
    "creative",
];
/// The number of decimal places in an amount.
const DECIMALS: i32 = 6;
/// The maximum number of digits before the decimal point of an amount.
const MAX_DIGITS: usize = 9;

impl TryFrom<UsdText> for Usd {
    type Error = &'static str;

    fn try_from(amount: UsdText) -> Result<Self, &'static str> {
        const WRONG: &str = "an amount is decimal USD below 1000000000, as \"0.05\"";
        let units = match amount {
            UsdText::Text(text) => {
                let whole = text.split_once('.').map_or(text.as_str(), |(whole, _)| whole);
                let amount = text.parse::<Usdc>().ok().filter(|_| whole.len() <= MAX_DIGITS);
                amount.map(Usdc::units)
            }
            // Further decimal places are truncated, so that a maximum price never increases.
            UsdText::Number(number) => scale(&number, DECIMALS).map(|scaled| scaled.whole),
        };
        let units = units.filter(|units| *units < MAX_AMOUNT);
        units.map(|units| Self(Usdc::from_units(units))).ok_or(WRONG)
    }
}

/// The maximum number of digits before the decimal point that are parsed.
const MAX_DECIMALS: usize = 32;
/// The smallest amount that is rejected as too large, in micro-USDC.
const MAX_AMOUNT: u64 = 1_000_000_000_000_000;

/// A number that was multiplied by a power of ten.
struct ScaledNumber {
    whole: u64,
    is_exact: bool,
}

/// Multiplies a number by ten to the power of `decimals` exactly, and truncates the remaining decimals.
///
/// Returns `None` if the number is negative or too large.
fn scale(number: &Number, decimals: i32) -> Option<ScaledNumber> {
    let text = number.to_string();
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse().ok()?),
        None => (text.as_str(), 0),
    };
    let (is_negative, mantissa) = match mantissa.strip_prefix('-') {
        Some(mantissa) => (true, mantissa),
        None => (false, mantissa),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    if digits.bytes().all(|digit| digit == b'0') {
        return Some(ScaledNumber {
            whole: 0,
            is_exact: true,
        });
    }
    let point = i32::try_from(whole.len())
        .ok()?
        .checked_add(exponent)?
        .checked_add(decimals)?;
    let point = usize::try_from(point.max(0)).ok()?;
    if is_negative || point > MAX_DECIMALS {
        return None;
    }
    let padded = digits.chars().chain(std::iter::repeat('0'));
    let before: String = std::iter::once('0').chain(padded.take(point)).collect();
    Some(ScaledNumber {
        whole: before.parse().ok()?,
        is_exact: digits.chars().skip(point).all(|digit| digit == '0'),
    })
}

impl<const MAX: u8> TryFrom<Number> for Count<MAX> {
    type Error = String;

    fn try_from(number: Number) -> Result<Self, String> {
        let whole = scale(&number, 0).filter(|scaled| scaled.is_exact);
        let fits = whole
            .and_then(|scaled| u8::try_from(scaled.whole).ok())
            .filter(|number| (1..=MAX).contains(number));
        fits.map(Self)
            .ok_or_else(|| format!("an integer from 1 to {MAX} is expected"))
    }
}

impl MaxBytes {
    const MIN: usize = 1_000;
    /// The maximum. A text of this size with JSON escapes fits the limits of Lambda and API Gateway.
    pub(crate) const MAX: usize = 128 * 1024;
}

/// The size that common hosts show completely. Claude Code shows up to 50,000 characters and 25,000 tokens. In dense
/// text, for example JSON, two bytes are about one token.
impl Default for MaxBytes {
    fn default() -> Self {
        Self(48_000)
    }
}

impl TryFrom<Number> for MaxBytes {
    type Error = String;

    fn try_from(number: Number) -> Result<Self, String> {
        let whole = scale(&number, 0).filter(|scaled| scaled.is_exact);
        let bytes = whole.and_then(|scaled| usize::try_from(scaled.whole).ok());
        let bytes = bytes.filter(|bytes| (Self::MIN..=Self::MAX).contains(bytes));
        bytes
            .map(Self)
            .ok_or_else(|| format!("`max_bytes` is an integer from {} to {}", Self::MIN, Self::MAX))
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.id.slot, self.id.nonce.simple(), self.offset)
    }
}

impl TryFrom<String> for Cursor {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, &'static str> {
        let parse = || {
            let (slot, rest) = text.split_once('.')?;
            let (nonce, offset) = rest.split_once('.')?;
            let nonce = Uuid::try_parse(nonce).ok()?;
            let (slot, offset) = (slot.parse().ok()?, offset.parse().ok()?);
            let id = ResponseId { slot, nonce };
            Some(Self { id, offset })
        };
        // The parsers also accept formats that the schema does not allow.
        let cursor = parse().filter(|cursor| cursor.to_string() == text);
        cursor.ok_or("a cursor is the `cursor` of a result's `rest`")
    }
}

impl TryFrom<String> for Id {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, &'static str> {
        const WRONG: &str = "an id is a UUID with its hyphens";
        let id: Uuid = text.parse().map_err(|_| WRONG)?;
        // The UUID parser also accepts formats that the schema does not allow.
        if id.hyphenated().to_string().eq_ignore_ascii_case(&text) {
            Ok(Self(id))
        } else {
            Err(WRONG)
        }
    }
}

impl TryFrom<String> for Instant {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, &'static str> {
        let time = DateTime::parse_from_rfc3339(&text).map_err(|_| "a time has the form 2026-12-31T18:00:00Z")?;
        Ok(Self(time.to_utc()))
    }
}

impl TryFrom<String> for Key {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        IdempotencyKey::from_text(&text)
            .map(Self)
            .map_err(|error| error.to_string())
    }
}

impl TryFrom<String> for Category {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if CATEGORIES.contains(&text.as_str()) {
            Ok(Self(text))
        } else {
            Err(format!("a category is one of: {}", CATEGORIES.join(", ")))
        }
    }
}

inline_schema!(
    Usd,
    "Usd",
    json_schema!({
        "anyOf": [
            {"type": "string", "pattern": r"^[0-9]{1,9}(\.[0-9]{1,6})?$"},
            {"type": "number", "minimum": 0, "maximum": 999_999_999},
        ],
    })
);
inline_schema!(
    Count<MAX>,
    "Count",
    json_schema!({"type": "integer", "minimum": 1, "maximum": MAX}),
    const MAX: u8
);
inline_schema!(
    MaxBytes,
    "MaxBytes",
    json_schema!({"type": "integer", "minimum": Self::MIN, "maximum": Self::MAX})
);
inline_schema!(
    Cursor,
    "Cursor",
    json_schema!({"type": "string", "pattern": r"^[0-9]\.[0-9a-f]{32}\.(0|[1-9][0-9]{0,7})$"})
);
inline_schema!(
    Id,
    "Id",
    json_schema!({"type": "string", "pattern": "^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$"})
);
inline_schema!(
    Instant,
    "Instant",
    json_schema!({
        "type": "string",
        "pattern": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})$",
    })
);
// The pattern limits the length, because hosts with strict schemas reject `maxLength`.
inline_schema!(
    Key,
    "Key",
    json_schema!({"type": "string", "pattern": "^[^\\u0000-\\u001f\\u007f-\\u009f]{1,255}$"})
);
inline_schema!(
    Category,
    "Category",
    json_schema!({"type": "string", "enum": CATEGORIES})
);
inline_schema!(
    Parameters,
    "Parameters",
    json_schema!({
        "anyOf": [
            {"type": "object", "properties": {}},
            {"type": "array", "items": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "value": {"anyOf": [{"type": "string"}, {"type": "number"}, {"type": "boolean"}]},
                },
                "required": ["name", "value"],
                "additionalProperties": false,
            }},
        ],
    })
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_arguments_accept_any_notation_of_whole_numbers() {
        let read = |json: &str| serde_json::from_str::<Count<50>>(json).ok().map(|count| count.0);
        for (json, count) in [
            ("1", 1),
            ("5.0", 5),
            ("50.000", 50),
            ("5e0", 5),
            ("1e1", 10),
            ("0.5e1", 5),
        ] {
            assert_eq!(read(json), Some(count), "{json}");
        }
        for json in [
            "0", "51", "-1", "-1.0", "0.5", "5.5", "1e2", "1e-1", "1e300", r#""5""#, "null", "true",
        ] {
            assert_eq!(read(json), None, "{json}");
        }
    }

    #[test]
    fn a_parameter_list_is_converted_to_an_object() {
        let read = |value: Value| {
            serde_json::from_value::<Parameters>(value)
                .ok()
                .map(|parameters| parameters.0)
        };
        let list = serde_json::json!([{"name": "a", "value": 1}, {"name": "b", "value": "x"}, {"name": "a", "value": true},
            {"name": "a", "value": "y"}]);
        let object = serde_json::json!({"a": [1, true, "y"], "b": "x"});
        assert_eq!(read(list), read(object.clone()));
        assert_eq!(read(object.clone()).map(Value::Object), Some(object));
        for wrong in [
            serde_json::json!("{}"),
            serde_json::json!([{"name": "a"}]),
            serde_json::json!([{"name": "a", "value": null}]),
            serde_json::json!([{"name": "a", "value": 1, "more": 1}]),
        ] {
            assert_eq!(read(wrong.clone()), None, "{wrong}");
        }
    }

    #[test]
    fn only_hyphenated_uuids_are_accepted_as_ids() {
        let read = |text: &str| serde_json::from_value::<Id>(text.into()).is_ok();
        assert!(read("00000000-0000-4000-8000-00000000000a") && read("00000000-0000-4000-8000-00000000000A"));
        for wrong in [
            "",
            "it",
            "00000000000040008000000000000000",
            "urn:uuid:00000000-0000-4000-8000-000000000000",
            "{00000000-0000-4000-8000-000000000000}",
        ] {
            assert!(!read(wrong), "{wrong}");
        }
    }

    /// A number with more than six decimals is truncated, so that a limit never increases. Such a string is rejected.
    #[test]
    fn amount_arguments_are_parsed_exactly_or_truncated() {
        let read = |json: &str| serde_json::from_str::<Usd>(json).ok().map(|usd| usd.0.units());
        for (json, units) in [
            (r#""0.05""#, 50_000),
            ("0.05", 50_000),
            ("0.02", 20_000),
            ("1", 1_000_000),
            ("2.0", 2_000_000),
            ("0.000001", 1),
            ("0.000012", 12),
            ("1e-6", 1),
            ("503599627.370497", 503_599_627_370_497),
            (r#""999999999.999999""#, 999_999_999_999_999),
        ] {
            assert_eq!(read(json), Some(units), "{json}");
        }
        // Further decimal places are truncated, so that a maximum price never increases.
        for (json, units) in [
            ("0", 0),
            ("0.0000015", 1),
            ("1.9e-6", 1),
            ("1e-7", 0),
            ("1e-300", 0),
            ("0.1234567", 123_456),
            ("999999999", 999_999_999_000_000),
            ("-0.0", 0),
        ] {
            assert_eq!(read(json), Some(units), "{json}");
        }
        for json in [
            "-1",
            "-0.05",
            "1000000000",
            "1e30",
            r#""0.0000001""#,
            r#""1000000000""#,
            "true",
            "null",
            "[]",
            r#""""#,
            r#""1e-6""#,
        ] {
            assert_eq!(read(json), None, "{json}");
        }
    }
}
