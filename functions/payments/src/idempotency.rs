//! Responses of authorize that earlier calls or approval decisions determine (`docs/spec.md` §3.3, §7).
//!
//! A stored result takes precedence over the current policy and catalog. It does not take precedence over a freeze or
//! the scope of the caller's key, because the signed bytes could still be used to pay.

use crate::call::Authorizing;
use crate::view::Authorized;
use axum::response::{IntoResponse as _, Response};
use purser_api::{AuthorizeRequest, Failure, intent_with_earlier_requirements};
use purser_domain::{
    Agent, Approval, ApprovalStatus, Block, BoundPayment, DecisionIds, DocumentHash, Error, ErrorKind, Freeze,
    KeyScope, LoggedDecision, PaymentTerms, Purchase, RecordedDecision, Result, Settlement, SettlementState,
    StatedDecision, TransactionId,
};
use purser_store::{DecisionInputs, IdempotencyRecord};

/// The response that earlier calls and approvals determine, or the need for an evaluation.
pub(crate) enum PriorOutcome {
    /// A stored result determines the response.
    Answered(Box<Response>),
    /// The call must be evaluated, with this approval of exactly this request.
    Open(Option<Box<Approval>>),
    /// Another call paid with this idempotency key in the meantime, so all inputs must be read again.
    Raced,
}

