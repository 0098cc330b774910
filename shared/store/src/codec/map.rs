//! Encodes domain types that are stored as maps.

use crate::codec::attribute::{Attribute, encode_text, read_text};
use crate::codec::fields::{fields, stored_as_map};
use crate::codec::item::{Draft, Fields, Item, Unreadable, optional_field, read_field, read_optional_field};
use aws_sdk_dynamodb::types::AttributeValue;
use purser_domain::{
    AgentKey, Answer, AskingKind, AskingLimit, AutomaticFreeze, Availability, CallDescription, CatalogPayment,
    CatalogPrice, FollowedTemplate, FormerOwner, IncreasedCaps, KeyScope, LimitAction, LimitIncrease,
    LimitIncreaseRequest, NextPricing, Operation, OperationScope, OperationUuid, PolicyChange, PolicyUpdate, Probe,
    ProviderRequest, Quote, Rule, RuleId, RuleKind, RuleWindow, Schedule, ServiceId, TemplateKey, TemplateName,
    TemporaryCaps, UsualPrice, Vendor, VerifiedCall, VerifiedPayee, Wallet, WalletKey, WindowPeriod,
};
use std::collections::BTreeMap;
use uuid::Uuid;

/// Implements [`Attribute`] for types that are stored as a map.
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
    Rule, write_rule, read_rule;

    AskingLimit, write_asking_rule, read_asking_rule;

    Vendor,
    |vendor| match vendor {
        Vendor::Service(service) => Draft::new_map().with("service", service),
        Vendor::Wallet(wallet) => Draft::new_map().with("wallet", wallet),
    },
    |map| match (read_optional_field(map, "service")?, read_optional_field(map, "wallet")?) {
        (Some(service), None) => Some(Self::Service(service)),
        (None, Some(wallet)) => Some(Self::Wallet(wallet)),
        (None, None) | (Some(_), Some(_)) => None,
    };
}

stored_as_map! {
    AgentKey, VerifiedCall, VerifiedPayee, CallDescription, CatalogPayment, FollowedTemplate, FormerOwner, NextPricing,
    Operation, LimitIncrease, LimitIncreaseRequest, TemporaryCaps, Wallet,
}

fields! {
    AgentKey { id: "id", digest: "digest", created_at: "created", ends_at: "ends" optional, scope: part }

    // An absent attribute means that the key's scope does not limit the permissions, services, networks or time.
    KeyScope {
        permissions: "may" optional,
        services: "svcs" optional,
        networks: "nets" optional,
        expires_at: "expires" optional,
    }

    VerifiedCall { operation: "id", method: "method", endpoint: "endpoint", payees: "payees" }

    VerifiedPayee { network: "network", pay_to: "pay_to", most: "most", is_next: "next", from: "from" optional }

    // The attribute names are short, because rows with this map must stay below 1 KB.
    CallDescription {
        request: part,
        target_url: "target" optional,
        metadata: "meta" or_default,
        catalog_price: part_if("price"),
    }

    ProviderRequest { method: "m", url: "url", body_hash: "bh" optional }

    CatalogPrice { price: "price", most: "most" optional }

    CatalogPayment { scheme: "scheme", network: "network", amount: "amount", pay_to: "pay_to" }

    FollowedTemplate { name: "name", applied: "ver" optional, rules: "rules" optional, started_versions: "begun" or_default }

    FormerOwner { owner: "owner", name: "name", labels: "labels", until: "until" }

    NextPricing { price_model: "price_model", payment: "payment", from: "from", by: "by", max_price: "max_price" optional }

    Operation {
        id: "id",
        slug: "slug",
        label: "label",
        method: "method",
        endpoint: "endpoint",
        category: "category",
        execution: "execution",
        price_model: "price_model",
        estimated_price: "estimated_price",
        params: "params",
        max_price: "max_price" optional,
        fetches_target: "fetches_target" optional,
        payment: "payment" optional,
        next: "next" optional,
        availability: unstored(Availability::Unverified),
    }

    PolicyChange { enabled: "on" optional, policy: part }

    PolicyUpdate {
        max_per_call: "mpc" optional,
        max_per_day: "mpd" optional,
        require_approval_above: "raa" optional,
        enabled_operations: part,
        allowed_domains: "domains" optional,
    }

    LimitIncrease { caps: part, from: "from", until: "until", by: "by", approval: "apid" }

    LimitIncreaseRequest { caps: part, until: "until", reason: "why", asked_of: "of" }

    TemporaryCaps { caps: part, until: "until" }

    IncreasedCaps { max_per_call: "mpc" optional, max_per_day: "mpd" optional }

    Wallet { address: "address", attestation: "att", key: part }

    enum WalletKey by "custody" {
        "seed" => Seed { index: "index" },
        "kms" => Kms { id: "key", public_key: "pub" },
    }
}

