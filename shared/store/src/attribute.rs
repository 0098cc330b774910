//! How each domain type is written as an attribute, and read back.
//!
//! Always true: what was written is read as the same value, and anything else is read as nothing. Numbers are whole;
//! times are microseconds; hashes are bytes; names and ids are text, so that a person can find them in the console.

pub(crate) use crate::item::Attribute;

use crate::item::{Draft, Item, member, optional_member};
use aws_sdk_dynamodb::{primitives::Blob, types::AttributeValue};
use purser_domain::{
    Address, AgentId, AgentKey, AgentStatus, Amount, Answer, ApprovalId, AskingRule, Availability, CallDescription,
    CatalogPayment, CatalogPrice, Category, DomainPattern, Duration, Endpoint, Fingerprint, KeyId, Metadata, Network,
    Obstacle, Operation, OperationSlug, OperationUuid, Probe, ProviderRequest, Quote, Rule, RuleId, RuleKind,
    SecretDigest, ServiceId, ServiceSlug, SettlementId, Timestamp, TransactionId, TrustStatus, TxHash, Url, Vendor,
    Wallet, X402Version,
};
use serde_json::Value;
use std::collections::BTreeSet;
use uuid::Uuid;

/// Text that stands for one of a few values.
pub(crate) fn text(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

fn read_text(value: &AttributeValue) -> Option<&str> {
    value.as_s().ok().map(String::as_str)
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl Attribute for $number {
            fn write(&self) -> AttributeValue {
                AttributeValue::N(self.to_string())
            }
            fn read(value: &AttributeValue) -> Option<Self> {
                value.as_n().ok()?.parse().ok()
            }
        }
    )*};
}
numbers!(u32 u64 i64);

/// Types that are one number.
macro_rules! written_as_number {
    ($($name:ty, $number:ty, $write:expr, $read:expr;)*) => {$(
        impl Attribute for $name {
            fn write(&self) -> AttributeValue {
                let write: fn(&Self) -> $number = $write;
                write(self).write()
            }
            fn read(value: &AttributeValue) -> Option<Self> {
                let read: fn($number) -> Option<Self> = $read;
                read(Attribute::read(value)?)
            }
        }
    )*};
}
written_as_number! {
    Amount, u64, |amount| amount.units(), Self::from_units;
    Timestamp, i64, |at| at.micros(), Self::from_micros;
    // The lengths of windows are whole seconds.
    Duration, u64, |length| length.secs(), |secs| u32::try_from(secs).ok().map(Self::from_secs_u32);
    X402Version, u64, |version| version.number().into(), Self::from_number;
}

/// Types that are one text.
macro_rules! written_as_text {
    ($($name:ty, $write:expr, $read:expr;)*) => {$(
        impl Attribute for $name {
            fn write(&self) -> AttributeValue {
                let write: fn(&Self) -> String = $write;
                AttributeValue::S(write(self))
            }
            fn read(value: &AttributeValue) -> Option<Self> {
                let read: fn(&str) -> Option<Self> = $read;
                read(read_text(value)?)
            }
        }
    )*};
}
written_as_text! {
    String, Clone::clone, |text| Some(text.to_owned());
    AgentId, ToString::to_string, Self::parse;
    ServiceId, ToString::to_string, Self::parse;
    OperationUuid, ToString::to_string, Self::parse;
    SettlementId, ToString::to_string, Self::parse;
    TransactionId, ToString::to_string, Self::parse;
    ApprovalId, ToString::to_string, Self::parse;
    ServiceSlug, ToString::to_string, Self::parse;
    OperationSlug, ToString::to_string, Self::parse;
    DomainPattern, ToString::to_string, |text| Self::parse(text).ok();
    TxHash, ToString::to_string, Self::parse;
    KeyId, ToString::to_string, |text| u64::from_str_radix(text, 16).ok().map(Self);
    Address, |address| format!("{address:#x}"), |text| text.strip_prefix("0x")?.parse().ok();
    Network, |network| network.name().to_owned(), Self::from_name;
    Category, |category| category.name().to_owned(), Self::from_name;
    TrustStatus, |status| status.name().to_owned(), Self::from_name;
    Obstacle, ToString::to_string, Self::parse;
    Availability, |availability| availability.name().to_owned(), Self::from_name;
    Url, ToString::to_string, |text| Self::parse(text).ok();
    Endpoint, ToString::to_string, Self::parse;
    Metadata, Self::to_json, Self::from_json;
    AgentStatus, |status| agent_status(*status).to_owned(), |text| {
        [Self::Active, Self::Frozen].into_iter().find(|status| agent_status(*status) == text)
    };
    // A provider's own JSON has numbers and depths that a DynamoDB map has not.
    Value, ToString::to_string, |text| serde_json::from_str(text).ok();
}

