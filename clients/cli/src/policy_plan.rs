//! What differs between agents and the policies that they follow, and the edits that end the difference.
//!
//! Of the policies that match an agent, the last one that names a service decides on it; within a policy, the most
//! specific key does. Its limits alone hold for the service: members that it leaves out are left alone. The last policy
//! with rules decides on all rules.

use crate::entry::Change;
use crate::policy_file::{Key, Limits, Policy, Selector};
use crate::rule::{self, RuleEdit, Stored, rule_of};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use url::Host;

/// An agent, as the list of agents has it.
#[derive(Clone, Debug)]
pub(crate) struct Agent {
    pub(crate) id: String,
    pub(crate) name: String,
    labels: Map<String, Value>,
}

impl Agent {
    /// Reads an agent; `None` if the value is none.
    pub(crate) fn of(answer: &Value) -> Option<Self> {
        let text = |name: &str| answer.get(name).and_then(Value::as_str).map(str::to_owned);
        Some(Self {
            id: text("agent_id")?,
            name: text("name")?,
            labels: answer.get("labels")?.as_object()?.clone(),
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

/// The present state of an agent.
#[derive(Clone, Debug)]
pub(crate) struct State {
    /// The records of services, as the API lists them.
    pub(crate) services: Vec<Value>,
    /// The agent's version, and its rules as the API lists them; `None` if no policy is about them.
    pub(crate) rules: Option<(u64, Vec<Value>)>,
}

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Write {
    /// Enables a service that the agent never had.
    Enable(Value),
    /// Edits the record of the service, at a version.
    Edit { service: String, over: u64, body: Value },
    /// Edits a rule.
    Rule(RuleEdit),
}

/// An edit of an agent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Edit {
    /// The service's slug or id, or `rule` and the rule's kind.
    pub(crate) at: String,
    /// The policy that asks for it.
    pub(crate) by: String,
    pub(crate) changes: Vec<Change>,
    /// Whether the edit may allow what was refused before. It is a remark: Purser decides, and requires a recent
    /// sign-in for it.
    pub(crate) may_widen: bool,
    pub(crate) write: Write,
}

/// The edits of one agent, and what its policies override of each other.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) edits: Vec<Edit>,
    /// By the deciding policy and the overridden one: the services, and `rules`.
    pub(crate) overrides: BTreeMap<(String, String), BTreeSet<String>>,
    /// The keys of policies that name a service of the agent, by policy.
    pub(crate) matched: BTreeSet<(String, String)>,
    pub(crate) problems: BTreeSet<String>,
}

/// Returns the policies that an agent follows, in the order of the file.
pub(crate) fn policies_of<'a>(agent: &Agent, policies: &'a [Policy]) -> Vec<&'a Policy> {
    policies.iter().filter(|policy| agent.follows(policy)).collect()
}

/// Returns the ids and names in the file that are no agent's.
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

/// Returns the text that names a service in a file: its slug, or its id once it has left the catalog.
pub(crate) fn name_of(record: &Value) -> &str {
    let text = |name: &str| record.get(name).and_then(Value::as_str);
    text("slug").or_else(|| text("service_id")).unwrap_or_default()
}

/// Returns the most specific key of a policy that names the record's service, and its limits.
fn limits_for<'a>(policy: &'a Policy, record: &Value) -> Option<(&'a Key, &'a Limits)> {
    let text = |name: &str| record.get(name).and_then(Value::as_str);
    let is_enabled = record.get("enabled") == Some(&Value::Bool(true));
    let mut services = policy.services.iter();
    services.find(|(key, _)| match key {
        Key::Service(service) => text("slug") == Some(service) || text("service_id") == Some(service),
        Key::Category(category) => is_enabled && text("category") == Some(category),
        Key::Every => is_enabled,
    })
}

/// Compares an agent with the policies that it follows.
pub(crate) fn plan(policies: &[&Policy], state: &State) -> Plan {
    let mut plan = Plan::default();
    let mut records: Vec<&Value> = state.services.iter().collect();
    records.sort_by_key(|record| name_of(record));
    for record in records {
        let name = name_of(record);
        let named = policies
            .iter()
            .filter_map(|policy| Some((*policy, limits_for(policy, record)?)));
        let named: Vec<_> = named.collect();
        for (policy, (key, _)) in &named {
            plan.matched.insert((policy.name.clone(), key.to_string()));
        }
        let Some((policy, (_, limits))) = plan.decide(&named, name) else {
            continue;
        };
        plan.edit(policy, record, limits);
    }
    // Services that the agent never had can't be meant by a category or by `*`.
    let is_new = |service: &str| {
        let mut records = state.services.iter();
        !records.any(|record| [name_of(record), id_of(record)].contains(&service))
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
        let Some((policy, limits)) = plan.decide(&named, service) else {
            continue;
        };
        if limits.get("enabled") == Some(&Value::Bool(true)) {
            plan.matched.insert((policy.name.clone(), service.clone()));
            plan.enable(policy, service, &limits);
        }
    }
    if let Some((_, stored)) = &state.rules {
        let named: Vec<_> = policies
            .iter()
            .filter_map(|policy| Some((*policy, policy.rules.as_deref()?)))
            .collect();
        if let Some((policy, wanted)) = plan.decide(&named, "rules") {
            plan.rules(policy, stored, wanted);
        }
    }
    plan
}

