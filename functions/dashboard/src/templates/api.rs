//! JSON API under `/policy-templates`: a user's policy templates, and the agents that follow them.

use crate::agents::bulk::{BulkTarget, MAX_LIMITED};
use crate::agents::bulk_api::{BulkAgents, outcome_and_error, size_and_duplicate_errors};
use crate::agents::listing::AgentFilter;
use crate::backtests::api::{CandidateRules, parse_candidate_rules};
use crate::caller::Caller;
use crate::cursor;
use crate::preview::api::AskedApply;
use crate::preview::api::AskedReason;
use crate::request::{combine_results_and_errors, created_response};
use crate::rules::api::RuleBody;
use crate::services::api::policy;
use crate::state::PeopleState;
use crate::templates::apply::{ApplyResult, ApplyTo, TemplatePlan};
use crate::templates::operations::{OwnTemplate, TemplateUpdate};
use axum::Json;
use axum::http::Uri;
use axum::response::Response;
use purser_api::{
    Body, BodyPath, ErrorBody, Id, IfMatch, Member, Nullable, OptionalIfMatch, Parameters, Query, Reply, Schemas,
    ValidationErrors, VersionTag, endpoint, errors, view, with_etag,
};
use purser_domain::{
    AgentId, Amount, Catalog, DomainPattern, Error, ErrorKind, LimitDifference, OperationSlug, Overrides, PolicyChange,
    Result, RuleKind, TemplateKey, TemplateList, TemplateName, TemplateTerms, Timestamp, ValidationError,
    policy_change_json, rule_kind_json,
};
use purser_store::{AgentOrder, Page};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

purser_api::body! {
    /// A template's limits for one service, one category of services, or all services. If a field is absent, each agent
    /// keeps its own value.
    pub(crate) struct TemplateLimits {
        /// Whether the service is enabled. True is valid only if the key names a single service, because `category:`
        /// keys and `*` apply only to services that are already enabled.
        enabled: Option<bool>,
        max_per_call_units: Option<Amount>,
        max_per_day_units: Option<Amount>,
        require_approval_above_units: Option<Amount>,
        /// The slugs of the enabled operations. Only valid if the key names a single service. Null enables all
        /// operations.
        enabled_operations: Nullable<Vec<OperationSlug>> = {"uniqueItems": true},
        /// Allowed hosts: host names, globs, or `*` for any host.
        allowed_domains: Option<Vec<DomainPattern>> = {"type": "array", "maxItems": 100},
    }
}

impl From<TemplateLimits> for PolicyChange {
    fn from(limits: TemplateLimits) -> Self {
        Self {
            enabled: limits.enabled,
            policy: policy!(limits),
        }
    }
}

/// The limits by key, in the order of the request body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TemplateServices(Vec<(String, TemplateLimits)>);

impl Member for TemplateServices {
    fn read(value: &Value, path: BodyPath<'_>, errors: &mut ValidationErrors) -> Option<Self> {
        let fields = value
            .as_object()
            .filter(|fields| fields.len() <= TemplateTerms::MAX_KEYS);
        let Some(fields) = fields else {
            let message = format!("must be an object of at most {} members", TemplateTerms::MAX_KEYS);
            errors.add_at(path, message);
            return None;
        };
        let read = fields.iter().map(|(key, limits)| {
            let field_path = BodyPath::Member(&path, key);
            if limits.get("allowed_domains").is_some_and(Value::is_null) {
                errors.add_at(BodyPath::Member(&field_path, "allowed_domains"), "must not be null");
            }
            Some((key.clone(), TemplateLimits::read(limits, field_path, errors)?))
        });
        let read: Vec<_> = read.collect();
        read.into_iter().collect::<Option<_>>().map(Self)
    }

    fn describe(schemas: &mut Schemas) -> Value {
        json!({
            "type": "object",
            "maxProperties": TemplateTerms::MAX_KEYS,
            "additionalProperties": TemplateLimits::describe(schemas),
            "example": {"*": {"max_per_day_units": 10_000_000}},
        })
    }
}

