//! `GET /internal/services/{serviceId}`: one catalog service, with the probe results.

use crate::view::InternalService;
use crate::{AppState, Caller};
use purser_api::{Id, Reply, endpoint};
use purser_domain::ErrorKind;
use purser_domain::ServiceId;

/// Read one service, with its probe results.
#[endpoint(
    get "/internal/services/{serviceId}", body = InternalService, returns = "The service, with its version as `ETag`."
)]
pub(crate) async fn read_internal_service(
    operators: AppState,
    Caller(_operator): Caller,
    Id(id): Id<ServiceId>,
) -> Reply {
    let service = operators.catalog.read_service_by_id(id).await?;
    Ok(operators.service_response(&service.ok_or(ErrorKind::NotFound)?).await?)
}
