//! The policy file: named policies with the agents that follow them, limits for services, and rules.
//!
//! Unknown fields are rejected, so that a typo does not silently remove a limit. Purser validates the fields of limits
//! and rules.

use crate::rule::{rule_kind, rule_without_usage};
use purser_domain::Agent;
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The version of the file format.
const VERSION: u64 = 1;

/// A named policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Policy {
    pub(crate) name: String,
    pub(crate) agents: Selector,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) services: BTreeMap<Key, Limits>,
    /// The rules that the agents will have. `None` if the agents' rules stay unchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rules: Option<Vec<Value>>,
}

/// The fields of a service's policy that are set, and `enabled`.
pub(crate) type Limits = Map<String, Value>;

/// Selects the agents that follow a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Selector {
    /// All agents.
    All,
    Ids(BTreeSet<String>),
    Names(BTreeSet<String>),
    /// Agents that have all of these labels.
    Labels(BTreeMap<String, String>),
}

/// Serializes the selector as an object with one field. A derived implementation would write YAML tags.
impl Serialize for Selector {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(1))?;
        match self {
            Self::All => map.serialize_entry("all", &true)?,
            Self::Ids(ids) => map.serialize_entry("ids", ids)?,
            Self::Names(names) => map.serialize_entry("names", names)?,
            Self::Labels(labels) => map.serialize_entry("labels", labels)?,
        }
        map.end()
    }
}

/// Selects the services that limits apply to. The variants are in the order of their precedence.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    /// The service with this slug or id.
    Service(String),
    /// Every enabled service in this category.
    Category(String),
    /// Every enabled service.
    Every,
}

impl Key {
    fn parse(text: &str) -> Self {
        match (text, text.strip_prefix("category:")) {
            ("*", _) => Self::Every,
            (_, Some(category)) => Self::Category(category.to_owned()),
            (slug, None) => Self::Service(slug.to_owned()),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service(slug) => f.write_str(slug),
            Self::Category(category) => write!(f, "category:{category}"),
            Self::Every => f.write_str("*"),
        }
    }
}

impl Serialize for Key {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// The policy file, for serialization.
#[derive(Debug, Serialize)]
pub(crate) struct Document<'a> {
    version: u64,
    policies: &'a [Policy],
}

impl<'a> Document<'a> {
    pub(crate) const fn new(policies: &'a [Policy]) -> Self {
        Self {
            version: VERSION,
            policies,
        }
    }
}

/// Parses a policy file in YAML or JSON. Returns all validation errors if the file is invalid.
pub(crate) fn parse(text: &str) -> Result<Vec<Policy>, Vec<String>> {
    // JSON is tried first, because JSON's surrogate pairs are not valid in YAML. Both parsers reject duplicate fields.
    let document: serde_yaml_ng::Value = serde_json::from_str(text)
        .or_else(|_| serde_yaml_ng::from_str(text))
        .map_err(|error| vec![format!("it is neither YAML nor JSON: {error}")])?;
    let document = serde_json::to_value(document).map_err(|error| vec![format!("it has no JSON form: {error}")])?;
    let mut read = Reader::default();
    let policies = read.document(&document);
    if read.problems.is_empty() {
        Ok(policies)
    } else {
        Err(read.problems)
    }
}

/// Parses the file, and collects the validation errors as `path: error`.
#[derive(Default)]
struct Reader {
    problems: Vec<String>,
}

impl Reader {
    fn add_error(&mut self, at: &str, message: &str) {
        self.problems.push(format!("{at}: {message}"));
    }

