//! `GET /internal/services/{serviceId}`: one catalog service, with its probe results.

use crate::view::InternalService;
use crate::{Operators, id_in_path};
use axum::extract::{Path, State};
use axum::response::Response;
use purser_api::{Failure, OperatorCredentials};
use purser_domain::ErrorKind;
use std::sync::Arc;

purser_api::error_responses! {
    /// Errors of this endpoint.
    pub(crate) ServiceErrors: 401, 404, 429, 500;
}

/// Read one service, with its probe results.
#[utoipa::path(
    get,
    path = "/internal/services/{serviceId}",
    operation_id = "read_internal_service",
    tag = "internal",
    security(("internalToken" = [])),
    params(("serviceId" = uuid::Uuid, Path, description = "The service's UUID.")),
    responses(
        (status = 200, body = InternalService, description = "The entry as of now, its version as `ETag`."),
        ServiceErrors,
    )
)]
pub(crate) async fn service(
    State(operators): State<Arc<Operators>>,
    caller: OperatorCredentials,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    let _operator = operators.authenticate(caller).await?;
    let service = operators.catalog.service(id_in_path(&id)?).await?;
    Ok(operators.show(&service.ok_or(ErrorKind::NotFound)?).await?)
}
