//! JSON API for the services that an agent may pay, with their policies.
//!
//! Enabling a service replaces the whole record, so `If-Match` is optional. An update keeps the fields that the body
//! omits.

use crate::agents::owned::OwnedAgent;
use crate::preview::api::AskedReason;
use crate::preview::api::PreviewView;
use crate::preview::api::RequestedUpdate;
use crate::request::ServiceReference;
use crate::request::{combine_results_and_errors, created_response, precondition_or_any_version};
use crate::services::operations::{GovernedService, SavedService, find_open_service};
use crate::state::{People, PeopleState};
use axum::Json;
use axum::response::Response;
use purser_api::{
    Body, BodyPath, Id, IfMatch, Member, Nullable, OptionalIfMatch, Parameters, PolicyView, Precondition, Reply, Text,
    ValidationErrors, endpoint, errors, view, with_etag,
};
use purser_domain::{
    Agent, AgentId, Amount, Catalog, DomainPattern, LimitUpdate, Operation, OperationSlug, PolicyChange, PolicyUpdate,
    Result, Service, ServiceId, ServiceUpdate, SpendPolicy, Timestamp, ValidationError,
};
use serde_json::Value;
use utoipa::ToSchema;

purser_api::views! {
    /// A service of one of the caller's agents.
    pub(crate) struct ServiceView as OwnService {
        fn new(agent: &Agent, governed_service: &GovernedService, catalog: &Catalog, people: &People);
        let (owner, now) = (&agent.owner, people.now());
        let record = &governed_service.record;
        let service = catalog.find_by_id(record.service);
        let operations = service.map(|service| service.operations.as_slice()).unwrap_or_default();
        let unpayable = operations.iter().filter_map(|operation| {
            Some(UnpayableOperation {
                operation_id: operation.slug.to_string(),
                reason: operation.payee_and_max_price(people.network, now).err()?.name(),
            })
        });

        agent_id: AgentId = agent.id,
        service_id: ServiceId = record.service,
        /// The service's slug. The slug, name, category and trust status are null if the service is no longer in the
        /// catalog.
        slug: Option<String> = service.map(|service| service.slug.to_string()),
        name: Option<String> = service.map(|service| service.name.clone()),
        category: Option<&'static str> = service.map(|service| service.category.name()),
        trust_status: Option<&'static str> = service.map(|service| service.trust_status.name()),
        /// Whether the agent may pay the service. If false, every call is rejected, and the policy is kept.
        enabled: bool = record.enabled,
        /// The record's version. Every update of the record increases it. Send it as `If-Match`.
        version: u64 = record.version,
        policy: PolicyView = PolicyView::from_policy(&record.policy, owner, now),
        /// Whether the policy sets no effective limit. This is true for a service that was enabled by default until you
        /// change its policy.
        permissive: bool = record.policy.is_permissive(),
        /// The amount in micro-USDC that was authorized in the last 24 hours and not released. If more than about
        /// 20,000 payments have become older than 24 hours and are not removed yet, the amount is an upper bound.
        spend_today_units: u64 = governed_service.spent_today.amount.units(),
        /// The amount that remains of the daily cap.
        remaining_today_units: u64 = governed_service.remaining_today().units(),
        /// The operations for which no call can be paid, even if the policy allows the call.
        unpayable_operations: Vec<UnpayableOperation> = unpayable.collect(),
        /// Future changes of payees and prices, which operators have already entered.
        payment_changes: Vec<PaymentChange> = operations
            .iter()
            .filter_map(|listed_operation| PaymentChange::next_change_of_operation(listed_operation, now))
            .collect(),
    }
}

/// An operation whose calls cannot be paid, with the reason.
#[view]
struct UnpayableOperation {
    operation_id: String,
    /// Why no call can be paid: `operation_has_no_payment`, `operation_is_paid_on_another_network`,
    /// `operation_has_no_maximum_price` or `operation_is_called_over_http`.
    #[schema(value_type = String, example = "operation_has_no_payment")]
    reason: &'static str,
}

/// A future change of an operation's payee or price.
#[view]
struct PaymentChange {
    operation_id: String,
    /// The time from which the new payee and the new price apply; `9999-12-31T23:59:59.999999Z` if the time is not
    /// decided yet.
    from: Timestamp,
    /// The address of the new payee.
    pay_to: String,
    amount_units: u64,
    /// The new maximum price per call. Null if calls can't be paid after the change.
    max_price_units: Option<u64>,
}

