//! Policy templates: an owner's named limits for services and rules, which agents can follow.
//!
//! Applying a template to an agent is a three-way merge. The base is what came from the template before, so any other
//! limit of the agent is a user's override. A repeated merge changes nothing, so an interrupted merge can be repeated.

use crate::{
    Agent, ApprovalException, AutomaticFreeze, Catalog, Category, EnabledService, OperationSlug, PolicyChange,
    PolicyUpdate, Rule, RuleId, RuleKind, RuleRejection, Service, ServiceId, SpendPolicy, Timestamp, ValidationError,
    audit::changes::rule_kind_json, catalog::service::named, policy::spend_policy::remove_unlisted_operations,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;

/// The name of a policy template. Names are unique per owner.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TemplateName(String);

impl TemplateName {
    /// The maximum length of a template's name, in characters.
    pub const MAX: usize = 50;
    /// The message of the validation error for an invalid name.
    pub const FORM: &'static str =
        "must be 1 to 50 lower-case letters, digits, `-` and `_`, of which the first is a letter or a digit";

    /// Parses a template's name. Returns `None` if the text does not meet [`TemplateName::FORM`].
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

/// The services to which a template's limits apply. If several keys match a service, the order of the variants is the
/// precedence for each field.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TemplateKey {
    /// One service, even if it is disabled.
    Service(ServiceId),
    /// Every enabled service of this category.
    Category(Category),
    /// Every service that is enabled for the agent.
    Every,
}

impl TemplateKey {
    const CATEGORY: &'static str = "category:";
    const EVERY: &'static str = "*";

    /// Parses the text that is stored for a key. Returns `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        match text.strip_prefix(Self::CATEGORY) {
            Some(category) => Category::from_name(category).map(Self::Category),
            None if text == Self::EVERY => Some(Self::Every),
            None => ServiceId::parse(text).map(Self::Service),
        }
    }

    /// Parses a key from a user: a service's slug or id, `category:` and a category, or `*`.
    pub fn from_text(text: &str, catalog: &Catalog) -> Result<Self, String> {
        match text.strip_prefix(Self::CATEGORY) {
            Some(category) => Category::from_name(category)
                .map(Self::Category)
                .ok_or_else(|| format!("the category {}", Category::allowed_names_message())),
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

    /// Returns the key for display, with the slug of a catalog service.
    pub fn describe(&self, catalog: &Catalog) -> String {
        match self {
            Self::Service(id) => catalog
                .find_by_id(*id)
                .map_or_else(|| id.to_string(), |service| service.slug.to_string()),
            Self::Category(_) | Self::Every => self.to_string(),
        }
    }
}

/// Writes the text that is stored for the key.
impl fmt::Display for TemplateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service(id) => id.fmt(f),
            Self::Category(category) => write!(f, "{}{}", Self::CATEGORY, category.name()),
            Self::Every => f.write_str(Self::EVERY),
        }
    }
}

/// The limits in a template. A field that is `None` or absent changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TemplateTerms {
    /// The limits for each key. Several keys can match a service ([`TemplateTerms::limits_for_service`]).
    pub services: BTreeMap<TemplateKey, PolicyChange>,
    /// The template's rules; `None` if the template does not change an agent's rules.
    pub rules: Option<Vec<RuleKind>>,
}

/// One version of an owner's policy template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyTemplate {
    /// The name, which is unique among the owner's templates.
    pub name: TemplateName,
    /// The template's version. Version numbers are unique among all templates of the owner.
    pub version: u64,
    /// The time at which the template was last updated.
    pub edited_at: Timestamp,
    /// The limits and rules in this version of the template.
    pub terms: TemplateTerms,
}

/// The template that an agent follows, and the versions that were applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FollowedTemplate {
    /// The template's name.
    pub name: TemplateName,
    /// The template version whose service limits were last applied; `None` if none were.
    pub applied: Option<u64>,
    /// The template version whose rules were last applied; `None` if none were.
    pub rules: Option<u64>,
    /// The template versions that are not completely applied yet, newest last. Some of the agent's services
    /// may already have the limits of these versions.
    pub started_versions: Vec<u64>,
}

impl FollowedTemplate {
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

    /// Returns the template version that is completely applied; `None` while a version is being applied.
    pub fn version(&self) -> Option<u64> {
        self.applied
            .filter(|applied| self.started_versions.is_empty() && self.rules == Some(*applied))
    }

    /// Returns the template versions that a merge needs as the base.
    pub fn base_versions_for_merge(&self) -> impl Iterator<Item = u64> {
        self.applied
            .into_iter()
            .chain(self.rules)
            .chain(self.started_versions.iter().copied())
    }

