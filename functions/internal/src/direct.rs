//! Operators' actions in a browser, which `people` requests directly, without the API gateway. Each action is the same
//! operation as an HTTP route.
//!
//! `people` sends the acting user, and this function decides whether the user is an operator (`browser.rs`). No action
//! can specify a payee that no probe has observed, write a catalog entry, or open a service to agents.

use crate::Operators;
use crate::freezes::FreezeOutcome;
use axum::{Json, extract::State};
use purser_api::{BrowserAct, Direct, Failure, OperationAt, Operator, OperatorAct, OperatorAnswer, Precondition};
use purser_domain::{AgentId, Error, OperatorReason, PersonId, Problem, Result, Service, ServiceId, SettlementId};
use std::sync::Arc;

/// Handles a request from `people`. IAM permits no other function to invoke this route.
pub(crate) async fn act(
    State(operators): State<Arc<Operators>>,
    Direct(asked): Direct<BrowserAct>,
) -> Result<Json<OperatorAnswer>, Failure> {
    let Some(operator) = operators.browser_operator(&asked).await? else {
        tracing::warn!("operator.not_registered");
        return Ok(Json(OperatorAnswer::NotAnOperator {}));
    };
    let answer = operators.act(&operator, asked.act).await;
    Ok(Json(answer.or_else(OperatorAnswer::from_refusal)?))
}

impl Operators {
    async fn act(&self, operator: &Operator, act: OperatorAct) -> Result<OperatorAnswer> {
        match act {
            OperatorAct::AcceptChange(at) => {
                self.accept(operator, ids(at), version(at)).await?;
            }
            OperatorAct::WithdrawChange(at) => {
                self.withdraw(operator, ids(at), version(at)).await?;
            }
            OperatorAct::PinPayment { at, payment } => {
                let pinned = self.pin_seen(operator, ids(at), version(at), |seen| payment.is(seen));
                return Ok(pin_answer(&pinned.await?, at));
            }
            OperatorAct::RequestProbe { service_id } => {
                self.request_probe(operator, ServiceId::from_uuid(service_id)).await?;
            }
            OperatorAct::Freeze { target, reason } => {
                let target = self.existing(target.target()?).await?;
                let outcome = self.begin_freeze(operator, target, reason_of(&reason)?).await?;
                return Ok(outcome.into());
            }
            OperatorAct::EndFreeze { target } => {
                return Ok(self.end_freeze(operator, &target.target()?).await?.into());
            }
            OperatorAct::OfferAgent { agent_id, to, reason } => {
                let agent = self.find_agent_to_offer(AgentId::from_uuid(agent_id)).await?;
                let to = PersonId::parse(&to);
                let to = to.ok_or_else(|| wrong("/to", "must be a person's ID: 64 hexadecimal digits"))?;
                let offer = self.offer_agent(operator, &agent, to, reason_of(&reason)?).await?;
                if offer.awaits_second() {
                    return Ok(OperatorAnswer::AwaitsSecond {});
                }
            }
            OperatorAct::WithdrawOffer { agent_id } => {
                self.withdraw_offer(operator, AgentId::from_uuid(agent_id)).await?;
            }
            OperatorAct::Reconcile {
                agent_id,
                settlement_id,
            } => {
                let (agent, settlement) = (AgentId::from_uuid(agent_id), SettlementId::from_uuid(settlement_id));
                self.request_reconcile(operator, agent, settlement).await?;
            }
        }
        Ok(OperatorAnswer::Done {})
    }
}

impl From<FreezeOutcome> for OperatorAnswer {
    fn from(outcome: FreezeOutcome) -> Self {
        match outcome {
            FreezeOutcome::Done => Self::Done {},
            FreezeOutcome::AwaitsSecond => Self::AwaitsSecond {},
            FreezeOutcome::NeedsToken => Self::TokenRequired {},
        }
    }
}

const fn ids(at: OperationAt) -> (ServiceId, purser_domain::OperationUuid) {
    (at.service(), at.operation())
}

const fn version(at: OperationAt) -> Precondition {
    Precondition::Version(at.version)
}

/// Returns whether the price change awaits a second operator.
fn pin_answer(service: &Service, at: OperationAt) -> OperatorAnswer {
    let mut operations = service.operations.iter();
    let operation = operations.find(|one| one.id == at.operation());
    let next = operation.and_then(|operation| operation.next.as_ref());
    if next.is_some_and(|next| next.effective_from().is_none()) {
        OperatorAnswer::AwaitsSecond {}
    } else {
        OperatorAnswer::Done {}
    }
}

fn reason_of(text: &str) -> Result<OperatorReason> {
    OperatorReason::parse(text).ok_or_else(|| wrong("/reason", OperatorReason::FORM))
}

fn wrong(path: &str, message: &str) -> Error {
    Error::invalid(vec![Problem::at(path, message)])
}
