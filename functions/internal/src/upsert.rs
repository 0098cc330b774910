//! `PUT /internal/services/{serviceId}`: creates or replaces a catalog service, with all operations.
//!
//! The record that keeps the slug unique is written in the same transaction. Probe results are stored separately and
//! stay unchanged.

use crate::AppState;
use crate::Caller;
use crate::edit::{Change, Condition, EditResult};
use crate::entry::Entry;
use crate::view::InternalService;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use purser_api::{Body, OptionalIfMatch, Reply, endpoint, errors};
use purser_domain::{AuditKind, Error, ServiceId, ValidationError};

/// Create or replace a service.
#[endpoint(
    put "/internal/services/{serviceId}", operation_id = "upsert",
    params(
        ("serviceId" = uuid::Uuid, Path, description = "The service's UUID. For a new service, any unused UUID."),
    ),
    responses(
        (status = 200, body = InternalService, description = "The service was replaced, or was already identical."),
        (status = 201, body = InternalService, description = "The service was created."),
        errors::SlugTaken, errors::VersionRequired,
    )
)]
pub(crate) async fn upsert_service(
    operators: AppState,
    Caller(operator): Caller,
    Path(id): Path<String>,
    OptionalIfMatch(if_match): OptionalIfMatch,
    body: Body<Entry>,
) -> Reply {
    let id = ServiceId::parse(&id)
        .ok_or_else(|| Error::invalid(vec![ValidationError::at_path("/serviceId", "must be a UUID")]))?;
    let entry = Entry::parse_within_size_limit(&body.json()?)?;
    entry.check_endpoints(operators.network)?;
    let condition = Condition::from_upsert_precondition(if_match.into_precondition())?;
    let change = |stored: Option<&_>| Ok(Change::Write(Box::new(entry.clone().into_service(id, stored))));
    Ok(
        match operators
            .update_service(&operator, AuditKind::CatalogEdited, id, condition, change)
            .await?
        {
            EditResult::Created(service) => {
                (StatusCode::CREATED, operators.service_response(&service).await?).into_response()
            }
            EditResult::Present(service) => operators.service_response(&service).await?,
        },
    )
}
