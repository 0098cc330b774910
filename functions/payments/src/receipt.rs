//! `GET /x402/settlements/{settlementId}`: returns one receipt of the calling agent.

use crate::Payments;
use crate::authenticate::require_settlement_access;
use axum::Json;
use axum::extract::{Path, State};
use purser_api::{AgentCredentials, Failure, SettlementRow, errors};
use purser_domain::SettlementId;
use std::sync::Arc;

/// Read a receipt.
#[utoipa::path(
    get, path = "/x402/settlements/{settlementId}", operation_id = "receipt",
    params(("settlementId" = String, Path, description = "The `settlement_id` in the response of `POST /x402/authorize`.")),
    responses((status = 200, body = SettlementRow, description = "The settlement."), errors::NotFound)
)]
pub(crate) async fn read_receipt(
    State(payments): State<Arc<Payments>>,
    caller: AgentCredentials,
    Path(settlement): Path<String>,
) -> Result<Json<SettlementRow>, Failure> {
    // A key does not need the permission `read` here, because a client that may pay must be able to follow its
    // payments.
    let caller = payments
        .authenticate_for_settlement(caller, None, SettlementId::parse(&settlement))
        .await?;
    let (settlement, purchase) = require_settlement_access(&caller)?;
    Ok(Json(SettlementRow::new(settlement, purchase)))
}
