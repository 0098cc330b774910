//! `POST /internal/agents/{agentId}/settlements/{settlementId}/reconcile`: requests another reconciliation of a
//! settlement.

use crate::Caller;
use crate::Operators;
use crate::view::MarkedSettlement;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use purser_api::{Failure, Id, Operator};
use purser_domain::{Act, AgentId, AuditChanges, AuditKind, ErrorKind, Result, Settlement, SettlementId};
use purser_store::ReconcileRequest;
use std::sync::Arc;

/// Request the reconciliation of a settlement with the chain.
#[utoipa::path(
    post, path = "/internal/agents/{agentId}/settlements/{settlementId}/reconcile", operation_id = "reconcile",
    responses((status = 202, body = MarkedSettlement, description = "The settlement. Within about a minute, the next run reconciles this settlement first."))
)]
pub(crate) async fn handle_reconcile_request(
    State(operators): State<Arc<Operators>>,
    Caller(operator): Caller,
    Id(agent): Id<AgentId>,
    Id(id): Id<SettlementId>,
) -> Result<Response, Failure> {
    let (settlement, request) = operators.request_settlement_reconcile(&operator, agent, id).await?;
    let marked = MarkedSettlement::new(&settlement, &request);
    Ok((StatusCode::ACCEPTED, Json(marked)).into_response())
}

impl Operators {
    pub(crate) async fn request_settlement_reconcile(
        &self,
        operator: &Operator,
        agent: AgentId,
        id: SettlementId,
    ) -> Result<(Settlement, ReconcileRequest)> {
        let settlement = self.ledger.read_settlement_by_id(agent, id).await?;
        let settlement = settlement.ok_or(ErrorKind::NotFound)?;
        let request = ReconcileRequest {
            agent,
            settlement: id,
            requested_at: self.clock.now(),
        };
        let action = Act::new(AuditKind::ReconcileRequested).on_agent(agent).with_object(&id);
        let entry = self.audit_entry(operator, &action, AuditChanges::default())?;
        self.ledger.request_reconcile(&request, &entry).await?;
        Ok((settlement, request))
    }
}
