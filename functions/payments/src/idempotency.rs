//! Answers to calls that were decided before any evaluation, by earlier calls or by people: authorize's idempotency
//! and its approvals (`docs/spec.md` §3.3, §7).
//!
//! The stored result takes precedence over the current policy and catalog, but not over a freeze or the services of
//! the caller's key: the signed bytes could still be used to pay.

use crate::call::Authorizing;
use crate::view::Authorized;
use axum::response::{IntoResponse as _, Response};
use purser_api::{AuthorizeRequest, Failure, REQUIREMENT, as_first_made};
use purser_domain::{
    Agent, Approval, ApprovalId, ApprovalStatus, Block, BoundPayment, DecisionIds, DocumentHash, Error, ErrorKind,
    Freeze, KeyScope, LoggedDecision, Offer, PaymentTerms, Purchase, RecordedDecision, Result, Settlement,
    SettlementState, StatedDecision, TransactionId,
};
use purser_store::{DecisionInputs, IdempotencyRecord};

/// The outcome of earlier calls and approvals.
pub(crate) enum PriorOutcome {
    /// There is an answer: the stored result takes precedence over the current policy and catalog.
    Answered(Box<Response>),
    /// The call must be evaluated, with a person's approval for exactly this request if it carries one.
    Open(Option<ApprovalId>),
    /// Another call has paid with this key since the key's record was read: everything must be read again.
    Raced,
}