    /// Returns the fields of an object. Reports unknown fields as errors.
    fn members<'a>(&mut self, at: &str, value: &'a Value, known_fields: &[&str]) -> Option<&'a Map<String, Value>> {
        let Some(fields) = value.as_object() else {
            self.add_error(at, "must be a mapping");
            return None;
        };
        for name in fields.keys().filter(|name| !known_fields.contains(&name.as_str())) {
            self.add_error(&format!("{at}/{name}"), "is no member; there are ");
            if let Some(message) = self.problems.last_mut() {
                message.push_str(&known_fields.join(", "));
            }
        }
        Some(fields)
    }

    fn text(&mut self, at: &str, value: &Value) -> String {
        if let Some(text) = value.as_str().filter(|text| !text.trim().is_empty()) {
            return text.to_owned();
        }
        self.add_error(at, "must be a text: put it into quotation marks if it is one");
        String::new()
    }

    fn document(&mut self, document: &Value) -> Vec<Policy> {
        let Some(fields) = self.members("", document, &["version", "policies"]) else {
            return vec![];
        };
        if fields.get("version") != Some(&json!(VERSION)) {
            self.add_error("/version", "must be 1");
        }
        let Some(list) = fields.get("policies").and_then(Value::as_array) else {
            self.add_error("/policies", "must be a list");
            return vec![];
        };
        let (mut policies, mut names) = (Vec::new(), BTreeSet::new());
        for (index, policy) in list.iter().enumerate() {
            let at = format!("/policies/{index}");
            let Some(policy) = self.policy(&at, policy) else {
                continue;
            };
            if !names.insert(policy.name.clone()) {
                self.add_error(&format!("{at}/name"), "is the name of another policy, too");
            }
            policies.push(policy);
        }
        policies
    }

    fn policy(&mut self, at: &str, policy: &Value) -> Option<Policy> {
        let fields = self.members(at, policy, &["name", "agents", "services", "rules"])?;
        let name = fields.get("name").unwrap_or(&Value::Null);
        let name = self.text(&format!("{at}/name"), name);
        let agents = fields.get("agents").unwrap_or(&Value::Null);
        let agents = self.selector(&format!("{at}/agents"), agents);
        let services = match fields.get("services") {
            None => BTreeMap::new(),
            Some(services) => self.services(&format!("{at}/services"), services),
        };
        let rules = fields
            .get("rules")
            .map(|rules| self.rules(&format!("{at}/rules"), rules));
        Some(Policy {
            name,
            agents: agents?,
            services,
            rules,
        })
    }

    fn selector(&mut self, at: &str, selector: &Value) -> Option<Selector> {
        let fields = self.members(at, selector, &["all", "ids", "names", "labels"])?;
        let mut item = fields.iter();
        let (Some((name, value)), None) = (item.next(), item.next()) else {
            self.add_error(at, "must have one member of all, ids, names, labels");
            return None;
        };
        let at = format!("{at}/{name}");
        match (name.as_str(), value) {
            ("all", Value::Bool(true)) => Some(Selector::All),
            ("ids", Value::Array(ids)) if !ids.is_empty() => {
                let ids = ids.iter().map(|id| self.text(&at, id).to_ascii_lowercase());
                Some(Selector::Ids(ids.collect()))
            }
            ("names", Value::Array(names)) if !names.is_empty() => {
                Some(Selector::Names(names.iter().map(|name| self.text(&at, name)).collect()))
            }
            ("labels", Value::Object(labels)) if !labels.is_empty() => {
                let mut pair =
                    |(key, value): (&String, &Value)| (key.clone(), self.text(&format!("{at}/{key}"), value));
                Some(Selector::Labels(labels.iter().map(&mut pair).collect()))
            }
            ("all", _) => {
                self.add_error(&at, "must be true");
                None
            }
            _ => {
                self.add_error(&at, "must name at least one");
                None
            }
        }
    }

    fn services(&mut self, at: &str, services: &Value) -> BTreeMap<Key, Limits> {
        let Some(services) = services.as_object() else {
            self.add_error(at, "must be a mapping");
            return BTreeMap::new();
        };
        let mut read = BTreeMap::new();
        for (name, limits) in services {
            let at = format!("{at}/{name}");
            let Some(limits) = limits.as_object() else {
                self.add_error(&at, "must be a mapping");
                continue;
            };
            let key = Key::parse(name);
            for (name, value) in limits {
                if let Some(error) = field_error(&key, name, value) {
                    self.add_error(&format!("{at}/{name}"), error);
                }
            }
            read.insert(key, limits.clone());
        }
        read
    }

    fn rules(&mut self, at: &str, rules: &Value) -> Vec<Value> {
        let Some(rules) = rules.as_array() else {
            self.add_error(at, "must be a list");
            return vec![];
        };
        if rules.len() > Agent::MAX_RULES {
            self.add_error(at, &format!("must have at most {} rules", Agent::MAX_RULES));
        }
        if rules.iter().filter(|rule| rule_kind(rule) == "anomaly_brake").count() > 1 {
            self.add_error(at, "must have at most one anomaly_brake");
        }
        for (index, rule) in rules.iter().enumerate() {
            let at = format!("{at}/{index}");
            if rule_kind(rule).is_empty() {
                self.add_error(&at, "must be a mapping with a kind");
            }
            for (name, value) in rule.as_object().into_iter().flatten() {
                if (name.ends_with("_units") || name.ends_with("_seconds")) && !(value.is_u64() || value.is_null()) {
                    self.add_error(&format!("{at}/{name}"), WHOLE);
                }
            }
        }
        rules.iter().map(rule_without_usage).collect()
    }
}

