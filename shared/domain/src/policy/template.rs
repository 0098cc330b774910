//! Policy templates: an owner's named limits for services and rules, which agents can follow.
//!
//! Applying a template to an agent is a three-way merge. The base is the part of the agent's limits that came from the
//! template: the version that was last applied, or the policies that the agent started with. A limit that still has the
//! base's value gets the new value. Any other limit was set by a user and counts as an override, which the caller
//! decides to keep or to overwrite. A repeated merge therefore changes nothing, and a merge that was interrupted
//! between two writes can be continued.

use crate::{
    Agent, Catalog, Category, EnabledService, OperationScope, OperationSlug, PolicyChange, PolicyUpdate, Rule, RuleId,
    RuleKind, RuleRejection, Service, ServiceId, SpendPolicy, Timestamp, ValidationError,
    audit::changes::rule_kind_audit_value, catalog::service::named, policy::spend_policy::take_unlisted,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;

/// The name of a policy template. Names are unique per owner.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TemplateName(String);

impl TemplateName {
    /// The maximum length, in characters.
    pub const MAX: usize = 50;
    /// The requirements of [`TemplateName::parse`], for validation errors.
    pub const FORM: &'static str =
        "must be 1 to 50 lower-case letters, digits, `-` and `_`, of which the first is a letter or a digit";

    /// Parses the name of a template. Returns `None` if the text does not meet the requirements in
    /// [`TemplateName::FORM`].
    pub fn parse(text: &str) -> Option<Self> {
        let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let fits = text.len() <= Self::MAX
            && text.bytes().next().is_some_and(is_part)
            && text.bytes().all(|byte| is_part(byte) || byte == b'-' || byte == b'_');
        fits.then(|| Self(text.to_owned()))
    }

    /// Returns the name: 1 to 50 lower-case letters, digits, `-` and `_`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TemplateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The services to which limits apply. Several keys can match a service. For each field, the first key that sets the
/// field decides; the order of the variants is the precedence.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TemplateKey {
    /// One service, even if it is disabled.
    Service(ServiceId),
    /// Every enabled service of this category.
    Category(Category),
    /// Every enabled service.
    Every,
}

impl TemplateKey {
    const CATEGORY: &'static str = "category:";
    const EVERY: &'static str = "*";

    /// Parses the stored form; `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        match text.strip_prefix(Self::CATEGORY) {
            Some(category) => Category::from_name(category).map(Self::Category),
            None if text == Self::EVERY => Some(Self::Every),
            None => ServiceId::parse(text).map(Self::Service),
        }
    }

    /// Parses a key from a user: the slug or id of a catalog service, `category:` and a category, or `*`.
    pub fn from_text(text: &str, catalog: &Catalog) -> Result<Self, String> {
        match text.strip_prefix(Self::CATEGORY) {
            Some(category) => Category::from_name(category)
                .map(Self::Category)
                .ok_or_else(|| format!("the category {}", Category::choices_message())),
            None if text == Self::EVERY => Ok(Self::Every),
            None => catalog
                .find_by_reference(text)
                .map(|service| Self::Service(service.id))
                .ok_or_else(|| {
                    "must be the slug or the id of a service in the catalog, `category:` and a category, or `*`"
                        .to_owned()
                }),
        }
    }

    /// Returns the key for display. A catalog service is displayed as its slug.
    pub fn describe(&self, catalog: &Catalog) -> String {
        match self {
            Self::Service(id) => catalog
                .find_by_id(*id)
                .map_or_else(|| id.to_string(), |service| service.slug.to_string()),
            Self::Category(_) | Self::Every => self.to_string(),
        }
    }
}

/// Writes the stored form.
impl fmt::Display for TemplateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service(id) => id.fmt(f),
            Self::Category(category) => write!(f, "{}{}", Self::CATEGORY, category.name()),
            Self::Every => f.write_str(Self::EVERY),
        }
    }
}

