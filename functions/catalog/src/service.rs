//! `GET /services/{serviceId}`: one service with all operations and prices.

use crate::view::ServiceDetail;
use crate::{AppState, CACHE_CONTROL};
use axum::extract::Path;
use axum::http::HeaderMap;
use purser_api::{Cacheable, Reply, endpoint};
use purser_domain::{Error, ErrorKind};

/// Read one service.
#[endpoint(
    get "/services/{serviceId}", params(("serviceId" = String, Path, description = "The service's slug or UUID.")),
    body = ServiceDetail<'static>, returns = "The service with its operations, even if the service is disabled.",
    cached(), errors(ServiceNotFound, TemporarilyUnavailable)
)]
pub(crate) async fn read_service(catalog_api: AppState, headers: HeaderMap, Path(reference): Path<String>) -> Reply {
    let now = catalog_api.clock.now();
    let catalog_version = catalog_api.catalog.current(now).await?;
    let service = catalog_version
        .catalog
        .find_by_reference(&reference)
        .ok_or(ErrorKind::ServiceNotFound)?;
    let body = serde_json::to_vec(&ServiceDetail::new(service, now))
        .map_err(|error| Error::internal("serializing a service", error))?;
    Ok(Cacheable::new(body).respond(&headers, CACHE_CONTROL))
}