impl PaymentChange {
    fn next_change_of_operation(operation: &Operation, now: Timestamp) -> Option<Self> {
        let next = operation.delayed_pricing(now)?;
        Some(Self {
            operation_id: operation.slug.to_string(),
            from: next.from,
            pay_to: next.payment.pay_to.to_string(),
            amount_units: next.payment.amount.units(),
            max_price_units: next.as_pricing().max_price().map(Amount::units),
        })
    }
}

impl ServiceView {
    /// Services are sorted by slug, and services that left the catalog are last.
    fn sort_key(&self) -> (bool, Option<&str>, ServiceId) {
        (self.slug.is_none(), self.slug.as_deref(), self.service_id)
    }

    fn into_http_response(self) -> Response {
        with_etag(self.version, Json(self))
    }
}

async fn save_or_preview(
    people: &People,
    owned: OwnedAgent,
    if_match: Precondition,
    request: RequestedUpdate,
    service: ServiceId,
    update: ServiceUpdate,
) -> Reply {
    let change = &update;
    let save = |owned| async move {
        let saved = people.save_service(&owned, if_match, service, change).await?;
        service_update_response(people, &owned, saved).await
    };
    let update = LimitUpdate::Service(service, update.clone());
    request.save_or_preview(people, owned, if_match, &update, save).await
}

/// Creates the response to a saved update: 201 if the update created the record.
pub(crate) async fn service_update_response(people: &People, owned: &OwnedAgent, saved: SavedService) -> Reply {
    let service = people.read_governed_service(owned, saved.record).await?;
    let edition = people.current_catalog().await?;
    let response = ServiceView::new(owned.agent(), &service, &edition.catalog, people).into_http_response();
    Ok(if saved.is_new {
        created_response(response)
    } else {
        response
    })
}

/// The agent's service after the update. If the request has `preview=true`, the preview of the update instead.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "it describes the answers, which are made as one or the other")]
pub(crate) enum ServiceOrPreview {
    Stored(Box<ServiceView>),
    Preview(Box<PreviewView>),
}

/// The services of one agent, with their policies and their spending.
#[view(OwnServiceList)]
pub(crate) struct ServiceList {
    agent_id: AgentId,
    services: Vec<ServiceView>,
    /// The number of services in this response.
    count: usize,
}

purser_api::body! {
    /// The limits of an agent's policy for one service. If the request enables the service, absent fields get defaults.
    /// Otherwise, absent fields keep their values.
    pub(crate) struct PolicyBody {
        max_per_call_units: Option<Amount>,
        max_per_day_units: Option<Amount>,
        require_approval_above_units: Option<Amount>,
        /// The slugs of the operations that the agent may call; null for all of the service's operations.
        enabled_operations: Nullable<Vec<OperationSlug>> = {"uniqueItems": true},
        /// The hosts that the agent may fetch: host names, globs, or `*` for any host.
        allowed_domains: Option<Vec<DomainPattern>> = {"type": "array", "maxItems": 100},
    }
}

purser_api::body! {
    /// A service to enable. Absent fields get their defaults.
    pub(crate) struct EnableBody {
        /// The slug or UUID of a curated service.
        service_id: Text<128>,
        /// The policy as one object, instead of the policy fields below.
        policy: Option<PolicyBody>,
        max_per_call_units: Option<Amount> = {"default": 1_000_000},
        max_per_day_units: Option<Amount> = {"default": 50_000_000},
        require_approval_above_units: Option<Amount> = {"default": 10_000_000},
        /// The slugs of the operations that the agent may call; null for all of the service's operations.
        enabled_operations: Nullable<Vec<OperationSlug>> = {"uniqueItems": true},
        /// The hosts that the agent may fetch: host names, globs, or `*` for any host.
        allowed_domains: Option<Vec<DomainPattern>> = {"type": "array", "maxItems": 100},
    }
}

purser_api::body! {
    /// The fields to update. Send at least one field.
    pub(crate) struct ServiceEditBody {
        /// Whether the agent may pay the service. If false, every call is rejected, and the policy is kept.
        enabled: Option<bool>,
        /// The policy as one object, instead of the policy fields below.
        policy: Option<PolicyBody>,
        max_per_call_units: Option<Amount>,
        max_per_day_units: Option<Amount>,
        require_approval_above_units: Option<Amount>,
        /// The slugs of the operations that the agent may call; null for all of the service's operations.
        enabled_operations: Nullable<Vec<OperationSlug>> = {"uniqueItems": true},
        /// The hosts that the agent may fetch: host names, globs, or `*` for any host.
        allowed_domains: Option<Vec<DomainPattern>> = {"type": "array", "maxItems": 100},
    }
}

