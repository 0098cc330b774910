//! Operators' actions in a browser, for which the Lambda function `people` (the dashboard) invokes the Lambda function
//! `internal` directly.
//!
//! `people` sends the user id, and `internal` decides whether the user is an operator (`browser.rs`). An action can
//! select only payees that a probe has observed. No action can create a service, replace a whole service, or open a
//! service to agents.

use crate::freezes::FreezeOutcome;
use crate::{AppState, Operators};
use axum::Json;
use purser_api::{BrowserAct, Direct, Failure, OperationAt, Operator, OperatorAct, OperatorResponse, Precondition};
use purser_domain::{Error, OperatorReason, Result, Service, UserId, ValidationError};

/// Handles a request from the Lambda function `people`. IAM lets no other function invoke this route.
pub(crate) async fn handle_browser_operator_request(
    operators: AppState,
    Direct(action): Direct<BrowserAct>,
) -> Result<Json<OperatorResponse>, Failure> {
    let Some(operator) = operators.find_browser_operator(&action).await? else {
        tracing::warn!("operator.not_registered");
        return Ok(Json(OperatorResponse::NotAnOperator {}));
    };
    let response = operators.execute_operator_action(&operator, action.act).await;
    Ok(Json(response.or_else(OperatorResponse::from_rejection)?))
}

impl Operators {
    async fn execute_operator_action(&self, operator: &Operator, action: OperatorAct) -> Result<OperatorResponse> {
        match action {
            OperatorAct::AcceptChange(at) => {
                self.accept_delayed_change(operator, (at.service, at.operation), version_precondition(at))
                    .await?;
            }
            OperatorAct::WithdrawChange(at) => {
                self.withdraw_delayed_change(operator, (at.service, at.operation), version_precondition(at))
                    .await?;
            }
            OperatorAct::PinPayment { at, payment } => {
                let pinned =
                    self.set_probed_payment(operator, (at.service, at.operation), version_precondition(at), |seen| {
                        payment.matches_payment(seen)
                    });
                return Ok(price_change_response(&pinned.await?, at));
            }
            OperatorAct::RequestProbe { service_id } => {
                self.request_service_probe(operator, service_id).await?;
            }
            OperatorAct::Freeze { target, reason } => {
                let target = self.check_target_exists(target).await?;
                let outcome = self.begin_freeze(operator, target, parse_reason(&reason)?).await?;
                return Ok(outcome.into());
            }
            OperatorAct::EndFreeze { target } => {
                return Ok(self.end_freeze(operator, &target).await?.into());
            }
            OperatorAct::OfferAgent { agent_id, to, reason } => {
                let agent = self.find_agent_for_ownership_transfer(agent_id).await?;
                let to = UserId::parse(&to);
                let to =
                    to.ok_or_else(|| invalid_field_error("/to", "must be a person's ID: 64 hexadecimal digits"))?;
                let offer = self
                    .offer_ownership(operator, &agent, to, parse_reason(&reason)?)
                    .await?;
                if offer.awaits_second_operator() {
                    return Ok(OperatorResponse::AwaitsSecond {});
                }
            }
            OperatorAct::WithdrawOffer { agent_id } => {
                self.withdraw_ownership_offer(operator, agent_id).await?;
            }
            OperatorAct::Reconcile {
                agent_id,
                settlement_id,
            } => {
                self.request_settlement_reconcile(operator, agent_id, settlement_id)
                    .await?;
            }
        }
        Ok(OperatorResponse::Done {})
    }
}

impl From<FreezeOutcome> for OperatorResponse {
    fn from(outcome: FreezeOutcome) -> Self {
        match outcome {
            FreezeOutcome::Done => Self::Done {},
            FreezeOutcome::AwaitsSecond => Self::AwaitsSecond {},
            FreezeOutcome::NeedsToken => Self::TokenRequired {},
        }
    }
}

const fn version_precondition(at: OperationAt) -> Precondition {
    Precondition::Version(at.version)
}

/// Returns `AwaitsSecond` if a second operator must accept the price change.
fn price_change_response(service: &Service, at: OperationAt) -> OperatorResponse {
    let mut operations = service.operations.iter();
    let operation = operations.find(|listed_operation| listed_operation.id == at.operation);
    let next = operation.and_then(|operation| operation.next.as_ref());
    if next.is_some_and(|next| next.effective_from().is_none()) {
        OperatorResponse::AwaitsSecond {}
    } else {
        OperatorResponse::Done {}
    }
}

fn parse_reason(text: &str) -> Result<OperatorReason> {
    OperatorReason::parse(text).ok_or_else(|| invalid_field_error("/reason", OperatorReason::FORM))
}

fn invalid_field_error(path: &str, message: &str) -> Error {
    Error::invalid(vec![ValidationError::at_path(path, message)])
}