purser_api::body! {
    /// The limits and rules of a policy template. They replace the limits and rules of an existing template.
    pub(crate) struct TemplateBody as "PolicyTemplateBody" {
        /// The limits of each service, category or all services. Each key is a service's slug or id, `category:`
        /// followed by a category, or `*`. If several keys match a service, their fields are merged: the service's own
        /// key takes precedence over the category, and the category over `*`. A category and `*` apply only to enabled
        /// services.
        services: Option<TemplateServices>,
        /// The rules, which replace each agent's rules. If absent, agents keep their rules.
        rules: Option<CandidateRules>,
        /// Whether new agents follow this template by default. If absent, the setting does not change. At most one
        /// template is the default.
        default: Option<bool>,
    }
}

pub(crate) fn parse_template(body: &Value, catalog: &Catalog) -> Result<TemplateUpdate> {
    let mut errors = ValidationErrors::default();
    let read = TemplateBody::read(body, BodyPath::Body, &mut errors).map(|read| {
        let mut services: BTreeMap<TemplateKey, PolicyChange> = BTreeMap::new();
        for (text, limits) in read.services.into_iter().flat_map(|services| services.0) {
            let all = BodyPath::Member(&BodyPath::Body, "services");
            let path = BodyPath::Member(&all, &text).to_string();
            let key = match TemplateKey::from_text(&text, catalog) {
                Ok(key) => key,
                Err(message) => {
                    errors.extend([ValidationError::at_path(path, message)]);
                    continue;
                }
            };
            let change = PolicyChange::from(limits);
            let found = TemplateTerms::limit_errors(&key, &change, catalog).into_iter();
            errors.extend(found.map(|error| ValidationError::at_path(format!("{path}{}", error.path), error.message)));
            if services.insert(key, change).is_some() {
                errors.extend([ValidationError::at_path(path, "names a service that another key names")]);
            }
        }
        let terms = TemplateTerms {
            services,
            rules: read
                .rules
                .map(|rules| parse_candidate_rules(rules, catalog, &mut errors)),
        };
        let of_one_agent = terms.rules.iter().flatten().enumerate();
        errors.extend(of_one_agent.filter_map(|(index, rule)| {
            let (field, message) = match rule {
                RuleKind::ApprovalException(_) => {
                    ("kind", "must be another kind, because an exception is for one agent")
                }
                _ if rule.scope().keys.is_some() => ("keys", "must be absent, because keys belong to one agent"),
                _ => return None,
            };
            Some(ValidationError::at_path(format!("/rules/{index}/{field}"), message))
        }));
        let fields: Map<String, Value> = terms.audit_fields().into_iter().collect();
        let size = Value::Object(fields).to_string().len();
        if size > TemplateTerms::MAX_BYTES {
            let message = format!("must have at most {} bytes of JSON", TemplateTerms::MAX_BYTES);
            errors.extend([ValidationError::at_path("", message)]);
        }
        TemplateUpdate {
            terms,
            default: read.default,
        }
    });
    errors.finish(read)
}

purser_api::body! {
    /// The agents to apply a template to, and whether overrides are kept.
    pub(crate) struct ApplyBody as "ApplyTemplateBody" {
        /// Up to 25 agents. The default is all agents that follow the template. A listed agent that does not follow the
        /// template has the outcome `failed`, except in a preview.
        agents: Option<BulkAgents>,
        /// What happens to limits that a user set on an agent: `keep` (the default) or `overwrite`.
        overrides: Option<Overrides>,
    }
}

fn parse_apply_request(body: &Value) -> Result<(BulkTarget, Overrides)> {
    let read = ApplyBody::parse(body)?;
    let target = read.agents.map_or(
        BulkTarget::All {
            label: None,
            from: None,
        },
        BulkTarget::from,
    );
    if let BulkTarget::Agents(ids) = &target {
        let errors = size_and_duplicate_errors("/agents/ids", ids, MAX_LIMITED);
        if !errors.is_empty() {
            return Err(Error::invalid(errors));
        }
    }
    Ok((target, read.overrides.unwrap_or(Overrides::Keep)))
}

