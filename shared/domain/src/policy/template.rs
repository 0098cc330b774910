//! Policy templates: limits for services and rules that an owner names, and that agents follow.
//!
//! Applying a template to an agent is a three-way merge. The base is what the agent has from its template: the version
//! that was last applied to it, or what it started with. A limit that still has the base's value takes the new one. Any
//! other was set by a person: it is an override, which is kept or replaced as the caller says. So a repeated merge changes
//! nothing, and one that ended between two edits continues.

use crate::{
    Agent, Catalog, Category, EnabledService, OperationScope, PolicyChange, PolicyEdit, Problem, Rule, RuleId,
    RuleKind, RuleRefusal, Service, ServiceId, SpendPolicy, Timestamp, audit::changes::rule_kind_value,
    catalog::service::named,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;

/// The name of a template, unique among those of its owner.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TemplateName(String);

impl TemplateName {
    /// The maximum length, in characters.
    pub const MAX: usize = 50;
    /// The requirement of [`TemplateName::parse`], for the message of a problem.
    pub const FORM: &'static str =
        "must be 1 to 50 lower-case letters, digits, `-` and `_`, of which the first is a letter or a digit";

    /// Parses a name; `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let fits = text.len() <= Self::MAX
            && text.bytes().next().is_some_and(is_part)
            && text.bytes().all(|byte| is_part(byte) || byte == b'-' || byte == b'_');
        fits.then(|| Self(text.to_owned()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TemplateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The services that limits are for. The order is the precedence: the first kind that names a service decides alone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TemplateKey {
    /// One service, also a disabled one.
    Service(ServiceId),
    /// Every enabled service of this category.
    Category(Category),
    /// Every enabled service.
    Every,
}

impl TemplateKey {
    const CATEGORY: &'static str = "category:";
    const EVERY: &'static str = "*";

    /// Parses a key as it is stored; `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        match text.strip_prefix(Self::CATEGORY) {
            Some(category) => Category::from_name(category).map(Self::Category),
            None if text == Self::EVERY => Some(Self::Every),
            None => ServiceId::parse(text).map(Self::Service),
        }
    }

    /// The key that a person wrote: a slug or an id of a service in the catalog, `category:` with a category, or `*`.
    pub fn of(text: &str, catalog: &Catalog) -> Result<Self, String> {
        match text.strip_prefix(Self::CATEGORY) {
            Some(category) => Category::from_name(category)
                .map(Self::Category)
                .ok_or_else(|| format!("the category {}", Category::choices())),
            None if text == Self::EVERY => Ok(Self::Every),
            None => catalog
                .by_reference(text)
                .map(|service| Self::Service(service.id))
                .ok_or_else(|| {
                    "must be the slug or the id of a service in the catalog, `category:` and a category, or `*`"
                        .to_owned()
                }),
        }
    }

    /// The key for a person: with the slug of a service that is in the catalog.
    pub fn told(&self, catalog: &Catalog) -> String {
        match self {
            Self::Service(id) => catalog
                .by_id(*id)
                .map_or_else(|| id.to_string(), |service| service.slug.to_string()),
            Self::Category(_) | Self::Every => self.to_string(),
        }
    }
}

/// The stored form.
impl fmt::Display for TemplateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service(id) => id.fmt(f),
            Self::Category(category) => write!(f, "{}{}", Self::CATEGORY, category.name()),
            Self::Every => f.write_str(Self::EVERY),
        }
    }
}

/// The limits of a template. What is `None` or absent stays as an agent has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TemplateTerms {
    /// The limits of services.
    pub services: BTreeMap<TemplateKey, PolicyChange>,
    /// All rules of the agents.
    pub rules: Option<Vec<RuleKind>>,
}

/// A version of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyTemplate {
    /// Its name.
    pub name: TemplateName,
    /// Its version, which no other version of any template of the owner has.
    pub version: u64,
    /// The time of its last edit.
    pub edited_at: Timestamp,
    /// Its limits.
    pub terms: TemplateTerms,
}

/// The template that an agent follows, and which versions' limits the agent has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FollowedTemplate {
    /// The template's name.
    pub name: TemplateName,
    /// The version whose limits of services were applied last; `None` before the first time.
    pub applied: Option<u64>,
    /// The version whose rules were applied last.
    pub rules: Option<u64>,
    /// The versions whose application began since, and has not ended: some services may have their limits. The newest is
    /// last.
    pub begun: Vec<u64>,
}

