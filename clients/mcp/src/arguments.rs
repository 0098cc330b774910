//! What the tools take. A member that is not here is refused.

use crate::schema::inline_schema;
use purser_client::{IdempotencyKey, Usdc};
use schemars::{JsonSchema, json_schema};
use serde::Deserialize;
use serde_json::{Map, Value};
use uuid::Uuid;

/// `find_services`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FindServices {
    /// Words that are all in a service's slug, name, description or category. Without any, every service is found.
    #[serde(default)]
    pub(crate) text: String,
    /// Only services of this category.
    #[schemars(with = "String")]
    pub(crate) category: Option<String>,
    /// Only services that have something for this price or less, in decimal USD.
    #[schemars(with = "Usd")]
    pub(crate) max_usd: Option<Usd>,
    /// How many at most; 20 unless given.
    #[schemars(with = "Count<50>")]
    pub(crate) limit: Option<Count<50>>,
}

/// `get_service`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GetService {
    /// The service's slug, as `find_services` names it.
    pub(crate) service: String,
}

/// `list_enabled`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListEnabled {
    /// Only this service, by its slug.
    #[schemars(with = "String")]
    pub(crate) service: Option<String>,
}

/// `check_payment`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CheckPayment {
    /// The service's slug.
    pub(crate) service: String,
    /// The operation, as `get_service` names it.
    pub(crate) operation: String,
    /// The operation's parameters by name: those of its path, then its query (GET) or JSON body (POST).
    #[serde(default)]
    pub(crate) parameters: Map<String, Value>,
    /// What the call may cost at most, in decimal USD.
    pub(crate) max_usd: Usd,
    /// The page that a scrape or crawl operation is pointed at; it must be the value of one of the parameters.
    #[schemars(with = "String")]
    pub(crate) target_url: Option<String>,
}

/// `call_service`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CallService {
    /// The service's slug.
    pub(crate) service: String,
    /// The operation, as `get_service` names it.
    pub(crate) operation: String,
    /// The operation's parameters by name: those of its path, then its query (GET) or JSON body (POST).
    #[serde(default)]
    pub(crate) parameters: Map<String, Value>,
    /// What the call may cost at most, in decimal USD.
    pub(crate) max_usd: Usd,
    /// The page that a scrape or crawl operation is pointed at; it must be the value of one of the parameters.
    #[schemars(with = "String")]
    pub(crate) target_url: Option<String>,
    /// Makes a repeated call the same purchase. Choose one for each purchase, and repeat it when you repeat the call.
    #[schemars(with = "Key")]
    pub(crate) idempotency_key: Option<Key>,
    /// The approval of a person, from an earlier refusal; with that call's arguments and idempotency key.
    #[schemars(with = "Id")]
    pub(crate) approval_id: Option<Id>,
}

/// `get_approval`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GetApproval {
    /// The approval.
    pub(crate) approval_id: Id,
    /// Wait so many seconds for a person to decide; 20 at most.
    #[schemars(with = "Count<20>")]
    pub(crate) wait_seconds: Option<Count<20>>,
}

/// `list_receipts`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListReceipts {
    /// How many at most, the newest first; 20 unless given.
    #[schemars(with = "Count<100>")]
    pub(crate) limit: Option<Count<100>>,
}

/// `get_receipt`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GetReceipt {
    /// The settlement.
    pub(crate) settlement_id: Id,
}

/// An amount, in decimal USD.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Usd(pub(crate) Usdc);

/// A number from 1 to `MOST`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "u64")]
pub(crate) struct Count<const MOST: u8>(pub(crate) u8);

/// An id of Purser's.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct Id(pub(crate) Uuid);

/// An idempotency key.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Key(pub(crate) IdempotencyKey);

impl TryFrom<String> for Usd {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
            .map(Self)
            .map_err(|error: purser_client::UsdcError| error.to_string())
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
    json_schema!({"type": "string", "pattern": r"^[0-9]+(\.[0-9]{1,6})?$", "examples": ["0.05"]})
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
