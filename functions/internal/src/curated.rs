//! `PUT /internal/services/{serviceId}/curated`: sets whether agents may use a service.

use crate::edit::{Condition, require_existing_service};
use crate::view::InternalService;
use crate::{Caller, Operators};
use axum::extract::State;
use axum::response::Response;
use purser_api::{Body, Failure, Id, IfMatch};
use purser_domain::ServiceId;
use purser_domain::{AuditKind, Service};
use std::sync::Arc;

purser_api::body! {
    /// The new value of a service's field `curated`. Agents may use only curated services.
    pub(crate) struct CuratedBody {
        curated: bool,
    }
}

/// Set whether agents may use a service.
#[utoipa::path(
    put, path = "/internal/services/{serviceId}/curated", operation_id = "curated",
    responses(
        (status = 200, body = InternalService, description = "The updated service. Agents keep their policies for the service. While the service is not curated, `POST /x402/authorize` returns `service_not_found`."),
    )
)]
pub(crate) async fn set_curated(
    State(operators): State<Arc<Operators>>,
    Caller(operator): Caller,
    Id(id): Id<ServiceId>,
    if_match: IfMatch,
    body: Body<CuratedBody>,
) -> Result<Response, Failure> {
    let CuratedBody { curated } = body.parse()?;
    let condition = Condition::Existing(if_match.into_precondition()?);
    let change = require_existing_service(|stored| Service {
        curated,
        ..stored.clone()
    });
    let updated = operators
        .update_service(&operator, AuditKind::CuratedSet, id, condition, change)
        .await?;
    Ok(operators.service_response(&updated.into_service()).await?)
}
