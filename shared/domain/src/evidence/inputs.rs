//! The inputs of a decision as JSON documents, and their SHA-256 hashes in RFC 8785 form.
//!
//! The documents contain no secrets. From the agent's record, they contain only the status and the rules.

use crate::{
    Agent, Amount, Category, EnabledService, LimitAction, Operation, Pricing, ReplayInputs, RuleKind, RuleWindow,
    Service, Timestamp, Vendor,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::fmt;

/// The SHA-256 of a JSON document in RFC 8785 form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DocumentHash([u8; 32]);

impl DocumentHash {
    /// Hashes a document in RFC 8785 form.
    ///
    /// RFC 8785 writes numbers as IEEE doubles, which are exact up to 2^53. Amounts are at most [`Amount::MAX`], which
    /// is below.
    pub fn digest(document: &Value) -> Self {
        // Serializing a `Value` into a `Vec` can't fail.
        let canonical = serde_json_canonicalizer::to_vec(document).unwrap_or_default();
        Self(Sha256::digest(canonical).into())
    }
}

/// Writes 64 lower-case hexadecimal digits.
impl fmt::Display for DocumentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&alloy_primitives::hex::encode(self.0))
    }
}

/// The inputs of a decision as JSON documents.
#[derive(Clone, Debug, PartialEq)]
pub struct InputDocuments {
    /// The agent's status and rules.
    pub agent: Value,
    /// The policy; `null` if the service was never enabled.
    pub policy: Value,
    /// The service and the operation from the catalog, priced at the time of the decision.
    pub service: Value,
}

impl InputDocuments {
    /// Creates the documents of a decision's inputs at this time.
    pub fn new(inputs: &ReplayInputs<'_>, at: Timestamp) -> Self {
        Self {
            agent: agent_document(inputs.agent),
            policy: inputs
                .enabled
                .map_or(Value::Null, |enabled| policy_document(enabled, inputs.agent)),
            service: service_document(inputs.service, at),
        }
    }

    /// Returns a JSON object with the documents `agent`, `policy` and `service`.
    pub fn to_json(&self) -> Value {
        json!({"agent": self.agent, "policy": self.policy, "service": self.service})
    }
}

fn optional_units(amount: Option<Amount>) -> Option<u64> {
    amount.map(Amount::units)
}

fn agent_document(agent: &Agent) -> Value {
    let rules = agent.rules.iter().map(|rule| {
        let mut terms = rule_parameters(&rule.kind);
        if let Some(terms) = terms.as_object_mut() {
            terms.insert("rule_id".to_owned(), rule.id.to_string().into());
            terms.insert("rule_version".to_owned(), rule.version.into());
            terms.insert("kind".to_owned(), rule.kind.name().into());
        }
        terms
    });
    json!({
        "agent_id": agent.id.to_string(),
        "version": agent.version,
        "status": agent.status.name(),
        "wallet": agent.wallet.address.to_string(),
        "rules": rules.collect::<Vec<_>>(),
    })
}

/// Returns a rule's parameters, without the kind.
pub(crate) fn rule_parameters(kind: &RuleKind) -> Value {
    let slugs = |services: &Option<Vec<crate::ServiceSlug>>| {
        let services = services.as_ref();
        json!(services.map(|slugs| slugs.iter().map(ToString::to_string).collect::<Vec<_>>()))
    };
    match kind {
        RuleKind::CategoryBlock { categories } => {
            json!({"categories": categories.iter().map(|category| category.name()).collect::<Vec<_>>()})
        }
        RuleKind::VendorAllowlist { vendors } => {
            let services = vendors.iter().filter_map(Vendor::service_slug).map(ToString::to_string);
            let wallets = vendors
                .iter()
                .filter_map(Vendor::wallet_address)
                .map(|wallet| wallet.to_string());
            json!({"services": services.collect::<Vec<_>>(), "wallets": wallets.collect::<Vec<_>>()})
        }
        RuleKind::BudgetLimit { limit, window } => {
            let services = window.services.is_some().then(|| ("services", slugs(&window.services)));
            window_parameters(
                window,
                services.into_iter().chain([("limit_units", limit.units().into())]),
            )
        }
        RuleKind::ApprovalRequired {
            services,
            categories,
            above,
        } => json!({
            "services": slugs(services),
            "categories": categories.as_ref().map(|all| all.iter().map(|item| item.name()).collect::<Vec<_>>()),
            "above_units": optional_units(*above),
        }),
        RuleKind::CountLimit { count, window } => {
            window_parameters(window, [("services", slugs(&window.services)), ("count", json!(count))])
        }
        RuleKind::MinimumInterval { services, interval } => {
            json!({"services": slugs(services), "interval_seconds": interval.secs()})
        }
        RuleKind::DuplicateGuard {
            services,
            within,
            action,
        } => json!({"services": slugs(services), "within_seconds": within.secs(), "action": action.name()}),
        RuleKind::NewPayee { services } => json!({"services": slugs(services)}),
        RuleKind::PriceAboveUsual {
            services,
            percent,
            over,
            action,
        } => json!({
            "services": slugs(services),
            "percent": percent,
            "over": over.name(),
            "of": over.price_count(),
            "action": action.name(),
        }),
        RuleKind::Schedule { services, schedule } => json!({
            "services": slugs(services),
            "time_zone": schedule.zone.to_string(),
            "periods": schedule.periods.iter().map(ToString::to_string).collect::<Vec<_>>(),
        }),
        RuleKind::AnomalyBrake(automatic_freeze) => {
            json!({"times": automatic_freeze.times, "at_least_units": automatic_freeze.at_least.units()})
        }
    }
}

