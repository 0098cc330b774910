//! `POST /internal/services/{serviceId}/probe`: requests a probe before the next scheduled probe.

use crate::view::InternalService;
use crate::{Operators, id_in_path};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use purser_api::{Failure, Operator, OperatorCredentials};
use purser_domain::{Act, AuditChanges, AuditKind, ErrorKind, Result, Service, ServiceId};
use std::sync::Arc;

purser_api::error_responses! {
    /// Errors of this endpoint.
    pub(crate) ProbeErrors: 401, 404, 413, 429, 500;
}

/// Request a probe of a service.
#[utoipa::path(
    post,
    path = "/internal/services/{serviceId}/probe",
    tag = "internal",
    security(("internalToken" = [])),
    params(("serviceId" = uuid::Uuid, Path, description = "The service's UUID.")),
    responses(
        (status = 202, body = InternalService, description = "Accepted. The next run, within about a minute, probes every operation. A disabled service is probed once it is no longer disabled."),
        ProbeErrors,
    )
)]
pub(crate) async fn probe(
    State(operators): State<Arc<Operators>>,
    caller: OperatorCredentials,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    let operator = operators.authenticate(caller).await?;
    let service = operators.request_probe(&operator, id_in_path(&id)?).await?;
    let record = operators.catalog.probes(service.id).await?;
    Ok((
        StatusCode::ACCEPTED,
        operators.show_with_probes(&service, &record, None).await?,
    )
        .into_response())
}

impl Operators {
    /// Requests a probe of a service. Returns the service.
    pub(crate) async fn request_probe(&self, operator: &Operator, id: ServiceId) -> Result<Service> {
        let service = self.catalog.service(id).await?.ok_or(ErrorKind::NotFound)?;
        let act = Act::new(AuditKind::ProbeRequested).about(id);
        let entry = self.entry(operator, &act, AuditChanges::default())?;
        self.catalog.request_probe(id, self.clock.now(), &entry).await?;
        Ok(service)
    }
}
