//! Responses that are determined before evaluation, by earlier calls or by approval decisions: authorize's idempotency
//! and its approvals (`docs/spec.md` §3.3, §7).
//!
//! A stored result takes precedence over the current policy and catalog, but not over a freeze or the services of the
//! caller's key, because the signed bytes could still be used to pay.

use crate::call::Authorizing;
use crate::view::Authorized;
use axum::response::{IntoResponse as _, Response};
use purser_api::{AuthorizeRequest, Failure, REQUIREMENT, with_earlier_requirements};
use purser_domain::{
    Agent, Approval, ApprovalStatus, Block, BoundPayment, DecisionIds, DocumentHash, Error, ErrorKind, Freeze,
    KeyScope, LoggedDecision, Offer, PaymentTerms, Purchase, RecordedDecision, Result, Settlement, SettlementState,
    StatedDecision, TransactionId,
};
use purser_store::{DecisionInputs, IdempotencyRecord};

/// The result of looking up earlier calls and approvals for a call.
pub(crate) enum PriorOutcome {
    /// The response is determined by a stored result, which takes precedence over the current policy and catalog.
    Answered(Box<Response>),
    /// The call must be evaluated. The call may use this approval, with which a user approved exactly this request.
    Open(Option<Box<Approval>>),
    /// Another call paid with this idempotency key after the key's record was read, so the call must read everything
    /// again.
    Raced,
}