impl Authorizing<'_> {
    /// The request in the form in which its key, or else its approval, was first used. `None` unless that was the same
    /// request and the provider's newest offer would be parsed differently.
    pub(crate) fn as_first_made(&self, inputs: &DecisionInputs) -> Option<AuthorizeRequest> {
        let of_key = inputs.record.as_ref().map(IdempotencyRecord::fingerprint);
        let of_approval = inputs.approval.as_ref().map(|approval| &approval.fingerprint);
        let first = of_key.or(of_approval)?;
        let (request, network) = (self.request, self.payments.network);
        if *first == request.intent.fingerprint {
            return None;
        }
        let intent = as_first_made(&request.intent, self.body, network, first)?;
        Some(AuthorizeRequest {
            intent,
            idempotency_key: request.idempotency_key,
            approval: request.approval,
        })
    }

    /// Answers from earlier calls and approvals, in this order: an executed approval, the key, the approval's own
    /// state.
    pub(crate) async fn before(
        &self,
        agent: &Agent,
        scope: &KeyScope,
        inputs: &DecisionInputs,
    ) -> Result<PriorOutcome, Failure> {
        let carried = match (self.request.approval, &inputs.approval) {
            (None, _) => None,
            (Some(_), Some(approval)) if approval.agent == agent.id => Some(approval),
            (Some(_), _) => return Err(ErrorKind::NotFound.into()),
        };
        if let Some(approval) = carried {
            scope.check_service(approval.service)?;
        }
        if let Some(executed) = carried.and_then(executed_error) {
            return Err(executed.into());
        }
        let fingerprint = self.request.intent.fingerprint;
        match &inputs.record {
            Some(IdempotencyRecord::Allowed {
                fingerprint: first,
                payment,
            }) => {
                if *first != fingerprint {
                    let settlement = Some(payment.settlement);
                    return Err(ErrorKind::IdempotencyKeyReused { settlement }.into());
                }
                let settlement = self.bound_settlement(agent, payment).await?;
                // The catalog may now match the call to another service.
                scope.check_service(bought(&settlement)?.service)?;
                if let Some(freeze) = Freeze::effective(agent, inputs.frozen_by_operators(agent)?) {
                    // Boxed, as in `authorize.rs`: it is rare and large.
                    return Err(Box::pin(self.frozen(agent, freeze, &settlement)).await?.into());
                }
                let answer = self.replay(agent, payment, &settlement).await?;
                return Ok(PriorOutcome::Answered(Box::new(answer)));
            }
            Some(IdempotencyRecord::Escalated { fingerprint: first, .. }) if *first != fingerprint => {
                return Err(ErrorKind::IdempotencyKeyReused { settlement: None }.into());
            }
            Some(IdempotencyRecord::Escalated {
                approval, transaction, ..
            }) if carried.is_none() => {
                let pinned = self.payments.ledger.approval(*approval).await?;
                let pinned = pinned.ok_or_else(|| Error::internal("reading a pinned approval", "it is gone"))?;
                scope.check_service(pinned.service)?;
                if self.is_paid_under_key(agent, &pinned).await? {
                    return Ok(PriorOutcome::Raced);
                }
                return Err(self.approval_error(agent, inputs, &pinned, *transaction).await?.into());
            }
            Some(IdempotencyRecord::Escalated { .. }) | None => {}
        }
        let Some(approval) = carried else {
            return Ok(PriorOutcome::Open(None));
        };
        if !approval.is_for(&self.request.intent) {
            return Err(self
                .refuse_approval(agent, approval, Block::ApprovalMismatch)
                .await?
                .into());
        }
        if approval.status(self.payments.clock.now()) == ApprovalStatus::Approved {
            return Ok(PriorOutcome::Open(Some(approval.id)));
        }
        let unresolved = self.approval_error(agent, inputs, approval, approval.transaction);
        Err(unresolved.await?.into())
    }

    /// Whether the payment of an executed approval was made with this call's key. One transaction writes the payment
    /// and the key's record, so a call that read the record before the transaction is answered from the current record.
    async fn is_paid_under_key(&self, agent: &Agent, approval: &Approval) -> Result<bool> {
        let Some(settlement) = approval.settlement() else {
            return Ok(false);
        };
        let settlement = self.payments.ledger.settlement(agent.id, settlement).await?;
        Ok(settlement.is_some_and(|settlement| settlement.terms.idempotency_key == self.request.idempotency_key))
    }

    /// The answer to a call whose approval does not allow it: pending, no longer usable, or not in the request.
    async fn approval_error(
        &self,
        agent: &Agent,
        inputs: &DecisionInputs,
        approval: &Approval,
        transaction: TransactionId,
    ) -> Result<Error> {
        match approval.status(self.payments.clock.now()) {
            ApprovalStatus::Pending | ApprovalStatus::Approved => {
                let by_operators = inputs.frozen_by_operators(agent)?;
                match Freeze::effective(agent, by_operators) {
                    None => {
                        let hash = self.hash_of_escalation(agent, transaction).await?;
                        Ok(self.waiting(approval, transaction, Vec::new(), hash))
                    }
                    Some(freeze) => self.refuse_approval(agent, approval, Block::AgentFrozen(freeze)).await,
                }
            }
            ApprovalStatus::Rejected => self.refuse_approval(agent, approval, Block::ApprovalRejected).await,
            ApprovalStatus::Expired => self.refuse_approval(agent, approval, Block::ApprovalExpired).await,
            ApprovalStatus::Executed => Ok(executed_error(approval).unwrap_or(ErrorKind::NotFound).into()),
        }
    }

    /// The hash that the statement of an earlier escalation has; `None` if its row is not read.
    async fn hash_of_escalation(&self, agent: &Agent, id: TransactionId) -> Result<Option<DocumentHash>> {
        let recorded = self.payments.ledger.find_recorded_decision(agent.id, id).await?;
        let Some(LoggedDecision::Refused(refusal)) = recorded else {
            return Ok(None);
        };
        let ids = DecisionIds::from_refusal(&refusal);
        let decision = &RecordedDecision::from_refusal(refusal, self.payments.network);
        let inputs = None;
        Ok(Some(StatedDecision { ids, decision, inputs }.hash()))
    }

    /// Refuses a call whose approval can't be used, and records the attempt.
    async fn refuse_approval(&self, agent: &Agent, approval: &Approval, block: Block) -> Result<Error> {
        let about = (approval.service, approval.operation.clone());
        self.refuse_unjudged(agent, about, block, Some(approval.id)).await
    }

    /// Refuses to return an earlier payment to a frozen agent: signed bytes could still be used to pay.
    async fn frozen(&self, agent: &Agent, freeze: Freeze, settlement: &Settlement) -> Result<Error> {
        let purchase = bought(settlement)?;
        let about = (purchase.service, purchase.operation.clone());
        let block = Block::AgentFrozen(freeze);
        self.refuse_unjudged(agent, about, block, None).await
    }

    /// The stored result of an earlier call: the same settlement with a payment of the same nonce, while the
    /// settlement is authorized and the chain would accept the payment; afterwards the settlement's state.
    async fn replay(&self, agent: &Agent, bound: &BoundPayment, settlement: &Settlement) -> Result<Response> {
        let usable = settlement.state == SettlementState::Authorized && self.payments.clock.now() < bound.valid_before;
        let terms = PaymentTerms::from_settlement_terms(&settlement.terms);
        let hash = self.hash_of_allow(&settlement.terms);
        let answer = match self.offer_of(&terms).filter(|_| usable) {
            Some(offer) => {
                let signer = self.payments.signer(agent)?;
                let payment = self.payment(&signer, &terms, &offer).await?;
                Authorized::with_payment(&terms, self.list_price(), offer.version(), payment)
            }
            None => Authorized::without_payment(settlement, self.list_price()),
        };
        let answer = answer.with_hash(hash);
        tracing::info!(
            settlement.id = %bound.settlement,
            agent.id = %agent.id,
            latency_ms = self.latency_ms(),
            "payment.replayed"
        );
        let mut answer = answer.into_response();
        let replayed = axum::http::HeaderValue::from_static("true");
        answer.headers_mut().insert("idempotent-replayed", replayed);
        Ok(answer)
    }

    /// The offer that these terms pay: the request's, unless an earlier version of Purser wrote the fingerprint.
    fn offer_of(&self, terms: &PaymentTerms) -> Option<Offer> {
        let chosen = self.request.intent.offer;
        if terms.pay(&chosen) {
            return Some(chosen);
        }
        let requirement = self.body.get(REQUIREMENT)?;
        let offers = Offer::each(requirement, self.payments.network);
        offers.into_iter().find(|offer| terms.pay(offer))
    }

    async fn bound_settlement(&self, agent: &Agent, bound: &BoundPayment) -> Result<Settlement> {
        let settlement = self.payments.ledger.settlement(agent.id, bound.settlement).await?;
        settlement.ok_or_else(|| Error::internal("replaying a settlement", "it is gone"))
    }
}

/// Only a purchase binds an agent's key.
fn bought(settlement: &Settlement) -> Result<&Purchase> {
    let purchase = settlement.terms.purchase();
    purchase.ok_or_else(|| Error::internal("replaying a settlement", "it is a payout"))
}

/// The answer if the approval was used.
pub(crate) fn executed_error(approval: &Approval) -> Option<ErrorKind> {
    approval.settlement().map(|settlement| ErrorKind::IdempotentReplay {
        approval: approval.id,
        settlement,
    })
}
