//! `POST /internal/services/{serviceId}/operations/{operationId}/accept-change`: a second operator ends the delay of a
//! new payee or price in the catalog. Payments to the new payee then start after the shorter delay for accepted changes
//! (`shared/domain/src/catalog/attested.rs`).

use crate::edit::{Change, Condition, exact};
use crate::view::InternalService;
use crate::{Operators, id_in_path, operation_in_path};
use axum::extract::{Path, State};
use axum::response::Response;
use purser_api::{Failure, IfMatch, Operator, OperatorCredentials, Precondition, VersionTag};
use purser_domain::{AuditKind, OperationUuid, Result, Service, ServiceId};
use std::sync::Arc;

purser_api::error_responses! {
    /// Errors of this endpoint.
    pub(crate) AcceptErrors: 400, 401, 403, 404, 412, 413, 428, 429, 500;
}

/// Accept an operation's delayed change (`next`).
///
/// The catalog shows the change immediately. Agents can pay the new payee or price from `paid_from`, by default one
/// hour later. This second delay cannot be shortened. The operator who requested the change cannot accept it.
#[utoipa::path(
    post,
    path = "/internal/services/{serviceId}/operations/{operationId}/accept-change",
    tag = "internal",
    security(("internalToken" = [])),
    params(
        ("serviceId" = uuid::Uuid, Path, description = "The service's UUID."),
        ("operationId" = uuid::Uuid, Path, description = "The operation's `id`."),
        (
            "If-Match" = inline(VersionTag), Header,
            description = "The `ETag` of the entry as read. It identifies the change that is accepted, so `*` is refused.",
        ),
    ),
    responses(
        (status = 200, body = InternalService, description = "The updated service."),
        AcceptErrors,
    )
)]
pub(crate) async fn accept_change(
    State(operators): State<Arc<Operators>>,
    caller: OperatorCredentials,
    Path((id, operation)): Path<(String, String)>,
    if_match: IfMatch,
) -> Result<Response, Failure> {
    let operator = operators.authenticate(caller).await?;
    let (id, operation) = (id_in_path(&id)?, operation_in_path(&operation)?);
    let precondition = exact(if_match)?;
    let service = operators.accept(&operator, (id, operation), precondition).await?;
    Ok(operators.show_accepted(&service, Some(operation)).await?)
}

impl Operators {
    /// Accepts an operation's delayed change as a second operator. Returns the stored service.
    pub(crate) async fn accept(
        &self,
        operator: &Operator,
        (id, operation): (ServiceId, OperationUuid),
        precondition: Precondition,
    ) -> Result<Service> {
        let condition = Condition::Existing(precondition);
        let change = |_: Option<&Service>| Ok(Change::Accept(operation));
        let edited = self.edit(operator, AuditKind::PaymentChangeAccepted, id, condition, change);
        Ok(edited.await?.service())
    }
}
