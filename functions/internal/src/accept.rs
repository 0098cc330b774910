//! `POST /internal/services/{serviceId}/operations/{operationId}/accept-change`: a second operator accepts a
//! new payee or price, which shortens the delay.

use crate::edit::{Change, Condition, require_exact_version};
use crate::view::InternalService;
use crate::{AppState, Caller};
use purser_api::{Id, IfMatch, Reply, VersionTag, endpoint};
use purser_domain::{AuditKind, OperationUuid, Service, ServiceId};

/// Accept an operation's delayed change (`next`).
///
/// The catalog shows the change immediately. Agents can pay the new payee or price from `paid_from`, by default one
/// hour later. No operator can shorten this second delay. The operator who requested the change cannot accept the
/// change.
#[endpoint(
    post "/internal/services/{serviceId}/operations/{operationId}/accept-change",
    params(
        ("If-Match" = inline(VersionTag), Header, description = "The `ETag` of the service. `*` is rejected, because the version identifies the change to accept."),
    ),
    body = InternalService, returns = "The updated service.", errors(SecondOperatorRequired)
)]
pub(crate) async fn accept_change(
    operators: AppState,
    Caller(operator): Caller,
    Id(id): Id<ServiceId>,
    Id(operation): Id<OperationUuid>,
    if_match: IfMatch,
) -> Reply {
    let condition = Condition::Existing(require_exact_version(if_match)?);
    let change = |_: Option<&Service>| Ok(Change::Accept(operation));
    let updated = operators.update_service(&operator, AuditKind::PaymentChangeAccepted, id, condition, change);
    let service = updated.await?.into_service();
    Ok(operators
        .service_response_with_accepted_change(&service, Some(operation))
        .await?)
}
