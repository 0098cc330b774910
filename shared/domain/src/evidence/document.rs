//! Declares the fields of evidence documents once, as tables for writing, parsing and the audit log.
//!
//! A replay writes the parsed document again and compares it with the original, so a misread value is found.

use crate::{
    Address, Agent, AgentId, AgentStatus, Amount, ApprovalId, Availability, CallDescription, CatalogPayment, Category,
    Check, CheckName, CheckOutcome, DomainPattern, Duration, EnabledService, Endpoint, IncreasedCaps, KeyId, Labels,
    LimitAction, LimitIncrease, ListingHistory, Metadata, Network, Operation, OperationSlug, OperationUuid,
    ProviderRequest, Rule, RuleId, SchedulePeriod, Service, ServiceId, ServiceSlug, SettlementId, SpendPolicy,
    TemporaryCaps, Timestamp, TransactionId, TrustStatus, Wallet, WalletAttestation, WalletKey, WindowPeriod, ZoneName,
    parse_address, parse_whole_number,
};
use serde_json::{Map, Value};
use url::Url;
use uuid::Uuid;

pub(crate) type Object = Map<String, Value>;

/// A value that an evidence document stores as one JSON value.
pub(crate) trait Element: Sized {
    fn to_json(&self) -> Value;
    /// Parses a value that [`Element::to_json`] has written.
    fn from_json(value: &Value) -> Option<Self>;
}

/// A value that an evidence document stores as fields of a JSON object.
pub(crate) trait Fields: Sized {
    fn write_to(&self, object: &mut Object);
    /// Parses a value that [`Fields::write_to`] has written.
    fn read_from(object: &Object) -> Option<Self>;
}

pub(crate) fn write_field(object: &mut Object, name: &str, value: &impl Element) {
    object.insert(name.to_owned(), value.to_json());
}

/// Parses a field. If `T` is an `Option`, the field may be null or absent.
pub(crate) fn read_field<T: Element>(object: &Object, name: &str) -> Option<T> {
    T::from_json(object.get(name).unwrap_or(&Value::Null))
}

pub(crate) fn write_optional_field(object: &mut Object, name: &str, value: Option<&impl Element>) {
    if let Some(value) = value {
        write_field(object, name, value);
    }
}

/// Parses an optional field: `Some(None)` if the field is absent or null, `None` if the value is malformed.
#[expect(clippy::option_option, reason = "a wrong value is not an absent value")]
pub(crate) fn read_optional_field<T: Element>(object: &Object, name: &str) -> Option<Option<T>> {
    object.get(name).map_or(Some(None), Option::from_json)
}