impl Attribute for BTreeSet<ApprovalId> {
    fn write(&self) -> AttributeValue {
        AttributeValue::Ss(self.iter().map(ToString::to_string).collect())
    }
    fn read(value: &AttributeValue) -> Option<Self> {
        value.as_ss().ok()?.iter().map(|text| ApprovalId::parse(text)).collect()
    }
}

const fn agent_status(status: AgentStatus) -> &'static str {
    match status {
        AgentStatus::Active => "active",
        AgentStatus::Frozen => "frozen",
    }
}

/// Types that are bytes of one length.
macro_rules! written_as_bytes {
    ($($name:ty, $write:expr, $read:expr;)*) => {$(
        impl Attribute for $name {
            fn write(&self) -> AttributeValue {
                let write: fn(&Self) -> Vec<u8> = $write;
                AttributeValue::B(Blob::new(write(self)))
            }
            fn read(value: &AttributeValue) -> Option<Self> {
                let bytes = value.as_b().ok()?.as_ref().try_into().ok()?;
                Some($read(bytes))
            }
        }
    )*};
}
written_as_bytes! {
    Fingerprint, |fingerprint| fingerprint.as_bytes().to_vec(), Self::from_bytes;
    SecretDigest, |digest| digest.as_bytes().to_vec(), Self::from_bytes;
    // A settlement lists up to twenty of them and must stay below 1 KB: 16 bytes rather than 36.
    RuleId, |id| id.uuid().as_bytes().to_vec(), |bytes| Self::from_uuid(Uuid::from_bytes(bytes));
}

impl Attribute for bool {
    fn write(&self) -> AttributeValue {
        AttributeValue::Bool(*self)
    }
    fn read(value: &AttributeValue) -> Option<Self> {
        value.as_bool().ok().copied()
    }
}

impl<T: Attribute> Attribute for Vec<T> {
    fn write(&self) -> AttributeValue {
        AttributeValue::L(self.iter().map(Attribute::write).collect())
    }
    fn read(value: &AttributeValue) -> Option<Self> {
        value.as_l().ok()?.iter().map(Attribute::read).collect()
    }
}

/// Types that are a map of other attributes.
macro_rules! written_as_map {
    ($($name:ty, $write:expr, $read:expr;)*) => {$(
        impl Attribute for $name {
            fn write(&self) -> AttributeValue {
                let write: fn(&Self) -> Draft = $write;
                AttributeValue::M(write(self).into_item())
            }
            fn read(value: &AttributeValue) -> Option<Self> {
                let read: fn(&Item) -> Option<Self> = $read;
                read(value.as_m().ok()?)
            }
        }
    )*};
}
written_as_map! {
    Wallet,
    |wallet| Draft::nested().with("index", &wallet.index).with("address", &wallet.address),
    |map| Some(Self { index: member(map, "index")?, address: member(map, "address")? });

    AgentKey,
    |key| {
        Draft::nested()
            .with("id", &key.id)
            .with("digest", &key.digest)
            .with("created", &key.created_at)
            .with_optional("ends", key.ends_at.as_ref())
    },
    |map| {
        Some(Self {
            id: member(map, "id")?,
            digest: member(map, "digest")?,
            created_at: member(map, "created")?,
            ends_at: optional_member(map, "ends")?,
        })
    };

    Rule, write_rule, read_rule;

    Vendor,
    |vendor| match vendor {
        Vendor::Service(service) => Draft::nested().with("service", service),
        Vendor::Wallet(wallet) => Draft::nested().with("wallet", wallet),
    },
    |map| match (optional_member(map, "service")?, optional_member(map, "wallet")?) {
        (Some(service), None) => Some(Self::Service(service)),
        (None, Some(wallet)) => Some(Self::Wallet(wallet)),
        (None, None) | (Some(_), Some(_)) => None,
    };

    Operation, write_operation, read_operation;

    CallDescription, write_call, read_call;

    AskingRule,
    |rule| Draft::nested().with("id", &rule.id).with("above", &rule.above),
    |map| Some(Self { id: member(map, "id")?, above: member(map, "above")? });

    CatalogPayment,
    |payment| {
        Draft::nested()
            .with("scheme", &payment.scheme)
            .with("network", &payment.network)
            .with("amount", &payment.amount)
            .with("pay_to", &payment.pay_to)
    },
    |map| {
        Some(Self {
            scheme: member(map, "scheme")?,
            network: member(map, "network")?,
            amount: member(map, "amount")?,
            pay_to: member(map, "pay_to")?,
        })
    };
}