/// Encodes the probe result of an operation. Without payment requirements, the operation is free.
pub(crate) fn write_probe(operation: OperationUuid, probe: &Probe) -> AttributeValue {
    let draft = Draft::new_map()
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

pub(crate) fn read_probe(value: &AttributeValue) -> Option<(OperationUuid, Probe)> {
    let map = value.as_m().ok()?;
    let quote = read_optional_field(map, "payment")?.map_or(Quote::Free, Quote::Paid);
    let response = read_optional_field(map, "since")?.map(|since| Answer { quote, since });
    let seen = match read_optional_field(map, "obstacle")? {
        Some(obstacle) => Err(obstacle),
        // A probe without an obstacle has read the price, which the stored response contains.
        None => Ok(response.as_ref()?.quote.clone()),
    };
    let probe = Probe {
        target: read_field(map, "target")?,
        at: read_field(map, "at")?,
        seen,
        answer: response,
    };
    Some((read_field(map, "id")?, probe))
}

/// The attribute for the kind is absent for [`AskingKind::ApprovalRequired`].
fn write_asking_rule(limit: &AskingLimit) -> Draft {
    let kind = Some(&limit.kind).filter(|kind| **kind != AskingKind::ApprovalRequired);
    Draft::new_map()
        .with_optional("id", limit.rule.as_ref())
        .with("above", &limit.above)
        .with_optional("kind", kind)
}

fn read_asking_rule(map: &Item) -> Option<AskingLimit> {
    Some(AskingLimit {
        rule: read_optional_field(map, "id")?,
        above: read_field(map, "above")?,
        kind: read_optional_field(map, "kind")?.unwrap_or(AskingKind::ApprovalRequired),
    })
}

/// A [`RuleKind`] has no id, but a stored rule needs an id. The rule's number in the list, from 1, is stored as the id.
impl Attribute for Vec<RuleKind> {
    fn write(&self) -> AttributeValue {
        let rules = self.iter().zip(1_u128..).map(|(kind, number)| Rule {
            id: RuleId::from_uuid(Uuid::from_u128(number)),
            version: 1,
            kind: kind.clone(),
        });
        rules.collect::<Vec<_>>().write()
    }
    fn read(value: &AttributeValue) -> Option<Self> {
        let rules = Vec::<Rule>::read(value)?;
        Some(rules.into_iter().map(|rule| rule.kind).collect())
    }
}

/// `ops` is absent if the scope is unchanged. `all` means every operation.
impl Fields for Option<OperationScope> {
    fn write_to(&self, draft: Draft) -> Draft {
        match self {
            None => draft,
            Some(OperationScope::All) => draft.with("all", &true),
            Some(OperationScope::Only(slugs)) => draft.with("ops", slugs),
        }
    }
    fn read_from(item: &Item) -> Result<Self, Unreadable> {
        let (all, only) = (optional_field::<bool>(item, "all")?, optional_field(item, "ops")?);
        Ok(all.map(|_| OperationScope::All).or(only.map(OperationScope::Only)))
    }
}

/// Implements [`Attribute`] for maps, stored as a list of values with the map key in the given attribute.
macro_rules! listed_with_key {
    ($($key:ty: $name:literal,)*) => {$(
        impl<T: Fields> Attribute for BTreeMap<$key, T> {
            fn write(&self) -> AttributeValue {
                let values = self.iter().map(|(key, value)| Draft::new_map().with($name, key).with_fields(value));
                AttributeValue::L(values.map(|value| AttributeValue::M(value.into_item())).collect())
            }
            fn read(value: &AttributeValue) -> Option<Self> {
                let maps = value.as_l().ok()?.iter().map(|value| value.as_m().ok());
                maps.map(|map| Some((read_field(map?, $name)?, T::read_from(map?).ok()?))).collect()
            }
        }
    )*};
}
listed_with_key! { ServiceId: "svc", TemplateKey: "key", TemplateName: "name", }

fn write_rule(rule: &Rule) -> Draft {
    let draft = Draft::new_map()
        .with("id", &rule.id)
        .with("ver", &rule.version)
        .with_value("kind", encode_text(rule.kind.name()));
    match &rule.kind {
        RuleKind::CategoryBlock { categories } => draft.with("categories", categories),
        RuleKind::VendorAllowlist { vendors } => draft.with("vendors", vendors),
        RuleKind::BudgetLimit { limit, window } => write_window(draft.with("limit", limit), window),
        RuleKind::ApprovalRequired {
            services,
            categories,
            above,
        } => draft
            .with_optional("services", services.as_ref())
            .with_optional("categories", categories.as_ref())
            .with_optional("above", above.as_ref()),
        RuleKind::CountLimit { count, window } => write_window(draft.with("count", count), window),
        RuleKind::MinimumInterval { services, interval } => draft
            .with_optional("services", services.as_ref())
            .with("interval", interval),
        RuleKind::DuplicateGuard {
            services,
            within,
            action,
        } => draft
            .with_optional("services", services.as_ref())
            .with("within", within)
            .with("action", action),
        RuleKind::NewPayee { services } => draft.with_optional("services", services.as_ref()),
        RuleKind::PriceAboveUsual {
            services,
            percent,
            over,
            action,
        } => draft
            .with_optional("services", services.as_ref())
            .with("percent", percent)
            .with_value("over", encode_text(over.name()))
            .with_optional("of", over.price_count().map(u32::from).as_ref())
            .with("action", action),
        RuleKind::Schedule { services, schedule } => draft
            .with_optional("services", services.as_ref())
            .with("zone", &schedule.zone)
            .with("periods", &schedule.periods),
        RuleKind::AnomalyBrake(automatic_freeze) => draft
            .with("times", &automatic_freeze.times)
            .with("least", &automatic_freeze.at_least),
    }
}

fn write_window(draft: Draft, window: &RuleWindow) -> Draft {
    let RuleWindow {
        services,
        categories,
        period,
        action,
    } = window;
    draft
        .with_optional("services", services.as_ref())
        .with_optional("categories", categories.as_ref())
        .with_optional("window", period.duration().as_ref())
        .with_optional("period", period.name().map(str::to_owned).as_ref())
        .with_optional("zone", period.time_zone().as_ref())
        .with_optional("action", Some(action).filter(|action| **action != LimitAction::Block))
}

/// Reads a rule's window. If the attribute `action` is absent, the rule's action is [`LimitAction::Block`].
fn read_window(map: &Item) -> Option<RuleWindow> {
    let name: Option<String> = read_optional_field(map, "period")?;
    let (duration, zone) = (read_optional_field(map, "window")?, read_optional_field(map, "zone")?);
    Some(RuleWindow {
        services: read_optional_field(map, "services")?,
        categories: read_optional_field(map, "categories")?,
        period: WindowPeriod::from_parts(duration, name.as_deref(), zone)?,
        action: read_optional_field(map, "action")?.unwrap_or(LimitAction::Block),
    })
}

fn read_rule(map: &Item) -> Option<Rule> {
    let services = || read_optional_field(map, "services");
    let kind = match read_text(map.get("kind")?)? {
        RuleKind::CATEGORY_BLOCK => RuleKind::CategoryBlock {
            categories: read_field(map, "categories")?,
        },
        RuleKind::VENDOR_ALLOWLIST => RuleKind::VendorAllowlist {
            vendors: read_field(map, "vendors")?,
        },
        RuleKind::BUDGET_LIMIT => RuleKind::BudgetLimit {
            limit: read_field(map, "limit")?,
            window: read_window(map)?,
        },
        RuleKind::APPROVAL_REQUIRED => RuleKind::ApprovalRequired {
            services: services()?,
            categories: read_optional_field(map, "categories")?,
            above: read_optional_field(map, "above")?,
        },
        RuleKind::COUNT_LIMIT => RuleKind::CountLimit {
            count: read_field(map, "count")?,
            window: read_window(map)?,
        },
        RuleKind::MINIMUM_INTERVAL => RuleKind::MinimumInterval {
            services: services()?,
            interval: read_field(map, "interval")?,
        },
        RuleKind::DUPLICATE_GUARD => RuleKind::DuplicateGuard {
            services: services()?,
            within: read_field(map, "within")?,
            action: read_field(map, "action")?,
        },
        RuleKind::NEW_PAYEE => RuleKind::NewPayee { services: services()? },
        RuleKind::PRICE_ABOVE_USUAL => {
            let prices = read_optional_field::<u32>(map, "of")?;
            let prices = prices.map(u8::try_from).transpose().ok()?;
            RuleKind::PriceAboveUsual {
                services: services()?,
                percent: read_field(map, "percent")?,
                over: UsualPrice::from_name(read_text(map.get("over")?)?, prices)?,
                action: read_field(map, "action")?,
            }
        }
        RuleKind::SCHEDULE => RuleKind::Schedule {
            services: services()?,
            schedule: Schedule {
                zone: read_field(map, "zone")?,
                periods: read_field(map, "periods")?,
            },
        },
        RuleKind::ANOMALY_BRAKE => RuleKind::AnomalyBrake(AutomaticFreeze {
            times: read_field(map, "times")?,
            at_least: read_field(map, "least")?,
        }),
        _ => return None,
    };
    Some(Rule {
        id: read_field(map, "id")?,
        version: read_field(map, "ver")?,
        kind,
    })
}
