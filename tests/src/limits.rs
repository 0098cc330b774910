//! An agent with every kind of limit, and the texts that a view of the agent must show.

use crate::world::{OWNER, TestAgent, World};
use purser_domain::{
    Amount, ApprovalId, DomainPattern, Duration, IncreasedCaps, LimitIncrease, OperationSlug, RuleKind, SpendPolicy,
};
use serde_json::Value;
use std::collections::BTreeSet;

/// The slug of the service that [`limited_agent`] enables.
pub const LIMITED_SERVICE: &str = "lab-weather";

/// Creates an agent with each kind of rule, and a policy whose optional fields are all set.
pub async fn limited_agent(world: &World) -> TestAgent {
    let mut rules = purser_testkit::sample::rules();
    for rule in &mut rules {
        // An agent does not see rules of other keys.
        if let RuleKind::ApprovalException(exception) = &mut rule.kind {
            exception.keys = None;
        }
    }
    let agent = world.poor_agent(rules).await;
    let now = world.now();
    let raise = LimitIncrease {
        caps: IncreasedCaps {
            max_per_call: Amount::from_units(7_654_321),
            max_per_day: Amount::from_units(98_765_432),
        },
        from: now,
        until: now.after(Duration::from_secs_u32(3_600)),
        by: OWNER.to_owned(),
        approval: ApprovalId::from_uuid(uuid::Uuid::new_v4()),
    };
    let policy = SpendPolicy {
        enabled_operations: Some(vec![OperationSlug::parse("weather.current").expect("a slug")]),
        allowed_domains: vec![DomainPattern::parse("docs.example").expect("a pattern")],
        raises: vec![raise],
        ..SpendPolicy::suggested_limits()
    };
    world.enable(&agent, LIMITED_SERVICE, policy).await;
    agent
}

/// Returns the kinds of rules in the OpenAPI document, which the product's types generate.
pub fn kinds_of_rules(document: &Value) -> BTreeSet<String> {
    fn collect(document: &Value, schema: &Value, kinds: &mut BTreeSet<String>) {
        match schema {
            Value::Object(members) => {
                if let Some(place) = members.get("$ref").and_then(Value::as_str) {
                    let schema = document.pointer(place.trim_start_matches('#'));
                    collect(document, schema.expect("a schema"), kinds);
                }
                let kind = schema.pointer("/properties/kind");
                let kind = kind.and_then(|kind| kind.get("const").or_else(|| kind.pointer("/enum/0")));
                kinds.extend(kind.and_then(Value::as_str).map(str::to_owned));
                members.values().for_each(|value| collect(document, value, kinds));
            }
            Value::Array(values) => values.iter().for_each(|value| collect(document, value, kinds)),
            _ => {}
        }
    }
    let mut kinds = BTreeSet::new();
    collect(document, &document["components"]["schemas"]["AgentRule"], &mut kinds);
    kinds
}

/// Returns the limits in an agent's policy and rules as the texts that a page shows. Amounts are in decimal USD.
pub fn texts_of_limits(answer: &Value) -> BTreeSet<String> {
    fn collect(name: &str, value: &Value, texts: &mut BTreeSet<String>) {
        match value {
            Value::Object(members) => {
                let limits = members
                    .iter()
                    .filter(|(name, _)| !["rule_id", "rule_version"].contains(&name.as_str()));
                limits.for_each(|(name, value)| collect(name, value, texts));
            }
            Value::Array(values) => values.iter().for_each(|value| collect(name, value, texts)),
            Value::Number(units) if name.ends_with("_units") => {
                let units = units.as_u64().expect("an amount");
                let (whole, places) = (units / 1_000_000, format!("{:06}", units % 1_000_000));
                texts.insert(format!("{whole}.{:0<2}", places.trim_end_matches('0')));
            }
            Value::String(time) if name.ends_with("until") => {
                texts.insert(time.chars().take(10).collect());
            }
            Value::String(text) => {
                texts.insert(text.clone());
            }
            Value::Number(number) => {
                texts.insert(number.to_string());
            }
            Value::Null | Value::Bool(_) => {}
        }
    }
    let mut texts = BTreeSet::new();
    collect("policy", &answer["policy"], &mut texts);
    collect("rules", &answer["rules"], &mut texts);
    texts
}
