//! Compares agents with the policies that they follow, and plans the updates that remove the differences.
//!
//! The last policy that matches a service applies. Within a policy, a more specific key overrides a more general key.
//! Omitted fields stay unchanged. The last policy with rules determines all rules of the agent.

use crate::entry::Change;
use crate::policy_file::{Key, Limits, Policy, Selector};
use crate::rule::{self, RuleEdit, StoredRule, rule_without_usage};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use url::Host;

#[derive(Clone, Debug)]
pub(crate) struct Agent {
    pub(crate) id: String,
    pub(crate) name: String,
    labels: Map<String, Value>,
}

impl Agent {
    /// Parses an agent. Returns `None` if the value is not an agent.
    pub(crate) fn from_json(response: &Value) -> Option<Self> {
        let text = |name: &str| response.get(name).and_then(Value::as_str).map(str::to_owned);
        Some(Self {
            id: text("agent_id")?,
            name: text("name")?,
            labels: response.get("labels")?.as_object()?.clone(),
        })
    }

    fn follows(&self, policy: &Policy) -> bool {
        match &policy.agents {
            Selector::All => true,
            Selector::Ids(ids) => ids.contains(&self.id),
            Selector::Names(names) => names.contains(&self.name),
            Selector::Labels(labels) => labels
                .iter()
                .all(|(key, value)| self.labels.get(key).is_some_and(|label| label == value)),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct State {
    /// The agent's services, as the API lists them.
    pub(crate) services: Vec<Value>,
    /// The agent's version and the agent's rules as the API lists them. `None` if no policy has rules.
    pub(crate) rules: Option<(u64, Vec<Value>)>,
}

/// A request that writes one update.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Write {
    /// Enables a service that the agent never had.
    Enable(Value),
    /// Updates a service of the agent. `over` is the version that was read.
    Edit { service: String, over: u64, body: Value },
    /// Updates a rule.
    Rule(RuleEdit),
}

impl Write {
    /// Returns the body of the request. Removing a rule has no body.
    pub(crate) fn body(&self) -> Option<&Value> {
        match self {
            Self::Enable(body) | Self::Edit { body, .. } => Some(body),
            Self::Rule(RuleEdit::Add { to } | RuleEdit::Replace { to, .. }) => Some(to),
            Self::Rule(RuleEdit::Remove { .. }) => None,
        }
    }
}

/// An update of an agent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Edit {
    /// The service's slug or id, or `rule` and the rule's kind.
    pub(crate) at: String,
    /// The name of the policy that requires the update.
    pub(crate) by: String,
    pub(crate) changes: Vec<Change>,
    /// Whether the update may allow payments that were rejected before. Purser makes the binding decision.
    pub(crate) may_widen: bool,
    pub(crate) write: Write,
    /// Purser's preview. Only the first agent with the same update has a preview.
    pub(crate) preview: Option<Value>,
}

/// An agent's updates, and which of the agent's policies override others.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) edits: Vec<Edit>,
    /// All rules that the policies require. `None` if no policy has rules.
    pub(crate) rules: Option<Vec<Value>>,
    /// Maps an overriding policy and an overridden policy to the affected services and `rules`.
    pub(crate) overrides: BTreeMap<(String, String), BTreeSet<String>>,
    /// The keys that match services, each with the policy's name.
    pub(crate) matched: BTreeSet<(String, String)>,
    pub(crate) problems: BTreeSet<String>,
}

/// Returns the policies that an agent follows, in the order of the file.
pub(crate) fn policies_for_agent<'a>(agent: &Agent, policies: &'a [Policy]) -> Vec<&'a Policy> {
    policies.iter().filter(|policy| agent.follows(policy)).collect()
}

/// Returns an error for each id and name in the file that no agent has.
pub(crate) fn unknown_agents(policies: &[Policy], agents: &[Agent]) -> Vec<String> {
    let mut unknown = Vec::new();
    for policy in policies {
        let (named, of): (_, fn(&Agent) -> &String) = match &policy.agents {
            Selector::Ids(ids) => (ids, |agent| &agent.id),
            Selector::Names(names) => (names, |agent| &agent.name),
            Selector::All | Selector::Labels(_) => continue,
        };
        let of_nobody = named
            .iter()
            .filter(|named| !agents.iter().any(|agent| of(agent) == *named));
        unknown.extend(of_nobody.map(|named| format!("{}: there is no agent {named}", policy.name)));
    }
    unknown
}

/// Returns the service's slug, or the id if the service is no longer in the catalog.
pub(crate) fn service_name(record: &Value) -> &str {
    let text = |name: &str| record.get(name).and_then(Value::as_str);
    text("slug").or_else(|| text("service_id")).unwrap_or_default()
}