purser_api::body! {
    /// A proposed policy for a service. Absent fields keep the values of each agent's current policy, or get their
    /// defaults if the agent has no policy.
    pub(crate) struct CandidatePolicyBody {
        /// The slug or UUID of a service in the catalog.
        service_id: Text<128>,
        /// Whether the agent may pay the service.
        enabled: Option<bool>,
        max_per_call_units: Option<Amount>,
        max_per_day_units: Option<Amount>,
        require_approval_above_units: Option<Amount>,
        /// The slugs of the operations that the agent may call; null for all of the service's operations.
        enabled_operations: Nullable<Vec<OperationSlug>> = {"uniqueItems": true},
        /// The hosts that the agent may fetch: host names, globs, or `*` for any host.
        allowed_domains: Option<Vec<DomainPattern>> = {"type": "array", "maxItems": 100},
    }
}

purser_api::body! {
    /// The limits to set for all of the agent's services that have no limits yet. Absent fields get defaults that suit
    /// most agents.
    pub(crate) struct LimitsBody {
        max_per_call_units: Option<Amount> = {"default": 1_000_000},
        max_per_day_units: Option<Amount> = {"default": 10_000_000},
        require_approval_above_units: Option<Amount> = {"default": 500_000},
        /// The hosts that the agent may fetch: host names, globs, or `*` for any host.
        allowed_domains: Option<Vec<DomainPattern>> = {"type": "array", "maxItems": 100},
    }
}

/// The services to which the request gave limits. Services that already had limits are not changed.
#[view(LimitedServices)]
pub(crate) struct LimitedList {
    service_ids: Vec<ServiceId>,
    /// The number of services in this response.
    count: usize,
}

/// Builds a [`PolicyUpdate`] from a body that has the policy's fields.
macro_rules! policy {
    ($body:ident) => {
        purser_domain::PolicyUpdate {
            max_per_call: $body.max_per_call_units,
            max_per_day: $body.max_per_day_units,
            require_approval_above: $body.require_approval_above_units,
            enabled_operations: match $body.enabled_operations {
                purser_api::Nullable::Absent => None,
                purser_api::Nullable::Null => Some(purser_domain::OperationScope::All),
                purser_api::Nullable::Value(operations) => Some(purser_domain::OperationScope::Only(operations)),
            },
            allowed_domains: $body.allowed_domains,
        }
    };
}

pub(crate) use policy;

/// Builds a [`PolicyUpdate`] from a body that has the policy's fields under `policy` or at the top level.
macro_rules! either_policy {
    ($body:ident) => {
        match $body.policy {
            Some(policy) => policy!(policy),
            None => policy!($body),
        }
    };
}

/// Rejects policy fields both at the top level and under `policy`, and `null` for `allowed_domains`.
fn reject_ambiguous_body(body: &Value, errors: &mut ValidationErrors) {
    let has = |name: &str| body.get(name).is_some_and(|value| !value.is_null());
    let beside = PolicyBody::NAMES.iter().find(|name| has("policy") && has(name));
    if let Some(name) = beside {
        errors.add_at(
            BodyPath::Member(&BodyPath::Body, name),
            "must not be combined with `policy`",
        );
    }
    let policy = BodyPath::Member(&BodyPath::Body, "policy");
    for (path, fields) in [(&BodyPath::Body, Some(body)), (&policy, body.get("policy"))] {
        if fields
            .and_then(|fields| fields.get("allowed_domains"))
            .is_some_and(Value::is_null)
        {
            errors.add_at(BodyPath::Member(path, "allowed_domains"), "must not be null");
        }
    }
}

/// Parses a body with a policy. `validate` returns the validation errors of the parsed value, which are reported with
/// the paths of the fields in the body.
fn parse_policy_body<B: Member, T>(
    body: &Value,
    convert: impl FnOnce(B) -> T,
    validate: impl FnOnce(&T) -> Vec<ValidationError>,
) -> Result<T> {
    let mut errors = ValidationErrors::default();
    reject_ambiguous_body(body, &mut errors);
    let parsed = B::read(body, BodyPath::Body, &mut errors).map(convert);
    let mut found = parsed.as_ref().map(validate).unwrap_or_default();
    if body.get("policy").is_some_and(Value::is_object) {
        for error in &mut found {
            error.path.insert_str(0, "/policy");
        }
    }
    errors.extend(found);
    errors.finish(parsed)
}

