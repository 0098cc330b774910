//! `POST /x402/authorize`: evaluates a payment, reserves the spend, and signs exactly the evaluated payment.
//!
//! What is always true: an answer with a payment has its settlement stored and its amount counted; the same key with
//! the same request returns the same settlement and the same signed bytes, even if answers were lost; a refusal writes
//! only its decision row. Errors, in the order in which they are found: `docs/errors.md`.
//!
//! From top to bottom: the body is parsed, the caller authenticated while the decision inputs are read; then the
//! decision is made, the amount reserved, the payment signed and the call answered. If the inputs change meanwhile, it
//! starts again with the reads.
//!
//! Deliberately elsewhere: the checks (`shared/domain/src/policy/evaluate.rs`), the transaction
//! (`shared/store/src/payments/reserve.rs`), the signature (`shared/chain/src/signer.rs`), answers to repeated calls
//! (`idempotency.rs`), and how a refusal is recorded (`refuse.rs`).

use crate::Payments;
use crate::authenticate::service_of;
use crate::early_balance::EarlyBalance;
use crate::idempotency::PriorOutcome;
use crate::refuse::window_to_read_on;
use crate::view::{AuthorizeBody, Authorized};
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use purser_api::{AgentCredentials, AuthorizeRequest, Failure};
use purser_chain::WalletSigner;
use purser_domain::{
    Agent, Catalog, CatalogMatch, Decision, Duration, Error, Eviction, Facts, Grant, Offer, PaymentHeader,
    PaymentTerms, Result, SettlementId, Terms, Timestamp, TransactionId, TransferAuthorization,
};
use purser_store::{Authenticated, Backoff, DecisionInputs, DecisionKeys, Reserved};
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
    caller: AgentCredentials,
    body: Bytes,
) -> Result<Response, Failure> {
    let started = payments.clock.now();
    let body = purser_api::json_body(&body);
    let request = body.and_then(|body| Ok((AuthorizeRequest::parse(&body, payments.network)?, body)));

    // The key is checked before the body: for a malformed body only what checks the key is read.
    let parsed = request.as_ref().ok().map(|(request, _)| request);
    let ask = parsed.map_or_else(DecisionKeys::default, |request| DecisionKeys {
        service: None,
        key: Some(request.idempotency_key),
        approval: request.approval,
    });
    let mut balance = parsed.and_then(|_| EarlyBalance::of_caller(&payments, &caller));
    let intent = parsed.map(|request| &request.intent);
    let (edition, mut caller) = payments.authenticate_for_decision(caller, intent, ask).await?;
    let (request, body) = request?;

    let authorizing = Authorizing {
        payments: &payments,
        request: &request,
        requirement: body.get("payment_requirement").unwrap_or(&Value::Null),
        started,
    };
    let service = service_of(&request.intent, &edition);
    let mut eviction = Eviction::Eager;
    // Under lasting contention it returns an error, and nothing is written.
    let mut backoff = Backoff::new();
    loop {
        let attempt = authorizing.attempt(&mut caller, &edition.catalog, eviction, balance.take(), &mut backoff);
        match attempt.await? {
            Attempt::Done(answer) => return Ok(answer),
            // The inputs have changed: read and decide again, the key, the freeze and the approval included.
            Attempt::Retry => {
                eviction = Eviction::Needed;
                balance = Some(EarlyBalance::of_agent(&payments, &caller.agent));
                payments
                    .read_again(&mut caller, &DecisionKeys { service, ..ask })
                    .await?;
            }
        }
    }
}

/// The result of one attempt to answer.
pub(crate) enum Attempt {
    /// The answer. Refusals are errors.
    Done(Response),
    /// The inputs have changed, so the decision must be made again. Nothing was reserved.
    Retry,
}

/// One call of authorize, from the authenticated caller to the answer.
pub(crate) struct Authorizing<'a> {
    pub(crate) payments: &'a Arc<Payments>,
    pub(crate) request: &'a AuthorizeRequest,
    /// The provider's requirement as sent; a replay rebuilds the stored payment's offer from it.
    pub(crate) requirement: &'a Value,
    pub(crate) started: Timestamp,
}

