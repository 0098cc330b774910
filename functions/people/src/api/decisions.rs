//! `/decisions`: the decision log. An allow is told by its settlement, which keeps its checks; how long it took is not kept.

use super::request::{agent_filter, limit};
use crate::cursor;
use crate::ops::decisions::{Calls, DecisionFilter, DecisionResult};
use crate::ops::owned::named;
use crate::page::Slice;
use crate::state::Dashboard;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::Uri;
use purser_api::{CallView, CheckView, Failure, Query, SessionToken};
use purser_domain::{
    Address, AgentId, Amount, ApprovalId, Catalog, ErrorKind, LoggedDecision, LoggedRefusal, OperationSlug, ServiceId,
    Settlement, TakenBack, Timestamp, TransactionId,
};
use serde::Serialize;
use std::sync::Arc;
use utoipa::ToSchema;

purser_api::error_responses! {
    /// What listing decisions may be refused with.
    pub(crate) ListErrors: 400, 401, 404, 429, 500;
    /// What reading a decision may be refused with.
    pub(crate) ReadErrors: 401, 404, 429, 500;
}

/// One decision about a payment.
#[derive(Serialize, ToSchema)]
#[schema(as = LoggedDecision)]
pub(crate) struct DecisionView {
    /// The audit reference that the agent was given; of a confirmation that was taken back, its own.
    #[schema(value_type = uuid::Uuid)]
    transaction_id: String,
    #[schema(value_type = uuid::Uuid)]
    agent_id: String,
    #[schema(value_type = uuid::Uuid)]
    service_id: String,
    /// Null, as is the name, for a service that has left the catalog.
    #[schema(required)]
    service_slug: Option<String>,
    #[schema(required)]
    service_name: Option<String>,
    /// Null when the call matched no operation of the catalog.
    #[schema(required)]
    operation_id: Option<String>,
    amount_units: u64,
    pay_to: String,
    /// What was to be called; null for a confirmation that was taken back, which the decision before it tells.
    #[schema(required)]
    call: Option<CallView>,
    #[schema(format = DateTime)]
    decided_at: String,
    /// `allow`, `block`, `escalate`, or `take_back` for a payment that was confirmed and is not on the chain any more.
    #[schema(example = "block")]
    result: String,
    /// `x402_authorized`, the slug that was answered, a rule's own reason, or `confirmation_vanished`.
    #[schema(example = "category_block:finance")]
    reason: String,
    /// The slug that was answered to a block or an escalation.
    #[schema(required, example = "policy_blocked")]
    error: Option<String>,
    /// The rule or cap that refused.
    #[schema(required, example = "category_block")]
    rule_triggered: Option<String>,
    /// The host that was not allowed.
    #[schema(required)]
    hostname: Option<String>,
    /// The policy version that it was judged by; null where the service was never enabled.
    #[schema(required)]
    policy_version: Option<u64>,
    /// The approval that was asked for or used.
    #[schema(value_type = Option<uuid::Uuid>, required)]
    approval_id: Option<String>,
    /// What was authorized, or taken back; null for a block or an escalation.
    #[schema(value_type = Option<uuid::Uuid>, required)]
    settlement_id: Option<String>,
    /// Where the settlement of an allow stands.
    #[schema(value_type = Option<String>, required)]
    receipt_status: Option<&'static str>,
    /// How long a block or an escalation took.
    #[schema(required)]
    latency_ms: Option<u64>,
    /// Every check, in the order in which they were made.
    checks: Vec<CheckView>,
}

/// What allows and refusals tell alike.
struct Common<'a> {
    transaction: TransactionId,
    agent: AgentId,
    service: ServiceId,
    operation: Option<&'a OperationSlug>,
    amount: Amount,
    pay_to: Address,
    at: Timestamp,
    approval: Option<ApprovalId>,
}

impl DecisionView {
    fn of(decision: &LoggedDecision, calls: &Calls, catalog: &Catalog) -> Self {
        let view = match decision {
            LoggedDecision::Allowed(settlement) => Self::allowed(settlement, catalog),
            LoggedDecision::Refused(refusal) => Self::refused(refusal, catalog),
            LoggedDecision::TakenBack(taken_back) => Self::taken_back(taken_back, catalog),
        };
        Self {
            call: calls.of(decision).map(CallView::from),
            ..view
        }
    }

    fn allowed(settlement: &Settlement, catalog: &Catalog) -> Self {
        let terms = &settlement.terms;
        let common = Common {
            transaction: terms.transaction,
            agent: terms.agent,
            service: terms.service,
            operation: Some(&terms.operation),
            amount: terms.amount,
            pay_to: terms.pay_to,
            at: terms.authorized_at,
            approval: terms.approval,
        };
        Self {
            policy_version: Some(terms.policy_version),
            settlement_id: Some(terms.id.to_string()),
            receipt_status: Some(settlement.state.name()),
            checks: CheckView::all(&terms.checks),
            ..Self::common(&common, catalog, "allow", "x402_authorized")
        }
    }

    fn refused(refusal: &LoggedRefusal, catalog: &Catalog) -> Self {
        let common = Common {
            transaction: refusal.transaction,
            agent: refusal.agent,
            service: refusal.service,
            operation: refusal.operation.as_ref(),
            amount: refusal.amount,
            pay_to: refusal.pay_to,
            at: refusal.at,
            approval: refusal.approval,
        };
        Self {
            error: Some(refusal.error.clone()),
            rule_triggered: Some(refusal.rule.clone()),
            hostname: refusal.hostname.clone(),
            policy_version: refusal.policy_version,
            latency_ms: Some(refusal.latency_ms),
            checks: CheckView::all(&refusal.checks),
            ..Self::common(&common, catalog, &refusal.result, &refusal.reason)
        }
    }

