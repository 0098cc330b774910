//! `POST /internal/agents/{agentId}/settlements/{settlementId}/reconcile`: requests another reconciliation of a
//! settlement.

use crate::view::MarkedSettlement;
use crate::{AppState, Caller};
use axum::Json;
use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use purser_api::{Id, Reply, endpoint};
use purser_domain::{Act, AgentId, AuditChanges, AuditKind, ErrorKind, SettlementId};
use purser_store::ReconcileRequest;

/// Request the reconciliation of a settlement with the chain.
#[endpoint(
    post "/internal/agents/{agentId}/settlements/{settlementId}/reconcile", operation_id = "reconcile", status = 202,
    body = MarkedSettlement,
    returns = "The settlement. Within about a minute, the next run reconciles this settlement first."
)]
pub(crate) async fn handle_reconcile_request(
    operators: AppState,
    Caller(operator): Caller,
    Id(agent): Id<AgentId>,
    Id(id): Id<SettlementId>,
) -> Reply {
    let settlement = operators.ledger.read_settlement_by_id(agent, id).await?;
    let settlement = settlement.ok_or(ErrorKind::NotFound)?;
    let request = ReconcileRequest {
        agent,
        settlement: id,
        requested_at: operators.clock.now(),
    };
    let action = Act::new(AuditKind::ReconcileRequested).on_agent(agent).with_object(&id);
    let entry = operators.audit_entry(&operator, &action, AuditChanges::default())?;
    operators.ledger.request_reconcile(&request, &entry).await?;
    let marked = MarkedSettlement::new(&settlement, &request);
    Ok((StatusCode::ACCEPTED, Json(marked)).into_response())
}
