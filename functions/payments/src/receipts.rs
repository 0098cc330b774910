//! `GET /agents/{agentId}/settlements`: the caller's own receipts, newest first.

use crate::Payments;
use crate::view::{SettlementItem, SettlementList};
use axum::Json;
use axum::extract::{Path, State};
use axum::http::Uri;
use purser_api::{AgentCredentials, Failure, Query};
use purser_domain::{AgentId, ErrorKind};
use purser_store::DecisionKeys;
use std::sync::Arc;

/// How many receipts are listed by default, and at most (`docs/spec.md` §8).
const DEFAULT_LIMIT: u32 = 25;
const MAX_LIMIT: u32 = 100;

purser_api::error_responses! {
    /// What this endpoint may be refused with.
    pub(crate) ReceiptListErrors: 400, 401, 404, 429, 500;
}

/// List the agent's receipts.
#[utoipa::path(
    get,
    path = "/agents/{agentId}/settlements",
    tag = "payments",
    security(("agentKey" = [])),
    params(
        ("agentId" = String, Path, description = "The caller's own id."),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 100, description = "Default 25."),
    ),
    responses(
        (status = 200, body = SettlementList, description = "Newest first by `authorized_at`."),
        ReceiptListErrors,
    )
)]
pub(crate) async fn receipts(
    State(payments): State<Arc<Payments>>,
    caller: AgentCredentials,
    Path(agent): Path<String>,
    uri: Uri,
) -> Result<Json<SettlementList>, Failure> {
    let mut query = Query::of(&uri);
    let limit = query.limit("limit", DEFAULT_LIMIT, MAX_LIMIT);
    let caller = payments.authenticate(caller, &DecisionKeys::default()).await?.agent;
    if AgentId::parse(&agent) != Some(caller.id) {
        return Err(ErrorKind::NotFound.into());
    }
    query.finish()?;
    let settlements = payments.ledger.settlements(caller.id, None, limit).await?;
    let settlements: Vec<SettlementItem> = settlements.iter().map(SettlementItem::from).collect();
    Ok(Json(SettlementList {
        count: settlements.len(),
        settlements,
    }))
}