purser_api::views! {
    /// A named set of limits and rules that several agents can follow.
    pub(crate) struct TemplateView as PolicyTemplate {
        pub(crate) fn new(owned_template: &OwnTemplate, catalog: &Catalog);
        let template = &owned_template.template;

        #[schema(example = "research")]
        name: String = template.name.to_string(),
        /// The template's version. Send it in `If-Match`. Each update increases the version. A version is never reused,
        /// not even by another template.
        version: u64 = template.version,
        edited_at: Timestamp = template.edited_at,
        /// Whether new agents follow this template by default.
        default: bool = owned_template.is_default,
        /// The limits of each service, category or all services. Each key is a service's slug, `category:` followed by
        /// a category, or `*`. If a service left the catalog, its key is the service's UUID.
        #[schema(value_type = BTreeMap<String, TemplateLimits>)]
        services: Map<String, Value> = services_json(&template.terms, catalog),
        /// The rules, which replace each agent's rules. Null if agents keep their rules.
        #[schema(value_type = Option<Vec<RuleBody>>)]
        rules: Option<Vec<Value>> = rules_json(&template.terms),
    }
}

fn services_json(terms: &TemplateTerms, catalog: &Catalog) -> Map<String, Value> {
    let services = terms.services.iter();
    services
        .map(|(key, change)| (key.describe(catalog), policy_change_json(change)))
        .collect()
}

fn rules_json(terms: &TemplateTerms) -> Option<Vec<Value>> {
    let rules = terms.rules.as_ref()?;
    Some(rules.iter().map(rule_kind_json).collect())
}

/// Formats the limits as a request body, which the user can edit in the form.
pub(crate) fn editable_limits_json(terms: &TemplateTerms, is_default: bool, catalog: &Catalog) -> String {
    let mut body = json!({"services": services_json(terms, catalog), "default": is_default});
    if let (Some(fields), Some(rules)) = (body.as_object_mut(), rules_json(terms)) {
        fields.insert("rules".to_owned(), rules.into());
    }
    format!("{body:#}")
}

impl TemplateView {
    fn into_http_response(self) -> Response {
        with_etag(self.version, Json(self))
    }
}

purser_api::views! {
    /// The user's policy templates, sorted by name.
    pub(crate) struct TemplateListView as PolicyTemplateList {
        fn from(list: &TemplateList);
        let rows = list.entries.iter().map(|(name, entry)| TemplateRow {
            name: name.to_string(),
            version: entry.version,
            edited_at: entry.edited_at,
            default: list.default.as_ref() == Some(name),
        });

        templates: Vec<TemplateRow> = rows.collect(),
        /// The number of templates in this response.
        count: usize = list.entries.len(),
    }
}

/// A policy template without its limits and rules, as the list of policy templates contains it.
#[view(ListedPolicyTemplate)]
pub(crate) struct TemplateRow {
    #[schema(example = "research")]
    name: String,
    version: u64,
    edited_at: Timestamp,
    /// Whether new agents follow this template by default.
    default: bool,
}

/// The name of the policy template that was removed.
#[view(RemovedPolicyTemplate)]
pub(crate) struct RemovedTemplate {
    #[schema(example = "research")]
    name: String,
}

/// An agent's limit or rule that differs from the template.
#[view(TemplateDifference)]
pub(crate) struct DifferenceView {
    /// The service's slug, or its id if the service has left the catalog. Null for a rule.
    service: Option<String>,
    /// The policy field, or the rule's kind.
    #[schema(value_type = String, example = "max_per_day_units")]
    member: &'static str,
    /// The template's value of the field or rule that `member` names. Null for a rule that only the agent has.
    template: Value,
    /// The agent's value of the field or rule that `member` names. Null for a rule that only the template has, and for
    /// a service that was never enabled for the agent.
    agent: Value,
    /// Whether a user set the agent's value. If so, applying the template keeps the value unless `overrides` is
    /// `overwrite`.
    #[serde(rename = "override")]
    is_override: bool,
}