/// The limits in a template. If a field is `None` or absent, the agent's limit does not change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TemplateTerms {
    /// The limits for each key. A service can match several keys ([`TemplateTerms::limits_for_service`]).
    pub services: BTreeMap<TemplateKey, PolicyChange>,
    /// All rules of an agent.
    pub rules: Option<Vec<RuleKind>>,
}

/// A version of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyTemplate {
    /// The name, which is unique among the owner's templates.
    pub name: TemplateName,
    /// The template's version. Version numbers are unique among all templates of the owner.
    pub version: u64,
    /// The time of the last update.
    pub edited_at: Timestamp,
    /// The template's limits.
    pub terms: TemplateTerms,
}

/// The template that an agent follows, and the versions that were applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FollowedTemplate {
    /// The name of the template that the agent follows, among the owner's templates.
    pub name: TemplateName,
    /// The template version whose service limits were last applied to the agent; `None` if no version was applied.
    pub applied: Option<u64>,
    /// The template version whose rules were last applied to the agent; `None` if no rules were applied.
    pub rules: Option<u64>,
    /// The template versions that began to be applied after `applied` and are not completely applied yet, newest last.
    /// Some services may already have the limits of these versions.
    pub started_versions: Vec<u64>,
}

impl FollowedTemplate {
    /// The maximum number of template versions in `started_versions`.
    const MAX_BEGUN: usize = 4;

    /// Creates the record of a template that was not applied yet.
    pub const fn new(name: TemplateName) -> Self {
        Self {
            name,
            applied: None,
            rules: None,
            started_versions: Vec::new(),
        }
    }

    /// Creates the record of a template with a fully applied version.
    pub const fn fully_applied(name: TemplateName, version: u64) -> Self {
        Self {
            name,
            applied: Some(version),
            rules: Some(version),
            started_versions: Vec::new(),
        }
    }

    /// Returns the version that is fully applied, apart from overrides; `None` while a version is being applied.
    pub fn version(&self) -> Option<u64> {
        self.applied
            .filter(|applied| self.started_versions.is_empty() && self.rules == Some(*applied))
    }

    /// Returns the template versions that a merge needs as bases.
    pub fn merge_base_versions(&self) -> impl Iterator<Item = u64> {
        self.applied
            .into_iter()
            .chain(self.rules)
            .chain(self.started_versions.iter().copied())
    }

    /// Creates the record for the start of applying a template to an agent that follows `before`.
    #[must_use]
    pub fn begin_applying(template: &PolicyTemplate, before: Option<&Self>) -> Self {
        let mut begun = before.map(|before| before.started_versions.clone()).unwrap_or_default();
        begun.retain(|version| *version != template.version);
        begun.push(template.version);
        while begun.len() > Self::MAX_BEGUN {
            begun.remove(0);
        }
        Self {
            name: template.name.clone(),
            applied: before.and_then(|before| before.applied),
            rules: before.and_then(|before| before.rules),
            started_versions: begun,
        }
    }
}

/// An owner's templates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TemplateList {
    /// The version of the list, which each update of a template increments. It is also the newest version of a
    /// template. Zero if the owner never had a template.
    pub version: u64,
    /// The default template. New agents follow it if no limits are specified.
    pub default: Option<TemplateName>,
    /// The templates, by name.
    pub entries: BTreeMap<TemplateName, TemplateEntry>,
}

/// A template in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TemplateEntry {
    /// The template's current version.
    pub version: u64,
    /// The time of the last update.
    pub edited_at: Timestamp,
}

impl TemplateList {
    /// The maximum number of an owner's templates.
    pub const MAX: usize = 50;

    /// Returns the list after a template was updated or added; `None` if there would be too many templates. `default`
    /// sets whether the template is the default; `None` leaves the default unchanged.
    pub fn with_template(
        &self,
        name: &TemplateName,
        is_edited: bool,
        default: Option<bool>,
        at: Timestamp,
    ) -> Option<Self> {
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
        (entries.len() <= Self::MAX).then_some(Self {
            version,
            default,
            entries,
        })
    }