    /// Creates the record that is stored before `template` is applied. `before` is the agent's previous record.
    #[must_use]
    pub fn for_template_being_applied(template: &PolicyTemplate, before: Option<&Self>) -> Self {
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

/// The list of an owner's policy templates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TemplateList {
    /// The version of the list, which each template update increments. Zero if the owner never had a template.
    pub version: u64,
    /// The template that new agents follow unless their limits are specified.
    pub default: Option<TemplateName>,
    /// The owner's templates, by name.
    pub entries: BTreeMap<TemplateName, TemplateEntry>,
}

/// The version of a template, and the time of the template's last update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TemplateEntry {
    /// The template's current version.
    pub version: u64,
    /// The time at which the template was last updated.
    pub edited_at: Timestamp,
}

impl TemplateList {
    /// The maximum number of an owner's templates.
    pub const MAX: usize = 50;

    /// Returns the list with an updated or added template; `None` if there are too many. `default` makes or unmakes it
    /// the default template.
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

    /// Returns the next version of the list without this template. It is then no longer the default template.
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
    /// The maximum number of keys in `services`.
    pub const MAX_KEYS: usize = 200;
    /// The maximum length of the limits as JSON, in bytes. A DynamoDB item may have 400 KB.
    pub const MAX_BYTES: usize = 100_000;

    /// Creates a template from an agent's limits. The most common limits of enabled services become the limits for
    /// every service. Exceptions from approvals are omitted, because an exception is for one agent.
    pub fn from_agent_limits(policies: &[EnabledService], rules: &[Rule]) -> Self {
        let whole = |policy: &SpendPolicy| PolicyUpdate::from(policy.clone());
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
            rules: Some(
                rules
                    .iter()
                    .map(|rule| &rule.kind)
                    .filter(|kind| !kind.is_kind::<ApprovalException>())
                    .cloned()
                    .collect(),
            ),
        }
    }

    /// Returns the limits for a service. For each field, the service's own key comes first, then the category's key,
    /// then `*`. Categories and `*` match only services that are enabled, or that the service's own key enables.
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

    /// Returns the operations that left the catalog, by service. Applying the template skips them.
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

    /// Returns the limits for the default services of a new agent, grouped by equal limits. Services without limits in
    /// the template are omitted.
    pub fn policy_changes_with_services<'a>(
        &self,
        services: impl IntoIterator<Item = &'a Service>,
    ) -> Vec<(PolicyChange, Vec<ServiceId>)> {
        let mut changes: Vec<(PolicyChange, Vec<ServiceId>)> = Vec::new();
        for service in services {
            let Some(change) = self.limits_for_service(service.id, Some(service.category), true) else {
                continue;
            };
            let change = without_unlisted_operations(&change, Some(service));
            match changes.iter_mut().find(|(known, _)| *known == change) {
                Some((_, services)) => services.push(service.id),
                None => changes.push((change, vec![service.id])),
            }
        }
        changes
    }

    /// Returns the validation errors of the limits under one key, each with a JSON Pointer.
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

    /// Returns the limits as audit fields of at most [`TemplateTerms::MAX_BYTES`].
    pub fn audit_fields(&self) -> Vec<(String, Value)> {
        let services = self
            .services
            .iter()
            .map(|(key, change)| (format!("services/{key}"), policy_change_json(change)));
        let rules = self.rules.iter().flatten().zip(1_u32..);
        let rules = rules.map(|(kind, number)| (format!("rules/{number}"), rule_kind_json(kind)));
        let no_rules = self.rules.as_ref().filter(|rules| rules.is_empty());
        let no_rules = no_rules.map(|_| ("rules".to_owned(), json!([])));
        services.chain(rules).chain(no_rules).collect()
    }
}

/// The template versions from which an agent's limits may come.
#[derive(Clone, Copy, Debug, Default)]
pub struct TemplateBases<'a> {
    /// The template that the agent follows.
    pub followed_template: Option<&'a FollowedTemplate>,
    /// The limits of the versions in [`FollowedTemplate::base_versions_for_merge`].
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
    /// The template's value; null if the template has no such rule.
    pub template: Value,
    /// The agent's value; null if the agent has no such rule or policy.
    pub agent: Value,
    /// Whether a user set the agent's value.
    pub is_override: bool,
}

/// How an agent's policy for one service differs from a template, and the change that removes the differences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceMerge {
    /// The service whose policy differs from the template.
    pub service: ServiceId,
    /// The current record; `None` if the service was never enabled.
    pub present: Option<EnabledService>,
    /// The fields that the merge changes.
    pub change: PolicyChange,
    /// All differences, including overrides.
    pub differences: Vec<LimitDifference>,
}

