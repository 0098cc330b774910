//! `POST /internal/services/{serviceId}/operations/{operationId}/pin`: stores the payment that a probe saw in the
//! catalog.
//!
//! The body repeats the payment, so that the pinned payment is the one that the operator saw. As with every edit,
//! another payee or a raised price is delayed, and so is a first payment in a service that is or was open.

use crate::edit::{Change, Condition, Edited};
use crate::entry::PaymentEntry;
use crate::view::InternalService;
use crate::{Operators, id_in_path, operation_in_path};
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::response::Response;
use purser_api::{Failure, IfMatch, Member as _, OperatorCredentials, VersionTag, json_body};
use purser_domain::{
    AuditKind, CatalogPayment, Error, ErrorKind, OperationUuid, Probe, ProbeRecord, Problem, Quote, Result, Service,
};
use std::sync::Arc;

purser_api::error_responses! {
    /// The errors of this endpoint.
    pub(crate) PinErrors: 400, 401, 404, 412, 413, 428, 429, 500;
}

purser_api::body! {
    /// The payment that the operator saw.
    pub(crate) struct PinBody {
        /// The payment in `probe.last_answer` of the operation.
        payment: PaymentEntry,
    }
}

/// Pin the payment that a probe saw.
#[utoipa::path(
    post,
    path = "/internal/services/{serviceId}/operations/{operationId}/pin",
    tag = "internal",
    security(("internalToken" = [])),
    params(
        ("serviceId" = uuid::Uuid, Path, description = "The service's UUID."),
        ("operationId" = uuid::Uuid, Path, description = "The operation's `id`."),
        ("If-Match" = inline(VersionTag), Header, description = "The `ETag` of the entry as read, or `*`."),
    ),
    request_body = PinBody,
    responses(
        (status = 200, body = InternalService, description = "The updated service. A delayed change is in the operation's `next`."),
        PinErrors,
    )
)]
pub(crate) async fn pin(
    State(operators): State<Arc<Operators>>,
    caller: OperatorCredentials,
    Path((id, operation)): Path<(String, String)>,
    if_match: IfMatch,
    body: Bytes,
) -> Result<Response, Failure> {
    let operator = operators.authenticate(caller).await?;
    let (id, operation) = (id_in_path(&id)?, operation_in_path(&operation)?);
    let PinBody { payment } = PinBody::parse(&json_body(&body)?)?;
    let condition = Condition::Existing(if_match.precondition()?);
    let (payment, record) = (CatalogPayment::from(payment), operators.catalog.probes(id).await?);
    let change = |stored: Option<&Service>| {
        let stored = stored.ok_or(ErrorKind::NotFound)?;
        pinned(stored, operation, &payment, &record).map(|service| Change::Write(Box::new(service)))
    };
    let (Edited::Created(service) | Edited::Present(service)) = operators
        .edit(&operator, AuditKind::PaymentPinned, id, condition, change)
        .await?;
    Ok(operators.show(&service).await?)
}

/// The service with this payment of an operation, if it is the payment that a probe saw last.
fn pinned(
    stored: &Service,
    operation: OperationUuid,
    payment: &CatalogPayment,
    record: &ProbeRecord,
) -> Result<Service> {
    let mut service = stored.clone();
    let pinned = service.operations.iter_mut().find(|one| one.id == operation);
    let pinned = pinned.ok_or(ErrorKind::NotFound)?;
    let answer = record.of(pinned).and_then(|Probe { answer, .. }| answer.as_ref());
    if answer.is_none_or(|answer| answer.quote != Quote::Paid(payment.clone())) {
        let message = "must be the payment that the last probe saw, as in `probe.last_answer`";
        return Err(Error::invalid(vec![Problem::at("/payment", message)]));
    }
    (pinned.payment, pinned.next) = (Some(payment.clone()), None);
    Ok(service)
}