    /// Returns the next version of the list, without this template. If this template was the default, there is no
    /// default.
    #[must_use]
    pub fn without_template(&self, name: &TemplateName) -> Self {
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
    /// How applying a template treats limits that a user set.
    Overrides {
        /// The user's limits are kept.
        Keep = "keep",
        /// The template's limits replace the user's limits.
        Overwrite = "overwrite",
    }
}

impl TemplateTerms {
    /// The maximum number of keys for services.
    pub const MAX_KEYS: usize = 200;
    /// The maximum length of the limits as JSON, in bytes. A DynamoDB item may have 400 KB.
    pub const MAX_BYTES: usize = 100_000;

    /// Creates a template from an agent's limits. The most common limits of enabled services apply to every service.
    pub fn from_agent(policies: &[EnabledService], rules: &[Rule]) -> Self {
        let whole = |policy: &SpendPolicy| PolicyUpdate {
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
        // A list of operations belongs to one service, so it can't apply to every service.
        let shared = enabled().filter(|record| record.policy.enabled_operations.is_none());
        let count = |update: &PolicyUpdate| enabled().filter(|record| whole(&record.policy) == *update).count();
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

    /// Returns the limits for a service: the fields of all matching keys. The service's key overrides the category, and
    /// the category overrides `*`. The category and `*` match only a service that is enabled, or that the service's key
    /// enables. A service that left the catalog has no category.
    pub fn limits_for_service(
        &self,
        id: ServiceId,
        category: Option<Category>,
        is_enabled: bool,
    ) -> Option<PolicyChange> {
        let own = self.services.get(&TemplateKey::Service(id));
        let is_enabled = own.and_then(|own| own.enabled).unwrap_or(is_enabled);
        let general = [category.map(TemplateKey::Category), Some(TemplateKey::Every)];
        let general = general.into_iter().flatten().filter(|_| is_enabled);
        let general = general.filter_map(|key| self.services.get(&key));
        own.into_iter().chain(general).cloned().reduce(PolicyChange::or)
    }

    /// Returns the operations that left the catalog after the template was updated, by service. Applying the template
    /// skips these operations.
    pub fn unlisted_operations(&self, catalog: &Catalog) -> BTreeMap<ServiceId, Vec<OperationSlug>> {
        let services = self.services.iter().filter_map(|(key, change)| match key {
            TemplateKey::Service(id) => {
                let unlisted = change.policy.clone().take_unlisted_operations(catalog.find_by_id(*id));
                (!unlisted.is_empty()).then_some((*id, unlisted))
            }
            TemplateKey::Category(_) | TemplateKey::Every => None,
        });
        services.collect()
    }

    /// Returns the template's limits for the default services of a new agent, and groups the services that have the
    /// same limits. All default services are enabled. A service for which the template has no limits is omitted and
    /// keeps the permissive policy.
    pub fn policy_changes_with_services<'a>(
        &self,
        services: impl IntoIterator<Item = &'a Service>,
    ) -> Vec<(PolicyChange, Vec<ServiceId>)> {
        let mut changes: Vec<(PolicyChange, Vec<ServiceId>)> = Vec::new();
        for service in services {
            let Some(change) = self.limits_for_service(service.id, Some(service.category), true) else {
                continue;
            };
            let change = listed_part(&change, Some(service));
            match changes.iter_mut().find(|(known, _)| *known == change) {
                Some((_, services)) => services.push(service.id),
                None => changes.push((change, vec![service.id])),
            }
        }
        changes
    }

    /// Returns the validation errors of the limits that a template has for one key: a service, a category, or all
    /// services. Each error has a JSON Pointer.
    pub fn limit_errors(key: &TemplateKey, change: &PolicyChange, catalog: &Catalog) -> Vec<ValidationError> {
        let service = match key {
            TemplateKey::Service(id) => catalog.find_by_id(*id),
            TemplateKey::Category(_) | TemplateKey::Every => None,
        };
        let mut errors = change.policy.validation_errors(service);
        if change.enabled == Some(true) && !matches!(key, TemplateKey::Service(_)) {
            let message = "can be true only for one service: the other keys are for enabled services";
            errors.push(ValidationError::at_path("/enabled", message));
        }
        errors
    }

    /// Returns the limits as fields of an audit row. [`TemplateTerms::MAX_BYTES`] limits the size of these fields as
    /// JSON.
    pub fn audit_fields(&self) -> Vec<(String, Value)> {
        let services = self
            .services
            .iter()
            .map(|(key, change)| (format!("services/{key}"), policy_change_json(change)));
        let rules = self.rules.iter().flatten().zip(1_u32..);
        let rules = rules.map(|(kind, number)| (format!("rules/{number}"), rule_kind_audit_value(kind)));
        let no_rules = self.rules.as_ref().filter(|rules| rules.is_empty());
        let no_rules = no_rules.map(|_| ("rules".to_owned(), json!([])));
        services.chain(rules).chain(no_rules).collect()
    }
}

/// The template versions from which an agent's limits come.
#[derive(Clone, Copy, Debug, Default)]
pub struct TemplateBases<'a> {
    /// The template that the agent follows, and the template versions that were applied to the agent.
    pub followed_template: Option<&'a FollowedTemplate>,
    /// The limits of the template versions in `followed_template`, by version.
    pub terms: Option<&'a BTreeMap<u64, TemplateTerms>>,
}

impl<'a> TemplateBases<'a> {
    fn find_version(&self, version: Option<u64>) -> Option<&'a TemplateTerms> {
        self.terms?.get(&version?)
    }

