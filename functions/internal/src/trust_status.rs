//! `PUT /internal/services/{serviceId}/trust-status`: sets how thoroughly a service has been checked.

use crate::edit::{Condition, of_existing};
use crate::view::InternalService;
use crate::{Operators, id_in_path};
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::response::Response;
use purser_api::{Failure, IfMatch, Member as _, OperatorCredentials, VersionTag, json_body};
use purser_domain::{AuditKind, Service, TrustStatus};
use std::sync::Arc;

purser_api::error_responses! {
    /// Errors of this endpoint.
    pub(crate) TrustStatusErrors: 400, 401, 404, 412, 413, 428, 429, 500;
}

purser_api::body! {
    /// A service's new trust status.
    pub(crate) struct TrustStatusBody {
        /// The new trust status: `listed`, `discovered`, `probe_passed`, `platform_verified` or `disabled`.
        trust_status: TrustStatus = {"example": "disabled"},
    }
}

/// Set a service's trust status.
#[utoipa::path(
    put,
    path = "/internal/services/{serviceId}/trust-status",
    tag = "internal",
    security(("internalToken" = [])),
    params(
        ("serviceId" = uuid::Uuid, Path, description = "The service's UUID."),
        ("If-Match" = inline(VersionTag), Header, description = "The `ETag` of the entry as read, or `*`."),
    ),
    request_body = TrustStatusBody,
    responses((status = 200, body = InternalService, description = "The updated service."), TrustStatusErrors)
)]
pub(crate) async fn trust_status(
    State(operators): State<Arc<Operators>>,
    caller: OperatorCredentials,
    Path(id): Path<String>,
    if_match: IfMatch,
    body: Bytes,
) -> Result<Response, Failure> {
    let operator = operators.authenticate(caller).await?;
    let id = id_in_path(&id)?;
    let TrustStatusBody { trust_status } = TrustStatusBody::parse(&json_body(&body)?)?;
    let condition = Condition::Existing(if_match.precondition()?);
    let change = of_existing(|stored| Service {
        trust_status,
        ..stored.clone()
    });
    let edited = operators
        .edit(&operator, AuditKind::TrustStatusSet, id, condition, change)
        .await?;
    Ok(operators.show(&edited.service()).await?)
}
