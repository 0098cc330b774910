//! `POST /x402/check/unpaid`: evaluates whether the agent may make a call without a payment.
//!
//! The handler makes the checks of authorize that need neither a price nor a payee, because a call for which the
//! provider asks for no payment never leads to an authorize request. A rejection is an HTTP error, so that a client
//! that ignores the response body does not mistake it for a permission.

use crate::AppState;
use crate::view::{UnpaidCheckAnswer, UnpaidCheckBody};
use axum::Json;
use purser_api::{AgentCredentials, Body, Reply, UnpaidCheckRequest, endpoint};
use purser_domain::{CallInputs, CatalogMatch, Error, ErrorKind, UnpaidDecision, UnpaidDenial, evaluate_unpaid};
use purser_store::DecisionKeys;

/// Evaluate a call that requires no payment.
#[endpoint(
    post "/x402/check/unpaid", operation_id = "check_unpaid", returns = "The call may be made now, without a payment.",
    errors(
        ServiceNotEnabled,
        OperationNotEnabledForAgent,
        DomainNotAllowed,
        PolicyBlocked,
        ServiceNotFound
    )
)]
pub(crate) async fn check_unpaid_call(
    payments: AppState,
    caller: AgentCredentials,
    body: Body<UnpaidCheckBody>,
) -> Reply<Json<UnpaidCheckAnswer>> {
    let started = payments.clock.now();
    let request = body.json().and_then(|body| UnpaidCheckRequest::parse(&body));
    let call = request.as_ref().ok().map(UnpaidCheckRequest::provider_call);
    let caller = payments.authenticate_for_decision(caller, call, DecisionKeys::default());
    let (edition, mut caller) = caller.await?;
    let request = request?;

    let CatalogMatch { service, operation } = CatalogMatch::find_in_catalog(request.provider_call(), &edition.catalog)?;
    caller.key_scope()?.check_service(service.id)?;
    let frozen_by_operators = caller.read.find_operator_freeze(&caller.agent)?;
    let enabled = caller.read.service_state_mut()?.enabled.take();
    let now = payments.clock.now();
    let decided = evaluate_unpaid(&CallInputs {
        agent: &caller.agent,
        request: &request.request,
        target: request.target.as_ref(),
        named: request.operation.as_ref(),
        service,
        operation,
        enabled: enabled.as_ref(),
        frozen_by_operators,
        at: now,
    });
    match (decided, operation) {
        (UnpaidDecision::Allow, Some(operation)) => Ok(Json(UnpaidCheckAnswer {
            check: true,
            result: "allow",
            agent_id: caller.agent.id,
            service_id: service.id,
            operation_id: operation.slug.to_string(),
        })),
        (UnpaidDecision::Refuse { reason, checks }, _) => {
            let latency_ms = now.since(started).millis();
            let denial = UnpaidDenial {
                reason,
                checks,
                latency_ms,
            };
            Err(ErrorKind::UnpaidRefused(Box::new(denial)).into())
        }
        (UnpaidDecision::NeedsTarget, _) => Err(Error::field_required("target_url").into()),
        // No policy allows an operation that is not in the catalog.
        (UnpaidDecision::Allow, None) => Err(ErrorKind::ServiceNotFound.into()),
    }
}