    fn current_limits(&self) -> Option<&'a TemplateTerms> {
        self.find_version(self.followed_template?.applied)
    }

    fn current_rules(&self) -> Option<&'a [RuleKind]> {
        self.find_version(self.followed_template?.rules)?.rules.as_deref()
    }

    fn pending_versions(&self) -> impl Iterator<Item = &'a TemplateTerms> {
        let versions = self
            .followed_template
            .map_or(&[][..], |followed| &followed.started_versions);
        let of = |version: &u64| self.find_version(Some(*version));
        versions.iter().filter_map(of).collect::<Vec<_>>().into_iter()
    }
}

/// The names of a policy's fields, in the order of [`policy_change_field_values`].
const MEMBERS: [&str; 6] = [
    "enabled",
    "max_per_call_units",
    "max_per_day_units",
    "require_approval_above_units",
    "enabled_operations",
    "allowed_domains",
];

/// A policy field or a rule that differs from the template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitDifference {
    /// The name of the policy field, or the rule's kind.
    pub member: &'static str,
    /// The template's value of the policy field, or the template's rule. Null if the template does not have the rule.
    pub template: Value,
    /// The agent's value of the policy field, or the agent's rule. Null if the agent does not have the rule or has no
    /// policy.
    pub agent: Value,
    /// Whether a user set the agent's value.
    pub is_override: bool,
}

/// The differences between an agent's policy for one service and a template, and the changes of a merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceMerge {
    /// The service.
    pub service: ServiceId,
    /// The current record; `None` if the agent never had the service.
    pub present: Option<EnabledService>,
    /// The fields that the merge changes.
    pub change: PolicyChange,
    /// All differences, including overrides.
    pub differences: Vec<LimitDifference>,
}

impl ServiceMerge {
    /// Returns the record after the merge; `None` if the merge changes nothing.
    pub fn merged_policy(&self) -> Option<EnabledService> {
        if self.change == PolicyChange::default() {
            return None;
        }
        let (version, enabled, policy) = match &self.present {
            Some(current) => (current.version, current.enabled, current.policy.clone()),
            None => (0, true, SpendPolicy::spec_defaults()),
        };
        Some(EnabledService {
            service: self.service,
            version: version.saturating_add(1),
            enabled: self.change.enabled.unwrap_or(enabled),
            policy: policy.apply(&self.change.policy),
        })
    }
}

