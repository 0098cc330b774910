//! `POST /internal/services/{serviceId}/operations/{operationId}/pin`: sets an operation's price and payee to the
//! values that a probe observed. The request repeats both, so that the operator sets only values that the operator saw.

use crate::entry::PaymentEntry;
use crate::view::InternalService;
use crate::{AppState, Caller};
use purser_api::{Body, Id, IfMatch, Reply, endpoint};
use purser_domain::{
    AuditKind, CatalogPayment, Error, ErrorKind, OperationUuid, Probe, Quote, Service, ServiceId, ValidationError,
};

purser_api::body! {
    /// The price and the payee that the operator saw in the operation's probe result. Purser stores these values in the
    /// catalog only if the last probe found the same values.
    pub(crate) struct PinBody {
        /// The payment, as in the operation's `probe.last_answer`.
        payment: PaymentEntry,
    }
}

/// Set an operation's price and payee to the values that a probe observed.
#[endpoint(
    post "/internal/services/{serviceId}/operations/{operationId}/pin", operation_id = "pin", body = InternalService,
    returns = "The updated service. A delayed change is in the operation's `next`."
)]
pub(crate) async fn set_price_from_probe(
    operators: AppState,
    Caller(operator): Caller,
    Id(id): Id<ServiceId>,
    Id(operation): Id<OperationUuid>,
    if_match: IfMatch,
    body: Body<PinBody>,
) -> Reply {
    let PinBody { payment } = body.parse()?;
    let (precondition, expected) = (if_match.into_precondition()?, CatalogPayment::from(payment));
    let record = operators.catalog.read_probe_record(id).await?;
    let change = |service: &mut Service| {
        let mut operations = service.operations.iter_mut();
        let pinned = operations.find(|listed_operation| listed_operation.id == operation);
        let pinned = pinned.ok_or(ErrorKind::NotFound)?;
        let response = record
            .latest_probe(pinned)
            .and_then(|Probe { answer: response, .. }| response.as_ref());
        let payment = response.and_then(|response| match &response.quote {
            Quote::Paid(payment) if *payment == expected => Some(payment.clone()),
            Quote::Paid(_) | Quote::Free => None,
        });
        let payment = payment.ok_or_else(|| {
            let message = "must be the payment that the last probe saw, as in `probe.last_answer`";
            Error::invalid(vec![ValidationError::at_path("/payment", message)])
        })?;
        (pinned.payment, pinned.next) = (Some(payment), None);
        Ok(())
    };
    operators
        .change_service(&operator, AuditKind::PaymentPinned, id, precondition, change)
        .await
}
