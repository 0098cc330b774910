//! `PUT /internal/services/{serviceId}`: creates or replaces a catalog service, with all its operations.
//!
//! The service is stored as one item that includes the aggregates for lists. The slug's uniqueness record is written in
//! the same transaction. Probe results are not part of the request body. They are stored separately and are kept.

use crate::Operators;
use crate::edit::{Change, Condition, EditResult};
use crate::entry::Entry;
use crate::view::InternalService;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use purser_api::{Failure, IfMatch, OperatorCredentials, VersionTag};
use purser_domain::{AuditKind, Error, Problem, ServiceId};
use std::sync::Arc;

purser_api::error_responses! {
    /// Errors of this endpoint.
    pub(crate) UpsertErrors: 400, 401, 409, 412, 413, 428, 429, 500;
}

/// Create or replace a service.
#[utoipa::path(
    put,
    path = "/internal/services/{serviceId}",
    tag = "internal",
    security(("internalToken" = [])),
    params(
        ("serviceId" = uuid::Uuid, Path, description = "The service's UUID. For a new service, any unused UUID."),
        (
            "If-Match" = inline(Option<VersionTag>), Header, nullable = false,
            description = "The `ETag` of the entry as read, or `*`; required unless the service is new.",
        ),
    ),
    request_body = Entry,
    responses(
        (status = 200, body = InternalService, description = "Replaced, or already identical."),
        (status = 201, body = InternalService, description = "Created."),
        UpsertErrors,
    )
)]
pub(crate) async fn upsert(
    State(operators): State<Arc<Operators>>,
    caller: OperatorCredentials,
    Path(id): Path<String>,
    if_match: IfMatch,
    body: Bytes,
) -> Result<Response, Failure> {
    let operator = operators.authenticate(caller).await?;
    let id = ServiceId::parse(&id).ok_or_else(|| Error::invalid(vec![Problem::at("/serviceId", "must be a UUID")]))?;
    let entry = Entry::parse_whole(&purser_api::json_body(&body)?)?;
    entry.check_endpoints(operators.network)?;
    let condition = Condition::of_upsert(if_match.precondition())?;
    let change = |stored: Option<&_>| Ok(Change::Write(Box::new(entry.clone().into_service(id, stored))));
    Ok(
        match operators
            .edit(&operator, AuditKind::CatalogEdited, id, condition, change)
            .await?
        {
            EditResult::Created(service) => (StatusCode::CREATED, operators.show(&service).await?).into_response(),
            EditResult::Present(service) => operators.show(&service).await?,
        },
    )
}
