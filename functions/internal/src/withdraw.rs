//! `POST /internal/services/{serviceId}/operations/{operationId}/withdraw-change`: withdraws a delayed payee or price.

use crate::edit::{Change, Condition, require_exact_version};
use crate::view::InternalService;
use crate::{AppState, Caller, Operators};
use purser_api::{Id, IfMatch, Operator, Precondition, Reply, VersionTag, endpoint};
use purser_domain::{AuditKind, ErrorKind, OperationUuid, Result, Service, ServiceId};

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
    let service = operators
        .withdraw_delayed_change(&operator, (id, operation), precondition)
        .await?;
    Ok(operators.service_response(&service).await?)
}

impl Operators {
    pub(crate) async fn withdraw_delayed_change(
        &self,
        operator: &Operator,
        (id, operation): (ServiceId, OperationUuid),
        precondition: Precondition,
    ) -> Result<Service> {
        let change = |stored: Option<&Service>| {
            let mut service = stored.ok_or(ErrorKind::NotFound)?.clone();
            let withdrawn = service
                .operations
                .iter_mut()
                .find(|listed_operation| listed_operation.id == operation);
            let next = withdrawn.and_then(|operation| operation.next.take());
            next.ok_or(ErrorKind::NotFound)?;
            Ok(Change::Write(Box::new(service)))
        };
        let condition = Condition::Existing(precondition);
        let updated = self.update_service(operator, AuditKind::PaymentChangeWithdrawn, id, condition, change);
        Ok(updated.await?.into_service())
    }
}
