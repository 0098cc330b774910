//! `PUT /internal/services/{serviceId}/trust-status`: sets how thoroughly a service has been checked.

use crate::edit::{Condition, require_existing_service};
use crate::view::InternalService;
use crate::{Caller, Operators};
use axum::extract::State;
use axum::response::Response;
use purser_api::{Body, Failure, Id, IfMatch};
use purser_domain::ServiceId;
use purser_domain::{AuditKind, Service, TrustStatus};
use std::sync::Arc;

purser_api::body! {
    /// The trust status that replaces the service's current trust status. With `disabled`, the service cannot be paid.
    pub(crate) struct TrustStatusBody {
        /// The new trust status: `listed`, `discovered`, `probe_passed`, `platform_verified` or `disabled`.
        trust_status: TrustStatus = {"example": "disabled"},
    }
}

/// Set a service's trust status.
#[utoipa::path(
    put, path = "/internal/services/{serviceId}/trust-status", operation_id = "trust_status",
    responses((status = 200, body = InternalService, description = "The updated service."))
)]
pub(crate) async fn set_trust_status(
    State(operators): State<Arc<Operators>>,
    Caller(operator): Caller,
    Id(id): Id<ServiceId>,
    if_match: IfMatch,
    body: Body<TrustStatusBody>,
) -> Result<Response, Failure> {
    let TrustStatusBody { trust_status } = body.parse()?;
    let condition = Condition::Existing(if_match.into_precondition()?);
    let change = require_existing_service(|stored| Service {
        trust_status,
        ..stored.clone()
    });
    let updated = operators
        .update_service(&operator, AuditKind::TrustStatusSet, id, condition, change)
        .await?;
    Ok(operators.service_response(&updated.into_service()).await?)
}