/// Returns the change without operations that left the catalog.
fn listed_part(change: &PolicyChange, service: Option<&Service>) -> PolicyChange {
    let mut change = change.clone();
    change.policy.take_unlisted_operations(service);
    change
}

/// Merges a template's limits into an agent's policies, and returns the services that differ. `default_policy` returns the
/// policy with which the agent started. Operations that left the catalog are removed from all limits, and do not count
/// as overrides.
pub fn merge_services(
    template: &TemplateTerms,
    bases: TemplateBases<'_>,
    current_policies: &[EnabledService],
    default_policy: impl Fn(ServiceId) -> Option<EnabledService>,
    catalog: &Catalog,
    overrides: Overrides,
) -> Vec<ServiceMerge> {
    let category = |id| catalog.find_by_id(id).map(|service| service.category);
    let is_open = |id| catalog.find_by_id(id).is_some_and(Service::is_open);
    let mut merges = Vec::new();
    for record in current_policies {
        let id = record.service;
        let of_service = |template: &TemplateTerms| template.limits_for_service(id, category(id), record.enabled);
        let Some(change) = of_service(template) else {
            continue;
        };
        let service = catalog.find_by_id(id);
        let change = listed_part(&change, service);
        let of = |base: &TemplateTerms| Some(policy_change_field_values(&listed_part(&of_service(base)?, service)));
        let listed = |record: &EnabledService| {
            let mut record = record.clone();
            if let Some(operations) = &mut record.policy.enabled_operations {
                take_unlisted(operations, service);
            }
            enabled_service_field_values(&record)
        };
        let applied = bases.current_limits().and_then(of).unwrap_or_default();
        let begun: Vec<_> = bases.pending_versions().filter_map(of).collect();
        let started = default_policy(id).map(|record| listed(&record));
        let values = policy_change_field_values(&change)
            .into_iter()
            .zip(enabled_service_field_values(record));
        let (mut taken, mut differences) = ([false; 6], Vec::new());
        for (index, ((new, own), listed)) in values.zip(listed(record)).enumerate() {
            let (own, listed) = (&own, &listed);
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
                origin.as_ref() == Some(listed) || begun.iter().any(|base| value(base).as_ref() == Some(listed));
            let is_wanted = is_template_s || overrides == Overrides::Overwrite;
            if let (Some(taken), Some(field)) = (taken.get_mut(index), MEMBERS.get(index)) {
                *taken = is_wanted;
                differences.push(LimitDifference {
                    member: field,
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
                change: select_fields(&change, taken),
                differences,
            });
        }
    }
    let new = template.services.iter().filter_map(|(key, change)| match key {
        TemplateKey::Service(id) if change.enabled == Some(true) && is_open(*id) => {
            Some((*id, template.limits_for_service(*id, category(*id), true)?))
        }
        TemplateKey::Service(_) | TemplateKey::Category(_) | TemplateKey::Every => None,
    });
    let never_had = new.filter(|(id, _)| !current_policies.iter().any(|record| record.service == *id));
    merges.extend(never_had.map(|(service, change)| {
        let change = listed_part(&change, catalog.find_by_id(service));
        let values = policy_change_field_values(&change).into_iter().zip(MEMBERS);
        let differences = values.filter_map(|(value, field)| {
            Some(LimitDifference {
                member: field,
                template: value?,
                agent: Value::Null,
                is_override: false,
            })
        });
        ServiceMerge {
            service,
            present: None,
            differences: differences.collect(),
            change,
        }
    }));
    merges
}

/// Merges a template's rules into an agent's rules. Returns the agent, and the differences between the agent's old
/// rules and the template's rules. A template without rules changes no rule.
///
/// The base is the template version that was applied to the agent before. A base rule is matched with the equal rule in
/// the template, or else with the template's next rule of the same kind. If the agent still has the base rule, the
/// matching rule replaces the base rule and keeps the id, so that the window is also kept. `ids` contains the ids of
/// new rules. At most as many ids are used as the template has rules.
pub fn merge_rules(
    template: &TemplateTerms,
    bases: TemplateBases<'_>,
    agent: Agent,
    overrides: Overrides,
    ids: impl IntoIterator<Item = RuleId>,
) -> Result<(Agent, Vec<LimitDifference>), RuleRejection> {
    let Some(rules) = &template.rules else {
        return Ok((agent, Vec::new()));
    };
    let mut own: Vec<(RuleId, RuleKind)> = agent.rules.iter().map(|rule| (rule.id, rule.kind.clone())).collect();
    let mut new: Vec<RuleKind> = rules.clone();
    // Rules that are equal to the template's rules need no change.
    own.retain(|(_, kind)| take_first_match(&mut new, |other| other == kind).is_none());
    // The rules of the template version that was applied last. After the loop, `base` contains only the rules that the
    // new version or a user changed or removed.
    let mut base: Vec<RuleKind> = bases.current_rules().unwrap_or_default().to_vec();
    for kind in rules {
        if !new.contains(kind) {
            take_first_match(&mut base, |other| other == kind);
        }
    }
    let (mut updates, mut differences) = (RuleUpdates::default(), Vec::new());
    let difference = |template: Option<&RuleKind>, agent: Option<&RuleKind>, is_override| LimitDifference {
        member: template.or(agent).map_or("", RuleKind::name),
        template: template.map_or(Value::Null, rule_kind_audit_value),
        agent: agent.map_or(Value::Null, rule_kind_audit_value),
        is_override,
    };
    // Equal rules are matched before rules of the same kind.
    let mut pairs: Vec<(RuleKind, Option<RuleKind>)> = Vec::new();
    let mut changed = Vec::new();
    for kind in base {
        match take_first_match(&mut new, |other| *other == kind) {
            Some(same) => pairs.push((kind, Some(same))),
            None => changed.push(kind),
        }
    }
    for kind in changed {
        let next = take_first_match(&mut new, |other| other.name() == kind.name());
        pairs.push((kind, next));
    }
    let mut missing = Vec::new();
    for (kind, next) in pairs {
        let has = take_first_match(&mut own, |(_, own)| *own == kind);
        match (has, next) {
            (Some((id, own)), Some(next)) => {
                differences.push(difference(Some(&next), Some(&own), false));
                updates.changed.push((id, next));
            }
            (Some((id, own)), None) => {
                differences.push(difference(None, Some(&own), false));
                updates.removed.push(id);
            }
            // A user changed or removed the rule that the agent had from an earlier template version. The loop below
            // uses `overrides` to decide whether the template's new rule is applied.
            (None, Some(next)) => missing.push(next),
            (None, None) => {}
        }
    }
    for next in missing {
        let theirs = take_first_match(&mut own, |(_, own)| own.name() == next.name());
        differences.push(difference(Some(&next), theirs.as_ref().map(|(_, own)| own), true));
        if overrides == Overrides::Overwrite {
            match theirs {
                Some((id, _)) => updates.changed.push((id, next)),
                None => updates.added.push(next),
            }
        }
    }
    for next in new {
        // If the agent's rule is weaker, it does not replace the template's rule, and the agent gets both. An agent has
        // at most one automatic freeze.
        let theirs = take_first_match(&mut own, |(_, own)| match overrides {
            Overrides::Keep if !matches!(own, RuleKind::AnomalyBrake(_)) => own.is_as_strict_as(&next),
            Overrides::Keep | Overrides::Overwrite => next.is_replaced_by(own),
        });
        differences.push(difference(
            Some(&next),
            theirs.as_ref().map(|(_, own)| own),
            theirs.is_some(),
        ));
        match (theirs, overrides) {
            (Some(_), Overrides::Keep) => {}
            (Some((id, _)), Overrides::Overwrite) => updates.changed.push((id, next)),
            (None, _) => updates.added.push(next),
        }
    }
    for (id, theirs) in own {
        differences.push(difference(None, Some(&theirs), true));
        if overrides == Overrides::Overwrite {
            updates.removed.push(id);
        }
    }
    Ok((updates.apply_to_agent(agent, ids)?, differences))
}

/// The changes to an agent's rules.
#[derive(Default)]
struct RuleUpdates {
    removed: Vec<RuleId>,
    changed: Vec<(RuleId, RuleKind)>,
    added: Vec<RuleKind>,
}

impl RuleUpdates {
    /// Applies the changes. Rules are removed first, so that the number of rules never exceeds the maximum.
    fn apply_to_agent(self, mut agent: Agent, ids: impl IntoIterator<Item = RuleId>) -> Result<Agent, RuleRejection> {
        for id in self.removed {
            agent = agent.without_rule(id)?;
        }
        for (id, kind) in self.changed {
            agent = agent.with_changed_rule(id, kind)?;
        }
        let mut ids = ids.into_iter();
        for kind in self.added {
            let id = ids.next().ok_or(RuleRejection::TooMany)?;
            agent = agent.with_rule(id, kind)?;
        }
        Ok(agent)
    }
}

/// Removes and returns the first item that matches.
fn take_first_match<T>(items: &mut Vec<T>, is_match: impl Fn(&T) -> bool) -> Option<T> {
    items.iter().position(is_match).map(|index| items.remove(index))
}

/// The index of `enabled` in [`MEMBERS`].
const ENABLED: usize = 0;

/// Returns the changed fields of a policy update as JSON.
pub fn policy_change_json(change: &PolicyChange) -> Value {
    let values = policy_change_field_values(change).into_iter().zip(MEMBERS);
    let fields = values.filter_map(|(value, name)| Some((name.to_owned(), value?)));
    Value::Object(fields.collect())
}

/// Returns the values of a policy update, in the order of [`MEMBERS`]. Lists are sorted, because their order has no
/// meaning.
fn policy_change_field_values(change: &PolicyChange) -> [Option<Value>; 6] {
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
            Only(slugs) => sorted_texts(slugs),
        }),
        policy.allowed_domains.as_deref().map(sorted_texts),
    ]
}