/// One operation of a probe record. An answer without payment is one that wants none.
pub(crate) fn write_probe(operation: OperationUuid, probe: &Probe) -> AttributeValue {
    let draft = Draft::nested()
        .with("id", &operation)
        .with("target", &probe.target)
        .with("at", &probe.at)
        .with_optional("obstacle", probe.seen.as_ref().err());
    let draft = match &probe.answer {
        None => draft,
        Some(Answer { quote, since }) => {
            let payment = match quote {
                Quote::Paid(payment) => Some(payment),
                Quote::Free => None,
            };
            draft.with("since", since).with_optional("payment", payment)
        }
    };
    AttributeValue::M(draft.into_item())
}

/// As [`write_probe`] wrote it.
pub(crate) fn read_probe(value: &AttributeValue) -> Option<(OperationUuid, Probe)> {
    let map = value.as_m().ok()?;
    let quote = optional_member(map, "payment")?.map_or(Quote::Free, Quote::Paid);
    let answer = optional_member(map, "since")?.map(|since| Answer { quote, since });
    let seen = match optional_member(map, "obstacle")? {
        Some(obstacle) => Err(obstacle),
        // Without an obstacle the last answer is this probe's.
        None => Ok(answer.as_ref()?.quote.clone()),
    };
    let probe = Probe {
        target: member(map, "target")?,
        at: member(map, "at")?,
        seen,
        answer,
    };
    Some((member(map, "id")?, probe))
}

const CATEGORY_BLOCK: &str = "category_block";
const VENDOR_ALLOWLIST: &str = "vendor_allowlist";
const BUDGET_LIMIT: &str = "budget_limit";
const APPROVAL_REQUIRED: &str = "approval_required";

fn write_rule(rule: &Rule) -> Draft {
    let draft = Draft::nested().with("id", &rule.id).with("ver", &rule.version);
    match &rule.kind {
        RuleKind::CategoryBlock { categories } => draft
            .with_value("kind", text(CATEGORY_BLOCK))
            .with("categories", categories),
        RuleKind::VendorAllowlist { vendors } => draft
            .with_value("kind", text(VENDOR_ALLOWLIST))
            .with("vendors", vendors),
        RuleKind::BudgetLimit { limit, window } => draft
            .with_value("kind", text(BUDGET_LIMIT))
            .with("limit", limit)
            .with("window", window),
        RuleKind::ApprovalRequired {
            services,
            categories,
            above,
        } => draft
            .with_value("kind", text(APPROVAL_REQUIRED))
            .with_optional("services", services.as_ref())
            .with_optional("categories", categories.as_ref())
            .with_optional("above", above.as_ref()),
    }
}

fn read_rule(map: &Item) -> Option<Rule> {
    let kind = match read_text(map.get("kind")?)? {
        CATEGORY_BLOCK => RuleKind::CategoryBlock {
            categories: member(map, "categories")?,
        },
        VENDOR_ALLOWLIST => RuleKind::VendorAllowlist {
            vendors: member(map, "vendors")?,
        },
        BUDGET_LIMIT => RuleKind::BudgetLimit {
            limit: member(map, "limit")?,
            window: member(map, "window")?,
        },
        APPROVAL_REQUIRED => RuleKind::ApprovalRequired {
            services: optional_member(map, "services")?,
            categories: optional_member(map, "categories")?,
            above: optional_member(map, "above")?,
        },
        _ => return None,
    };
    Some(Rule {
        id: member(map, "id")?,
        version: member(map, "ver")?,
        kind,
    })
}

/// Names are short, since the map stands in rows that are to stay below 1 KB.
fn write_call(call: &CallDescription) -> Draft {
    let price = call.catalog_price.as_ref();
    Draft::nested()
        .with("m", &call.request.method)
        .with("url", &call.request.url)
        .with_optional("bh", call.request.body_hash.as_ref())
        .with_optional("target", call.target_url.as_ref())
        .with_optional("meta", Some(&call.metadata).filter(|metadata| !metadata.is_empty()))
        .with_optional("price", price.map(|price| &price.price))
        .with_optional("most", price.and_then(|price| price.most.as_ref()))
}

