//! `GET /internal/services/{serviceId}`: one catalog service, with the probe results.

use crate::view::InternalService;
use crate::{Caller, Operators};
use axum::extract::State;
use axum::response::Response;
use purser_api::{Failure, Id};
use purser_domain::ErrorKind;
use purser_domain::ServiceId;
use std::sync::Arc;

/// Read one service, with its probe results.
#[utoipa::path(
    get, path = "/internal/services/{serviceId}", operation_id = "read_internal_service",
    responses((status = 200, body = InternalService, description = "The service, with its version as `ETag`."))
)]
pub(crate) async fn read_internal_service(
    State(operators): State<Arc<Operators>>,
    Caller(_operator): Caller,
    Id(id): Id<ServiceId>,
) -> Result<Response, Failure> {
    let service = operators.catalog.read_service_by_id(id).await?;
    Ok(operators.service_response(&service.ok_or(ErrorKind::NotFound)?).await?)
}