    fn taken_back(taken_back: &TakenBack, catalog: &Catalog) -> Self {
        let common = Common {
            transaction: taken_back.transaction,
            agent: taken_back.agent,
            service: taken_back.service,
            operation: taken_back.operation.as_ref(),
            amount: taken_back.amount,
            pay_to: taken_back.pay_to,
            at: taken_back.at,
            approval: None,
        };
        Self {
            policy_version: Some(taken_back.policy_version),
            settlement_id: Some(taken_back.settlement.to_string()),
            ..Self::common(&common, catalog, TakenBack::RESULT, TakenBack::REASON)
        }
    }

    fn common(common: &Common<'_>, catalog: &Catalog, result: &str, reason: &str) -> Self {
        let service = catalog.by_id(common.service);
        Self {
            transaction_id: common.transaction.to_string(),
            agent_id: common.agent.to_string(),
            service_id: common.service.to_string(),
            service_slug: service.map(|service| service.slug.to_string()),
            service_name: service.map(|service| service.name.clone()),
            operation_id: common.operation.map(ToString::to_string),
            amount_units: common.amount.units(),
            pay_to: common.pay_to.to_string(),
            call: None,
            decided_at: common.at.to_string(),
            result: result.to_owned(),
            reason: reason.to_owned(),
            error: None,
            rule_triggered: None,
            hostname: None,
            policy_version: None,
            approval_id: common.approval.map(|id| id.to_string()),
            settlement_id: None,
            receipt_status: None,
            latency_ms: None,
            checks: Vec::new(),
        }
    }
}

/// Decisions, newest first.
#[derive(Serialize, ToSchema)]
#[schema(as = LoggedDecisionList)]
pub(crate) struct DecisionList {
    decisions: Vec<DecisionView>,
    /// How many decisions this answer holds. With a filter it can be fewer than were asked for while more follow.
    count: usize,
    /// Hand it back as `cursor` for what follows; null at the end.
    #[schema(required)]
    next_cursor: Option<String>,
}

/// List what was decided about your agents' payments.
#[utoipa::path(
    get,
    path = "/decisions",
    operation_id = "list_decisions",
    tag = "dashboard",
    security(("session" = [])),
    params(
        ("agent_id" = Option<uuid::Uuid>, Query, description = "One of your agents."),
        ("result" = Option<String>, Query, pattern = "^(allow|block|escalate|take_back)$", description = "Those with this result."),
        ("service_id" = Option<String>, Query, description = "Those for this service: slug or UUID."),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 100, description = "Default 25."),
        ("cursor" = Option<String>, Query, pattern = "^[0-9a-f]{32}$", description = "The `next_cursor` of an earlier answer."),
    ),
    responses((status = 200, body = DecisionList, description = "Newest first."), ListErrors)
)]
pub(crate) async fn list(
    State(dashboard): State<Arc<Dashboard>>,
    token: SessionToken,
    uri: Uri,
) -> Result<Json<DecisionList>, Failure> {
    let person = dashboard.enter(token).await?;
    let mut query = Query::of(&uri);
    let results = format!(
        "must be one of: {}",
        DecisionResult::ALL.map(DecisionResult::name).join(", ")
    );
    let (agent, service) = (agent_filter(&mut query), query.text("service_id"));
    let result = query.read("result", DecisionResult::from_name, results);
    let slice = Slice {
        before: query.read("cursor", cursor::read_place, cursor::FORM),
        limit: limit(&mut query),
    };
    query.finish()?;
    let edition = dashboard.catalog().await?;
    let filter = DecisionFilter {
        agent,
        result,
        service: service
            .map(|service| filtered_service(&edition.catalog, &service))
            .transpose()?,
    };
    let page = dashboard.decisions(&person, filter, slice).await?;
    let calls = dashboard.calls(&page.items).await?;
    let decisions = page
        .items
        .iter()
        .map(|decision| DecisionView::of(decision, &calls, &edition.catalog));
    let decisions: Vec<DecisionView> = decisions.collect();
    Ok(Json(DecisionList {
        count: decisions.len(),
        decisions,
        next_cursor: page.next.map(cursor::write_place),
    }))
}

/// The service that a list is narrowed down to; one that has left the catalog is found by UUID alone.
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
        ("agentId" = String, Path, description = "One of your agents."),
        ("transactionId" = String, Path, description = "The `transaction_id` that the agent was given."),
    ),
    responses((status = 200, body = DecisionView, description = "The decision."), ReadErrors)
)]
pub(crate) async fn read(
    State(dashboard): State<Arc<Dashboard>>,
    token: SessionToken,
    Path((agent, transaction)): Path<(String, String)>,
) -> Result<Json<DecisionView>, Failure> {
    let owned = dashboard.enter_for(token, &agent).await?;
    let decision = dashboard.decision(&owned, named(TransactionId::parse(&transaction))?);
    let (decision, edition) = tokio::try_join!(decision, dashboard.catalog())?;
    let calls = dashboard.calls(std::slice::from_ref(&decision)).await?;
    Ok(Json(DecisionView::of(&decision, &calls, &edition.catalog)))
}
