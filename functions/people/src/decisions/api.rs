//! `/decisions`: the decision log. An allow is built from its settlement, which contains its checks but not its
//! latency.

use crate::agents::owned::named;
use crate::cursor;
use crate::decisions::operations::{Calls, DecisionFacts, DecisionFilter};
use crate::request::{agent_filter, slice, span};
use crate::state::People;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::Uri;
use purser_api::{CallView, CheckView, DateOrTime, Failure, Query, SessionToken};
use purser_domain::{Catalog, DecisionResult, ErrorKind, LoggedDecision, ServiceId, TransactionId};
use serde::Serialize;
use std::sync::Arc;
use utoipa::ToSchema;

purser_api::error_responses! {
    /// The errors of listing decisions.
    pub(crate) ListErrors: 400, 401, 403, 404, 429, 500;
    /// The errors of reading a decision.
    pub(crate) ReadErrors: 401, 403, 404, 429, 500;
}

/// One decision about a payment.
#[derive(Serialize, ToSchema)]
#[schema(as = LoggedDecision)]
pub(crate) struct DecisionView {
    /// The decision's ID, as returned to the agent. A reverted confirmation is a separate decision with a different ID.
    #[schema(value_type = uuid::Uuid)]
    transaction_id: String,
    #[schema(value_type = uuid::Uuid)]
    agent_id: String,
    /// The agent key that sent the request. For a payout, the key, the service and the operation are null.
    #[schema(required, example = "00c0ffee00c0ffee")]
    key_id: Option<String>,
    #[schema(value_type = Option<uuid::Uuid>, required)]
    service_id: Option<String>,
    /// Null for a service that is no longer in the catalog, as is its name.
    #[schema(required)]
    service_slug: Option<String>,
    #[schema(required)]
    service_name: Option<String>,
    /// Null if the call matched no operation of the catalog.
    #[schema(required)]
    operation_id: Option<String>,
    amount_units: u64,
    pay_to: String,
    /// The call. Null for a payout and for a reverted confirmation, whose call is in the decision that authorized it.
    #[schema(required)]
    call: Option<CallView>,
    #[schema(format = DateTime)]
    decided_at: String,
    /// `allow`, `block`, `escalate`, `take_back` for a confirmed payment that is no longer on the chain, or `payout`
    /// for a withdrawal.
    #[schema(example = "block")]
    result: String,
    /// `x402_authorized`, the slug that was answered, a rule's own reason, `confirmation_vanished`, or `paid_out`.
    #[schema(example = "category_block:finance")]
    reason: String,
    /// The error slug of a block or an escalation.
    #[schema(required, example = "policy_blocked")]
    error: Option<String>,
    /// The rule or cap that refused the call.
    #[schema(required, example = "category_block")]
    rule_triggered: Option<String>,
    /// The host that was not allowed.
    #[schema(required)]
    hostname: Option<String>,
    /// The version of the policy that was applied; null if the service was never enabled.
    #[schema(required)]
    policy_version: Option<u64>,
    /// The approval that was requested or used.
    #[schema(value_type = Option<uuid::Uuid>, required)]
    approval_id: Option<String>,
    /// The settlement that was authorized or reverted; null for a block or an escalation.
    #[schema(value_type = Option<uuid::Uuid>, required)]
    settlement_id: Option<String>,
    /// The state of the settlement, for an allowed call or a payout.
    #[schema(value_type = Option<String>, required)]
    receipt_status: Option<&'static str>,
    /// The duration of the decision, for a block or an escalation.
    #[schema(required)]
    latency_ms: Option<u64>,
    /// Every check, in the order in which they were made.
    checks: Vec<CheckView>,
}

impl DecisionView {
    fn of(decision: &LoggedDecision, calls: &Calls, catalog: &Catalog) -> Self {
        let facts = DecisionFacts::from(decision);
        let refusal = facts.refusal;
        let service = facts.service.and_then(|id| catalog.by_id(id));
        Self {
            transaction_id: facts.transaction.to_string(),
            agent_id: facts.agent.to_string(),
            key_id: facts.key.map(|id| id.to_string()),
            service_id: facts.service.map(|id| id.to_string()),
            service_slug: service.map(|service| service.slug.to_string()),
            service_name: service.map(|service| service.name.clone()),
            operation_id: facts.operation.map(ToString::to_string),
            amount_units: facts.amount.units(),
            pay_to: facts.pay_to.to_string(),
            call: calls.of(decision).map(CallView::from),
            decided_at: facts.at.to_string(),
            result: decision.result().name().to_owned(),
            reason: facts.reason.to_owned(),
            error: refusal.map(|refusal| refusal.error.clone()),
            rule_triggered: refusal.map(|refusal| refusal.rule.clone()),
            hostname: refusal.and_then(|refusal| refusal.hostname.clone()),
            policy_version: facts.policy_version,
            approval_id: facts.approval.map(|id| id.to_string()),
            settlement_id: facts.settlement.map(|id| id.to_string()),
            receipt_status: facts.receipt_status,
            latency_ms: refusal.map(|refusal| refusal.latency_ms),
            checks: CheckView::all(facts.checks),
        }
    }
}

