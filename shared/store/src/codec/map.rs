use crate::codec::attribute::Attribute;
use crate::codec::fields::{fields, stored_as_map};
use crate::codec::item::{Draft, Fields, Item, Unreadable, optional_field, read_field, read_optional_field};
use aws_sdk_dynamodb::types::AttributeValue;
use purser_domain::{
    AgentKey, Answer, ApprovalException, ApprovalRequired, AskingKind, AskingLimit, AutomaticFreeze, Availability,
    BudgetLimit, CallDescription, CatalogPayment, CatalogPrice, CategoryBlock, ClientGrant, CountLimit, DuplicateGuard,
    FollowedTemplate, FormerOwner, IncreasedCaps, KeyCredential, KeyScope, LimitAction, LimitIncrease,
    LimitIncreaseRequest, MinimumInterval, NewPayee, NextPricing, Operation, OperationScope, OperationUuid,
    PolicyChange, PolicyUpdate, PriceAboveUsual, Probe, ProviderRequest, Quote, Rule, RuleId, RuleKind, RuleWindow,
    Schedule, ServiceId, TemplateKey, TemplateName, TemporaryCaps, UsualPrice, Vendor, VendorAllowlist, VerifiedCall,
    VerifiedPayee, Wallet, WalletKey, WindowPeriod,
};
use std::collections::BTreeMap;
use uuid::Uuid;

stored_as_map! {
    AgentKey, AskingLimit, VerifiedCall, VerifiedPayee, CallDescription, CatalogPayment, FollowedTemplate, FormerOwner,
    NextPricing, Operation, LimitIncrease, LimitIncreaseRequest, Rule, TemporaryCaps, Vendor, Wallet,
}

fields! {
    AgentKey {
        id: "id",
        credential: part,
        created_at: "created",
        ends_at: "ends" optional,
        scope: part,
        opened_by: "opener" optional,
    }

    ClientGrant { verification_key: "vkey", client: "client", origin: "origin" }

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

    AskingLimit { rule: "id" optional, above: "above", kind: "kind" unless(AskingKind::ApprovalRequired) }

    Rule { id: "id", version: "ver", kind: part }

    enum RuleKind by "kind" {
        "category_block" => CategoryBlock(kind: part),
        "vendor_allowlist" => VendorAllowlist(kind: part),
        "budget_limit" => BudgetLimit(kind: part),
        "approval_required" => ApprovalRequired(kind: part),
        "count_limit" => CountLimit(kind: part),
        "minimum_interval" => MinimumInterval(kind: part),
        "duplicate_guard" => DuplicateGuard(kind: part),
        "new_payee" => NewPayee(kind: part),
        "price_above_usual" => PriceAboveUsual(kind: part),
        "schedule" => Schedule(kind: part),
        "anomaly_brake" => AutomaticFreeze(kind: part),
        "approval_exception" => ApprovalException(kind: part),
    }

    CategoryBlock { categories: "categories" }

    VendorAllowlist { vendors: "vendors" }

    BudgetLimit { limit: "limit", window: part }

    ApprovalRequired { services: "services" optional, categories: "categories" optional, above: "above" optional }

    CountLimit { count: "count", window: part }

    MinimumInterval { services: "services" optional, interval: "interval" }

    DuplicateGuard { services: "services" optional, within: "within", action: "action" }

    NewPayee { services: "services" optional }

    PriceAboveUsual { services: "services" optional, percent: "percent", over: part, action: "action" }

    Schedule { services: "services" optional, zone: "zone", periods: "periods" }

    // An exception of an earlier version of this code lacks `waived` and `rules`, and so waives nothing.
    ApprovalException {
        services: "services" optional,
        operation: "op" optional,
        keys: "keys" optional,
        payee: "payee",
        max_amount: "max",
        until: "until",
        waives_threshold: "waived" or_default,
        waived_rules: "rules" or_default,
    }

    RuleWindow {
        services: "services" optional,
        categories: "categories" optional,
        keys: "keys" optional,
        per_payee: "payees" or_default,
        period: part,
        action: "action" unless(LimitAction::Block),
    }

    enum UsualPrice by "over" {
        "catalog" => Catalog,
        "median" => Median(price_count: "of"),
    }

    AutomaticFreeze { times: "times", at_least: "least" }
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
        // Without an obstacle, the probe has read the price, so the stored response contains the price.
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

/// A [`RuleKind`] has no id, so the rule's number in the list, from 1, is stored as the id.
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

/// An agent key has a digest, and a grant has the attributes of [`ClientGrant`].
impl Fields for KeyCredential {
    fn write_to(&self, draft: Draft) -> Draft {
        match self {
            Self::Secret(digest) => draft.with("digest", digest),
            Self::Grant(grant) => draft.with_fields(grant),
        }
    }
    fn read_from(item: &Item) -> Result<Self, Unreadable> {
        match optional_field(item, "digest")? {
            Some(digest) => Ok(Self::Secret(digest)),
            None => Ok(Self::Grant(Fields::read_from(item)?)),
        }
    }
}

/// A vendor has one attribute, whose name is the vendor's kind.
impl Fields for Vendor {
    fn write_to(&self, draft: Draft) -> Draft {
        match self {
            Self::Service(service) => draft.with("service", service),
            Self::Wallet(wallet) => draft.with("wallet", wallet),
        }
    }
    fn read_from(item: &Item) -> Result<Self, Unreadable> {
        match (optional_field(item, "service")?, optional_field(item, "wallet")?) {
            (Some(service), None) => Ok(Self::Service(service)),
            (None, Some(wallet)) => Ok(Self::Wallet(wallet)),
            (None, None) | (Some(_), Some(_)) => Err(Unreadable("wallet")),
        }
    }
}

/// A rolling window has a duration. Any other period has a name, such as `lifetime`, and a calendar period also has a
/// time zone.
impl Fields for WindowPeriod {
    fn write_to(&self, draft: Draft) -> Draft {
        draft
            .with_optional("window", self.duration().as_ref())
            .with_optional("period", self.name().map(str::to_owned).as_ref())
            .with_optional("zone", self.time_zone().as_ref())
    }
    fn read_from(item: &Item) -> Result<Self, Unreadable> {
        let name: Option<String> = optional_field(item, "period")?;
        let (duration, zone) = (optional_field(item, "window")?, optional_field(item, "zone")?);
        Self::from_parts(duration, name.as_deref(), zone).ok_or(Unreadable("period"))
    }
}

/// The attribute `ops` is absent if the scope is unchanged. The attribute `all` means every operation.
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