/// Parses the policy at `path`. Returns `None` if the service is unknown.
pub(crate) fn parse_policy_change(
    body: CandidatePolicyBody,
    catalog: &Catalog,
    path: &str,
    errors: &mut ValidationErrors,
) -> Option<(ServiceId, PolicyChange)> {
    let service = catalog.find_by_reference(&body.service_id.0)?;
    let enabled = body.enabled;
    let policy = policy!(body);
    let found = policy.validation_errors(Some(service)).into_iter();
    errors.extend(found.map(|error| ValidationError::at_path(format!("{path}{}", error.path), error.message)));
    Some((service.id, PolicyChange { enabled, policy }))
}

/// Parses the service's slug or UUID, and the policy fields with other values than their defaults. Accepts an unknown
/// service, which [`find_open_service`] rejects.
pub(crate) fn parse_enable_request(body: &Value, catalog: &Catalog) -> Result<(String, PolicyUpdate)> {
    let convert = |body: EnableBody| {
        let policy = either_policy!(body);
        (body.service_id.0, policy)
    };
    parse_policy_body(body, convert, |(reference, policy)| {
        let service = catalog.find_by_reference(reference);
        service.map_or_else(Vec::new, |service| policy.validation_errors(Some(service)))
    })
}

/// `service` is `None` if the service left the catalog.
pub(crate) fn parse_service_update(body: &Value, service: Option<&Service>) -> Result<PolicyChange> {
    let convert = |body: ServiceEditBody| PolicyChange {
        enabled: body.enabled,
        policy: either_policy!(body),
    };
    parse_policy_body(body, convert, |change| change.policy.validation_errors(service))
}

/// Parses limits for all of the agent's services that have no limits yet.
pub(crate) fn parse_limits(body: &Value) -> Result<PolicyUpdate> {
    let suggested = SpendPolicy::suggested_limits();
    let convert = |body: LimitsBody| PolicyUpdate {
        max_per_call: body.max_per_call_units.or(Some(suggested.max_per_call)),
        max_per_day: body.max_per_day_units.or(Some(suggested.max_per_day)),
        require_approval_above: body
            .require_approval_above_units
            .or(Some(suggested.require_approval_above)),
        enabled_operations: None,
        allowed_domains: body.allowed_domains,
    };
    parse_policy_body(body, convert, |update| update.validation_errors(None))
}

/// Set limits for all of an agent's enabled services that have no limits.
///
/// A new agent starts with services that have no limits. Each service is updated separately. If another request sets
/// limits for a service at the same time, those limits are kept.
#[endpoint(patch "/agents/{agentId}/services", returns = "The services that got the limits.")]
pub(crate) async fn limit_unlimited_services(
    people: PeopleState,
    owned: OwnedAgent,
    reason: Parameters<AskedReason>,
    body: Body<LimitsBody>,
) -> Reply<Json<LimitedList>> {
    let update = body.json().and_then(|body| parse_limits(&body));
    let (update, reason) = combine_results_and_errors(update, reason.0)?;
    let owned = owned.with_reason(reason.edit_reason);
    let limited = people.limit_unlimited_services(&owned, &update);
    let limited = people.run_in_long_operation_slot(&owned.agent().owner, limited).await?;
    Ok(Json(LimitedList::from_items(limited)))
}

/// List an agent's services, with the spent and remaining amounts.
#[endpoint(
    get "/agents/{agentId}/services",
    returns = "Every service that was ever enabled for the agent, including disabled services."
)]
pub(crate) async fn list_agent_services(people: PeopleState, owned: OwnedAgent) -> Reply<Json<ServiceList>> {
    let (services, edition) = tokio::try_join!(people.list_services(&owned), people.current_catalog())?;
    let id = owned.agent().id;
    let services = services
        .iter()
        .map(|service| ServiceView::new(owned.agent(), service, &edition.catalog, &people));
    let mut services: Vec<ServiceView> = services.collect();
    services.sort_by(|a, b| a.sort_key().cmp(&b.sort_key()));
    Ok(Json(ServiceList::from_items(id, services)))
}