impl Authorizing<'_> {
    /// Returns the request with the payment requirements that the earlier identical call chose. Returns `None` if
    /// nothing changes.
    pub(crate) fn request_with_earlier_requirements(&self, inputs: &DecisionInputs) -> Option<AuthorizeRequest> {
        let of_key = inputs.record.as_ref().map(IdempotencyRecord::fingerprint);
        let of_approval = inputs.approval.as_ref().map(|approval| &approval.fingerprint);
        let first = of_key.or(of_approval)?;
        let (request, network) = (self.request, self.payments.network);
        if *first == request.intent.fingerprint {
            return None;
        }
        let intent = intent_with_earlier_requirements(&request.intent, self.body, network, first)?;
        Some(AuthorizeRequest {
            intent,
            idempotency_key: request.idempotency_key,
            approval: request.approval,
        })
    }

    /// Determines the response from a used approval, the idempotency key, or the approval's state, in this order.
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
                let settlement = self.read_replayed_settlement(agent, payment).await?;
                // The key's scope is checked for the paid service, because the catalog may now match the call to
                // another service.
                scope.check_service(require_purchase(&settlement)?.service)?;
                if let Some(freeze) = Freeze::effective_freeze(agent, inputs.find_operator_freeze(agent)?) {
                    // The future is large and rarely needed, so it is boxed.
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
            // An earlier call with this idempotency key created a newer approval request than this call names.
            Some(IdempotencyRecord::Escalated {
                approval, transaction, ..
            }) if previous_approval.is_none_or(|previous_approval| previous_approval.id.is_before(*approval)) => {
                let pinned = self.payments.ledger.read_approval_by_id(*approval).await?;
                let pinned = pinned.ok_or_else(|| {
                    Error::internal("reading an idempotency key's approval", "the approval no longer exists")
                })?;
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
                .record_unusable_approval_rejection(agent, approval, Block::ApprovalMismatch)
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
    /// the payment and the key's record. If this call read the record before that transaction, its copy is outdated.
    async fn is_paid_with_idempotency_key(&self, agent: &Agent, approval: &Approval) -> Result<bool> {
        let Some(settlement) = approval.settlement_id() else {
            return Ok(false);
        };
        let settlement = self.payments.ledger.read_settlement_by_id(agent.id, settlement).await?;
        Ok(settlement.is_some_and(|settlement| settlement.terms.idempotency_key == self.request.idempotency_key))
    }

    /// Returns the error for a call whose approval is pending or unusable, or that does not name the approval.
    async fn approval_error(
        &self,
        agent: &Agent,
        inputs: &DecisionInputs,
        approval: &Approval,
        transaction: TransactionId,
    ) -> Result<Error> {
        match approval.status(self.payments.clock.now()) {
            ApprovalStatus::Pending | ApprovalStatus::Approved => {
                let by_operators = inputs.find_operator_freeze(agent)?;
                match Freeze::effective_freeze(agent, by_operators) {
                    None => {
                        let hash = self.read_escalation_decision_hash(agent, transaction).await?;
                        Ok(self.approval_pending_error(approval, transaction, Vec::new(), hash))
                    }
                    Some(freeze) => {
                        self.record_unusable_approval_rejection(agent, approval, Block::AgentFrozen(freeze))
                            .await
                    }
                }
            }
            ApprovalStatus::Rejected => {
                self.record_unusable_approval_rejection(agent, approval, Block::ApprovalRejected)
                    .await
            }
            ApprovalStatus::Expired => {
                self.record_unusable_approval_rejection(agent, approval, Block::ApprovalExpired)
                    .await
            }
            ApprovalStatus::Executed => Ok(used_approval_error(approval).unwrap_or(ErrorKind::NotFound).into()),
        }
    }

    /// Computes the hash in the statement of an earlier escalation. Returns `None` if the escalation's row is missing.
    async fn read_escalation_decision_hash(&self, agent: &Agent, id: TransactionId) -> Result<Option<DocumentHash>> {
        let recorded = self.payments.ledger.find_recorded_decision(agent.id, id).await?;
        let Some(LoggedDecision::Refused(rejection)) = recorded else {
            return Ok(None);
        };
        let ids = DecisionIds::from_denial(&rejection);
        let decision = &RecordedDecision::from_denial(rejection, self.payments.network);
        let inputs = None;
        Ok(Some(StatedDecision { ids, decision, inputs }.decision_hash()))
    }

    async fn record_unusable_approval_rejection(
        &self,
        agent: &Agent,
        approval: &Approval,
        block: Block,
    ) -> Result<Error> {
        let about = (approval.service, approval.operation.clone());
        self.record_rejection_without_evaluation(agent, about, block, Some(approval.id))
            .await
    }

    /// Rejects the repeated call of a frozen agent, because the agent could still pay with the signed bytes.
    async fn record_frozen_replay_rejection(
        &self,
        agent: &Agent,
        freeze: Freeze,
        settlement: &Settlement,
    ) -> Result<Error> {
        let purchase = require_purchase(settlement)?;
        let about = (purchase.service, purchase.operation.clone());
        let block = Block::AgentFrozen(freeze);
        self.record_rejection_without_evaluation(agent, about, block, None)
            .await
    }

    /// Returns the settlement of an earlier call with this idempotency key. While the payment can be used,
    /// the response contains the payment, signed with the same nonce.
    async fn replay_payment(
        &self,
        agent: &Agent,
        bound_payment: &BoundPayment,
        settlement: &Settlement,
    ) -> Result<Response> {
        let usable =
            settlement.state == SettlementState::Authorized && self.payments.clock.now() < bound_payment.valid_before;
        let terms = PaymentTerms::from_settlement_terms(&settlement.terms);
        let hash = self.allow_decision_hash(&settlement.terms);
        let response = if usable {
            // The request has the fingerprint of the earlier call, so the chosen requirements have the same amount and
            // payee.
            let offer = &self.request.intent.offer;
            let signer = self.payments.wallet_signer(agent)?;
            let payment = self.sign_payment(&signer, &terms, offer).await?;
            Authorized::with_payment(&terms, self.catalog_price(), offer.version(), payment)
        } else {
            Authorized::without_payment(settlement, self.catalog_price())
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

    async fn read_replayed_settlement(&self, agent: &Agent, bound_payment: &BoundPayment) -> Result<Settlement> {
        let settlement = self
            .payments
            .ledger
            .read_settlement_by_id(agent.id, bound_payment.settlement)
            .await?;
        settlement.ok_or_else(|| Error::internal("replaying a settlement", "the settlement no longer exists"))
    }
}

/// Returns the settlement's purchase. A withdrawal is never stored under an agent's idempotency key.
fn require_purchase(settlement: &Settlement) -> Result<&Purchase> {
    let purchase = settlement.terms.purchase();
    purchase.ok_or_else(|| Error::internal("replaying a settlement", "the settlement is a withdrawal"))
}

/// Returns the error for a used approval, or `None` if no payment has used the approval.
pub(crate) fn used_approval_error(approval: &Approval) -> Option<ErrorKind> {
    approval.settlement_id().map(|settlement| ErrorKind::IdempotentReplay {
        approval: approval.id,
        settlement,
    })
}