impl FollowedTemplate {
    /// The maximum number of versions in `begun`.
    const MOST_BEGUN: usize = 4;

    /// A template of which nothing has been applied.
    pub const fn named(name: TemplateName) -> Self {
        Self {
            name,
            applied: None,
            rules: None,
            begun: Vec::new(),
        }
    }

    /// The template, with all limits of this version.
    pub const fn with(name: TemplateName, version: u64) -> Self {
        Self {
            name,
            applied: Some(version),
            rules: Some(version),
            begun: Vec::new(),
        }
    }

    /// The version of which the agent has all limits that are not overrides; `None` while one is being applied.
    pub fn version(&self) -> Option<u64> {
        self.applied
            .filter(|applied| self.begun.is_empty() && self.rules == Some(*applied))
    }

    /// The versions that a merge needs.
    pub fn bases(&self) -> impl Iterator<Item = u64> {
        self.applied
            .into_iter()
            .chain(self.rules)
            .chain(self.begun.iter().copied())
    }

    /// The template whose application to an agent that follows `before` begins.
    #[must_use]
    pub fn beginning(template: &PolicyTemplate, before: Option<&Self>) -> Self {
        let mut begun = before.map(|before| before.begun.clone()).unwrap_or_default();
        begun.retain(|version| *version != template.version);
        begun.push(template.version);
        while begun.len() > Self::MOST_BEGUN {
            begun.remove(0);
        }
        Self {
            name: template.name.clone(),
            applied: before.and_then(|before| before.applied),
            rules: before.and_then(|before| before.rules),
            begun,
        }
    }
}

/// An owner's templates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TemplateList {
    /// The number of edits of all templates, and so the newest version of a template. Zero if there never was one.
    pub version: u64,
    /// The template that new agents follow whose creator names no limits.
    pub default: Option<TemplateName>,
    /// The templates, by name.
    pub entries: BTreeMap<TemplateName, TemplateEntry>,
}

/// A template in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TemplateEntry {
    /// The current version.
    pub version: u64,
    /// The time of the last edit.
    pub edited_at: Timestamp,
}

impl TemplateList {
    /// The maximum number of an owner's templates.
    pub const MOST: usize = 50;

    /// The list after an edit of a template, or with another one; `None` if there would be too many. `default` says
    /// whether it is the default; `None` leaves that as it is.
    pub fn with(&self, name: &TemplateName, is_edited: bool, default: Option<bool>, at: Timestamp) -> Option<Self> {
        let version = self.version.saturating_add(1);
        let mut entries = self.entries.clone();
        if is_edited || !entries.contains_key(name) {
            entries.insert(name.clone(), TemplateEntry { version, edited_at: at });
        }
        let is_default = self.default.as_ref() == Some(name);
        let default = match default {
            Some(true) => Some(name.clone()),
            Some(false) if is_default => None,
            _ => self.default.clone(),
        };
        (entries.len() <= Self::MOST).then_some(Self {
            version,
            default,
            entries,
        })
    }

    /// The list without a template.
    #[must_use]
    pub fn without(&self, name: &TemplateName) -> Self {
        let mut entries = self.entries.clone();
        entries.remove(name);
        Self {
            version: self.version.saturating_add(1),
            default: self.default.clone().filter(|default| default != name),
            entries,
        }
    }
}

named! {
    /// What applying a template does with limits that a person set.
    Overrides {
        /// They stay.
        Keep = "keep",
        /// The template's limits replace them.
        Overwrite = "overwrite",
    }
}

impl TemplateTerms {
    /// The maximum number of keys.
    pub const MOST_KEYS: usize = 200;
    /// The maximum length of its JSON, in bytes: an item may have 400 KB.
    pub const MOST_BYTES: usize = 100_000;