/// Returns an object with the parameters of a window and the parameters in `others`. If the action is to block, the
/// object has no field `action`, as in documents of earlier releases.
fn window_parameters<'a>(window: &RuleWindow, others: impl IntoIterator<Item = (&'a str, Value)>) -> Value {
    let RuleWindow {
        categories,
        period,
        action,
        ..
    } = window;
    let names = |categories: &Vec<Category>| categories.iter().map(|category| category.name()).collect::<Vec<_>>();
    let parameters = [
        (
            "window_seconds",
            period.duration().map(|duration| json!(duration.secs())),
        ),
        ("period", period.name().map(Value::from)),
        ("time_zone", period.time_zone().map(|zone| json!(zone.to_string()))),
        ("action", (*action != LimitAction::Block).then(|| json!(action.name()))),
        (
            "categories",
            categories.as_ref().map(|categories| json!(names(categories))),
        ),
    ];
    let parameters = parameters.into_iter().filter_map(|(name, value)| Some((name, value?)));
    let all = parameters.chain(others).map(|(name, value)| (name.to_owned(), value));
    Value::Object(all.collect())
}

fn policy_document(enabled: &EnabledService, agent: &Agent) -> Value {
    let policy = &enabled.policy;
    let operations = policy.enabled_operations.as_ref();
    let mut document = json!({
        "service_id": enabled.service.to_string(),
        "version": enabled.version,
        "enabled": enabled.enabled,
        "max_per_call_units": policy.max_per_call.units(),
        "max_per_day_units": policy.max_per_day.units(),
        "require_approval_above_units": policy.require_approval_above.units(),
        "enabled_operations": operations.map(|slugs| slugs.iter().map(ToString::to_string).collect::<Vec<_>>()),
        "allowed_domains": policy.allowed_domains.iter().map(ToString::to_string).collect::<Vec<_>>(),
    });
    // A temporary limit increase that an earlier owner granted has no effect.
    let increase = policy.raise.as_ref().filter(|increase| increase.by == agent.owner);
    if let (Some(increase), Some(fields)) = (increase, document.as_object_mut()) {
        let increase = json!({
            "max_per_call_units": optional_units(increase.caps.max_per_call),
            "max_per_day_units": optional_units(increase.caps.max_per_day),
            "from": increase.from.to_string(),
            "until": increase.until.to_string(),
        });
        fields.insert("raise".to_owned(), increase);
    }
    document
}

fn service_document(service: &Service, at: Timestamp) -> Value {
    json!({
        "service_id": service.id.to_string(),
        "version": service.version,
        "slug": service.slug.to_string(),
        "category": service.category.name(),
        "operations": service.operations.iter().map(|operation| operation_document(operation, service, at)).collect::<Vec<_>>(),
    })
}

fn operation_document(operation: &Operation, service: &Service, at: Timestamp) -> Value {
    let pricing: Pricing<'_> = operation.pricing_at(at);
    json!({
        "operation_id": operation.slug.to_string(),
        "method": operation.method,
        "endpoint": operation.endpoint.to_string(),
        "category": operation.category.name(),
        "fetches_target": operation.fetches_target(service.category),
        "price_model": pricing.price_model,
        "max_price_units": optional_units(pricing.max_price()),
        "payment": pricing.payment.map(|payment| json!({
            "scheme": payment.scheme,
            "network": payment.network.name(),
            "amount_units": payment.amount.units(),
            "pay_to": payment.pay_to.to_string(),
        })),
    })
}