fn id_of(record: &Value) -> &str {
    record.get("service_id").and_then(Value::as_str).unwrap_or_default()
}

impl Plan {
    /// Returns the deciding policy, the last one, and notes which other ones it overrides.
    fn decide<'a, T: Clone>(&mut self, named: &[(&'a Policy, T)], at: &str) -> Option<(&'a Policy, T)> {
        let ((last, what), others) = named.split_last()?;
        for (other, _) in others {
            let pair = (last.name.clone(), other.name.clone());
            self.overrides.entry(pair).or_default().insert(at.to_owned());
        }
        Some((*last, what.clone()))
    }

    fn edit(&mut self, policy: &Policy, record: &Value, limits: &Limits) {
        let name = name_of(record);
        let nothing = Map::new();
        let stored = record.get("policy").and_then(Value::as_object).unwrap_or(&nothing);
        let (mut changes, mut body, mut may_widen) = (Vec::new(), Map::new(), false);
        for (member, to) in limits {
            let from = match member.as_str() {
                "enabled" => record.get("enabled"),
                member => stored.get(member),
            };
            let Some(from) = from else {
                let known: Vec<&str> = stored.keys().map(String::as_str).collect();
                let known = known.join(", ");
                self.problems.insert(format!(
                    "{}: {member} is no member of a service's policy; there are enabled, {known}",
                    policy.name
                ));
                continue;
            };
            if normal(member, from) == normal(member, to) {
                continue;
            }
            may_widen |= widens(member, from, to);
            changes.push(Change {
                at: format!("{name} {member}"),
                from: from.clone(),
                to: to.clone(),
            });
            body.insert(member.clone(), to.clone());
        }
        let Some(over) = record.get("version").and_then(Value::as_u64) else {
            self.problems.insert(format!(
                "{name}: the answer is not Purser's: a service without a version"
            ));
            return;
        };
        if !changes.is_empty() {
            self.edits.push(Edit {
                at: name.to_owned(),
                by: policy.name.clone(),
                changes,
                may_widen,
                write: Write::Edit {
                    service: id_of(record).to_owned(),
                    over,
                    body: body.into(),
                },
            });
        }
    }

    fn enable(&mut self, policy: &Policy, service: &str, limits: &Limits) {
        let changes = limits.iter().map(|(member, to)| Change {
            at: format!("{service} {member}"),
            from: Value::Null,
            to: to.clone(),
        });
        let mut body = limits.clone();
        body.remove("enabled");
        body.insert("service_id".to_owned(), json!(service));
        self.edits.push(Edit {
            at: service.to_owned(),
            by: policy.name.clone(),
            changes: changes.collect(),
            may_widen: true,
            write: Write::Enable(body.into()),
        });
    }

    fn rules(&mut self, policy: &Policy, stored: &[Value], wanted: &[Value]) {
        let stored = stored.iter().map(|answer| Stored {
            id: answer.get("rule_id").and_then(Value::as_str).unwrap_or_default(),
            rule: rule_of(answer),
        });
        for edit in rule::edits(&stored.collect::<Vec<_>>(), wanted) {
            let at = format!("rule {}", edit.kind());
            let (from, to) = match &edit {
                RuleEdit::Add { to } => (Value::Null, to.clone()),
                RuleEdit::Replace { from, to, .. } => (from.clone(), to.clone()),
                RuleEdit::Remove { from, .. } => (from.clone(), Value::Null),
            };
            self.edits.push(Edit {
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

/// Returns whether a member's new value may allow what the old one refused. An unknown member counts as one that does.
fn widens(member: &str, from: &Value, to: &Value) -> bool {
    match (member, from, to) {
        ("enabled", _, to) => *to == Value::Bool(true),
        ("max_per_call_units" | "max_per_day_units" | "require_approval_above_units", from, to) => {
            to.as_u64() > from.as_u64()
        }
        // All operations were enabled.
        ("enabled_operations", Value::Null, _) => false,
        ("enabled_operations", Value::Array(from), Value::Array(to)) => !to.iter().all(|one| from.contains(one)),
        ("allowed_domains", Value::Array(from), Value::Array(to)) => {
            let is_any = from.iter().any(|domain| domain == "*");
            !is_any && !to.iter().all(|one| from.contains(one))
        }
        _ => true,
    }
}

/// Returns the form of a member's value in which equal ones are the same. The order of a list has no meaning.
fn normal(member: &str, value: &Value) -> Value {
    let Value::Array(list) = value else {
        return value.clone();
    };
    let mut list: Vec<Value> = list
        .iter()
        .map(|one| match one.as_str() {
            Some(domain) if member == "allowed_domains" => json!(stored_domain(domain)),
            _ => one.clone(),
        })
        .collect();
    list.sort_by_key(Value::to_string);
    list.into()
}

/// Returns the spelling in which Purser stores a domain: in lower case and in ASCII (IDNA).
fn stored_domain(text: &str) -> String {
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
