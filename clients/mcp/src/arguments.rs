//! The arguments of the tools. Unknown members are refused.
//!
//! An optional argument may be left out or `null`. An empty text is refused by name (`tools.rs`), because its meaning
//! is ambiguous. `skip_serializing_if` keeps `"default": null` out of a schema.

use crate::schema::inline_schema;
use purser_client::{IdempotencyKey, Usdc};
use schemars::{JsonSchema, json_schema};
use serde::Deserialize;
use serde_json::{Map, Number, Value};
use uuid::Uuid;

/// The arguments of `find_services`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FindServices {
    /// Words to search for in a service's slug, name, description and category. Services that contain more of the words
    /// come first. Without any words, every service is found.
    #[serde(default)]
    pub(crate) text: String,
    /// Only services of this category.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) category: Option<String>,
    /// Only services with an operation at this price or less, in decimal USD.
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
    /// The service's slug, as `find_services` returns it.
    pub(crate) service: String,
}

/// The arguments of `list_enabled`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListEnabled {
    /// Only this service, by its slug.
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
    /// The operation, as `get_service` returns it.
    pub(crate) operation: String,
    /// The operation's parameters by name: those of its path, and those of its query (GET) or JSON body (POST).
    #[serde(default)]
    pub(crate) parameters: Map<String, Value>,
    /// The highest price of the call, in decimal USD.
    pub(crate) max_usd: Usd,
    /// The page that a scrape or crawl operation fetches. It must be the value of one of the parameters.
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
    /// The operation, as `get_service` returns it.
    pub(crate) operation: String,
    /// The operation's parameters by name: those of its path, and those of its query (GET) or JSON body (POST).
    #[serde(default)]
    pub(crate) parameters: Map<String, Value>,
    /// The highest price of the call, in decimal USD.
    pub(crate) max_usd: Usd,
    /// The page that a scrape or crawl operation fetches. It must be the value of one of the parameters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) target_url: Option<String>,
    /// Makes a repeated call the same purchase. Choose a key for each purchase, and send the same key when you repeat
    /// the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Key")]
    pub(crate) idempotency_key: Option<Key>,
    /// The approval of a person, from an earlier refusal. Send it with that call's arguments and idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Id")]
    pub(crate) approval_id: Option<Id>,
}

/// The arguments of `get_approval`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GetApproval {
    /// The approval's id.
    pub(crate) approval_id: Id,
    /// How long to wait for a person's decision, in seconds; at most 20.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Count<20>")]
    pub(crate) wait_seconds: Option<Count<20>>,
}

/// The arguments of `list_receipts`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListReceipts {
    /// The maximum number of receipts, newest first; 20 by default.
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

/// The two JSON forms of an amount.
#[derive(Deserialize)]
#[serde(untagged, expecting = "an amount is decimal USD, as \"0.05\"")]
enum UsdText {
    Text(String),
    Number(Number),
}

/// An integer from 1 to `MOST`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "u64")]
pub(crate) struct Count<const MOST: u8>(pub(crate) u8);

/// An id that Purser issued.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct Id(pub(crate) Uuid);

/// An idempotency key.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Key(pub(crate) IdempotencyKey);

impl TryFrom<UsdText> for Usd {
    type Error = String;

    fn try_from(amount: UsdText) -> Result<Self, String> {
        let text = match amount {
            UsdText::Text(text) => text,
            UsdText::Number(number) => decimal(&number),
        };
        text.parse()
            .map(Self)
            .map_err(|error: purser_client::UsdcError| error.to_string())
    }
}

/// Returns the shortest decimal text of a number. It equals the text in the request for up to 15 digits, so no rounding
/// occurs.
fn decimal(number: &Number) -> String {
    let text = number.to_string();
    // An amount of six places has no other exponent.
    match text.strip_suffix("e-6") {
        Some(digit) => format!("0.00000{digit}"),
        None => text,
    }
}

impl<const MOST: u8> TryFrom<u64> for Count<MOST> {
    type Error = String;

    fn try_from(number: u64) -> Result<Self, String> {
        let fits = u8::try_from(number).ok().filter(|number| (1..=MOST).contains(number));
        fits.map(Self)
            .ok_or_else(|| format!("a number from 1 to {MOST} is expected"))
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

inline_schema!(
    Usd,
    "Usd",
    json_schema!({
        "anyOf": [
            {"type": "string", "pattern": r"^[0-9]+(\.[0-9]{1,6})?$"},
            {"type": "number", "minimum": 0},
        ],
        "examples": ["0.05"],
    })
);
inline_schema!(
    Count<MOST>,
    "Count",
    json_schema!({"type": "integer", "minimum": 1, "maximum": MOST}),
    const MOST: u8
);
inline_schema!(Id, "Id", json_schema!({"type": "string", "format": "uuid"}));
inline_schema!(
    Key,
    "Key",
    json_schema!({"type": "string", "minLength": 1, "maxLength": 255})
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_a_text_or_a_number_and_read_without_rounding() {
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
            ("4503599627.370497", 4_503_599_627_370_497),
        ] {
            assert_eq!(read(json), Some(units), "{json}");
        }
        for json in [
            "-1",
            "-0.05",
            "0.0000001",
            "0.0000015",
            "1e-7",
            "1e30",
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
