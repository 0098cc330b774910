//! `POST /x402/authorize`: judges a payment, reserves the spend, and signs exactly the payment that was judged.
//!
//! What is always true: an answer with a payment in it has its settlement stored and its amount counted; the same key
//! with the same request is the same settlement and the same signed bytes, whatever was lost on the way; a refusal
//! leaves nothing but its decision row. Errors, in the order in which they are found: `docs/errors.md`.
//!
//! Deliberately elsewhere: the checks (`shared/domain/src/evaluate.rs`), the transaction
//! (`shared/store/src/reserve.rs`), the signature (`shared/chain/src/signer.rs`).

use crate::decide::{Case, Exactness, exactness, refusing_window};
use crate::early_balance::EarlyBalance;
use crate::view::{AuthorizeBody, Authorized};
use crate::{Opening, Payments, only};
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use purser_api::{AuthorizeRequest, Caller, Failure};
use purser_domain::{
    Agent, AgentId, AgentStatus, Approval, ApprovalId, ApprovalStatus, Block, BoundPayment, CallDescription, Check,
    Decision, DecisionRecord, Denial, Error, ErrorKind, Eviction, Grant, KeyId, Offer, OperationSlug, PaymentTerms,
    Purchase, Reason, Refusal, Result, ServiceId, Settlement, Timestamp, TransactionId, Window,
};
use purser_store::{Ask, Cleared, Escalated, Patience, Prior, Reserved, Snapshot, Standing};
use serde_json::Value;
use std::sync::Arc;

purser_api::error_responses! {
    /// What this endpoint may be refused with.
    pub(crate) AuthorizeErrors: 400, 401, 402, 403, 404, 409, 413, 429, 500;
}

/// Judge, reserve and sign one payment.
#[utoipa::path(
    post,
    path = "/x402/authorize",
    tag = "payments",
    security(("agentKey" = [])),
    request_body = AuthorizeBody,
    responses(
        (status = 200, body = Authorized, description = "Authorized: send `payment.header_value` as the header `payment.header_name` of the \
            provider call. With the header `Idempotent-Replayed: true`, the stored outcome of an earlier call.",
                links(
                    ("complete" = (operation_id = "complete", parameters(("settlementId" = "$response.body#/settlement_id")))),
                    ("receipt" = (operation_id = "receipt", parameters(("settlementId" = "$response.body#/settlement_id")))),
                )),
        AuthorizeErrors,
    )
)]
pub(crate) async fn authorize(
    State(payments): State<Arc<Payments>>,
    caller: Caller,
    body: Bytes,
) -> Result<Response, Failure> {
    let started = payments.clock.now();
    let body = purser_api::json_body(&body);
    let request = body.and_then(|body| Ok((AuthorizeRequest::parse(&body, payments.network)?, body)));
    let known = request.as_ref().ok().map(|(request, _)| request);
    // The key is judged before the body, so a malformed body reads no more than it takes to judge the key.
    let ask = |agent, service| known.map_or_else(|| only(agent), |request| ask(request, agent, service));
    let Opening {
        edition,
        agent,
        key,
        snapshot,
        balance,
    } = payments.open(caller, known.map(|request| &request.intent), ask).await?;
    let (request, body) = request?;
    let purchase = Purchase::of(&request.intent, &edition.catalog);
    let requirement = body.get("payment_requirement").unwrap_or(&Value::Null);
    Authorizing {
        payments: &payments,
        key,
        request: &request,
        requirement,
        started,
    }
    .run(agent, purchase, snapshot, balance)
    .await
}

fn ask(request: &AuthorizeRequest, agent: AgentId, service: Option<ServiceId>) -> Ask {
    Ask {
        agent,
        service,
        key: Some(request.idempotency_key),
        approval: request.approval,
    }
}

/// One call of authorize, from the authenticated caller to the answer.
struct Authorizing<'a> {
    payments: &'a Arc<Payments>,
    /// The key that it came with, which was good when it came.
    key: KeyId,
    request: &'a AuthorizeRequest,
    /// The provider's requirement as it was sent, from which a stored payment's offer is rebuilt.
    requirement: &'a Value,
    started: Timestamp,
}

/// What went before this call.
enum Before {
    /// It is answered: the stored outcome wins over today's policy and today's catalog.
    Answered(Box<Response>),
    /// It has to be judged; with the approval that a person gave for exactly this request, if it carries one.
    Open(Option<ApprovalId>),
}

