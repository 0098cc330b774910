//! `PUT /internal/services/{serviceId}/trust-status`: sets how thoroughly a service has been checked.

use crate::view::InternalService;
use crate::{AppState, Caller};
use purser_api::{Body, Id, IfMatch, Reply, endpoint};
use purser_domain::ServiceId;
use purser_domain::{AuditKind, Service, TrustStatus};

purser_api::body! {
    /// The trust status that replaces the service's current trust status. With `disabled`, the service cannot be paid.
    pub(crate) struct TrustStatusBody {
        /// The new trust status: `listed`, `discovered`, `probe_passed`, `platform_verified` or `disabled`.
        trust_status: TrustStatus = {"example": "disabled"},
    }
}

/// Set a service's trust status.
#[endpoint(
    put "/internal/services/{serviceId}/trust-status", operation_id = "trust_status", body = InternalService,
    returns = "The updated service."
)]
pub(crate) async fn set_trust_status(
    operators: AppState,
    Caller(operator): Caller,
    Id(id): Id<ServiceId>,
    if_match: IfMatch,
    body: Body<TrustStatusBody>,
) -> Reply {
    let TrustStatusBody { trust_status } = body.parse()?;
    let change = |service: &mut Service| {
        service.trust_status = trust_status;
        Ok(())
    };
    operators
        .change_service(
            &operator,
            AuditKind::TrustStatusSet,
            id,
            if_match.into_precondition()?,
            change,
        )
        .await
}
