//! `POST /x402/authorize`: evaluates a payment, reserves the amount, and signs exactly the evaluated payment.
//!
//! Invariants: if a response contains a payment, its settlement is stored and its amount is reserved. The same
//! idempotency key with the same request returns the same settlement, signed with the same nonce. This holds even if
//! responses were lost, or if the provider's payment requirements changed in fields that are neither evaluated nor
//! signed (`docs/x402.md` §7). A rejection writes only its decision row. `docs/errors.md` lists the errors in the order
//! of the checks.
//!
//! The handler parses the body, and authenticates the caller while it reads the decision inputs. Then it decides,
//! reserves the amount, signs the payment and responds. If the inputs change in the meantime, it reads them again.
//!
//! Other modules contain the checks (`shared/domain/src/policy/evaluate.rs`), the transaction
//! (`shared/store/src/payments/reserve.rs`), the signature (`shared/chain/src/signer.rs`), responses to repeated calls
//! (`idempotency.rs`), and the recording of rejections (`refuse.rs`).

use crate::Payments;
use crate::authenticate::service_of;
use crate::call::{Attempt, Authorizing};
use crate::early_balance::EarlyBalance;
use crate::idempotency::PriorOutcome;
use crate::refuse::window_to_read_on;
use crate::view::{AuthorizeBody, Authorized};
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use purser_api::{AgentCredentials, AuthorizeRequest, Body, Failure, REQUIREMENT, errors};
use purser_domain::{
    Agent, Approval, CatalogMatch, Decision, Duration, Error, Eviction, Facts, Grant, NoncePrefix, PaymentTerms,
    Purchase, Purpose, Result, SettlementId, Terms, Timestamp, TransactionId, WindowMeasure,
};
use purser_store::{AuthenticatedCaller, Backoff, DecisionInputs, DecisionKeys, Edition, ReserveResult};
use serde_json::value::RawValue;
use std::sync::Arc;

/// Evaluate a payment, reserve its amount and sign it.
#[utoipa::path(
    post, path = "/x402/authorize",
    responses(
        (status = 200, body = Authorized, description = "Authorized: send `payment.header_value` as the header `payment.header_name` of the \
            provider call. With the header `Idempotent-Replayed: true`, the stored outcome of an earlier call.",
                links(
                    ("complete" = (operation_id = "complete", parameters(("settlementId" = "$response.body#/settlement_id")))),
                    ("receipt" = (operation_id = "receipt", parameters(("settlementId" = "$response.body#/settlement_id")))),
                )),
        errors::AmountExceedsMax, errors::AmountExceedsPerCallLimit, errors::DailySpendLimitExceeded,
        errors::ApprovalRequired, errors::InsufficientUsdcBalance, errors::ServiceNotEnabled,
        errors::OperationNotEnabledForAgent, errors::DomainNotAllowed, errors::PolicyBlocked, errors::NotFound,
        errors::ServiceNotFound, errors::IdempotentReplay, errors::IdempotencyKeyReused,
    )
)]
pub(crate) async fn authorize(
    State(payments): State<Arc<Payments>>,
    caller: AgentCredentials,
    body: Body<AuthorizeBody>,
) -> Result<Response, Failure> {
    let started = payments.clock.now();
    let body = purser_api::json_body_around(body.bytes(), REQUIREMENT);
    let request = body.and_then(|(body, requirement)| {
        let request = AuthorizeRequest::parse(&body, payments.network)?;
        Ok((request, body, requirement))
    });

    // Check the key before the body. For a malformed body, read only the agent's record.
    let parsed = request.as_ref().ok().map(|(request, ..)| request);
    let ask = parsed.map_or_else(DecisionKeys::default, |request| DecisionKeys {
        key: Some(request.idempotency_key),
        approval: request.approval,
        ..DecisionKeys::default()
    });
    let mut balance = parsed.and_then(|_| EarlyBalance::start_for_caller(&payments, &caller));
    let intent = parsed.map(|request| &request.intent);
    let (edition, mut caller) = payments
        .authenticate_for_decision(caller, intent.map(Into::into), ask)
        .await?;
    let (request, body, requirement) = request?;

    let authorizing = Authorizing {
        payments: &payments,
        request: &request,
        body: &body,
        requirement: requirement.unwrap_or(RawValue::NULL),
        catalog: &edition.catalog,
        started,
        key: caller.key,
    };
    let service = service_of(&request.intent, &edition);
    let mut eviction = Eviction::Eager;
    // If contention lasts, the backoff ends in an error, and nothing is written.
    let mut backoff = Backoff::new();
    loop {
        let first = authorizing.as_first_made(&caller.read);
        let authorizing = Authorizing {
            request: first.as_ref().unwrap_or(&request),
            ..authorizing
        };
        let attempt = authorizing.attempt(&mut caller, &edition, eviction, balance.take(), &mut backoff);
        match attempt.await? {
            Attempt::Done(answer) => return Ok(answer),
            // The inputs changed: read and decide again, including the key, the freeze and the approval.
            Attempt::Retry => {
                eviction = Eviction::Needed;
                balance = Some(EarlyBalance::start(&payments, &caller.agent));
                payments
                    .read_again(&mut caller, &DecisionKeys { service, ..ask })
                    .await?;
            }
        }
    }
}

