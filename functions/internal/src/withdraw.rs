//! `POST /internal/services/{serviceId}/operations/{operationId}/withdraw-change`: withdraws a delayed payee or price.

use crate::edit::require_exact_version;
use crate::view::InternalService;
use crate::{AppState, Caller};
use purser_api::{Id, IfMatch, Reply, VersionTag, endpoint};
use purser_domain::{AuditKind, ErrorKind, OperationUuid, Service, ServiceId};

/// Withdraw an operation's delayed change (`next`).
///
/// Any operator can withdraw the change, including the operator who requested it. The current payee and price stay in
/// effect.
#[endpoint(
    post "/internal/services/{serviceId}/operations/{operationId}/withdraw-change",
    params(
        ("If-Match" = inline(VersionTag), Header, description = "The `ETag` of the service. `*` is rejected, because the version identifies the change to withdraw."),
    ),
    body = InternalService, returns = "The updated service."
)]
pub(crate) async fn withdraw_change(
    operators: AppState,
    Caller(operator): Caller,
    Id(id): Id<ServiceId>,
    Id(operation): Id<OperationUuid>,
    if_match: IfMatch,
) -> Reply {
    let precondition = require_exact_version(if_match)?;
    let change = |service: &mut Service| {
        let mut operations = service.operations.iter_mut();
        let withdrawn = operations.find(|listed_operation| listed_operation.id == operation);
        let next = withdrawn.and_then(|operation| operation.next.take());
        next.map(drop).ok_or_else(|| ErrorKind::NotFound.into())
    };
    operators
        .change_service(&operator, AuditKind::PaymentChangeWithdrawn, id, precondition, change)
        .await
}
