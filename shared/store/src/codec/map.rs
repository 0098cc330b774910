//! Encodes domain types that are stored as a map of other attributes.

use crate::codec::attribute::{Attribute, read_text, text};
use crate::codec::item::{Draft, Item, member, optional_member};
use aws_sdk_dynamodb::types::AttributeValue;
use purser_domain::{
    AgentKey, Amount, AnomalyBrake, Answer, AskingKind, AskingLimit, AttestedCall, AttestedPayee, Availability,
    CallDescription, CatalogPayment, CatalogPrice, FollowedTemplate, FormerOwner, KeyScope, NextPricing, Operation,
    OperationScope, OperationUuid, PolicyChange, PolicyEdit, Probe, ProviderRequest, Quote, Raise, RaiseRequest,
    RaisedCaps, Rule, RuleId, RuleKind, Schedule, UsualPrice, Vendor, Wallet, WalletKey,
};
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
    AgentKey, write_key, read_key;

    Rule, write_rule, read_rule;

    AskingLimit, write_asking, read_asking;

    Vendor,
    |vendor| match vendor {
        Vendor::Service(service) => Draft::new_map().with("service", service),
        Vendor::Wallet(wallet) => Draft::new_map().with("wallet", wallet),
    },
    |map| match (optional_member(map, "service")?, optional_member(map, "wallet")?) {
        (Some(service), None) => Some(Self::Service(service)),
        (None, Some(wallet)) => Some(Self::Wallet(wallet)),
        (None, None) | (Some(_), Some(_)) => None,
    };

    FollowedTemplate,
    |followed| Draft::new_map()
        .with("name", &followed.name)
        .with_optional("ver", followed.applied.as_ref())
        .with_optional("rules", followed.rules.as_ref())
        .with_optional("begun", Some(&followed.begun).filter(|begun| !begun.is_empty())),
    |map| Some(Self {
        name: member(map, "name")?,
        applied: optional_member(map, "ver")?,
        rules: optional_member(map, "rules")?,
        begun: optional_member(map, "begun")?.unwrap_or_default(),
    });

    CallDescription, write_call, read_call;

    Raise,
    |raise| write_caps(&raise.caps)
        .with("from", &raise.from)
        .with("until", &raise.until)
        .with("by", &raise.by)
        .with("apid", &raise.approval),
    |map| Some(Self {
        caps: read_caps(map)?,
        from: member(map, "from")?,
        until: member(map, "until")?,
        by: member(map, "by")?,
        approval: member(map, "apid")?,
    });

    RaiseRequest,
    |raise| write_caps(&raise.caps)
        .with("until", &raise.until)
        .with("why", &raise.reason)
        .with("of", &raise.asked_of),
    |map| Some(Self {
        caps: read_caps(map)?,
        until: member(map, "until")?,
        reason: member(map, "why")?,
        asked_of: member(map, "of")?,
    });

    Wallet, write_wallet, read_wallet;
}

/// Implements [`Attribute`] for structs that are stored as a map of their fields: first the required fields; after `|`,
/// the optional fields; after `||`, fields that are not stored, each with its value after reading.
macro_rules! written_as_fields {
    ($($name:ty {
        $($field:ident: $member:literal,)*
        $(| $($optional:ident: $perhaps:literal,)*)?
        $(|| $($unstored:ident: $value:expr,)*)?
    })*) => {$(
        impl Attribute for $name {
            fn write(&self) -> AttributeValue {
                let map = Draft::new_map()$(.with($member, &self.$field))*;
                $(let map = map$(.with_optional($perhaps, self.$optional.as_ref()))*;)?
                AttributeValue::M(map.into_item())
            }
            fn read(value: &AttributeValue) -> Option<Self> {
                let map = value.as_m().ok()?;
                Some(Self {
                    $($field: member(map, $member)?,)*
                    $($($optional: optional_member(map, $perhaps)?,)*)?
                    $($($unstored: $value,)*)?
                })
            }
        }
    )*};
}
written_as_fields! {
    AttestedCall { operation: "id", method: "method", endpoint: "endpoint", payees: "payees", }

    AttestedPayee { network: "network", pay_to: "pay_to", most: "most", is_next: "next", | from: "from", }

    CatalogPayment { scheme: "scheme", network: "network", amount: "amount", pay_to: "pay_to", }

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
        |
        max_price: "max_price",
        fetches_target: "fetches_target",
        payment: "payment",
        next: "next",
        ||
        availability: Availability::Unverified,
    }

    FormerOwner { owner: "owner", name: "name", labels: "labels", until: "until", }

    NextPricing {
        price_model: "price_model",
        payment: "payment",
        from: "from",
        by: "by",
        |
        max_price: "max_price",
    }
}

fn write_caps(caps: &RaisedCaps) -> Draft {
    Draft::new_map()
        .with_optional("mpc", caps.max_per_call.as_ref())
        .with_optional("mpd", caps.max_per_day.as_ref())
}