/// Returns the policy's keys that match the service, and their merged limits.
fn limits_for<'a>(policy: &'a Policy, record: &Value) -> Option<(Vec<&'a Key>, Limits)> {
    let text = |name: &str| record.get(name).and_then(Value::as_str);
    let (mut keys, mut merged) = (Vec::new(), Limits::new());
    // The keys are sorted by precedence.
    for (key, limits) in &policy.services {
        let enabled = merged.get("enabled").or_else(|| record.get("enabled"));
        let is_enabled = enabled == Some(&Value::Bool(true));
        let matches = match key {
            Key::Service(service) => text("slug") == Some(service) || text("service_id") == Some(service),
            Key::Category(category) => is_enabled && text("category") == Some(category),
            Key::Every => is_enabled,
        };
        if matches {
            keys.push(key);
            for (field, value) in limits {
                merged.entry(field).or_insert_with(|| value.clone());
            }
        }
    }
    (!keys.is_empty()).then_some((keys, merged))
}

/// Compares an agent with the policies that the agent follows.
pub(crate) fn plan(policies: &[&Policy], state: &State) -> Plan {
    let mut plan = Plan::default();
    let mut records: Vec<&Value> = state.services.iter().collect();
    records.sort_by_key(|record| service_name(record));
    for record in records {
        let name = service_name(record);
        let named = policies
            .iter()
            .filter_map(|policy| Some((*policy, limits_for(policy, record)?)));
        let named: Vec<_> = named.collect();
        for (policy, (keys, _)) in &named {
            let keys = keys.iter().map(|key| (policy.name.clone(), key.to_string()));
            plan.matched.extend(keys);
        }
        let Some((policy, (_, limits))) = plan.last_policy(&named, name) else {
            continue;
        };
        plan.plan_update(policy, record, &limits);
    }
    // A category and `*` match only services that the agent already has.
    let is_new = |service: &str| {
        let mut records = state.services.iter();
        !records.any(|record| [service_name(record), service_id(record)].contains(&service))
    };
    let services = policies.iter().flat_map(|policy| policy.services.keys());
    let new: BTreeSet<&String> = services
        .filter_map(|key| match key {
            Key::Service(service) if is_new(service) => Some(service),
            _ => None,
        })
        .collect();
    for service in new {
        let limits = |policy: &'_ &Policy| policy.services.get(&Key::Service(service.clone())).cloned();
        let named: Vec<_> = policies
            .iter()
            .filter_map(|policy| Some((*policy, limits(policy)?)))
            .collect();
        let Some((policy, limits)) = plan.last_policy(&named, service) else {
            continue;
        };
        if limits.get("enabled") == Some(&Value::Bool(true)) {
            plan.matched.insert((policy.name.clone(), service.clone()));
            plan.plan_enabling(policy, service, &limits);
        }
    }
    if let Some((_, stored)) = &state.rules {
        let named: Vec<_> = policies
            .iter()
            .filter_map(|policy| Some((*policy, policy.rules.as_deref()?)))
            .collect();
        if let Some((policy, wanted)) = plan.last_policy(&named, "rules") {
            plan.plan_rules(policy, stored, wanted);
        }
    }
    plan
}

fn service_id(record: &Value) -> &str {
    record.get("service_id").and_then(Value::as_str).unwrap_or_default()
}