const WHOLE: &str = "must be a whole number without a sign, separators or a fraction";

/// Returns the validation error for a field that Purser would not report or would interpret differently.
fn field_error(key: &Key, name: &str, value: &Value) -> Option<&'static str> {
    match (name, value) {
        ("enabled", Value::Bool(true)) if !matches!(key, Key::Service(_)) => {
            Some("can be true only for one service: the other keys are for enabled services")
        }
        ("enabled", Value::Bool(_)) => None,
        ("enabled", _) => Some("must be true or false"),
        (_, Value::Null) if name != "enabled_operations" => Some("must have a value: leave it out to leave it alone"),
        (_, value) if name.ends_with("_units") && !value.is_u64() => Some(WHOLE),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
version: 1
policies:
  - name: research
    agents: {labels: {team: research, stage: "1"}}
    services:
      "*": {max_per_day_units: 3}
      category:ai: {max_per_day_units: 2, enabled: false}
      lab-search: {max_per_day_units: 1, enabled_operations: null, enabled: true}
    rules:
      - {kind: budget_limit, limit_units: 5, window_seconds: 3600, used_units: 1}
  - {name: all, agents: {all: true}}
"#;

    #[test]
    fn policy_files_can_be_yaml_or_json() {
        let policies = parse(GOOD).unwrap();
        let research = &policies[0];
        let labels = [("stage", "1"), ("team", "research")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(research.agents, Selector::Labels(labels.into()));
        let keys: Vec<String> = research.services.keys().map(ToString::to_string).collect();
        assert_eq!(keys, ["lab-search", "category:ai", "*"]);
        let rule = json!({"kind": "budget_limit", "limit_units": 5, "window_seconds": 3_600});
        assert_eq!(research.rules, Some(vec![rule]));
        assert_eq!((&policies[1].agents, &policies[1].rules), (&Selector::All, &None));

        // An exported policy file can be parsed again.
        let document = Document::new(&policies);
        for text in [
            serde_yaml_ng::to_string(&document).unwrap(),
            serde_json::to_string(&document).unwrap(),
        ] {
            assert_eq!(parse(&text).unwrap(), policies, "{text}");
        }
        // JSON escapes this character as a surrogate pair.
        let escaped = r#"{"version": 1, "policies": [{"name": "\ud83d\ude00", "agents": {"all": true}}]}"#;
        assert_eq!(parse(escaped).unwrap()[0].name, "\u{1f600}");
    }

    #[test]
    fn all_validation_errors_of_a_policy_file_are_reported() {
        let policy = |text: &str| format!("version: 1\npolicies:\n- {{name: a, agents: {{all: true}}, {text}}}");
        let agents = |text: &str| format!("version: 1\npolicies:\n- {{name: a, agents: {text}}}");
        let rows = [
            ("[", "neither YAML nor JSON"),
            ("version: 1\nversion: 1\npolicies: []", "duplicate"),
            (r#"{"version": 1, "policies": [], "policies": []}"#, "duplicate"),
            ("[]", ": must be a mapping"),
            ("version: 2\npolicies: []", "/version: must be 1"),
            ("version: 1", "/policies: must be a list"),
            (
                "version: 1\npolicies: [{agents: {all: true}}]",
                "/policies/0/name: must be a text",
            ),
            (
                "version: 1\npolicies: [{name: a}]",
                "/policies/0/agents: must be a mapping",
            ),
            (&agents("{}"), "/policies/0/agents: must have one member"),
            (
                &agents("{all: true, ids: [a]}"),
                "/policies/0/agents: must have one member",
            ),
            (&agents("{all: false}"), "/policies/0/agents/all: must be true"),
            (
                &agents("{labels: {}}"),
                "/policies/0/agents/labels: must name at least one",
            ),
            (
                &agents("{labels: {team: 7}}"),
                "/policies/0/agents/labels/team: must be a text",
            ),
            (
                &agents("{label: {team: a}}"),
                "/policies/0/agents/label: is no member; there are all, ids",
            ),
            (&policy("service: {}"), "/policies/0/service: is no member"),
            (&policy("services: []"), "/policies/0/services: must be a mapping"),
            (&policy("services: {a: 5}"), "/policies/0/services/a: must be a mapping"),
            (
                &policy("services: {a: {max_per_day_units: 1_000}}"),
                "/a/max_per_day_units: must be a whole number",
            ),
            (
                &policy("services: {a: {max_per_day_units: 1e3}}"),
                "/a/max_per_day_units: must be a whole number",
            ),
            (
                &policy("services: {a: {max_per_day_units: -1}}"),
                "/a/max_per_day_units: must be a whole number",
            ),
            (
                &policy("services: {a: {max_per_day_units: null}}"),
                "/a/max_per_day_units: must have a value",
            ),
            (
                &policy("services: {a: {enabled: 1}}"),
                "/a/enabled: must be true or false",
            ),
            (
                &policy("services: {'*': {enabled: true}}"),
                "/*/enabled: can be true only for one service",
            ),
            (&policy("rules: {}"), "/policies/0/rules: must be a list"),
            (
                &policy("rules: [{kind: anomaly_brake}, {kind: anomaly_brake}]"),
                "/policies/0/rules: must have at most one anomaly_brake",
            ),
            (
                &policy(&format!("rules: [{}]", "{kind: budget_limit}, ".repeat(51))),
                "/policies/0/rules: must have at most 50 rules",
            ),
            (
                &policy("rules: [{categories: [ai]}]"),
                "/policies/0/rules/0: must be a mapping with a kind",
            ),
            (
                &policy("rules: [{kind: x, limit_units: 1.5}]"),
                "/rules/0/limit_units: must be a whole number",
            ),
        ];
        for (text, problem) in rows {
            let told = parse(text).unwrap_err();
            assert!(
                told.iter().any(|one| one.contains(problem)),
                "{text}: {problem}: {told:?}"
            );
        }
        let twice = "version: 1\npolicies: [{name: a, agents: {all: true}}, {name: a, agents: {all: true}}, {x: 1}]";
        let told = parse(twice).unwrap_err();
        assert_eq!(told.len(), 4, "{told:?}");
        assert!(
            told[0].starts_with("/policies/1/name: is the name of another"),
            "{told:?}"
        );
    }
}
