//! `PUT /internal/services/{serviceId}/curated`: sets whether agents may use a service.

use crate::view::InternalService;
use crate::{AppState, Caller};
use purser_api::{Body, Id, IfMatch, Reply, endpoint};
use purser_domain::ServiceId;
use purser_domain::{AuditKind, Service};

purser_api::body! {
    /// The new value of a service's field `curated`. Agents may use only curated services.
    pub(crate) struct CuratedBody {
        curated: bool,
    }
}

/// Set whether agents may use a service.
#[endpoint(
    put "/internal/services/{serviceId}/curated", operation_id = "curated", body = InternalService,
    returns = "The updated service. Agents keep their policies for the service. While the service is not curated, `POST /x402/authorize` returns `service_not_found`."
)]
pub(crate) async fn set_curated(
    operators: AppState,
    Caller(operator): Caller,
    Id(id): Id<ServiceId>,
    if_match: IfMatch,
    body: Body<CuratedBody>,
) -> Reply {
    let CuratedBody { curated } = body.parse()?;
    let change = |service: &mut Service| {
        service.curated = curated;
        Ok(())
    };
    operators
        .change_service(
            &operator,
            AuditKind::CuratedSet,
            id,
            if_match.into_precondition()?,
            change,
        )
        .await
}