fn read_caps(map: &Item) -> Option<RaisedCaps> {
    Some(RaisedCaps {
        max_per_call: optional_member(map, "mpc")?,
        max_per_day: optional_member(map, "mpd")?,
    })
}

fn write_wallet(wallet: &Wallet) -> Draft {
    let draft = Draft::new_map()
        .with("address", &wallet.address)
        .with("att", &wallet.attestation);
    match &wallet.key {
        WalletKey::Seed { index } => draft.with("custody", &SEED.to_owned()).with("index", index),
        WalletKey::Kms { id, public_key } => draft
            .with("custody", &KMS.to_owned())
            .with("key", id)
            .with("pub", public_key),
    }
}

fn read_wallet(map: &Item) -> Option<Wallet> {
    let custody: String = member(map, "custody")?;
    let key = match custody.as_str() {
        SEED => WalletKey::Seed {
            index: member(map, "index")?,
        },
        KMS => WalletKey::Kms {
            id: member(map, "key")?,
            public_key: member(map, "pub")?,
        },
        _ => return None,
    };
    Some(Wallet {
        key,
        address: member(map, "address")?,
        attestation: member(map, "att")?,
    })
}

/// The values of a wallet's attribute `custody`.
const SEED: &str = "seed";
const KMS: &str = "kms";

/// Encodes one operation of a probe record. If the provider responded without a payment, the operation is free.
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

