//! `GET /services/{serviceId}`: one service with all operations and prices.

use crate::view::ServiceDetail;
use crate::{CACHE_CONTROL, CatalogApi};
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::Response;
use purser_api::{Cacheable, Failure, errors};
use purser_domain::{Error, ErrorKind};
use std::sync::Arc;

/// Read one service.
#[utoipa::path(
    get, path = "/services/{serviceId}", operation_id = "read_service",
    params(("serviceId" = String, Path, description = "The service's slug or UUID.")),
    responses(
        (status = 200, body = ServiceDetail<'static>, description = "The service with its operations, even if the service is disabled."),
        (status = 304, description = "Not modified, because `If-None-Match` has the current `ETag`."),
        errors::ServiceNotFound, errors::TemporarilyUnavailable,
    )
)]
pub(crate) async fn read_service(
    State(catalog_api): State<Arc<CatalogApi>>,
    headers: HeaderMap,
    Path(reference): Path<String>,
) -> Result<Response, Failure> {
    let now = catalog_api.clock.now();
    let edition = catalog_api.catalog.current(now).await?;
    let service = edition
        .catalog
        .find_by_reference(&reference)
        .ok_or(ErrorKind::ServiceNotFound)?;
    let body = serde_json::to_vec(&ServiceDetail::new(service, now))
        .map_err(|error| Error::internal("writing a service", error))?;
    Ok(Cacheable::new(body).respond(&headers, CACHE_CONTROL))
}
