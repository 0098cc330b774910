//! `POST /internal/services/{serviceId}/probe`: requests a probe before the next scheduled probe.

use crate::view::InternalService;
use crate::{AppState, Caller, Operators};
use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use purser_api::{Id, Operator, Reply, endpoint};
use purser_domain::{Act, AuditChanges, AuditKind, ErrorKind, Result, Service, ServiceId};

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
    let service = operators.request_service_probe(&operator, id).await?;
    Ok((StatusCode::ACCEPTED, operators.service_response(&service).await?).into_response())
}

impl Operators {
    pub(crate) async fn request_service_probe(&self, operator: &Operator, id: ServiceId) -> Result<Service> {
        let service = self.catalog.read_service_by_id(id).await?.ok_or(ErrorKind::NotFound)?;
        let action = Act::new(AuditKind::ProbeRequested).about_service(id);
        let entry = self.audit_entry(operator, &action, AuditChanges::default())?;
        self.catalog.request_probe(id, self.clock.now(), &entry).await?;
        Ok(service)
    }
}
