//! `GET /agents/{agentId}/services/{serviceId}/policy`: what the agent may spend on one service.

use crate::view::EnabledServiceView;
use crate::{Agents, own};
use axum::Json;
use axum::extract::{Path, State};
use purser_api::{Caller, Failure};
use purser_domain::{ErrorKind, ServiceId};
use std::sync::Arc;

purser_api::error_responses! {
    /// What this endpoint may be refused with.
    pub(crate) PolicyErrors: 401, 404, 429, 500;
}

/// The agent's policy for one service.
#[utoipa::path(
    get,
    path = "/agents/{agentId}/services/{serviceId}/policy",
    tag = "agents",
    security(("agentKey" = [])),
    params(
        ("agentId" = String, Path, description = "The caller's own id."),
        ("serviceId" = String, Path, description = "Slug or UUID."),
    ),
    responses(
        (status = 200, body = EnabledServiceView, description = "The record, disabled ones included."),
        PolicyErrors,
    )
)]
pub(crate) async fn policy(
    State(agents): State<Arc<Agents>>,
    caller: Caller,
    Path((agent, reference)): Path<(String, String)>,
) -> Result<Json<EnabledServiceView>, Failure> {
    let edition = agents.catalog.current(agents.clock.now()).await?;
    let service = edition.catalog.by_reference(&reference);
    // A record outlives its service's catalog entry, and is then found by UUID alone.
    let id = service
        .map(|service| service.id)
        .or_else(|| ServiceId::parse(&reference));
    let read = async |caller| match id {
        Some(id) => agents.ledger.enabled_service(caller, id).await,
        None => Ok(None),
    };
    let (caller, record) = agents.enter_reading(caller, read).await?;
    own(&caller, &agent)?;
    let record = record.ok_or(ErrorKind::NotFound)?;
    Ok(Json(EnabledServiceView::of(&record, service)))
}