/// Lists the differences between the agent's and the template's limits, services first.
pub(crate) fn difference_views(plan: &TemplatePlan, catalog: &Catalog) -> Vec<DifferenceView> {
    let view = |service: Option<String>, difference: &LimitDifference| DifferenceView {
        service,
        member: difference.member,
        template: difference.template.clone(),
        agent: difference.agent.clone(),
        is_override: difference.is_override,
    };
    let mut views: Vec<DifferenceView> = plan
        .services
        .iter()
        .flat_map(|merge| {
            let service = TemplateKey::Service(merge.service).describe(catalog);
            merge
                .differences
                .iter()
                .map(move |difference| view(Some(service.clone()), difference))
        })
        .collect();
    views.sort_by(|a, b| a.service.cmp(&b.service));
    views.extend(plan.rules.iter().map(|difference| view(None, difference)));
    views
}

/// The agents that follow a policy template, oldest first.
#[view(TemplateFollowers)]
pub(crate) struct FollowersView {
    agents: Vec<FollowerView>,
    /// The number of agents in this response. A page can have fewer agents than `limit` although more pages follow.
    count: usize,
    /// The `cursor` of the next page. Null on the last page.
    next_cursor: Option<String>,
}

/// An agent that follows a policy template.
#[view(TemplateFollower)]
pub(crate) struct FollowerView {
    agent_id: AgentId,
    name: String,
    /// The template version that was last applied to the agent. Null while a version is being applied.
    version: Option<u64>,
    /// The agent's limits that differ from the template.
    differences: Vec<DifferenceView>,
}

/// The result for each agent that the template was applied to.
#[view(AppliedTemplate)]
pub(crate) struct AppliedView {
    /// Whether this is a preview, which saves nothing.
    preview: bool,
    /// One result per agent, in the order of `ids`, or oldest agent first.
    results: Vec<AppliedRow>,
    /// The operations in the template that are no longer in the catalog. The template is applied without these
    /// operations.
    unlisted_operations: Vec<UnlistedOperationsView>,
    /// The number of agents in this response.
    count: usize,
    /// The cursor for the remaining agents. Repeat the call with this `cursor`. Null if no agents remain.
    next_cursor: Option<String>,
}

/// Operations that are no longer in the catalog.
#[view]
pub(crate) struct UnlistedOperationsView {
    /// The service's slug, or the id of a service that left the catalog.
    service: String,
    operations: Vec<String>,
}

impl UnlistedOperationsView {
    fn list(terms: &TemplateTerms, catalog: &Catalog) -> Vec<Self> {
        let unlisted = terms.unlisted_operations(catalog).into_iter();
        let views = unlisted.map(|(service, operations)| Self {
            service: TemplateKey::Service(service).describe(catalog),
            operations: operations.iter().map(ToString::to_string).collect(),
        });
        views.collect()
    }
}

purser_api::views! {
    /// The result of applying a policy template to one agent.
    pub(crate) struct AppliedRow as AppliedTemplateResult {
        fn new(result: &ApplyResult, catalog: &Catalog);
        let (outcome, error) = outcome_and_error(&result.outcome);
        let direction = result.plan.as_ref().map(|plan| plan.direction).unwrap_or_default();

        agent_id: AgentId = result.agent,
        /// `done`, `unchanged` if the agent already had the template's limits, or `failed`. In a preview, `done` means
        /// that limits would change.
        #[schema(value_type = String, example = "done")]
        outcome: &'static str,
        /// Why the template was not applied. Null if the template was applied.
        error: Option<ErrorBody>,
        /// Whether the changes may allow payments that were blocked or required approval. If so, the changes require a
        /// recent sign-in.
        widens: bool = direction.widens,
        /// Whether the changes may block or require approval for payments that were allowed.
        narrows: bool = direction.narrows,
        /// The limits that differed from the template before the template was applied.
        differences: Vec<DifferenceView> = result
            .plan
            .as_ref()
            .map(|plan| difference_views(plan, catalog))
            .unwrap_or_default(),
    }
}