impl Authorizing<'_> {
    /// Returns an earlier call's response, or decides and writes the result: the payment, the approval request, or the
    /// rejection.
    async fn attempt(
        &self,
        caller: &mut AuthenticatedCaller<DecisionInputs>,
        edition: &Edition,
        eviction: Eviction,
        mut balance: Option<EarlyBalance>,
        backoff: &mut Backoff,
    ) -> Result<Attempt, Failure> {
        let (agent, intent, scope) = (&caller.agent, &self.request.intent, caller.scope()?);
        let approval = match self.before(agent, scope, &caller.read).await? {
            PriorOutcome::Answered(answer) => return Ok(Attempt::Done(*answer)),
            PriorOutcome::Open(approval) => approval,
            PriorOutcome::Raced => return Ok(Attempt::Retry),
        };
        let matched = CatalogMatch::find(intent, self.catalog)?;
        scope.check_service(matched.service.id)?;
        let frozen = caller.read.frozen_by_operators(agent)?;
        let service_state = caller.read.service_state_mut()?;
        if !service_state.is_backfilled {
            let now = self.payments.clock.now();
            self.payments.ledger.backfill(agent, self.catalog, now).await?;
            return Ok(Attempt::Retry);
        }
        let unwritten = service_state.is_unwritten;
        let denial = loop {
            let facts = Facts {
                approval: approval.as_deref().map(Approval::waiver),
                eviction,
                ..self.payments.facts(agent, intent, matched, service_state, frozen)
            };
            let facts = self.payments.with_payee_from(edition, facts).await?;
            match self.payments.decide(facts, balance.take()).await {
                Decision::NeedsTarget => return Err(Error::field_required("target_url").into()),
                Decision::Allow(grant) => {
                    // The first payment writes the default policy, which was active without a row. Retry if the policy
                    // was updated in the meantime.
                    if unwritten && !self.payments.ledger.write_default(agent, matched.service.id).await? {
                        backoff.wait().await?;
                        return Ok(Attempt::Retry);
                    }
                    return Ok(self.reserve(agent, &grant, backoff).await?);
                }
                Decision::Refuse(denial) => match window_to_read_on(&denial, service_state) {
                    // The call is rejected in any case. More counted payments are needed to compute when the call fits.
                    Some(window) => self.payments.ledger.read_further(window).await?,
                    None => break denial,
                },
            }
        };
        // Boxed, because a future is as large as the largest future that it awaits, and is moved several times before
        // it runs.
        if denial.escalates() {
            Box::pin(self.escalate(agent, matched, denial, approval.map(|approval| approval.id))).await
        } else {
            Box::pin(self.refuse(agent, matched, denial, service_state, backoff)).await
        }
    }

    /// Reserves the amount and signs the payment. Reads the wallet's signer first, so that a wallet that cannot sign
    /// leaves no reservation.
    async fn reserve(&self, agent: &Agent, grant: &Grant<'_>, backoff: &mut Backoff) -> Result<Attempt> {
        let Self { payments, request, .. } = self;
        payments.hold_limit.check(agent.id, self.started)?;
        let wallet = payments.signer(agent)?;
        let terms = self.terms(agent, grant)?;
        let fingerprint = &request.intent.fingerprint;
        match payments.ledger.reserve(grant, &terms, fingerprint, backoff).await? {
            ReserveResult::Done => payments.hold_limit.count(agent.id, self.started),
            // Another call won the race. The next attempt reads and returns its result.
            ReserveResult::IdempotencyRecord(_) | ReserveResult::ApprovalUsed { .. } | ReserveResult::Raced => {
                return Ok(Attempt::Retry);
            }
        }
        let hash = self.hash_of_allow(&terms);
        let terms = PaymentTerms::from_settlement_terms(&terms);
        let offer = &request.intent.offer;
        let payment = self.payment(&wallet, &terms, offer).await?;
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
        let answer = Authorized::with_payment(&terms, self.list_price(), offer.version(), payment);
        Ok(Attempt::Done(answer.with_hash(hash).into_response()))
    }

    /// Builds the settlement terms of a grant, which are stored and signed.
    fn terms(&self, agent: &Agent, grant: &Grant<'_>) -> Result<Terms> {
        let Self { payments, request, .. } = self;
        let offer = &request.intent.offer;
        let window = Duration::from_secs_u32(offer.max_timeout_secs()).min(payments.max_authorization);
        let random: [u8; 16] = payments.entropy.bytes()?;
        let [settlement, transaction] =
            [random.first_chunk::<8>(), random.last_chunk::<8>()].map(|half| half.copied().unwrap_or_default());
        let id = SettlementId::at(grant.at(), settlement);
        let valid_before = Timestamp::from_secs(grant.at().secs())
            .unwrap_or(grant.at())
            .after(window);
        Ok(Terms {
            id,
            transaction: TransactionId::at(grant.at(), transaction),
            agent: agent.id,
            wallet: agent.wallet.address,
            network: payments.network,
            amount: grant.amount(),
            pay_to: offer.pay_to(),
            authorized_at: grant.at(),
            valid_before,
            idempotency_key: request.idempotency_key,
            nonce_prefix: NoncePrefix::from_nonce(payments.nonce_key.nonce(id)),
            transfers: agent.transfers(),
            purpose: Purpose::Purchase(Purchase {
                key: self.key,
                service: grant.service(),
                operation: grant.operation().clone(),
                x402_version: offer.version(),
                offer_index: offer.index(),
                policy_version: grant.policy_version(),
                inputs: Some(grant.inputs()),
                budgets: grant.counting_rules(WindowMeasure::Amounts).collect(),
                counts: grant.counting_rules(WindowMeasure::Payments).collect(),
                approval: grant.approval(),
                checks: grant.checks().to_vec(),
            }),
        })
    }
}