impl Authorizing<'_> {
    /// Returns the request with the payment requirements that the first call with the same idempotency key or approval
    /// chose. Returns `None` if there was no earlier call, if the request already has these requirements, or if the
    /// earlier call made a different request.
    pub(crate) fn with_earlier_requirements(&self, inputs: &DecisionInputs) -> Option<AuthorizeRequest> {
        let of_key = inputs.record.as_ref().map(IdempotencyRecord::fingerprint);
        let of_approval = inputs.approval.as_ref().map(|approval| &approval.fingerprint);
        let first = of_key.or(of_approval)?;
        let (request, network) = (self.request, self.payments.network);
        if *first == request.intent.fingerprint {
            return None;
        }
        let intent = with_earlier_requirements(&request.intent, self.body, network, first)?;
        Some(AuthorizeRequest {
            intent,
            idempotency_key: request.idempotency_key,
            approval: request.approval,
        })
    }

    /// Determines the response from earlier calls and approvals. Checks, in this order: a used approval, the
    /// idempotency key, and the approval's state.
    pub(crate) async fn find_prior_outcome(
        &self,
        agent: &Agent,
        scope: &KeyScope,
        inputs: &DecisionInputs,
    ) -> Result<PriorOutcome, Failure> {
        let previous_approval = match (self.request.approval, &inputs.approval) {
            (None, _) => None,
            (Some(_), Some(approval)) if approval.agent == agent.id => Some(approval),
            (Some(_), _) => return Err(ErrorKind::NotFound.into()),
        };
        if let Some(approval) = previous_approval {
            scope.check_service(approval.service)?;
        }
        if let Some(executed) = previous_approval.and_then(used_approval_error) {
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
                let settlement = self.read_bound_settlement(agent, payment).await?;
                // The catalog may now match the call to a different service.
                scope.check_service(require_purchase(&settlement)?.service)?;
                if let Some(freeze) = Freeze::effective_freeze(agent, inputs.frozen_by_operators(agent)?) {
                    // Boxed, because this case is rare and its future is large (`authorize.rs` explains why that
                    // matters).
                    return Err(
                        Box::pin(self.record_frozen_replay_rejection(agent, freeze, &settlement))
                            .await?
                            .into(),
                    );
                }
                let response = self.replay_payment(agent, payment, &settlement).await?;
                return Ok(PriorOutcome::Answered(Box::new(response)));
            }
            Some(IdempotencyRecord::Escalated { fingerprint: first, .. }) if *first != fingerprint => {
                return Err(ErrorKind::IdempotencyKeyReused { settlement: None }.into());
            }
            // The idempotency key is bound to a newer approval than the approval in the call, or the call has no
            // approval. A newer approval exists if the approval in the call did not waive every limit that required
            // approval.
            Some(IdempotencyRecord::Escalated {
                approval, transaction, ..
            }) if previous_approval.is_none_or(|previous_approval| previous_approval.id.is_before(*approval)) => {
                let pinned = self.payments.ledger.read_approval_by_id(*approval).await?;
                let pinned = pinned.ok_or_else(|| Error::internal("reading a pinned approval", "it is gone"))?;
                scope.check_service(pinned.service)?;
                if self.is_paid_with_idempotency_key(agent, &pinned).await? {
                    return Ok(PriorOutcome::Raced);
                }
                return Err(self.approval_error(agent, inputs, &pinned, *transaction).await?.into());
            }
            Some(IdempotencyRecord::Escalated { .. }) | None => {}
        }
        let Some(approval) = previous_approval else {
            return Ok(PriorOutcome::Open(None));
        };
        if !approval.covers_intent(&self.request.intent) {
            return Err(self
                .reject_unusable_approval(agent, approval, Block::ApprovalMismatch)
                .await?
                .into());
        }
        if approval.status(self.payments.clock.now()) == ApprovalStatus::Approved {
            return Ok(PriorOutcome::Open(Some(Box::new(approval.clone()))));
        }
        let unresolved = self.approval_error(agent, inputs, approval, approval.transaction);
        Err(unresolved.await?.into())
    }

    /// Returns whether the payment of a used approval was made with this call's idempotency key. One transaction writes
    /// the payment and the key's record. If the call read the record before that transaction, the record must be read
    /// again.
    async fn is_paid_with_idempotency_key(&self, agent: &Agent, approval: &Approval) -> Result<bool> {
        let Some(settlement) = approval.settlement_id() else {
            return Ok(false);
        };
        let settlement = self.payments.ledger.read_settlement_by_id(agent.id, settlement).await?;
        Ok(settlement.is_some_and(|settlement| settlement.terms.idempotency_key == self.request.idempotency_key))
    }

    /// Returns the error for a call that its approval does not allow: the approval is pending or unusable, or the
    /// request did not contain the approval's id.
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
                match Freeze::effective_freeze(agent, by_operators) {
                    None => {
                        let hash = self.escalation_decision_hash(agent, transaction).await?;
                        Ok(self.approval_pending_error(approval, transaction, Vec::new(), hash))
                    }
                    Some(freeze) => {
                        self.reject_unusable_approval(agent, approval, Block::AgentFrozen(freeze))
                            .await
                    }
                }
            }
            ApprovalStatus::Rejected => {
                self.reject_unusable_approval(agent, approval, Block::ApprovalRejected)
                    .await
            }
            ApprovalStatus::Expired => {
                self.reject_unusable_approval(agent, approval, Block::ApprovalExpired)
                    .await
            }
            ApprovalStatus::Executed => Ok(used_approval_error(approval).unwrap_or(ErrorKind::NotFound).into()),
        }
    }

    /// Computes the hash that the statement of an earlier escalation contains. Returns `None` if the escalation's row
    /// cannot be found.
    async fn escalation_decision_hash(&self, agent: &Agent, id: TransactionId) -> Result<Option<DocumentHash>> {
        let recorded = self.payments.ledger.find_recorded_decision(agent.id, id).await?;
        let Some(LoggedDecision::Refused(rejection)) = recorded else {
            return Ok(None);
        };
        let ids = DecisionIds::from_denial(&rejection);
        let decision = &RecordedDecision::from_denial(rejection, self.payments.network);
        let inputs = None;
        Ok(Some(StatedDecision { ids, decision, inputs }.decision_hash()))
    }

    /// Rejects a call whose approval cannot be used, and records the attempt.
    async fn reject_unusable_approval(&self, agent: &Agent, approval: &Approval, block: Block) -> Result<Error> {
        let about = (approval.service, approval.operation.clone());
        self.reject_without_evaluation(agent, about, block, Some(approval.id))
            .await
    }

    /// Rejects the repeated call of a frozen agent instead of returning the earlier payment, because the agent could
    /// still pay with the signed bytes.
    async fn record_frozen_replay_rejection(
        &self,
        agent: &Agent,
        freeze: Freeze,
        settlement: &Settlement,
    ) -> Result<Error> {
        let purchase = require_purchase(settlement)?;
        let about = (purchase.service, purchase.operation.clone());
        let block = Block::AgentFrozen(freeze);
        self.reject_without_evaluation(agent, about, block, None).await
    }

    /// Returns the settlement that an earlier call with this key created. While the settlement is `authorized` and the
    /// chain would accept the payment, the response contains a payment with the same nonce. Later responses contain
    /// only the settlement's state.
    async fn replay_payment(
        &self,
        agent: &Agent,
        bound_payment: &BoundPayment,
        settlement: &Settlement,
    ) -> Result<Response> {
        let usable =
            settlement.state == SettlementState::Authorized && self.payments.clock.now() < bound_payment.valid_before;
        let terms = PaymentTerms::from_settlement_terms(&settlement.terms);
        let hash = self.allowed_purchase_decision_hash(&settlement.terms);
        let response = match self.find_requirements_matching_payment(&terms).filter(|_| usable) {
            Some(offer) => {
                let signer = self.payments.wallet_signer(agent)?;
                let payment = self.sign_payment(&signer, &terms, &offer).await?;
                Authorized::with_payment(&terms, self.catalog_price(), offer.version(), payment)
            }
            None => Authorized::without_payment(settlement, self.catalog_price()),
        };
        let response = response.with_decision_hash(hash);
        tracing::info!(
            settlement.id = %bound_payment.settlement,
            agent.id = %agent.id,
            latency_ms = self.latency_ms(),
            "payment.replayed"
        );
        let mut response = response.into_response();
        let replayed = axum::http::HeaderValue::from_static("true");
        response.headers_mut().insert("idempotent-replayed", replayed);
        Ok(response)
    }

    /// Finds the payment requirements in the request whose amount and payee match `terms`, the terms of the stored
    /// payment. Usually, the requirements that were chosen for this request match. If an earlier version of Purser
    /// computed the stored payment's fingerprint, that version may have chosen other requirements, so the function also
    /// searches the other requirements in the request.
    fn find_requirements_matching_payment(&self, terms: &PaymentTerms) -> Option<Offer> {
        let chosen = self.request.intent.offer;
        if terms.matches_requirements(&chosen) {
            return Some(chosen);
        }
        let requirement = self.body.get(REQUIREMENT)?;
        let offers = Offer::list_payable(requirement, self.payments.network);
        offers.into_iter().find(|offer| terms.matches_requirements(offer))
    }

    async fn read_bound_settlement(&self, agent: &Agent, bound_payment: &BoundPayment) -> Result<Settlement> {
        let settlement = self
            .payments
            .ledger
            .read_settlement_by_id(agent.id, bound_payment.settlement)
            .await?;
        settlement.ok_or_else(|| Error::internal("replaying a settlement", "it is gone"))
    }
}

/// Returns the settlement's purchase. Only a purchase can be stored under an agent's idempotency key.
fn require_purchase(settlement: &Settlement) -> Result<&Purchase> {
    let purchase = settlement.terms.purchase();
    purchase.ok_or_else(|| Error::internal("replaying a settlement", "it is a payout"))
}

/// Returns the error for a used approval, or `None` if no payment has used the approval.
pub(crate) fn used_approval_error(approval: &Approval) -> Option<ErrorKind> {
    approval.settlement_id().map(|settlement| ErrorKind::IdempotentReplay {
        approval: approval.id,
        settlement,
    })
}