impl ServiceMerge {
    /// Returns the record after the merge, with the current version; `None` if the merge changes nothing.
    pub fn merged_policy_if_changed(&self) -> Option<EnabledService> {
        let is_change = self.change != PolicyChange::default();
        is_change.then(|| self.change.apply(self.service, self.present.as_ref()))
    }
}

fn without_unlisted_operations(change: &PolicyChange, service: Option<&Service>) -> PolicyChange {
    let mut change = change.clone();
    change.policy.take_unlisted_operations(service);
    change
}

/// Merges a template into an agent's policies. Returns a merge for each service whose policy differs from the
/// template. `default_policy` returns a service's policy at the agent's creation.
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
        let change = without_unlisted_operations(&change, service);
        let of = |base: &TemplateTerms| {
            Some(policy_change_field_values(&without_unlisted_operations(
                &of_service(base)?,
                service,
            )))
        };
        let listed = |record: &EnabledService| {
            let mut record = record.clone();
            if let Some(operations) = &mut record.policy.enabled_operations {
                remove_unlisted_operations(operations, service);
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
            // A service that is not open can't be enabled.
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
        let change = without_unlisted_operations(&change, catalog.find_by_id(service));
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

/// Merges a template's rules into an agent's rules, and returns the agent and the differences. If
/// `template.rules` is `None`, nothing changes.
///
/// A rule that a user has not changed since the last applied template version is replaced by the new
/// version's rule of the same kind, or removed if there is none. A replaced rule keeps the id and the window,
/// unless `per_payee` changes. `ids` are ids for new rules.
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
    own.retain(|(_, kind)| take_first_match(&mut new, |other| other == kind).is_none());
    // After the loop, `base` contains only the rules that the new version or a user changed or removed.
    let mut base: Vec<RuleKind> = bases.current_rules().unwrap_or_default().to_vec();
    for kind in rules {
        if !new.contains(kind) {
            take_first_match(&mut base, |other| other == kind);
        }
    }
    let (mut updates, mut differences) = (RuleUpdates::default(), Vec::new());
    let difference = |template: Option<&RuleKind>, agent: Option<&RuleKind>, is_override| LimitDifference {
        member: template.or(agent).map_or("", RuleKind::name),
        template: template.map_or(Value::Null, rule_kind_json),
        agent: agent.map_or(Value::Null, rule_kind_json),
        is_override,
    };
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
            // A user changed or removed the rule of the earlier template version. The loop below decides whether the
            // new rule is applied.
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
        // A weaker rule of the agent is no override, so the template's rule is added. An automatic freeze is
        // an override even if it is weaker, because an agent has at most one.
        let theirs = take_first_match(&mut own, |(_, own)| match overrides {
            Overrides::Keep if !own.is_kind::<AutomaticFreeze>() => own.is_as_strict_as(&next),
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
        let mut ids = ids.into_iter();
        for (id, kind) in self.changed {
            agent = match agent.clone().with_changed_rule(id, kind.clone()) {
                // An update can't change `per_payee`, so a new rule with new windows replaces the rule.
                Err(RuleRejection::OtherKind) => {
                    let new_id = ids.next().ok_or(RuleRejection::TooMany)?;
                    agent.without_rule(id)?.with_rule(new_id, kind)?
                }
                changed => changed?,
            };
        }
        for kind in self.added {
            let id = ids.next().ok_or(RuleRejection::TooMany)?;
            agent = agent.with_rule(id, kind)?;
        }
        Ok(agent)
    }
}

fn take_first_match<T>(items: &mut Vec<T>, is_match: impl Fn(&T) -> bool) -> Option<T> {
    items.iter().position(is_match).map(|index| items.remove(index))
}

const ENABLED: usize = 0;

/// Returns the changed fields of a policy as JSON.
pub fn policy_change_json(change: &PolicyChange) -> Value {
    let values = policy_change_field_values(change).into_iter().zip(MEMBERS);
    let fields = values.filter_map(|(value, name)| Some((name.to_owned(), value?)));
    Value::Object(fields.collect())
}

/// Returns the values of a policy update in the order of [`MEMBERS`], with sorted lists.
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
            Only(slugs) => sorted_json_strings(slugs),
        }),
        policy.allowed_domains.as_deref().map(sorted_json_strings),
    ]
}

fn enabled_service_field_values(record: &EnabledService) -> [Value; 6] {
    let whole = PolicyChange {
        enabled: Some(record.enabled),
        policy: record.policy.clone().into(),
    };
    policy_change_field_values(&whole).map(Option::unwrap_or_default)
}

fn sorted_json_strings<T: ToString>(items: &[T]) -> Value {
    let mut texts: Vec<String> = items.iter().map(ToString::to_string).collect();
    texts.sort_unstable();
    texts.dedup();
    json!(texts)
}

/// Returns the update with only the fields that are `true` in `selected`, in the order of [`MEMBERS`].
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
