//! `POST /internal/services/{serviceId}/probe`: requests a probe before the next scheduled probe.

use crate::view::InternalService;
use crate::{Caller, Operators};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use purser_api::{Failure, Id, Operator};
use purser_domain::{Act, AuditChanges, AuditKind, ErrorKind, Result, Service, ServiceId};
use std::sync::Arc;

/// Request a probe, which calls each operation of the service without paying.
#[utoipa::path(
    post, path = "/internal/services/{serviceId}/probe", operation_id = "probe",
    responses(
        (status = 202, body = InternalService, description = "The service. Within about a minute, the next run probes all of its operations. A disabled service is probed once it is no longer disabled."),
    )
)]
pub(crate) async fn handle_probe_request(
    State(operators): State<Arc<Operators>>,
    Caller(operator): Caller,
    Id(id): Id<ServiceId>,
) -> Result<Response, Failure> {
    let service = operators.request_service_probe(&operator, id).await?;
    let record = operators.catalog.read_probe_record(service.id).await?;
    Ok((
        StatusCode::ACCEPTED,
        operators.service_response_with_probes(&service, &record, None).await?,
    )
        .into_response())
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