/// Implements [`Fields`] and [`Element`] for structs.
///
/// ```ignore
/// fields! {
///     RuleWindow {
///         keys: "keys" optional,        // an `Option`: absent if it is `None`; without `optional`, null
///         action: "action" unless(LimitAction::Block), // absent if it is this value
///         waived_rules: "waived_rules" or_default, // the default value if the field is absent
///         period: part,                 // fields in the same object
///         window: part_with_null("services"), // like `part`; `services` is null if the part omits the field
///         name: unwritten(String::new()), // not in the document, with this value after parsing
///     }
/// }
/// ```
macro_rules! fields {
    () => {};
    ($name:ident { $($field:ident: $kind:tt $(($detail:expr))? $($presence:ident $(($default:expr))?)?),* $(,)? }
    $($rest:tt)*) => {
        const _: () = {
            use $crate::evidence::document::*;

            impl Fields for $name {
                fn write_to(&self, object: &mut Object) {
                    $(fields!(@write object, &self.$field, $kind $(($detail))? $($presence $(($default))?)?);)*
                }
                fn read_from(object: &Object) -> Option<Self> {
                    Some(Self { $($field: fields!(@read object, $kind $(($detail))? $($presence $(($default))?)?)),* })
                }
            }
        };
        $crate::evidence::document::fields! { @element $name }
        $crate::evidence::document::fields! { $($rest)* }
    };
    (@element $name:ident) => {
        const _: () = {
            use $crate::evidence::document::*;

            impl Element for $name {
                fn to_json(&self) -> ::serde_json::Value {
                    let mut object = Object::new();
                    self.write_to(&mut object);
                    ::serde_json::Value::Object(object)
                }
                fn from_json(value: &::serde_json::Value) -> Option<Self> {
                    Self::read_from(value.as_object()?)
                }
            }
        };
    };

    (@write $object:ident, $value:expr, $name:literal $(or_default)?) => { write_field($object, $name, $value) };
    (@write $object:ident, $value:expr, $name:literal optional) => {
        write_optional_field($object, $name, $value.as_ref())
    };
    (@write $object:ident, $value:expr, $name:literal unless($default:expr)) => {
        write_optional_field($object, $name, Some($value).filter(|value| **value != $default))
    };
    (@write $object:ident, $value:expr, part) => { $value.write_to($object) };
    (@write $object:ident, $value:expr, part_with_null($name:expr)) => {
        $object.insert($name.to_owned(), ::serde_json::Value::Null);
        $value.write_to($object);
    };
    (@write $object:ident, $value:expr, unwritten($source:expr)) => {};

    (@read $object:ident, $name:literal) => { read_field($object, $name)? };
    (@read $object:ident, $name:literal or_default) => { read_optional_field($object, $name)?.unwrap_or_default() };
    (@read $object:ident, $name:literal optional) => { read_optional_field($object, $name)? };
    (@read $object:ident, $name:literal unless($default:expr)) => {
        read_optional_field($object, $name)?.unwrap_or($default)
    };
    (@read $object:ident, part) => { Fields::read_from($object)? };
    (@read $object:ident, part_with_null($name:expr)) => { Fields::read_from($object)? };
    (@read $object:ident, unwritten($value:expr)) => { $value };
}
pub(crate) use fields;

fields! {
    // No check depends on an `unwritten` field. Archived agents are frozen; for `owner`, see `LimitIncrease`.
    Agent {
        id: "agent_id",
        version: "version",
        status: "status",
        wallet: "wallet",
        rules: "rules",
        name: unwritten(String::new()),
        owner: unwritten(String::new()),
        created_at: unwritten(Timestamp::EPOCH),
        archived: unwritten(false),
        labels: unwritten(Labels::default()),
        keys: unwritten(Vec::new()),
        starting_set: unwritten(None),
        template: unwritten(None),
        max_increase_factor: unwritten(Agent::DEFAULT_INCREASE_FACTOR),
        former_owners: unwritten(Vec::new()),
    }

    Rule { id: "rule_id", version: "rule_version", kind: part }

    EnabledService { service: "service_id", version: "version", enabled: "enabled", policy: part }

    SpendPolicy {
        max_per_call: "max_per_call_units",
        max_per_day: "max_per_day_units",
        require_approval_above: "require_approval_above_units",
        enabled_operations: "enabled_operations",
        allowed_domains: "allowed_domains",
        raises: "raises" unless(Vec::<LimitIncrease>::new()),
    }

    // The checks only compare `by` with the agent's `owner`. After parsing, both are empty, and so equal.
    LimitIncrease {
        caps: part,
        from: "from",
        until: "until",
        by: unwritten(String::new()),
        approval: unwritten(ApprovalId::from_uuid(Uuid::nil())),
    }

    TemporaryCaps { caps: part, until: "until" }

    IncreasedCaps { max_per_call: "max_per_call_units", max_per_day: "max_per_day_units" }

    Service {
        id: "service_id",
        version: "version",
        slug: "slug",
        category: "category",
        operations: "operations",
        name: unwritten(String::new()),
        description: unwritten(String::new()),
        website: unwritten(Url::parse("https://service.invalid/").ok()?),
        logo_url: unwritten(None),
        source: unwritten(String::new()),
        trust_status: unwritten(TrustStatus::Listed),
        curated: unwritten(true),
        history: unwritten(ListingHistory::default()),
    }

    Operation {
        slug: "operation_id",
        method: "method",
        endpoint: "endpoint",
        category: "category",
        fetches_target: "fetches_target",
        price_model: "price_model",
        max_price: "max_price_units",
        payment: "payment",
        id: unwritten(OperationUuid::from_uuid(Uuid::nil())),
        availability: unwritten(Availability::Unverified),
        label: unwritten(String::new()),
        execution: unwritten(String::new()),
        estimated_price: unwritten(Amount::ZERO),
        params: unwritten(Value::Null),
        next: unwritten(None),
    }

    CatalogPayment { scheme: "scheme", network: "network", amount: "amount_units", pay_to: "pay_to" }

    CallDescription {
        request: part,
        target_url: "target_url",
        metadata: unwritten(Metadata::default()),
        catalog_price: unwritten(None),
    }

    ProviderRequest { method: "method", url: "url", body_hash: "body_hash" }

    Check { name: "name", outcome: "outcome", limit: "limit", used: "used", remaining: "remaining" }
}

