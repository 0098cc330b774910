//! `PUT /internal/services/{serviceId}/curated`: sets whether agents may use a service.

use crate::edit::{Condition, of_existing};
use crate::view::InternalService;
use crate::{Operators, id_in_path};
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::response::Response;
use purser_api::{Failure, IfMatch, Member as _, OperatorCredentials, VersionTag, json_body};
use purser_domain::{AuditKind, Service};
use std::sync::Arc;

purser_api::error_responses! {
    /// Errors of this endpoint.
    pub(crate) CuratedErrors: 400, 401, 404, 412, 413, 428, 429, 500;
}

purser_api::body! {
    /// Whether agents may use the service.
    pub(crate) struct CuratedBody {
        curated: bool,
    }
}

/// Set whether agents may use a service.
#[utoipa::path(
    put,
    path = "/internal/services/{serviceId}/curated",
    tag = "internal",
    security(("internalToken" = [])),
    params(
        ("serviceId" = uuid::Uuid, Path, description = "The service's UUID."),
        ("If-Match" = inline(VersionTag), Header, description = "The `ETag` of the entry as read, or `*`."),
    ),
    request_body = CuratedBody,
    responses(
        (status = 200, body = InternalService, description = "The updated service. Agents that had it enabled keep their policies; while it is not curated, they receive `service_not_found`."),
        CuratedErrors,
    )
)]
pub(crate) async fn curated(
    State(operators): State<Arc<Operators>>,
    caller: OperatorCredentials,
    Path(id): Path<String>,
    if_match: IfMatch,
    body: Bytes,
) -> Result<Response, Failure> {
    let operator = operators.authenticate(caller).await?;
    let id = id_in_path(&id)?;
    let CuratedBody { curated } = CuratedBody::parse(&json_body(&body)?)?;
    let condition = Condition::Existing(if_match.precondition()?);
    let change = of_existing(|stored| Service {
        curated,
        ..stored.clone()
    });
    let edited = operators
        .edit(&operator, AuditKind::CuratedSet, id, condition, change)
        .await?;
    Ok(operators.show(&edited.service()).await?)
}