/// Returns the values of a record, in the order of [`MEMBERS`].
fn enabled_service_field_values(record: &EnabledService) -> [Value; 6] {
    let policy = &record.policy;
    [
        Value::Bool(record.enabled),
        json!(policy.max_per_call.units()),
        json!(policy.max_per_day.units()),
        json!(policy.require_approval_above.units()),
        policy.enabled_operations.as_deref().map_or(Value::Null, sorted_texts),
        sorted_texts(&policy.allowed_domains),
    ]
}

fn sorted_texts<T: ToString>(items: &[T]) -> Value {
    let mut texts: Vec<String> = items.iter().map(ToString::to_string).collect();
    texts.sort_unstable();
    texts.dedup();
    json!(texts)
}

/// Returns a policy update with only those fields for which `selected` is `true`. `selected` is in the order of [`MEMBERS`].
fn select_fields(change: &PolicyChange, selected: [bool; 6]) -> PolicyChange {
    let [enabled, per_call, per_day, above, operations, domains] = selected;
    let PolicyChange {
        enabled: switch,
        policy,
    } = change.clone();
    PolicyChange {
        enabled: switch.filter(|_| enabled),
        policy: PolicyUpdate {
            max_per_call: policy.max_per_call.filter(|_| per_call),
            max_per_day: policy.max_per_day.filter(|_| per_day),
            require_approval_above: policy.require_approval_above.filter(|_| above),
            enabled_operations: policy.enabled_operations.filter(|_| operations),
            allowed_domains: policy.allowed_domains.filter(|_| domains),
        },
    }
}