impl Plan {
    /// Returns the last policy, which applies, and records the overridden policies.
    fn last_policy<'a, T: Clone>(&mut self, policies: &[(&'a Policy, T)], at: &str) -> Option<(&'a Policy, T)> {
        let ((last, message), others) = policies.split_last()?;
        for (other, _) in others {
            let pair = (last.name.clone(), other.name.clone());
            self.overrides.entry(pair).or_default().insert(at.to_owned());
        }
        Some((*last, message.clone()))
    }

    fn plan_update(&mut self, policy: &Policy, record: &Value, limits: &Limits) {
        let name = service_name(record);
        let nothing = Map::new();
        let stored = record.get("policy").and_then(Value::as_object).unwrap_or(&nothing);
        let (mut changes, mut body, mut may_widen) = (Vec::new(), Map::new(), false);
        for (field, to) in limits {
            let from = match field.as_str() {
                "enabled" => record.get("enabled"),
                field => stored.get(field),
            };
            let Some(from) = from else {
                let known: Vec<&str> = stored.keys().map(String::as_str).collect();
                let known = known.join(", ");
                self.problems.insert(format!(
                    "{}: {field} is no member of a service's policy; there are enabled, {known}",
                    policy.name
                ));
                continue;
            };
            if normalize_value(field, from) == normalize_value(field, to) {
                continue;
            }
            may_widen |= widens(field, from, to);
            changes.push(Change {
                at: format!("{name} {field}"),
                from: from.clone(),
                to: to.clone(),
            });
            body.insert(field.clone(), to.clone());
        }
        let Some(over) = record.get("version").and_then(Value::as_u64) else {
            self.problems.insert(format!(
                "{name}: the answer is not Purser's: a service without a version"
            ));
            return;
        };
        if !changes.is_empty() {
            self.edits.push(Edit {
                preview: None,
                at: name.to_owned(),
                by: policy.name.clone(),
                changes,
                may_widen,
                write: Write::Edit {
                    service: service_id(record).to_owned(),
                    over,
                    body: body.into(),
                },
            });
        }
    }

    fn plan_enabling(&mut self, policy: &Policy, service: &str, limits: &Limits) {
        let changes = limits.iter().map(|(field, to)| Change {
            at: format!("{service} {field}"),
            from: Value::Null,
            to: to.clone(),
        });
        let mut body = limits.clone();
        body.remove("enabled");
        body.insert("service_id".to_owned(), json!(service));
        self.edits.push(Edit {
            preview: None,
            at: service.to_owned(),
            by: policy.name.clone(),
            changes: changes.collect(),
            may_widen: true,
            write: Write::Enable(body.into()),
        });
    }

    fn plan_rules(&mut self, policy: &Policy, stored: &[Value], desired_rules: &[Value]) {
        self.rules = Some(desired_rules.to_vec());
        let stored = stored.iter().map(|response| StoredRule {
            id: response.get("rule_id").and_then(Value::as_str).unwrap_or_default(),
            rule: rule_without_usage(response),
        });
        for edit in rule::edits(&stored.collect::<Vec<_>>(), desired_rules) {
            let at = format!("rule {}", edit.kind());
            let (from, to) = match &edit {
                RuleEdit::Add { to } => (Value::Null, to.clone()),
                RuleEdit::Replace { from, to, .. } => (from.clone(), to.clone()),
                RuleEdit::Remove { from, .. } => (from.clone(), Value::Null),
            };
            self.edits.push(Edit {
                preview: None,
                changes: vec![Change {
                    at: at.clone(),
                    from,
                    to,
                }],
                at,
                by: policy.name.clone(),
                may_widen: edit.may_widen(),
                write: Write::Rule(edit),
            });
        }
    }
}

/// Returns whether a field's new value may allow payments that the old value rejected.
fn widens(field: &str, from: &Value, to: &Value) -> bool {
    match (field, from, to) {
        ("enabled", _, to) => *to == Value::Bool(true),
        ("max_per_call_units" | "max_per_day_units" | "require_approval_above_units", from, to) => {
            to.as_u64() > from.as_u64()
        }
        // `null` enables all operations, so a list can only restrict them.
        ("enabled_operations", Value::Null, _) => false,
        ("enabled_operations", Value::Array(from), Value::Array(to)) => !to.iter().all(|item| from.contains(item)),
        ("allowed_domains", Value::Array(from), Value::Array(to)) => {
            let is_any = from.iter().any(|domain| domain == "*");
            !is_any && !to.iter().all(|item| from.contains(item))
        }
        _ => true,
    }
}

/// Returns a normalized form of a field's value. The order of a list has no meaning.
fn normalize_value(field: &str, value: &Value) -> Value {
    let Value::Array(list) = value else {
        return value.clone();
    };
    let mut list: Vec<Value> = list
        .iter()
        .map(|item| match item.as_str() {
            Some(domain) if field == "allowed_domains" => json!(normalize_domain(domain)),
            _ => item.clone(),
        })
        .collect();
    list.sort_by_key(Value::to_string);
    list.into()
}

