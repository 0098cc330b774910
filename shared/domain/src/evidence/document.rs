//! Declares the fields of evidence documents once, as tables for writing, parsing and the audit log.
//!
//! A replay writes the parsed document again and compares it with the original, so a misread value is found.

use crate::{
    Address, Agent, AgentId, AgentStatus, Amount, ApprovalException, ApprovalId, AutomaticFreeze, Availability,
    CallDescription, CatalogPayment, Category, Check, CheckName, CheckOutcome, DomainPattern, Duration, EnabledService,
    Endpoint, IncreasedCaps, KeyId, Labels, LimitAction, LimitIncrease, ListingHistory, Metadata, Network, Operation,
    OperationSlug, OperationUuid, ProviderRequest, Rule, RuleId, RuleKind, RuleWindow, Schedule, SchedulePeriod,
    Service, ServiceId, ServiceSlug, SettlementId, SpendPolicy, TemporaryCaps, Timestamp, TransactionId, TrustStatus,
    UsualPrice, Vendor, Wallet, WalletAttestation, WalletKey, WindowPeriod, ZoneName, parse_address,
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

fn write_field(object: &mut Object, name: &str, value: &impl Element) {
    object.insert(name.to_owned(), value.to_json());
}

/// Parses a field that must be present. If `T` is an `Option`, the field may be null.
pub(super) fn read_field<T: Element>(object: &Object, name: &str) -> Option<T> {
    T::from_json(object.get(name)?)
}

fn write_optional_field(object: &mut Object, name: &str, value: Option<&impl Element>) {
    if let Some(value) = value {
        write_field(object, name, value);
    }
}

/// Parses an optional field: `Some(None)` if the field is absent or null, `None` if the value is malformed.
#[expect(clippy::option_option, reason = "a wrong value is not an absent value")]
fn read_optional_field<T: Element>(object: &Object, name: &str) -> Option<Option<T>> {
    object.get(name).map_or(Some(None), Option::from_json)
}

/// Implements [`Fields`] and [`Element`] for structs, and for enums whose variant is in a field.
///
/// ```ignore
/// fields! {
///     RuleWindow {
///         keys: "keys" optional,        // an `Option`: absent if it is `None`; without `optional`, null
///         action: "action" unless(LimitAction::Block), // absent if it is this value
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
        impl Fields for $name {
            fn write_to(&self, object: &mut Object) {
                $(fields!(@write object, &self.$field, $kind $(($detail))? $($presence $(($default))?)?);)*
            }
            fn read_from(object: &Object) -> Option<Self> {
                Some(Self { $($field: fields!(@read object, $kind $(($detail))? $($presence $(($default))?)?)),* })
            }
        }
        fields! { @element $name }
        fields! { $($rest)* }
    };
    (enum $name:ident by $tag:literal { $($value:expr => $variant:ident
        $(($only:ident: part))?
        $({ $($field:ident: $kind:tt $(($detail:expr))?),* $(,)? })?
    ),* $(,)? } $($rest:tt)*) => {
        impl Fields for $name {
            fn write_to(&self, object: &mut Object) {
                match self {$(
                    Self::$variant $(($only))? $({ $($field),* })? => {
                        object.insert($tag.to_owned(), $value.into());
                        $($only.write_to(object);)?
                        $($(fields!(@write object, $field, $kind $(($detail))?);)*)?
                    }
                )*}
            }
            fn read_from(object: &Object) -> Option<Self> {
                let name = object.get($tag)?.as_str()?;
                $(if name == $value {
                    $(let $only = Fields::read_from(object)?;)?
                    $($(let $field = fields!(@read object, $kind $(($detail))?);)*)?
                    return Some(Self::$variant $(($only))? $({ $($field),* })?);
                })*
                None
            }
        }
        fields! { @element $name }
        fields! { $($rest)* }
    };
    (@element $name:ident) => {
        impl Element for $name {
            fn to_json(&self) -> Value {
                let mut object = Object::new();
                self.write_to(&mut object);
                Value::Object(object)
            }
            fn from_json(value: &Value) -> Option<Self> {
                Self::read_from(value.as_object()?)
            }
        }
    };

    (@write $object:ident, $value:expr, $name:literal) => { write_field($object, $name, $value) };
    (@write $object:ident, $value:expr, $name:literal optional) => {
        write_optional_field($object, $name, $value.as_ref())
    };
    (@write $object:ident, $value:expr, $name:literal unless($default:expr)) => {
        write_optional_field($object, $name, Some($value).filter(|value| **value != $default))
    };
    (@write $object:ident, $value:expr, part) => { $value.write_to($object) };
    (@write $object:ident, $value:expr, part_with_null($name:expr)) => {
        $object.insert($name.to_owned(), Value::Null);
        $value.write_to($object);
    };
    (@write $object:ident, $value:expr, unwritten($source:expr)) => {};

    (@read $object:ident, $name:literal) => { read_field($object, $name)? };
    (@read $object:ident, $name:literal optional) => { read_optional_field($object, $name)? };
    (@read $object:ident, $name:literal unless($default:expr)) => {
        read_optional_field($object, $name)?.unwrap_or($default)
    };
    (@read $object:ident, part) => { Fields::read_from($object)? };
    (@read $object:ident, part_with_null($name:expr)) => { Fields::read_from($object)? };
    (@read $object:ident, unwritten($value:expr)) => { $value };
}

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

    enum RuleKind by "kind" {
        RuleKind::CATEGORY_BLOCK => CategoryBlock { categories: "categories" },
        RuleKind::VENDOR_ALLOWLIST => VendorAllowlist { vendors: part },
        RuleKind::BUDGET_LIMIT => BudgetLimit { limit: "limit_units", window: part },
        RuleKind::APPROVAL_REQUIRED => ApprovalRequired {
            services: "services",
            categories: "categories",
            above: "above_units",
        },
        RuleKind::COUNT_LIMIT => CountLimit { count: "count", window: part_with_null("services") },
        RuleKind::MINIMUM_INTERVAL => MinimumInterval { services: "services", interval: "interval_seconds" },
        RuleKind::DUPLICATE_GUARD => DuplicateGuard {
            services: "services",
            within: "within_seconds",
            action: "action",
        },
        RuleKind::NEW_PAYEE => NewPayee { services: "services" },
        RuleKind::PRICE_ABOVE_USUAL => PriceAboveUsual {
            services: "services",
            percent: "percent",
            over: part,
            action: "action",
        },
        RuleKind::SCHEDULE => Schedule { services: "services", schedule: part },
        RuleKind::ANOMALY_BRAKE => AnomalyBrake(automatic_freeze: part),
        RuleKind::APPROVAL_EXCEPTION => ApprovalException(exception: part),
    }

    ApprovalException {
        services: "services",
        operation: "operation_id",
        keys: "keys",
        payee: "payee",
        max_amount: "max_amount_units",
        until: "until",
        waives_threshold: "waives_threshold",
        waived_rules: "waived_rules",
    }

    RuleWindow {
        services: "services" optional,
        categories: "categories" optional,
        keys: "keys" optional,
        per_payee: "per_payee" unless(false),
        period: part,
        action: "action" unless(LimitAction::Block),
    }

    Schedule { zone: "time_zone", periods: "periods" }

    AutomaticFreeze { times: "times", at_least: "at_least_units" }

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

