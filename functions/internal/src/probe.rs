//! `POST /internal/services/{serviceId}/probe`: requests a probe before the next scheduled probe.

use crate::view::InternalService;
use crate::{AppState, Caller};
use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use purser_api::{Id, Reply, endpoint};
use purser_domain::{Act, AuditChanges, AuditKind, ErrorKind, ServiceId};

/// Request a probe, which calls each operation of the service without paying.
#[endpoint(
    post "/internal/services/{serviceId}/probe", operation_id = "probe", status = 202, body = InternalService,
    returns = "The service. Within about a minute, the next run probes all of its operations. A disabled service is probed once it is no longer disabled."
)]
pub(crate) async fn handle_probe_request(
    operators: AppState,
    Caller(operator): Caller,
    Id(id): Id<ServiceId>,
) -> Reply {
    let stored = operators.catalog.read_service_by_id(id).await?;
    let service = stored.ok_or(ErrorKind::NotFound)?;
    let action = Act::new(AuditKind::ProbeRequested).about_service(id);
    let entry = operators.audit_entry(&operator, &action, AuditChanges::default())?;
    operators
        .catalog
        .request_probe(id, operators.clock.now(), &entry)
        .await?;
    Ok((StatusCode::ACCEPTED, operators.service_response(&service).await?).into_response())
}
