//! `GET /x402/settlements/{settlementId}`: returns one receipt of the calling agent.

use crate::AppState;
use crate::authenticate::require_settlement_access;
use axum::Json;
use axum::extract::Path;
use purser_api::{AgentCredentials, Reply, SettlementRow, endpoint};
use purser_domain::SettlementId;

/// Read a receipt.
#[endpoint(
    get "/x402/settlements/{settlementId}", operation_id = "receipt",
    params(("settlementId" = String, Path, description = "The `settlement_id` in the response of `POST /x402/authorize`.")),
    returns = "The settlement.", errors(NotFound)
)]
pub(crate) async fn read_receipt(
    payments: AppState,
    caller: AgentCredentials,
    Path(settlement): Path<String>,
) -> Reply<Json<SettlementRow>> {
    // The permission `read` is not required, because a client that may pay must be able to follow its payments.
    let caller = payments
        .authenticate_for_settlement(caller, None, SettlementId::parse(&settlement))
        .await?;
    let (settlement, purchase) = require_settlement_access(&caller)?;
    Ok(Json(SettlementRow::new(settlement, purchase)))
}