/// Enable a service for an agent.
///
/// Absent policy fields get their defaults, even if the agent already has a policy for the service. With `If-Match`,
/// the response is 412 if the record was updated in the meantime.
#[endpoint(
    post "/agents/{agentId}/services",
    responses(
        (status = 201, body = ServiceView, description = "The enabled service with its policy.", headers(("ETag" = String, description = "The policy's version. Send it in `If-Match` with the next update.")),
            links(
                ("edit" = (operation_id = "edit_agent_service", parameters(("agentId" = "$response.body#/agent_id"), ("serviceId" = "$response.body#/service_id"), ("If-Match" = "$response.header.ETag")))),
                ("disable" = (operation_id = "disable_service", parameters(("agentId" = "$response.body#/agent_id"), ("serviceId" = "$response.body#/service_id"), ("If-Match" = "$response.header.ETag")))),
            )),
        (status = 200, body = ServiceOrPreview, description = "The service with the new policy, or the preview of the update.", headers(("ETag" = String, description = "The policy's version. Send it in `If-Match` with the next update."))),
        errors::RecentSignInRequired, errors::ServiceNotFound,
    )
)]
pub(crate) async fn enable_service(
    people: PeopleState,
    owned: OwnedAgent,
    OptionalIfMatch(if_match): OptionalIfMatch,
    query: Parameters<RequestedUpdate>,
    body: Body<EnableBody>,
) -> Reply {
    let edition = people.current_catalog().await?;
    let enable = body
        .json()
        .and_then(|body| parse_enable_request(&body, &edition.catalog));
    let enable = combine_results_and_errors(enable, query.0);
    let (((reference, policy), request), if_match) =
        combine_results_and_errors(enable, precondition_or_any_version(if_match))?;
    let service = find_open_service(&edition.catalog, &reference)?;
    save_or_preview(
        &people,
        owned,
        if_match,
        request,
        service,
        ServiceUpdate::Enable(policy),
    )
    .await
}

/// Read one of an agent's services, with its policy and spending.
#[endpoint(
    get "/agents/{agentId}/services/{serviceId}", body = ServiceView,
    returns = "The service with its policy, even if the service is disabled.", etag = "policy"
)]
pub(crate) async fn read_agent_service(
    people: PeopleState,
    owned: OwnedAgent,
    Id(ServiceReference(reference)): Id<ServiceReference>,
) -> Reply {
    let edition = people.current_catalog().await?;
    let service = people.read_service(&owned, &reference).await?;
    Ok(ServiceView::new(owned.agent(), &service, &edition.catalog, &people).into_http_response())
}

/// Update an agent's service: its policy, or whether it is enabled.
///
/// The updated policy applies to all later requests to `POST /x402/authorize`.
#[endpoint(
    patch "/agents/{agentId}/services/{serviceId}", operation_id = "edit_agent_service", body = ServiceOrPreview,
    returns = "The updated service, or the preview of the update.", etag = "policy",
    errors(RecentSignInRequired, ServiceNotFound)
)]
pub(crate) async fn update_agent_service(
    people: PeopleState,
    owned: OwnedAgent,
    Id(ServiceReference(reference)): Id<ServiceReference>,
    if_match: IfMatch,
    query: Parameters<RequestedUpdate>,
    body: Body<ServiceEditBody>,
) -> Reply {
    let edition = people.current_catalog().await?;
    let id = people.find_agent_service(&owned, &reference).await?;
    let service = edition.catalog.find_by_id(id);
    let update = body.json().and_then(|body| parse_service_update(&body, service));
    let change = combine_results_and_errors(update, query.0);
    let ((change, request), if_match) = combine_results_and_errors(change, if_match.into_precondition())?;
    save_or_preview(&people, owned, if_match, request, id, ServiceUpdate::Change(change)).await
}

/// Disable a service for an agent. The policy is kept.
#[endpoint(
    delete "/agents/{agentId}/services/{serviceId}", body = ServiceOrPreview,
    returns = "The disabled service, or the preview of the update.", etag = "policy"
)]
pub(crate) async fn disable_service(
    people: PeopleState,
    owned: OwnedAgent,
    Id(ServiceReference(reference)): Id<ServiceReference>,
    if_match: IfMatch,
    query: Parameters<RequestedUpdate>,
) -> Reply {
    let id = people.find_agent_service(&owned, &reference).await?;
    let (request, if_match) = combine_results_and_errors(query.0, if_match.into_precondition())?;
    save_or_preview(&people, owned, if_match, request, id, ServiceUpdate::for_status(false)).await
}
