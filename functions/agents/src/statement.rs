//! `GET /x402/settlements/{settlementId}/statement`: the signed statements about a payment of the calling agent.

use crate::Agents;
use axum::Json;
use axum::extract::{Path, State};
use purser_api::{AgentCredentials, Failure};
use purser_domain::{ErrorKind, SettlementId};
use purser_log::FoundStatement;
use serde::Serialize;
use std::sync::Arc;
use utoipa::ToSchema;

purser_api::error_responses! {
    /// The errors of this endpoint.
    pub(crate) StatementErrors: 401, 403, 404, 429, 500;
}

/// The signed statements about a payment.
#[derive(Serialize, ToSchema)]
pub(crate) struct SettlementStatements {
    #[schema(value_type = uuid::Uuid)]
    settlement_id: String,
    #[schema(value_type = uuid::Uuid)]
    transaction_id: String,
    /// The statement of the decision; null until it is in the log, about a minute after the decision.
    #[schema(required)]
    decision: Option<FoundStatement>,
    /// The statement of the receipt; null until the payment is confirmed and the statement is in the log.
    #[schema(required)]
    receipt: Option<FoundStatement>,
}

/// Read the signed statements about a payment, with the proofs that they are in the log.
#[utoipa::path(
    get,
    path = "/x402/settlements/{settlementId}/statement",
    operation_id = "settlement_statement",
    tag = "evidence",
    security(("agentKey" = [])),
    params(("settlementId" = String, Path, description = "The `settlement_id` that authorize returned.")),
    responses((status = 200, body = SettlementStatements, description = "The statements."), StatementErrors)
)]
pub(crate) async fn statement(
    State(agents): State<Arc<Agents>>,
    caller: AgentCredentials,
    Path(settlement): Path<String>,
) -> Result<Json<SettlementStatements>, Failure> {
    // Any key may read about a payment of its services, as it may read the receipt.
    let caller = agents.authenticate(caller, None).await?;
    let id = SettlementId::parse(&settlement).ok_or(ErrorKind::NotFound)?;
    let settlement = agents.ledger.settlement(caller.agent.id, id).await?;
    let settlement = settlement.ok_or(ErrorKind::NotFound)?;
    let purchase = settlement.terms.purchase().ok_or(ErrorKind::NotFound)?;
    caller.scope()?.check_service(purchase.service)?;
    let (mut decision, mut receipt) = (None, None);
    if let Some(log) = &agents.log {
        let terms = &settlement.terms;
        decision = log.decision(terms.transaction, terms.authorized_at).await?;
        if let Some(settled_at) = settlement.settled_at() {
            receipt = log.receipt(id, settled_at).await?;
        }
    }
    Ok(Json(SettlementStatements {
        settlement_id: id.to_string(),
        transaction_id: settlement.terms.transaction.to_string(),
        decision,
        receipt,
    }))
}