/// Decodes an operation that [`write_probe`] wrote.
pub(crate) fn read_probe(value: &AttributeValue) -> Option<(OperationUuid, Probe)> {
    let map = value.as_m().ok()?;
    let quote = optional_member(map, "payment")?.map_or(Quote::Free, Quote::Paid);
    let answer = optional_member(map, "since")?.map(|since| Answer { quote, since });
    let seen = match optional_member(map, "obstacle")? {
        Some(obstacle) => Err(obstacle),
        // Without an obstacle, the last response is the response to this probe.
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

/// A dimension that the scope does not limit has no attribute.
fn write_key(key: &AgentKey) -> Draft {
    Draft::new_map()
        .with("id", &key.id)
        .with("digest", &key.digest)
        .with("created", &key.created_at)
        .with_optional("ends", key.ends_at.as_ref())
        .with_optional("may", key.scope.permissions.as_ref())
        .with_optional("svcs", key.scope.services.as_ref())
        .with_optional("nets", key.scope.networks.as_ref())
        .with_optional("expires", key.scope.expires_at.as_ref())
}

fn read_key(map: &Item) -> Option<AgentKey> {
    Some(AgentKey {
        id: member(map, "id")?,
        digest: member(map, "digest")?,
        created_at: member(map, "created")?,
        ends_at: optional_member(map, "ends")?,
        scope: KeyScope {
            permissions: optional_member(map, "may")?,
            services: optional_member(map, "svcs")?,
            networks: optional_member(map, "nets")?,
            expires_at: optional_member(map, "expires")?,
        },
    })
}

/// The attribute for the kind is absent if the kind is [`AskingKind::ApprovalRequired`].
fn write_asking(asking: &AskingLimit) -> Draft {
    let kind = Some(&asking.kind).filter(|kind| **kind != AskingKind::ApprovalRequired);
    Draft::new_map()
        .with_optional("id", asking.rule.as_ref())
        .with("above", &asking.above)
        .with_optional("kind", kind)
}

fn read_asking(map: &Item) -> Option<AskingLimit> {
    Some(AskingLimit {
        rule: optional_member(map, "id")?,
        above: member(map, "above")?,
        kind: optional_member(map, "kind")?.unwrap_or(AskingKind::ApprovalRequired),
    })
}

/// Numbers the rules, because stored rules need ids. The ids are only numbers.
pub(crate) fn number_rules(kinds: &[RuleKind]) -> Vec<Rule> {
    let rules = kinds.iter().zip(1_u128..).map(|(kind, number)| Rule {
        id: RuleId::from_uuid(Uuid::from_u128(number)),
        version: 1,
        kind: kind.clone(),
    });
    rules.collect()
}

/// Encodes a change of a policy. `ops` is absent if the scope is unchanged, and `all` means every operation.
pub(crate) fn write_change(change: &PolicyChange) -> Draft {
    let PolicyChange { enabled, policy } = change;
    let (all, only) = match &policy.enabled_operations {
        None => (None, None),
        Some(OperationScope::All) => (Some(true), None),
        Some(OperationScope::Only(slugs)) => (None, Some(slugs)),
    };
    Draft::new_map()
        .with_optional("on", enabled.as_ref())
        .with_optional("mpc", policy.max_per_call.as_ref())
        .with_optional("mpd", policy.max_per_day.as_ref())
        .with_optional("raa", policy.require_approval_above.as_ref())
        .with_optional("all", all.as_ref())
        .with_optional("ops", only)
        .with_optional("domains", policy.allowed_domains.as_ref())
}

/// Decodes a change that [`write_change`] wrote.
pub(crate) fn read_change(map: &Item) -> Option<PolicyChange> {
    let (all, only) = (optional_member::<bool>(map, "all")?, optional_member(map, "ops")?);
    let enabled_operations = match (all, only) {
        (None, None) => None,
        (None, Some(slugs)) => Some(OperationScope::Only(slugs)),
        (Some(_), _) => Some(OperationScope::All),
    };
    Some(PolicyChange {
        enabled: optional_member(map, "on")?,
        policy: PolicyEdit {
            max_per_call: optional_member(map, "mpc")?,
            max_per_day: optional_member(map, "mpd")?,
            require_approval_above: optional_member(map, "raa")?,
            enabled_operations,
            allowed_domains: optional_member(map, "domains")?,
        },
    })
}

fn write_rule(rule: &Rule) -> Draft {
    let draft = Draft::new_map()
        .with("id", &rule.id)
        .with("ver", &rule.version)
        .with_value("kind", text(rule.kind.name()));
    match &rule.kind {
        RuleKind::CategoryBlock { categories } => draft.with("categories", categories),
        RuleKind::VendorAllowlist { vendors } => draft.with("vendors", vendors),
        RuleKind::BudgetLimit { limit, window } => draft.with("limit", limit).with("window", window),
        RuleKind::ApprovalRequired {
            services,
            categories,
            above,
        } => draft
            .with_optional("services", services.as_ref())
            .with_optional("categories", categories.as_ref())
            .with_optional("above", above.as_ref()),
        RuleKind::CountLimit {
            services,
            count,
            window,
        } => draft
            .with_optional("services", services.as_ref())
            .with("count", count)
            .with("window", window),
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
            .with_value("over", text(over.name()))
            .with_optional("of", over.prices().map(u32::from).as_ref())
            .with("action", action),
        RuleKind::Schedule { services, schedule } => draft
            .with_optional("services", services.as_ref())
            .with("zone", &schedule.zone)
            .with("days", &schedule.days)
            .with("from", &schedule.from)
            .with("to", &schedule.to),
        RuleKind::AnomalyBrake(brake) => draft.with("times", &brake.times).with("least", &brake.at_least),
    }
}

fn read_rule(map: &Item) -> Option<Rule> {
    let services = || optional_member(map, "services");
    let kind = match read_text(map.get("kind")?)? {
        RuleKind::CATEGORY_BLOCK => RuleKind::CategoryBlock {
            categories: member(map, "categories")?,
        },
        RuleKind::VENDOR_ALLOWLIST => RuleKind::VendorAllowlist {
            vendors: member(map, "vendors")?,
        },
        RuleKind::BUDGET_LIMIT => RuleKind::BudgetLimit {
            limit: member(map, "limit")?,
            window: member(map, "window")?,
        },
        RuleKind::APPROVAL_REQUIRED => RuleKind::ApprovalRequired {
            services: services()?,
            categories: optional_member(map, "categories")?,
            above: optional_member(map, "above")?,
        },
        RuleKind::COUNT_LIMIT => RuleKind::CountLimit {
            services: services()?,
            count: member(map, "count")?,
            window: member(map, "window")?,
        },
        RuleKind::MINIMUM_INTERVAL => RuleKind::MinimumInterval {
            services: services()?,
            interval: member(map, "interval")?,
        },
        RuleKind::DUPLICATE_GUARD => RuleKind::DuplicateGuard {
            services: services()?,
            within: member(map, "within")?,
            action: member(map, "action")?,
        },
        RuleKind::NEW_PAYEE => RuleKind::NewPayee { services: services()? },
        RuleKind::PRICE_ABOVE_USUAL => {
            let prices = optional_member::<u32>(map, "of")?;
            let prices = prices.map(u8::try_from).transpose().ok()?;
            RuleKind::PriceAboveUsual {
                services: services()?,
                percent: member(map, "percent")?,
                over: UsualPrice::from_name(read_text(map.get("over")?)?, prices)?,
                action: member(map, "action")?,
            }
        }
        RuleKind::SCHEDULE => RuleKind::Schedule {
            services: services()?,
            schedule: Schedule {
                zone: member(map, "zone")?,
                days: member(map, "days")?,
                from: member(map, "from")?,
                to: member(map, "to")?,
            },
        },
        RuleKind::ANOMALY_BRAKE => RuleKind::AnomalyBrake(AnomalyBrake {
            times: member(map, "times")?,
            at_least: member(map, "least")?,
        }),
        _ => return None,
    };
    Some(Rule {
        id: member(map, "id")?,
        version: member(map, "ver")?,
        kind,
    })
}

/// Attribute names are short because the map is part of rows that must stay below 1 KB.
fn write_call(call: &CallDescription) -> Draft {
    let price = call.catalog_price.as_ref();
    Draft::new_map()
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