    /// The limits that an agent has. Those that most of its enabled services have are for every service.
    pub fn of_agent(policies: &[EnabledService], rules: &[Rule]) -> Self {
        let whole = |policy: &SpendPolicy| PolicyEdit {
            max_per_call: Some(policy.max_per_call),
            max_per_day: Some(policy.max_per_day),
            require_approval_above: Some(policy.require_approval_above),
            enabled_operations: Some(match &policy.enabled_operations {
                None => OperationScope::All,
                Some(operations) => OperationScope::Only(operations.clone()),
            }),
            allowed_domains: Some(policy.allowed_domains.clone()),
        };
        let enabled = || policies.iter().filter(|record| record.enabled);
        // Operations are those of one service.
        let shared = enabled().filter(|record| record.policy.enabled_operations.is_none());
        let count = |edit: &PolicyEdit| enabled().filter(|record| whole(&record.policy) == *edit).count();
        let shared = shared.map(|record| whole(&record.policy)).max_by_key(count);
        let of_one = policies.iter().filter_map(|record| {
            let policy = whole(&record.policy);
            let is_shared = record.enabled && shared.as_ref() == Some(&policy);
            let change = PolicyChange {
                enabled: (!record.enabled).then_some(false),
                policy,
            };
            (!is_shared).then_some((TemplateKey::Service(record.service), change))
        });
        let mut services: BTreeMap<_, _> = of_one.collect();
        services.extend(shared.clone().map(|policy| {
            let enabled = None;
            (TemplateKey::Every, PolicyChange { enabled, policy })
        }));
        Self {
            services,
            rules: Some(rules.iter().map(|rule| rule.kind.clone()).collect()),
        }
    }

    /// The limits for a service: those of the first kind of key that names it. A service that left the catalog has no
    /// category.
    pub fn of_service(&self, id: ServiceId, category: Option<Category>) -> Option<(&TemplateKey, &PolicyChange)> {
        let keys = [
            Some(TemplateKey::Service(id)),
            category.map(TemplateKey::Category),
            Some(TemplateKey::Every),
        ];
        keys.into_iter()
            .flatten()
            .find_map(|key| self.services.get_key_value(&key))
    }

    /// The limits of these enabled services that are not the permissive ones, each with its services.
    pub fn starting_changes<'a>(
        &self,
        services: impl IntoIterator<Item = &'a Service>,
    ) -> Vec<(PolicyChange, Vec<ServiceId>)> {
        let mut by_key: BTreeMap<&TemplateKey, (PolicyChange, Vec<ServiceId>)> = BTreeMap::new();
        for service in services {
            if let Some((key, change)) = self.of_service(service.id, Some(service.category)) {
                by_key
                    .entry(key)
                    .or_insert_with(|| (change.clone(), Vec::new()))
                    .1
                    .push(service.id);
            }
        }
        by_key.into_values().collect()
    }

    /// The problems of the limits of one key, each at its JSON Pointer in them.
    pub fn problems_of(key: &TemplateKey, change: &PolicyChange, catalog: &Catalog) -> Vec<Problem> {
        let service = match key {
            TemplateKey::Service(id) => catalog.by_id(*id),
            TemplateKey::Category(_) | TemplateKey::Every => None,
        };
        let mut problems = change.policy.problems(service);
        if change.enabled == Some(true) && !matches!(key, TemplateKey::Service(_)) {
            let message = "can be true only for one service: the other keys are for enabled services";
            problems.push(Problem::at("/enabled", message));
        }
        problems
    }

    /// The members in the audit log, and the form in which its size is measured.
    pub fn members(&self) -> Vec<(String, Value)> {
        let services = self
            .services
            .iter()
            .map(|(key, change)| (format!("services/{key}"), change_value(change)));
        let rules = self.rules.iter().flatten().zip(1_u32..);
        let rules = rules.map(|(kind, number)| (format!("rules/{number}"), rule_kind_value(kind)));
        let no_rules = self.rules.as_ref().filter(|rules| rules.is_empty());
        let no_rules = no_rules.map(|_| ("rules".to_owned(), json!([])));
        services.chain(rules).chain(no_rules).collect()
    }
}

/// The versions of templates that an agent's limits come from.
#[derive(Clone, Copy, Debug, Default)]
pub struct TemplateBases<'a> {
    /// Which versions.
    pub followed: Option<&'a FollowedTemplate>,
    /// Their limits.
    pub terms: Option<&'a BTreeMap<u64, TemplateTerms>>,
}