/// List your policy templates.
#[endpoint(
    get "/policy-templates", operation_id = "list_policy_templates",
    returns = "All of your policy templates, sorted by name. You can have at most 50."
)]
pub(crate) async fn list_templates(people: PeopleState, user: Caller) -> Reply<Json<TemplateListView>> {
    Ok(Json((&people.list_templates(&user).await?).into()))
}

/// Read a policy template.
#[endpoint(
    get "/policy-templates/{templateName}", operation_id = "read_policy_template", body = TemplateView,
    returns = "The template.", etag = "template"
)]
pub(crate) async fn read_template(people: PeopleState, user: Caller, Id(name): Id<TemplateName>) -> Reply {
    let own = people.read_template(&user, &name).await?;
    let edition = people.current_catalog().await?;
    Ok(TemplateView::new(&own, &edition.catalog).into_http_response())
}

/// Create a policy template, or replace an existing template's limits.
///
/// Agents keep their limits until you apply the template.
#[endpoint(
    put "/policy-templates/{templateName}", operation_id = "put_policy_template",
    params(
        ("templateName" = String, Path, pattern = "^[a-z0-9][a-z0-9_-]{0,49}$", description = "The name of the template."),
        ("If-Match" = inline(Option<VersionTag>), Header, nullable = false, description = "The template's version in quotation marks, or `*` for any version. Required to replace an existing template. To create a template, omit the header or send `\"0\"`."),
    ),
    responses(
        (status = 201, body = TemplateView, description = "The new template.", headers(("ETag" = String, description = "The template's version. Send it in `If-Match` with the next update."))),
        (status = 200, body = TemplateView, description = "The updated template.", headers(("ETag" = String, description = "The template's version. Send it in `If-Match` with the next update."))),
        errors::VersionRequired,
    )
)]
pub(crate) async fn put_template(
    people: PeopleState,
    mut user: Caller,
    Id(name): Id<TemplateName>,
    OptionalIfMatch(if_match): OptionalIfMatch,
    reason: Parameters<AskedReason>,
    body: Body<TemplateBody>,
) -> Reply {
    let edition = people.current_catalog().await?;
    let update = body.json().and_then(|body| parse_template(&body, &edition.catalog));
    let update = combine_results_and_errors(update, reason.0);
    let if_match = match if_match.into_precondition() {
        Ok(if_match) => Ok(Some(if_match)),
        Err(error) if matches!(error.kind(), ErrorKind::VersionRequired) => Ok(None),
        Err(error) => Err(error),
    };
    let ((update, reason), if_match) = combine_results_and_errors(update, if_match)?;
    user.acting.source.reason = reason.edit_reason;
    let (own, is_new) = Box::pin(people.put_template(&user, &name, if_match, &update)).await?;
    let response = TemplateView::new(&own, &edition.catalog).into_http_response();
    Ok(if is_new { created_response(response) } else { response })
}

/// Remove a policy template.
///
/// The agents that follow the template keep their limits.
#[endpoint(
    delete "/policy-templates/{templateName}", operation_id = "remove_policy_template",
    returns = "The template was removed."
)]
pub(crate) async fn remove_template(
    people: PeopleState,
    mut user: Caller,
    Id(name): Id<TemplateName>,
    if_match: IfMatch,
    reason: Parameters<AskedReason>,
) -> Reply<Json<RemovedTemplate>> {
    let name = people.read_template(&user, &name).await?.template.name;
    let (reason, if_match) = combine_results_and_errors(reason.0, if_match.into_precondition())?;
    user.acting.source.reason = reason.edit_reason;
    let own = Box::pin(people.remove_template(&user, &name, if_match)).await?;
    let name = own.template.name.to_string();
    Ok(Json(RemovedTemplate { name }))
}