impl Authorizing<'_> {
    async fn run(
        &self,
        mut agent: Agent,
        purchase: Result<Purchase<'_>>,
        mut snapshot: Snapshot,
        mut balance: Option<EarlyBalance>,
    ) -> Result<Response, Failure> {
        let mut before = self.before(&agent, &snapshot).await?;
        let purchase = match &before {
            Before::Answered(_) => None,
            Before::Open(_) => Some(purchase?),
        };
        let mut eviction = Eviction::Eager;
        // Ends with an error when the storage stays contended, and leaves nothing behind.
        let mut patience = Patience::new();
        loop {
            let (approval, purchase) = match (before, purchase) {
                (Before::Answered(answer), _) => return Ok(*answer),
                (Before::Open(approval), Some(purchase)) => (approval, purchase),
                // Only a call that was answered at once needs no purchase.
                (Before::Open(_), None) => return Err(ErrorKind::ServiceNotFound.into()),
            };
            let case = Case {
                agent: &agent,
                intent: &self.request.intent,
                purchase,
                approval,
                eviction,
            };
            if let Some(standing) = &mut snapshot.standing
                && let Some(answer) = self.attempt(case, standing, balance.take(), &mut patience).await?
            {
                return Ok(answer);
            }
            eviction = Eviction::Needed;
            // Something moved underneath the decision: read and judge anew, the key, the freeze and the approval included.
            balance = Some(EarlyBalance::of_agent(self.payments, &agent));
            snapshot = self
                .payments
                .ledger
                .snapshot(&ask(self.request, agent.id, Some(purchase.service.id)))
                .await?;
            agent = snapshot.agent.take().ok_or(ErrorKind::InvalidAgentKey)?;
            if !agent.takes(self.key, self.payments.clock.now()) {
                return Err(ErrorKind::InvalidAgentKey.into());
            }
            before = self.before(&agent, &snapshot).await?;
        }
    }

    /// Idempotency and approval replay (`docs/spec.md` §3.3, §7): what earlier calls and people have settled.
    ///
    /// An executed approval answers first, then the key, then the approval's own state.
    async fn before(&self, agent: &Agent, snapshot: &Snapshot) -> Result<Before, Failure> {
        let carried = match (self.request.approval, &snapshot.approval) {
            (None, _) => None,
            (Some(_), Some(approval)) if approval.agent == agent.id => Some(approval),
            (Some(_), _) => return Err(ErrorKind::NotFound.into()),
        };
        if let Some(executed) = carried.and_then(executed) {
            return Err(executed.into());
        }
        let fingerprint = self.request.intent.fingerprint;
        match &snapshot.prior {
            Some(Prior::Allowed {
                fingerprint: first,
                payment,
            }) => {
                if *first != fingerprint {
                    let settlement = Some(payment.settlement);
                    return Err(ErrorKind::IdempotencyKeyReused { settlement }.into());
                }
                if agent.status == AgentStatus::Frozen {
                    return Err(self.frozen(agent, payment).await?.into());
                }
                let answer = self.replay(agent, payment).await?;
                return Ok(Before::Answered(Box::new(answer)));
            }
            Some(Prior::Escalated { fingerprint: first, .. }) if *first != fingerprint => {
                return Err(ErrorKind::IdempotencyKeyReused { settlement: None }.into());
            }
            Some(Prior::Escalated {
                approval, transaction, ..
            }) if carried.is_none() => {
                let pinned = self.payments.ledger.approval(*approval).await?;
                let pinned = pinned.ok_or_else(|| Error::internal("reading a pinned approval", "it is gone"))?;
                return Err(self.unresolved(agent, &pinned, *transaction).await?.into());
            }
            Some(Prior::Escalated { .. }) | None => {}
        }
        let Some(approval) = carried else {
            return Ok(Before::Open(None));
        };
        if approval.fingerprint != fingerprint {
            return Err(self.void(agent, approval, Block::ApprovalMismatch).await?.into());
        }
        match approval.status(self.payments.clock.now()) {
            ApprovalStatus::Approved => Ok(Before::Open(Some(approval.id))),
            _ => Err(self.unresolved(agent, approval, approval.transaction).await?.into()),
        }
    }

    /// The answer to a call whose approval does not let it run: not yet, not any more, or not without being sent along.
    async fn unresolved(&self, agent: &Agent, approval: &Approval, transaction: TransactionId) -> Result<Error> {
        match approval.status(self.payments.clock.now()) {
            ApprovalStatus::Pending | ApprovalStatus::Approved => Ok(self.waiting(approval, transaction, &[])),
            ApprovalStatus::Rejected => self.void(agent, approval, Block::ApprovalRejected).await,
            ApprovalStatus::Expired => self.void(agent, approval, Block::ApprovalExpired).await,
            ApprovalStatus::Executed => Ok(executed(approval).unwrap_or(ErrorKind::NotFound).into()),
        }
    }

    /// The escalation's own answer, however often it is asked for.
    fn waiting(&self, approval: &Approval, transaction: TransactionId, checks: &[Check]) -> Error {
        let reason = Reason::ApprovalRequired {
            approval: Some(approval.id),
            amount: approval.amount,
            threshold: approval.threshold,
            rule: approval.rule,
        };
        self.refused(transaction, reason, checks.to_vec())
    }

    /// Refuses a call whose approval can't be used, and records that it was tried.
    async fn void(&self, agent: &Agent, approval: &Approval, block: Block) -> Result<Error> {
        let about = (approval.service, approval.operation.clone());
        self.refuse_unjudged(agent, about, block, Some(approval.id)).await
    }

    /// Refuses a frozen agent what it was authorized before: what is signed could still be paid with.
    async fn frozen(&self, agent: &Agent, bound: &BoundPayment) -> Result<Error> {
        let Settlement { terms, .. } = self.bound_settlement(agent, bound).await?;
        let about = (terms.service, terms.operation);
        self.refuse_unjudged(agent, about, Block::AgentFrozen, None).await
    }

    /// Records and answers a refusal that no check was needed for.
    async fn refuse_unjudged(
        &self,
        agent: &Agent,
        (service, operation): (ServiceId, OperationSlug),
        block: Block,
        approval: Option<ApprovalId>,
    ) -> Result<Error> {
        let at = self.payments.clock.now();
        let intent = &self.request.intent;
        let record = DecisionRecord {
            transaction: TransactionId::at(at, self.payments.chance.bytes()?),
            agent: agent.id,
            owner: agent.owner.clone(),
            service,
            operation: Some(operation),
            amount: intent.offer.amount(),
            pay_to: intent.offer.pay_to(),
            fingerprint: intent.fingerprint,
            call: CallDescription::of(intent, None, self.payments.network),
            at,
            reason: Reason::PolicyBlocked(block),
            policy_version: None,
            approval,
            checks: Vec::new(),
            latency_ms: self.latency_ms(),
        };
        self.record(record).await
    }

    /// One decision and its commit. `None` when something moved underneath it, so that it has to be taken again.
    async fn attempt(
        &self,
        case: Case<'_>,
        standing: &mut Standing,
        mut balance: Option<EarlyBalance>,
        patience: &mut Patience,
    ) -> Result<Option<Response>, Failure> {
        loop {
            let denial = match self.payments.decide(case, standing, balance.take()).await {
                Decision::NeedsTarget => return Err(Error::field_required("target_url").into()),
                Decision::Allow(grant) => return Ok(self.reserve(case, &grant, patience).await?),
                Decision::Refuse(denial) => denial,
            };
            if denial.escalates() {
                return self.escalate(case, denial).await;
            }
            match (
                exactness(&denial.reason, standing, denial.at),
                refusing_window(&denial.reason, standing),
            ) {
                (Exactness::HidesExpired, Some((window, _))) => {
                    self.clear(window, denial.at).await?;
                    return Ok(None);
                }
                (Exactness::NeedsMore, Some(_)) => self.payments.read_further(&denial.reason, standing).await?,
                // A refusal is as exact as an allow: nothing was written between reading the window and now.
                (Exactness::Exact, Some((window, _)))
                    if !self
                        .payments
                        .ledger
                        .held_still(window, &self.request.idempotency_key)
                        .await? =>
                {
                    patience.pause().await?;
                    return Ok(None);
                }
                (_, _) => return Err(self.record(self.decision(case, denial)?).await?.into()),
            }
        }
    }

    /// Evicts all that has rolled out of a window, one transaction after another. Whoever has no time left for it comes back,
    /// and goes on where this call has stopped.
    async fn clear(&self, window: &Window, at: Timestamp) -> Result<()> {
        let mut patience = Patience::new();
        loop {
            match self.payments.ledger.clear_expired(window, at).await? {
                Cleared::All => return Ok(()),
                Cleared::More => patience = Patience::new(),
                Cleared::Overtaken => patience.pause().await?,
            }
            self.payments.still_in_time(self.started)?;
        }
    }

    /// Reserves and signs. The wallet is derived first, so that a seed that does not fit leaves no hold behind.
    async fn reserve(&self, case: Case<'_>, grant: &Grant<'_>, patience: &mut Patience) -> Result<Option<Response>> {
        let offer = &case.intent.offer;
        let wallet = self.payments.wallet(case.agent)?;
        let terms = self.payments.terms(case.agent, self.request, grant)?;
        match self
            .payments
            .ledger
            .reserve(grant, &terms, &case.intent.fingerprint, patience)
            .await?
        {
            Reserved::Done => {}
            // What won the race is read and answered like anything that went before.
            Reserved::Prior(_) | Reserved::ApprovalUsed { .. } | Reserved::Raced => return Ok(None),
        }
        let terms = PaymentTerms::of(&terms);
        let payment = self.payments.payment(&wallet, &terms, offer)?;
        tracing::info!(
            result = "allow",
            rule = "none",
            settlement.id = %terms.settlement,
            transaction.id = %terms.transaction,
            agent.id = %case.agent.id,
            amount = %terms.amount,
            latency_ms = self.latency_ms(),
            "payment.decided"
        );
        Ok(Some(
            Authorized::with_payment(&terms, offer.version(), payment).into_response(),
        ))
    }

    /// The stored outcome of an earlier call: while the chain would still take it, the same settlement and the same signed
    /// bytes; afterwards, where the settlement stands.
    async fn replay(&self, agent: &Agent, bound: &BoundPayment) -> Result<Response> {
        let network = self.payments.network;
        let usable = self.payments.clock.now() < bound.valid_before;
        let offer = usable
            .then(|| Offer::at(self.requirement, network, bound.offer_index))
            .flatten();
        let answer = if let Some(offer) = offer {
            let wallet = self.payments.wallet(agent)?;
            let terms = PaymentTerms::again(bound, &offer, agent.wallet.address, network);
            let payment = self.payments.payment(&wallet, &terms, &offer)?;
            Authorized::with_payment(&terms, offer.version(), payment)
        } else {
            Authorized::without_payment(&self.bound_settlement(agent, bound).await?)
        };
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

    async fn bound_settlement(&self, agent: &Agent, bound: &BoundPayment) -> Result<Settlement> {
        let settlement = self.payments.ledger.settlement(agent.id, bound.settlement).await?;
        settlement.ok_or_else(|| Error::internal("replaying a settlement", "it is gone"))
    }

    /// Stages the question to a person, or joins the same question that is open already.
    async fn escalate(&self, case: Case<'_>, denial: Denial) -> Result<Option<Response>, Failure> {
        let checks = denial.checks.clone();
        let expires_at = denial.at.after(self.payments.approval_ttl);
        let decision = self.decision(case, denial)?;
        let limit = self.payments.most_open_approvals;
        match self
            .payments
            .ledger
            .escalate(&self.request.idempotency_key, &decision, expires_at, limit)
            .await?
        {
            Escalated::Staged(approval) => {
                tracing::info!(
                    approval.id = %approval.id,
                    agent.id = %approval.agent,
                    amount = %approval.amount,
                    "approval.staged"
                );
                self.log_refusal(&decision);
                Err(self.waiting(&approval, decision.transaction, &checks).into())
            }
            Escalated::Joined(approval) => {
                self.log_refusal(&decision);
                Err(self.waiting(&approval, decision.transaction, &checks).into())
            }
            Escalated::Prior(_) => Ok(None),
            Escalated::TooMany => {
                let reason = Reason::PolicyBlocked(Block::TooManyApprovals { limit });
                Err(self.record(DecisionRecord { reason, ..decision }).await?.into())
            }
        }
    }

    fn log_refusal(&self, decision: &DecisionRecord) {
        let reason = &decision.reason;
        tracing::info!(
            result = reason.result(),
            rule = reason.rule(),
            reason = reason.text(),
            transaction.id = %decision.transaction,
            agent.id = %decision.agent,
            amount = %decision.amount,
            latency_ms = self.latency_ms(),
            "payment.decided"
        );
    }

    fn decision(&self, case: Case<'_>, denial: Denial) -> Result<DecisionRecord> {
        let named = case.intent.operation.clone();
        Ok(DecisionRecord {
            transaction: TransactionId::at(denial.at, self.payments.chance.bytes()?),
            agent: case.agent.id,
            owner: case.agent.owner.clone(),
            service: case.purchase.service.id,
            operation: case
                .purchase
                .operation
                .map(|operation| operation.slug.clone())
                .or(named),
            amount: case.intent.offer.amount(),
            pay_to: case.intent.offer.pay_to(),
            fingerprint: case.intent.fingerprint,
            call: CallDescription::of(case.intent, case.purchase.operation, self.payments.network),
            at: denial.at,
            reason: denial.reason,
            policy_version: denial.policy_version,
            approval: None,
            checks: denial.checks,
            latency_ms: self.latency_ms(),
        })
    }

    /// Writes the decision row, and only then refuses.
    async fn record(&self, record: DecisionRecord) -> Result<Error> {
        self.payments.ledger.record(&record).await?;
        self.log_refusal(&record);
        let DecisionRecord {
            transaction,
            reason,
            checks,
            ..
        } = record;
        Ok(self.refused(transaction, reason, checks))
    }

    fn refused(&self, transaction: TransactionId, reason: Reason, checks: Vec<Check>) -> Error {
        ErrorKind::Refused(Box::new(Refusal {
            transaction,
            reason,
            checks,
            latency_ms: self.latency_ms(),
        }))
        .into()
    }

    fn latency_ms(&self) -> u64 {
        self.payments.clock.now().since(self.started).millis()
    }
}

fn executed(approval: &Approval) -> Option<ErrorKind> {
    approval.settlement().map(|settlement| ErrorKind::IdempotentReplay {
        approval: approval.id,
        settlement,
    })
}