impl<'a> TemplateBases<'a> {
    fn of(&self, version: Option<u64>) -> Option<&'a TemplateTerms> {
        self.terms?.get(&version?)
    }

    fn applied(&self) -> Option<&'a TemplateTerms> {
        self.of(self.followed?.applied)
    }

    fn rules(&self) -> Option<&'a [RuleKind]> {
        self.of(self.followed?.rules)?.rules.as_deref()
    }

    fn begun(&self) -> impl Iterator<Item = &'a TemplateTerms> {
        let versions = self.followed.map_or(&[][..], |followed| &followed.begun);
        let of = |version: &u64| self.of(Some(*version));
        versions.iter().filter_map(of).collect::<Vec<_>>().into_iter()
    }
}

/// The names of a policy's members, in the order of [`values_of`].
const MEMBERS: [&str; 6] = [
    "enabled",
    "max_per_call_units",
    "max_per_day_units",
    "require_approval_above_units",
    "enabled_operations",
    "allowed_domains",
];

/// A limit of a service, or a rule, that differs from the template's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitDifference {
    /// The name of the policy's member; of a rule its kind.
    pub member: &'static str,
    /// The template's value; null for a rule that the template does not have.
    pub template: Value,
    /// The agent's value; null for a rule that the agent does not have, and without a policy.
    pub agent: Value,
    /// Whether a person set the agent's value.
    pub is_override: bool,
}

/// The differences of an agent's policy for one service from a template, and what a merge changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceMerge {
    /// The service.
    pub service: ServiceId,
    /// The present record; `None` for a service that the agent never had.
    pub present: Option<EnabledService>,
    /// What the merge changes.
    pub change: PolicyChange,
    /// The differences, overrides included.
    pub differences: Vec<LimitDifference>,
}

impl ServiceMerge {
    /// The record after the merge; `None` if that changes nothing.
    pub fn edited(&self) -> Option<EnabledService> {
        if self.change == PolicyChange::default() {
            return None;
        }
        let (version, enabled, policy) = match &self.present {
            Some(present) => (present.version, present.enabled, present.policy.clone()),
            None => (0, true, SpendPolicy::column_defaults()),
        };
        Some(EnabledService {
            service: self.service,
            version: version.saturating_add(1),
            enabled: self.change.enabled.unwrap_or(enabled),
            policy: policy.edited(&self.change.policy),
        })
    }
}

/// Merges a template's limits into an agent's policies, and returns the services that differ. `starting` are the policies
/// that the agent started with.
pub fn merge_services(
    template: &TemplateTerms,
    bases: TemplateBases<'_>,
    present: &[EnabledService],
    starting: impl Fn(ServiceId) -> Option<EnabledService>,
    catalog: &Catalog,
    overrides: Overrides,
) -> Vec<ServiceMerge> {
    let category = |id| catalog.by_id(id).map(|service| service.category);
    let is_open = |id| catalog.by_id(id).is_some_and(Service::is_open);
    let mut merges = Vec::new();
    for record in present {
        let id = record.service;
        let Some((key, change)) = template.of_service(id, category(id)) else {
            continue;
        };
        if !record.enabled && !matches!(key, TemplateKey::Service(_)) {
            continue;
        }
        let of = |base: &TemplateTerms| base.of_service(id, category(id)).map(|(_, change)| values_of(change));
        let applied = bases.applied().and_then(of).unwrap_or_default();
        let begun: Vec<_> = bases.begun().filter_map(of).collect();
        let started = starting(id).map(|record| values_of_record(&record));
        let own = values_of_record(record);
        let (mut taken, mut differences) = ([false; 6], Vec::new());
        for (index, (new, own)) in values_of(change).into_iter().zip(&own).enumerate() {
            let Some(new) = new.filter(|new| new != own) else {
                continue;
            };
            // A service that left the catalog can't be enabled again.
            if index == ENABLED && new == json!(true) && !is_open(id) {
                continue;
            }
            let value = |values: &[Option<Value>; 6]| values.get(index).cloned().flatten();
            let origin = value(&applied).or_else(|| started.as_ref()?.get(index).cloned());
            let is_template_s =
                origin.as_ref() == Some(own) || begun.iter().any(|base| value(base).as_ref() == Some(own));
            let is_wanted = is_template_s || overrides == Overrides::Overwrite;
            if let (Some(taken), Some(member)) = (taken.get_mut(index), MEMBERS.get(index)) {
                *taken = is_wanted;
                differences.push(LimitDifference {
                    member,
                    template: new,
                    agent: own.clone(),
                    is_override: !is_template_s,
                });
            }
        }
        if !differences.is_empty() {
            merges.push(ServiceMerge {
                service: id,
                present: Some(record.clone()),
                change: part_of(change, taken),
                differences,
            });
        }
    }
    let new = template.services.iter().filter_map(|(key, change)| match key {
        TemplateKey::Service(id) if change.enabled == Some(true) && is_open(*id) => Some((*id, change)),
        TemplateKey::Service(_) | TemplateKey::Category(_) | TemplateKey::Every => None,
    });
    let never_had = new.filter(|(id, _)| !present.iter().any(|record| record.service == *id));
    merges.extend(never_had.map(|(service, change)| {
        let values = values_of(change).into_iter().zip(MEMBERS);
        let differences = values.filter_map(|(value, member)| {
            Some(LimitDifference {
                member,
                template: value?,
                agent: Value::Null,
                is_override: false,
            })
        });
        ServiceMerge {
            service,
            present: None,
            change: change.clone(),
            differences: differences.collect(),
        }
    }));
    merges
}