/// List the agents that follow a policy template, with the limits in which each agent differs from the template.
///
/// Each page scans up to 100 agents.
#[endpoint(
    get "/policy-templates/{templateName}/agents",
    params(
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 25, description = "The maximum number of items. The default is 25."),
        ("cursor" = Option<String>, Query, pattern = "^0[0-2][0-9a-f]{46}$", description = "The `next_cursor` of an earlier response."),
    ),
    returns = "A page of the list, oldest first."
)]
pub(crate) async fn list_template_agents(
    people: PeopleState,
    user: Caller,
    Id(name): Id<TemplateName>,
    uri: Uri,
) -> Reply<Json<FollowersView>> {
    let template = people.read_template(&user, &name).await?.template;
    let mut query = Query::from_uri(&uri);
    let from = query.parse_with("cursor", cursor::parse_agent_cursor, cursor::FORM);
    let limit = query.parse_limit("limit", 25, 25);
    query.finish()?;
    let filter = AgentFilter {
        template: Some(template.name.clone()),
        ..AgentFilter::default()
    };
    let Page { items, next } = people
        .list_agents(&user, &filter, AgentOrder::OldestFirst, from, limit)
        .await?;
    let edition = people.current_catalog().await?;
    let agents = items.iter().map(|owned| (owned.agent().id, Some(owned.clone())));
    let planned = people.apply_template_to_agents(&user, agents.collect(), template, Overrides::Keep, ApplyTo::Preview);
    let planned = Box::pin(planned).await?;
    let followers = items.iter().zip(planned).map(|(owned, planned)| {
        let agent = owned.agent();
        FollowerView {
            agent_id: agent.id,
            name: agent.name.clone(),
            version: agent
                .template
                .as_ref()
                .and_then(purser_domain::FollowedTemplate::version),
            differences: planned
                .plan
                .map(|plan| difference_views(&plan, &edition.catalog))
                .unwrap_or_default(),
        }
    });
    Ok(Json(FollowersView::from_items(
        followers,
        next.map(cursor::format_agent_cursor),
    )))
}

/// Apply a policy template to agents that follow it.
///
/// Each agent's policies and rules are updated as if the user had changed them. A limit that a user set on an agent is
/// an override. Overrides are kept unless `overrides` is `overwrite`. A call updates up to 25 agents: repeat the call
/// with `next_cursor` for the remaining agents. If the update of an agent fails, the other agents are still updated,
/// and you can repeat the call.
#[endpoint(
    post "/policy-templates/{templateName}/apply", operation_id = "apply_policy_template",
    returns = "The result for each agent."
)]
pub(crate) async fn apply_template(
    people: PeopleState,
    mut user: Caller,
    Id(name): Id<TemplateName>,
    query: Parameters<AskedApply>,
    body: Body<ApplyBody>,
) -> Reply<Json<AppliedView>> {
    let template = people.read_template(&user, &name).await?.template;
    let parsed = body.json().and_then(|body| parse_apply_request(&body));
    let ((target, overrides), query) = combine_results_and_errors(parsed, query.0)?;
    user.acting.source.reason = query.edit_reason;
    let filter = AgentFilter {
        template: Some(template.name.clone()),
        ..AgentFilter::default()
    };
    let (agents, next) = people.select_bulk_agents(&user, target, filter, MAX_LIMITED).await?;
    let to = if query.preview {
        ApplyTo::Preview
    } else {
        ApplyTo::Followers
    };
    let edition = people.current_catalog().await?;
    let unlisted_operations = UnlistedOperationsView::list(&template.terms, &edition.catalog);
    let applied = Box::pin(people.apply_template_to_agents(&user, agents, template, overrides, to)).await?;
    Ok(Json(AppliedView {
        unlisted_operations,
        preview: query.preview,
        count: applied.len(),
        results: applied
            .iter()
            .map(|item| AppliedRow::new(item, &edition.catalog))
            .collect(),
        next_cursor: next.map(cursor::format_agent_cursor),
    }))
}
