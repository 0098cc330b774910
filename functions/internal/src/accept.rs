//! `POST /internal/services/{serviceId}/operations/{operationId}/accept-change`: a second operator accepts a
//! new payee or price, which shortens the delay.

use crate::edit::{Change, Condition, require_exact_version};
use crate::view::InternalService;
use crate::{AppState, Caller, Operators};
use purser_api::{Id, IfMatch, Operator, Precondition, Reply, VersionTag, endpoint};
use purser_domain::{AuditKind, OperationUuid, Result, Service, ServiceId};

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
    let precondition = require_exact_version(if_match)?;
    let service = operators
        .accept_delayed_change(&operator, (id, operation), precondition)
        .await?;
    Ok(operators
        .service_response_with_accepted_change(&service, Some(operation))
        .await?)
}

impl Operators {
    pub(crate) async fn accept_delayed_change(
        &self,
        operator: &Operator,
        (id, operation): (ServiceId, OperationUuid),
        precondition: Precondition,
    ) -> Result<Service> {
        let condition = Condition::Existing(precondition);
        let change = |_: Option<&Service>| Ok(Change::Accept(operation));
        let updated = self.update_service(operator, AuditKind::PaymentChangeAccepted, id, condition, change);
        Ok(updated.await?.into_service())
    }
}