/// Decisions, newest first.
#[derive(Serialize, ToSchema)]
#[schema(as = LoggedDecisionList)]
pub(crate) struct DecisionList {
    decisions: Vec<DecisionView>,
    /// The number of decisions in this answer. With a filter, or with more than 25 agents, a page can contain fewer
    /// than `limit` even if more pages follow.
    count: usize,
    /// Send it as `cursor` to read the next page; null at the end.
    #[schema(required)]
    next_cursor: Option<String>,
}

/// List the decisions about your agents' payments.
#[utoipa::path(
    get,
    path = "/decisions",
    operation_id = "list_decisions",
    tag = "dashboard",
    security(("session" = [])),
    params(
        ("agent_id" = Option<uuid::Uuid>, Query, description = "An agent that you own."),
        ("result" = Option<String>, Query, pattern = "^(allow|block|escalate|take_back|payout)$", description = "Only decisions with this result."),
        ("service_id" = Option<String>, Query, description = "Only decisions for this service: its slug or UUID."),
        ("from" = inline(Option<DateOrTime>), Query, description = "The start: a time, or a date in UTC."),
        ("to" = inline(Option<DateOrTime>), Query, description = "The end: before this time, or up to the end of this date in UTC."),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 100, description = "Default 25."),
        ("cursor" = Option<String>, Query, pattern = "^([0-9a-f]{32}|0[0-2][0-9a-f]{46}|0[0-2][0-9a-f]{78})$", description = "The `next_cursor` of an earlier answer."),
    ),
    responses((status = 200, body = DecisionList, description = "Newest first. With more than 25 agents, a page covers 25 of them, in order of creation."), ListErrors)
)]
pub(crate) async fn list(
    State(people): State<Arc<People>>,
    token: SessionToken,
    uri: Uri,
) -> Result<Json<DecisionList>, Failure> {
    let person = people.authenticate(token).await?;
    let mut query = Query::of(&uri);
    let results = DecisionResult::choices();
    let (agent, service) = (agent_filter(&mut query), query.text("service_id"));
    let result = query.read("result", DecisionResult::from_name, results);
    let span = span(&mut query);
    let slice = slice(&mut query, cursor::read_part);
    query.finish()?;
    let edition = people.catalog().await?;
    let filter = DecisionFilter {
        agent,
        result,
        service: service
            .map(|service| filtered_service(&edition.catalog, &service))
            .transpose()?,
        span,
    };
    let page = people.decisions(&person, filter, slice).await?;
    let calls = people.calls(&page.items).await?;
    let decisions = page
        .items
        .iter()
        .map(|decision| DecisionView::of(decision, &calls, &edition.catalog));
    let decisions: Vec<DecisionView> = decisions.collect();
    Ok(Json(DecisionList {
        count: decisions.len(),
        decisions,
        next_cursor: page.next.map(cursor::write_part),
    }))
}

/// The service by which a list is filtered. A service that has left the catalog is found only by UUID.
fn filtered_service(catalog: &Catalog, reference: &str) -> purser_domain::Result<ServiceId> {
    let id = catalog.by_reference(reference).map(|service| service.id);
    id.or_else(|| ServiceId::parse(reference))
        .ok_or_else(|| ErrorKind::ServiceNotFound.into())
}

/// Read one decision.
#[utoipa::path(
    get,
    path = "/agents/{agentId}/decisions/{transactionId}",
    operation_id = "read_decision",
    tag = "dashboard",
    security(("session" = [])),
    params(
        ("agentId" = String, Path, description = "An agent that you own."),
        ("transactionId" = String, Path, description = "The decision's `transaction_id`."),
    ),
    responses((status = 200, body = DecisionView, description = "The decision."), ReadErrors)
)]
pub(crate) async fn read(
    State(people): State<Arc<People>>,
    token: SessionToken,
    Path((agent, transaction)): Path<(String, String)>,
) -> Result<Json<DecisionView>, Failure> {
    let owned = people.authenticate_for(token, &agent).await?;
    let decision = people.decision(&owned, named(TransactionId::parse(&transaction))?);
    let (decision, edition) = tokio::try_join!(decision, people.catalog())?;
    let calls = people.calls(std::slice::from_ref(&decision)).await?;
    Ok(Json(DecisionView::of(&decision, &calls, &edition.catalog)))
}