/// Merges a template's rules into those of an agent, and returns the agent and the rules that differed. A template without
/// rules changes none.
///
/// A rule of the base corresponds to the equal rule of the template, or else to the next one of its kind, which replaces
/// it in place, so that its window stays. `ids` are for new rules, at most as many as the template has.
pub fn merge_rules(
    template: &TemplateTerms,
    bases: TemplateBases<'_>,
    agent: Agent,
    overrides: Overrides,
    ids: impl IntoIterator<Item = RuleId>,
) -> Result<(Agent, Vec<LimitDifference>), RuleRefusal> {
    let Some(rules) = &template.rules else {
        return Ok((agent, Vec::new()));
    };
    let mut own: Vec<(RuleId, RuleKind)> = agent.rules.iter().map(|rule| (rule.id, rule.kind.clone())).collect();
    let mut new: Vec<RuleKind> = rules.clone();
    // Rules that the agent has as the template says them differ in nothing.
    own.retain(|(_, kind)| take(&mut new, |other| other == kind).is_none());
    // The base's rules that are left: those that the template changed or removed, or a person.
    let mut base: Vec<RuleKind> = bases.rules().unwrap_or_default().to_vec();
    for kind in rules {
        if !new.contains(kind) {
            take(&mut base, |other| other == kind);
        }
    }
    let (mut edits, mut differences) = (RuleEdits::default(), Vec::new());
    let difference = |template: Option<&RuleKind>, agent: Option<&RuleKind>, is_override| LimitDifference {
        member: template.or(agent).map_or("", RuleKind::name),
        template: template.map_or(Value::Null, rule_kind_value),
        agent: agent.map_or(Value::Null, rule_kind_value),
        is_override,
    };
    // Equal rules correspond before those of a kind.
    let mut pairs: Vec<(RuleKind, Option<RuleKind>)> = Vec::new();
    let mut changed = Vec::new();
    for kind in base {
        match take(&mut new, |other| *other == kind) {
            Some(same) => pairs.push((kind, Some(same))),
            None => changed.push(kind),
        }
    }
    for kind in changed {
        let next = take(&mut new, |other| other.name() == kind.name());
        pairs.push((kind, next));
    }
    let mut missing = Vec::new();
    for (kind, next) in pairs {
        let has = take(&mut own, |(_, own)| *own == kind);
        match (has, next) {
            (Some((id, own)), Some(next)) => {
                differences.push(difference(Some(&next), Some(&own), false));
                edits.changed.push((id, next));
            }
            (Some((id, own)), None) => {
                differences.push(difference(None, Some(&own), false));
                edits.removed.push(id);
            }
            // A person changed or removed it.
            (None, Some(next)) => missing.push(next),
            (None, None) => {}
        }
    }
    for next in missing {
        let theirs = take(&mut own, |(_, own)| own.name() == next.name());
        differences.push(difference(Some(&next), theirs.as_ref().map(|(_, own)| own), true));
        if overrides == Overrides::Overwrite {
            match theirs {
                Some((id, _)) => edits.changed.push((id, next)),
                None => edits.added.push(next),
            }
        }
    }
    for next in new {
        let theirs = take(&mut own, |(_, own)| next.is_replaced_by(own));
        differences.push(difference(
            Some(&next),
            theirs.as_ref().map(|(_, own)| own),
            theirs.is_some(),
        ));
        match (theirs, overrides) {
            (Some(_), Overrides::Keep) => {}
            (Some((id, _)), Overrides::Overwrite) => edits.changed.push((id, next)),
            (None, _) => edits.added.push(next),
        }
    }
    for (id, theirs) in own {
        differences.push(difference(None, Some(&theirs), true));
        if overrides == Overrides::Overwrite {
            edits.removed.push(id);
        }
    }
    Ok((edits.apply(agent, ids)?, differences))
}