/// The services and the wallets of a vendor allowlist are two lists in the document.
impl Fields for Vec<Vendor> {
    fn write_to(&self, object: &mut Object) {
        let services: Vec<_> = self.iter().filter_map(Vendor::service_slug).cloned().collect();
        let wallets: Vec<_> = self.iter().filter_map(Vendor::wallet_address).collect();
        write_field(object, "services", &services);
        write_field(object, "wallets", &wallets);
    }
    fn read_from(object: &Object) -> Option<Self> {
        let services: Vec<ServiceSlug> = read_field(object, "services")?;
        let wallets: Vec<Address> = read_field(object, "wallets")?;
        let wallets = wallets.into_iter().map(Vendor::Wallet);
        Some(services.into_iter().map(Vendor::Service).chain(wallets).collect())
    }
}

impl Fields for UsualPrice {
    fn write_to(&self, object: &mut Object) {
        write_field(object, "over", &self.name().to_owned());
        write_field(object, "of", &self.price_count());
    }
    fn read_from(object: &Object) -> Option<Self> {
        Self::from_name(object.get("over")?.as_str()?, read_field(object, "of")?)
    }
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
    u8, |value| (*value).into(), |value| value.as_u64()?.try_into().ok();
    u32, |value| (*value).into(), |value| value.as_u64()?.try_into().ok();
    u64, |value| (*value).into(), Value::as_u64;
    Amount, |amount| amount.units().into(), |value| Self::from_units(value.as_u64()?);
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