impl Authorizing<'_> {
    /// Replays the answer of an earlier call; or decides on what was read, and writes the result: the payment, the
    /// approval, or the refusal.
    async fn attempt(
        &self,
        caller: &mut Authenticated<DecisionInputs>,
        catalog: &Catalog,
        eviction: Eviction,
        mut balance: Option<EarlyBalance>,
        backoff: &mut Backoff,
    ) -> Result<Attempt, Failure> {
        let (agent, intent) = (&caller.agent, &self.request.intent);
        let approval = match self.before(agent, &caller.read).await? {
            PriorOutcome::Answered(answer) => return Ok(Attempt::Done(*answer)),
            PriorOutcome::Open(approval) => approval,
        };
        let matched = CatalogMatch::of(intent, catalog)?;
        let service_state = caller.read.service_state_mut()?;
        let denial = loop {
            let facts = Facts {
                approval,
                eviction,
                ..self.payments.facts(agent, intent, matched, service_state)
            };
            match self.payments.decide(facts, balance.take()).await {
                Decision::NeedsTarget => return Err(Error::field_required("target_url").into()),
                Decision::Allow(grant) => return Ok(self.reserve(agent, &grant, backoff).await?),
                Decision::Refuse(denial) => match window_to_read_on(&denial, service_state) {
                    // It is refused in any case; more entries are needed to say when the call fits.
                    Some(window) => self.payments.ledger.read_further(window).await?,
                    None => break denial,
                },
            }
        };
        if denial.escalates() {
            self.escalate(agent, matched, denial).await
        } else {
            self.refuse(agent, matched, denial, service_state, backoff).await
        }
    }

    /// Reserves and signs. The wallet is derived first, so that a wrong seed leaves no hold.
    async fn reserve(&self, agent: &Agent, grant: &Grant<'_>, backoff: &mut Backoff) -> Result<Attempt> {
        let Self { payments, request, .. } = self;
        let wallet = self.wallet(agent)?;
        let terms = self.terms(agent, grant)?;
        let fingerprint = &request.intent.fingerprint;
        match payments.ledger.reserve(grant, &terms, fingerprint, backoff).await? {
            Reserved::Done => {}
            // Whatever won the race is read and answered in the next attempt.
            Reserved::IdempotencyRecord(_) | Reserved::ApprovalUsed { .. } | Reserved::Raced => {
                return Ok(Attempt::Retry);
            }
        }
        let terms = PaymentTerms::of(&terms);
        let offer = &request.intent.offer;
        let payment = self.payment(&wallet, &terms, offer)?;
        tracing::info!(
            result = "allow",
            rule = "none",
            settlement.id = %terms.settlement,
            transaction.id = %terms.transaction,
            agent.id = %agent.id,
            amount = %terms.amount,
            latency_ms = self.latency_ms(),
            "payment.decided"
        );
        let answer = Authorized::with_payment(&terms, offer.version(), payment);
        Ok(Attempt::Done(answer.into_response()))
    }

    /// The agent's wallet. A seed that does not derive the stored address must not sign anything.
    pub(crate) fn wallet(&self, agent: &Agent) -> Result<Arc<WalletSigner>> {
        let wallet = self
            .payments
            .seed
            .wallet(agent.wallet.index)
            .map_err(|error| Error::internal("deriving a wallet", error))?;
        if wallet.address() == agent.wallet.address {
            Ok(wallet)
        } else {
            Err(Error::internal(
                "deriving a wallet",
                "the seed does not lead to the agent's address",
            ))
        }
    }

    /// The terms of a grant: what is stored, and all that is signed.
    fn terms(&self, agent: &Agent, grant: &Grant<'_>) -> Result<Terms> {
        let Self { payments, request, .. } = self;
        let offer = &request.intent.offer;
        let window = Duration::from_secs_u32(offer.max_timeout_secs()).min(payments.max_authorization);
        let random: [u8; 16] = payments.entropy.bytes()?;
        let [settlement, transaction] =
            [random.first_chunk::<8>(), random.last_chunk::<8>()].map(|half| half.copied().unwrap_or_default());
        let valid_before = Timestamp::from_secs(grant.at().secs())
            .unwrap_or(grant.at())
            .after(window);
        Ok(Terms {
            id: SettlementId::at(grant.at(), settlement),
            transaction: TransactionId::at(grant.at(), transaction),
            agent: agent.id,
            wallet: agent.wallet.address,
            service: grant.service(),
            operation: grant.operation().clone(),
            network: payments.network,
            amount: grant.amount(),
            pay_to: offer.pay_to(),
            authorized_at: grant.at(),
            valid_before,
            x402_version: offer.version(),
            offer_index: offer.index(),
            policy_version: grant.policy_version(),
            budgets: grant.charges().filter_map(|charge| charge.scope.budget()).collect(),
            idempotency_key: request.idempotency_key,
            approval: grant.approval(),
            checks: grant.checks().to_vec(),
        })
    }

    /// The signed payment of a settlement: the same bytes each time.
    pub(crate) fn payment(&self, wallet: &WalletSigner, terms: &PaymentTerms, offer: &Offer) -> Result<PaymentHeader> {
        let authorization = TransferAuthorization::of(terms, self.payments.nonce_key.nonce(terms.settlement));
        let signature = wallet
            .sign(terms.network, &authorization)
            .map_err(|error| Error::internal("signing a payment", error))?;
        Ok(PaymentHeader::new(offer, terms.network, &authorization, signature))
    }

    pub(crate) fn latency_ms(&self) -> u64 {
        self.payments.clock.now().since(self.started).millis()
    }
}