impl Fields for WindowPeriod {
    fn write_to(&self, object: &mut Object) {
        write_optional_field(object, "window_seconds", self.duration().as_ref());
        write_optional_field(object, "period", self.name().map(str::to_owned).as_ref());
        write_optional_field(object, "time_zone", self.time_zone().as_ref());
    }
    fn read_from(object: &Object) -> Option<Self> {
        let name: Option<String> = read_optional_field(object, "period")?;
        let duration = read_optional_field(object, "window_seconds")?;
        Self::from_parts(duration, name.as_deref(), read_optional_field(object, "time_zone")?)
    }
}

/// Implements [`Element`] for types that are a JSON string, number or boolean.
macro_rules! elements {
    (texts $($name:ty = $parse:expr;)*) => {
        elements! { $($name, |value| value.to_string().into(), |value| $parse(value.as_str()?);)* }
    };
    (names $($name:ty)*) => {
        elements! { $($name, |value| value.name().into(), |value| Self::from_name(value.as_str()?);)* }
    };
    ($($name:ty, $write:expr, $read:expr;)*) => {$(
        impl Element for $name {
            fn to_json(&self) -> Value {
                let write: fn(&Self) -> Value = $write;
                write(self)
            }
            fn from_json(value: &Value) -> Option<Self> {
                let read: fn(&Value) -> Option<Self> = $read;
                read(value)
            }
        }
    )*};
}

elements! {
    bool, |value| (*value).into(), Value::as_bool;
    u8, |value| (*value).into(), |value| parse_whole_number(value)?.try_into().ok();
    u32, |value| (*value).into(), |value| parse_whole_number(value)?.try_into().ok();
    u64, |value| (*value).into(), parse_whole_number;
    Amount, |amount| amount.units().into(), |value| Self::from_units(parse_whole_number(value)?);
    Duration, |duration| duration.secs().into(), |value| u32::from_json(value).map(Self::from_secs_u32);
    Wallet, |wallet| wallet.address.to_json(), |value| Some(Self {
        key: WalletKey::Seed { index: 0 },
        address: Address::from_json(value)?,
        attestation: WalletAttestation::from_bytes([0; 65]),
    });
}

elements! { texts
    String = |text: &str| Some(text.to_owned());
    AgentId = Self::parse;
    ApprovalId = Self::parse;
    KeyId = Self::parse;
    RuleId = Self::parse;
    ServiceId = Self::parse;
    SettlementId = Self::parse;
    TransactionId = Self::parse;
    OperationSlug = Self::parse;
    ServiceSlug = Self::parse;
    Timestamp = Self::parse;
    ZoneName = Self::parse;
    SchedulePeriod = Self::parse;
    Endpoint = Self::parse;
    Address = |text| parse_address(text).ok();
    DomainPattern = |text| Self::parse(text).ok();
    Url = |text| Self::parse(text).ok();
}

elements! { names AgentStatus Category CheckName CheckOutcome LimitAction Network }

impl<T: Element> Element for Option<T> {
    fn to_json(&self) -> Value {
        self.as_ref().map_or(Value::Null, Element::to_json)
    }
    fn from_json(value: &Value) -> Option<Self> {
        match value {
            Value::Null => Some(None),
            value => T::from_json(value).map(Some),
        }
    }
}

impl<T: Element> Element for Vec<T> {
    fn to_json(&self) -> Value {
        self.iter().map(Element::to_json).collect()
    }
    fn from_json(value: &Value) -> Option<Self> {
        value.as_array()?.iter().map(T::from_json).collect()
    }
}