fn read_call(map: &Item) -> Option<CallDescription> {
    let price: Option<Amount> = optional_member(map, "price")?;
    let most = optional_member(map, "most")?;
    Some(CallDescription {
        request: ProviderRequest {
            method: member(map, "m")?,
            url: member(map, "url")?,
            body_hash: optional_member(map, "bh")?,
        },
        target_url: optional_member(map, "target")?,
        metadata: optional_member(map, "meta")?.unwrap_or_default(),
        catalog_price: price.map(|price| CatalogPrice { price, most }),
    })
}

fn write_operation(operation: &Operation) -> Draft {
    Draft::nested()
        .with("id", &operation.id)
        .with("slug", &operation.slug)
        .with("availability", &operation.availability)
        .with("label", &operation.label)
        .with("method", &operation.method)
        .with("endpoint", &operation.endpoint)
        .with("category", &operation.category)
        .with("execution", &operation.execution)
        .with("price_model", &operation.price_model)
        .with("estimated_price", &operation.estimated_price)
        .with_optional("max_price", operation.max_price.as_ref())
        .with("params", &operation.params)
        .with_optional("fetches_target", operation.fetches_target.as_ref())
        .with_optional("payment", operation.payment.as_ref())
}

fn read_operation(map: &Item) -> Option<Operation> {
    Some(Operation {
        id: member(map, "id")?,
        slug: member(map, "slug")?,
        availability: member(map, "availability")?,
        label: member(map, "label")?,
        method: member(map, "method")?,
        endpoint: member(map, "endpoint")?,
        category: member(map, "category")?,
        execution: member(map, "execution")?,
        price_model: member(map, "price_model")?,
        estimated_price: member(map, "estimated_price")?,
        max_price: optional_member(map, "max_price")?,
        params: member(map, "params")?,
        fetches_target: optional_member(map, "fetches_target")?,
        payment: optional_member(map, "payment")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fmt::Debug;

    fn returns<T: Attribute + PartialEq + Debug>(value: T) {
        assert_eq!(T::read(&value.write()), Some(value));
    }

    #[test]
    fn what_is_written_is_read() {
        let uuid = Uuid::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
        returns(AgentId::from_uuid(uuid));
        returns(RuleId::from_uuid(uuid));
        returns(KeyId(u64::MAX));
        returns(KeyId(1));
        returns(Duration::DAY);
        returns(Address::ZERO);
        returns(Address::repeat_byte(0xab));
        returns(X402Version::V2);
        returns(Obstacle::Status(503));
        returns(Obstacle::Timeout);
        returns(AgentStatus::Frozen);
        returns(Timestamp::MAX);
        returns(Amount::MAX);
        returns(vec![
            DomainPattern::any(),
            DomainPattern::parse("*.b\u{fc}cher.example").unwrap(),
        ]);
        returns(Vec::<Category>::new());
        returns(serde_json::json!({"big": 18_446_744_073_709_551_615_u64, "deep": [[1.5, null]]}));
        returns(vec![
            Vendor::Wallet(Address::ZERO),
            Vendor::Service(ServiceSlug::parse("lab").unwrap()),
        ]);
    }

    #[test]
    fn what_was_not_written_here_is_not_read() {
        let number = |text: &str| AttributeValue::N(text.to_owned());
        assert_eq!(Amount::read(&number("9007199254740992")), None);
        assert_eq!(Amount::read(&number("-1")), None);
        assert_eq!(Amount::read(&text("1")), None);
        assert_eq!(Address::read(&text(&"0".repeat(40))), None);
        assert_eq!(Category::read(&text("Search")), None);
        assert_eq!(Fingerprint::read(&AttributeValue::B(Blob::new([0; 31]))), None);
        assert_eq!(
            Vec::<Amount>::read(&AttributeValue::L(vec![number("1"), text("1")])),
            None
        );
        let both = Draft::nested()
            .with("wallet", &Address::ZERO)
            .with("service", &"x".to_owned());
        assert_eq!(Vendor::read(&AttributeValue::M(both.into_item())), None);
    }

    proptest! {
        #[test]
        fn numbers_and_bytes_return(units in 0..=Amount::MAX.units(), micros in 0..=Timestamp::MAX.micros(), bytes: [u8; 32]) {
            returns(Amount::from_units(units).unwrap());
            returns(Timestamp::from_micros(micros).unwrap());
            returns(Fingerprint::from_bytes(bytes));
        }
    }
}