/// Converts a domain to the stored form: lower case and ASCII (IDNA).
fn normalize_domain(text: &str) -> String {
    let text = text.strip_suffix('.').unwrap_or(text);
    let ascii = |part: &str| match Host::parse(part) {
        Ok(Host::Domain(name)) => name,
        _ => part.to_ascii_lowercase(),
    };
    if text.is_ascii() {
        return text.to_ascii_lowercase();
    }
    text.split('.').map(ascii).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy_file::parse;

    const UNLIMITED: u64 = 9_007_199_254_740_991;

    fn record(slug: &str, category: &str, enabled: bool) -> Value {
        json!({
            "service_id": format!("id-of-{slug}"), "slug": slug, "category": category, "enabled": enabled, "version": 3,
            "policy": {
                "max_per_call_units": UNLIMITED, "max_per_day_units": 50, "require_approval_above_units": 5,
                "enabled_operations": null, "allowed_domains": ["*"],
            },
        })
    }

    fn state(rules: &[Value]) -> State {
        let mut gone = record("x", "x", true);
        gone["slug"] = Value::Null;
        gone["category"] = Value::Null;
        State {
            services: vec![
                record("a", "ai", true),
                record("b", "ai", true),
                record("c", "data", true),
                record("off", "ai", false),
                gone,
            ],
            rules: Some((7, rules.to_vec())),
        }
    }

    fn agent(id: &str, name: &str, labels: &Value) -> Agent {
        Agent::from_json(&json!({"agent_id": id, "name": name, "labels": labels})).unwrap()
    }

    fn policies(services: &[&str]) -> Vec<Policy> {
        let names = ["first", "second", "third"].iter().zip(services);
        let all = names.map(|(name, body)| format!("- {{name: {name}, agents: {{all: true}}, {body}}}\n"));
        parse(&format!("version: 1\npolicies:\n{}", all.collect::<String>())).unwrap()
    }

    fn planned(services: &[&str], state: &State) -> Plan {
        let policies = policies(services);
        plan(&policies.iter().collect::<Vec<_>>(), state)
    }

    fn told(plan: &Plan) -> Vec<String> {
        let edits = plan.edits.iter();
        edits
            .flat_map(|edit| {
                let widens = if edit.may_widen { " widens" } else { "" };
                edit.changes
                    .iter()
                    .map(move |change| format!("{} by {}{widens}", change, edit.by))
            })
            .collect()
    }

    #[test]
    fn policies_select_agents_by_id_name_or_all_labels() {
        let agent = agent("id-1", "buyer", &json!({"team": "research", "stage": "1"}));
        let rows = [
            ("{all: true}", true),
            ("{ids: [ID-1]}", true),
            ("{ids: [id-2]}", false),
            ("{names: [other, buyer]}", true),
            ("{names: [buy]}", false),
            ("{labels: {team: research}}", true),
            ("{labels: {team: research, stage: '1'}}", true),
            ("{labels: {team: research, stage: '2'}}", false),
            ("{labels: {owner: research}}", false),
        ];
        for (selector, follows) in rows {
            let policies = parse(&format!("version: 1\npolicies: [{{name: a, agents: {selector}}}]")).unwrap();
            assert_eq!(
                policies_for_agent(&agent, &policies).len(),
                usize::from(follows),
                "{selector}"
            );
        }
        let policies = parse(
            "version: 1\npolicies: [{name: a, agents: {ids: [id-1, id-2]}}, {name: b, agents: {names: [buyer, x]}}]",
        );
        let unknown = unknown_agents(&policies.unwrap(), &[agent]);
        assert_eq!(unknown, ["a: there is no agent id-2", "b: there is no agent x"]);
    }

    /// A disabled service, and a service that the agent never had, match only by slug or id.
    #[test]
    fn a_policy_files_service_limits_override_category_and_wildcard_limits() {
        let services = "services: {
            a: {max_per_day_units: 1}, category:ai: {max_per_day_units: 2, max_per_call_units: 2},
            '*': {max_per_day_units: 3}, never: {max_per_day_units: 4}}";
        let plan = planned(&[services], &state(&[]));
        let expected = [
            format!("a max_per_call_units: {UNLIMITED} -> 2 by first"),
            "a max_per_day_units: 50 -> 1 by first".to_owned(),
            format!("b max_per_call_units: {UNLIMITED} -> 2 by first"),
            "b max_per_day_units: 50 -> 2 by first".to_owned(),
            "c max_per_day_units: 50 -> 3 by first".to_owned(),
            "id-of-x max_per_day_units: 50 -> 3 by first".to_owned(),
        ];
        assert_eq!(told(&plan), expected);
        let keys: Vec<&str> = plan.matched.iter().map(|(_, key)| key.as_str()).collect();
        assert_eq!(keys, ["*", "a", "category:ai"]);
        let body = json!({"max_per_call_units": 2, "max_per_day_units": 2});
        let expected = Write::Edit {
            service: "id-of-b".to_owned(),
            over: 3,
            body,
        };
        assert_eq!(plan.edits[1].write, expected);
        let by_id = planned(
            &["services: {off: {max_per_day_units: 1}, id-of-x: {max_per_day_units: 2}}"],
            &state(&[]),
        );
        assert_eq!(
            told(&by_id),
            [
                "id-of-x max_per_day_units: 50 -> 2 by first",
                "off max_per_day_units: 50 -> 1 by first"
            ]
        );
    }

    #[test]
    fn the_last_policy_file_overrides_earlier_services_and_rules() {
        let rule = |units: u64| format!("rules: [{{kind: budget_limit, limit_units: {units}, window_seconds: 3600}}]");
        let plan = planned(
            &[
                &format!(
                    "services: {{a: {{max_per_call_units: 1}}, c: {{max_per_day_units: 1}}}}, {}",
                    rule(1)
                ),
                &format!("services: {{category:ai: {{max_per_day_units: 2}}}}, {}", rule(2)),
                "services: {b: {}}",
            ],
            &state(&[]),
        );
        let expected = [
            "a max_per_day_units: 50 -> 2 by second",
            "c max_per_day_units: 50 -> 1 by first",
            "rule budget_limit: null -> {\"kind\":\"budget_limit\",\"limit_units\":2,\"window_seconds\":3600} by second",
        ];
        assert_eq!(told(&plan), expected);
        let of = |one: &str, other: &str| plan.overrides[&(one.to_owned(), other.to_owned())].clone();
        assert_eq!(of("second", "first"), ["a", "rules"].map(str::to_owned).into());
        assert_eq!(of("third", "second"), ["b"].map(str::to_owned).into());
        assert_eq!(plan.overrides.len(), 2);
    }

    #[test]
    fn equivalent_values_are_not_policy_differences() {
        let mut state = state(&[]);
        state.services[0]["policy"]["allowed_domains"] = json!(["a.example", "xn--bcher-kva.example", "*.b.example"]);
        state.services[0]["policy"]["enabled_operations"] = json!(["x.y", "x.z"]);
        let same = "services: {a: {allowed_domains: ['*.B.example', A.example., bücher.example],
            enabled_operations: [x.z, x.y], max_per_day_units: 50, enabled: true}}";
        assert_eq!(told(&planned(&[same], &state)), [""; 0]);
    }

    #[test]
    fn policy_files_enable_only_services_listed_by_name() {
        let services = "services: {off: {enabled: true}, never: {enabled: true, max_per_day_units: 4}}";
        let plan = planned(&[services], &state(&[]));
        let expected = [
            "off enabled: false -> true by first widens",
            "never enabled: null -> true by first widens",
            "never max_per_day_units: null -> 4 by first widens",
        ];
        assert_eq!(told(&plan), expected);
        let body = json!({"service_id": "never", "max_per_day_units": 4});
        assert_eq!(plan.edits[1].write, Write::Enable(body));
        let others_off = planned(&["services: {a: {enabled: true}, '*': {enabled: false}}"], &state(&[]));
        let expected = ["b", "c", "id-of-x"].map(|name| format!("{name} enabled: true -> false by first"));
        assert_eq!(told(&others_off), expected);
    }

    #[test]
    fn updates_that_may_widen_limits_are_marked() {
        let mut state = state(&[json!({"kind": "approval_required", "rule_id": "r", "rule_version": 1})]);
        state.services[0]["policy"]["allowed_domains"] = json!(["a.example", "b.example"]);
        state.services[0]["policy"]["enabled_operations"] = json!(["x.y", "x.z"]);
        let rows = [
            ("services: {a: {max_per_day_units: 49}}", false),
            ("services: {a: {max_per_day_units: 51}}", true),
            ("services: {a: {require_approval_above_units: 0}}", false),
            (
                "services: {a: {require_approval_above_units: 6, max_per_day_units: 1}}",
                true,
            ),
            ("services: {a: {allowed_domains: [a.example]}}", false),
            ("services: {a: {allowed_domains: [c.example]}}", true),
            ("services: {a: {enabled_operations: [x.y]}}", false),
            ("services: {a: {enabled_operations: null}}", true),
            (
                "services: {b: {enabled_operations: [x.y], allowed_domains: [a.example]}}",
                false,
            ),
            (
                "rules: [{kind: approval_required}, {kind: category_block, categories: [ai]}]",
                false,
            ),
            ("rules: []", true),
        ];
        for (body, widens) in rows {
            let plan = planned(&[body], &state);
            assert_eq!(plan.edits.len(), 1, "{body}");
            assert_eq!(plan.edits[0].may_widen, widens, "{body}");
        }
    }

    #[test]
    fn a_misspelled_limit_is_a_validation_error() {
        let plan = planned(&["services: {'*': {max_per_dya_units: 1}}"], &state(&[]));
        assert!(plan.edits.is_empty());
        let problems: Vec<&String> = plan.problems.iter().collect();
        assert!(
            matches!(&problems[..], [one] if one.starts_with("first: max_per_dya_units is no member")
                && one.contains("max_per_day_units")),
            "{problems:?}"
        );
    }
}