/// The edits of an agent's rules.
#[derive(Default)]
struct RuleEdits {
    removed: Vec<RuleId>,
    changed: Vec<(RuleId, RuleKind)>,
    added: Vec<RuleKind>,
}

impl RuleEdits {
    /// Removes rules first, so that the limits of their number hold at each step.
    fn apply(self, mut agent: Agent, ids: impl IntoIterator<Item = RuleId>) -> Result<Agent, RuleRefusal> {
        for id in self.removed {
            agent = agent.without_rule(id)?;
        }
        for (id, kind) in self.changed {
            agent = agent.with_changed_rule(id, kind)?;
        }
        let mut ids = ids.into_iter();
        for kind in self.added {
            let id = ids.next().ok_or(RuleRefusal::TooMany)?;
            agent = agent.with_rule(id, kind)?;
        }
        Ok(agent)
    }
}

/// Removes and returns the first item that fits.
fn take<T>(items: &mut Vec<T>, fits: impl Fn(&T) -> bool) -> Option<T> {
    items.iter().position(fits).map(|place| items.remove(place))
}

/// The place of `enabled` in [`MEMBERS`].
const ENABLED: usize = 0;

/// The members of an edit as JSON, those left out that it does not change.
pub fn change_value(change: &PolicyChange) -> Value {
    let values = values_of(change).into_iter().zip(MEMBERS);
    let members = values.filter_map(|(value, name)| Some((name.to_owned(), value?)));
    Value::Object(members.collect())
}

/// The values of an edit, in the order of [`MEMBERS`]. Lists are sorted: their order has no meaning.
fn values_of(change: &PolicyChange) -> [Option<Value>; 6] {
    use crate::OperationScope::{All, Only};
    let PolicyChange { enabled, policy } = change;
    let units = |amount: Option<crate::Amount>| amount.map(|amount| json!(amount.units()));
    [
        enabled.map(Value::Bool),
        units(policy.max_per_call),
        units(policy.max_per_day),
        units(policy.require_approval_above),
        policy.enabled_operations.as_ref().map(|scope| match scope {
            All => Value::Null,
            Only(slugs) => sorted(slugs),
        }),
        policy.allowed_domains.as_deref().map(sorted),
    ]
}

/// The values of a record, likewise.
fn values_of_record(record: &EnabledService) -> [Value; 6] {
    let policy = &record.policy;
    [
        Value::Bool(record.enabled),
        json!(policy.max_per_call.units()),
        json!(policy.max_per_day.units()),
        json!(policy.require_approval_above.units()),
        policy.enabled_operations.as_deref().map_or(Value::Null, sorted),
        sorted(&policy.allowed_domains),
    ]
}

fn sorted<T: ToString>(items: &[T]) -> Value {
    let mut texts: Vec<String> = items.iter().map(ToString::to_string).collect();
    texts.sort_unstable();
    texts.dedup();
    json!(texts)
}

/// The members of an edit that are taken, in the order of [`MEMBERS`].
fn part_of(change: &PolicyChange, taken: [bool; 6]) -> PolicyChange {
    let [enabled, per_call, per_day, above, operations, domains] = taken;
    let PolicyChange {
        enabled: switch,
        policy,
    } = change.clone();
    PolicyChange {
        enabled: switch.filter(|_| enabled),
        policy: PolicyEdit {
            max_per_call: policy.max_per_call.filter(|_| per_call),
            max_per_day: policy.max_per_day.filter(|_| per_day),
            require_approval_above: policy.require_approval_above.filter(|_| above),
            enabled_operations: policy.enabled_operations.filter(|_| operations),
            allowed_domains: policy.allowed_domains.filter(|_| domains),
        },
    }
}
