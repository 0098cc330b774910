//! `POST /x402/authorize`: evaluates a payment, reserves the amount, and signs exactly the evaluated payment.
//!
//! Invariants: a payment is returned only after the settlement is stored and the amount is reserved. The same
//! idempotency key with the same request returns the same settlement, signed with the same nonce (`docs/x402.md` §7). A
//! rejection writes only a decision row.

use crate::AppState;
use crate::authenticate::find_called_service;
use crate::call::{Attempt, Authorizing};
use crate::early_balance::BalancePrefetch;
use crate::idempotency::PriorOutcome;
use crate::refuse::find_window_with_inexact_retry_time;
use crate::view::{AuthorizeBody, Authorized};
use axum::response::IntoResponse as _;
use purser_api::{AgentCredentials, AuthorizeRequest, Body, Failure, REQUIREMENT, Reply, endpoint};
use purser_domain::{
    Agent, Approval, CatalogMatch, Decision, Duration, Error, EvaluationInputs, Eviction, Grant, NoncePrefix,
    PaymentTerms, Purchase, Purpose, Result, SettlementId, SettlementTerms, Timestamp, TransactionId, WindowMeasure,
};
use purser_store::{AuthenticatedCaller, Backoff, CatalogVersion, DecisionInputs, DecisionKeys, ReserveResult};
use serde_json::value::RawValue;

/// Evaluate a payment, reserve its amount and sign it.
#[endpoint(
    post "/x402/authorize", operation_id = "authorize", body = Authorized,
    returns = "The payment is authorized. Send `payment.header_value` as the header \
            `payment.header_name` of the provider call. If the response has the header `Idempotent-Replayed: true`, it \
            contains the stored outcome of an earlier call.",
    links(
                    ("complete" = (operation_id = "complete", parameters(("settlementId" = "$response.body#/settlement_id")))),
                    ("receipt" = (operation_id = "receipt", parameters(("settlementId" = "$response.body#/settlement_id")))),
                ),
    errors(AmountExceedsMax, AmountExceedsPerCallLimit, DailySpendLimitExceeded, ApprovalRequired, InsufficientUsdcBalance, ServiceNotEnabled, OperationNotEnabledForAgent, DomainNotAllowed, PolicyBlocked, NotFound, ServiceNotFound, IdempotentReplay, IdempotencyKeyReused)
)]
pub(crate) async fn authorize_payment(
    payments: AppState,
    caller: AgentCredentials,
    body: Body<AuthorizeBody>,
) -> Reply {
    let started = payments.clock.now();
    let body = purser_api::parse_json_body_with_raw_field(body.bytes(), REQUIREMENT);
    let request = body.and_then(|(body, requirement)| {
        let request = AuthorizeRequest::parse(&body, payments.network)?;
        Ok((request, body, requirement))
    });

    // The agent key is checked before a malformed body is reported. That check needs only the agent's record.
    let parsed = request.as_ref().ok().map(|(request, ..)| request);
    let ask = parsed.map_or_else(DecisionKeys::default, |request| DecisionKeys {
        key: Some(request.idempotency_key),
        payee: Some(request.intent.offer.pay_to()),
        approval: request.approval,
        ..DecisionKeys::default()
    });
    let mut balance_prefetch = parsed.and_then(|_| BalancePrefetch::start_for_caller(&payments, &caller));
    let intent = parsed.map(|request| &request.intent);
    let (catalog_version, mut caller) = payments
        .authenticate_for_decision(caller, intent.map(Into::into), ask)
        .await?;
    let (request, body, requirement) = request?;

    let authorizing = Authorizing {
        payments: &payments,
        request: &request,
        body: &body,
        requirement: requirement.unwrap_or(RawValue::NULL),
        catalog: &catalog_version.catalog,
        started,
        key: caller.key,
    };
    let service = find_called_service(&request.intent, &catalog_version);
    let mut eviction = Eviction::Eager;
    // Constant contention ends in an error, and nothing is written.
    let mut backoff = Backoff::new();
    loop {
        let first = authorizing.request_with_earlier_requirements(&caller.read);
        let authorizing = Authorizing {
            request: first.as_ref().unwrap_or(&request),
            ..authorizing
        };
        let attempt = authorizing.attempt_authorization(
            &mut caller,
            &catalog_version,
            eviction,
            balance_prefetch.take(),
            &mut backoff,
        );
        match attempt.await? {
            Attempt::Done(response) => return Ok(response),
            // The next attempt reads the key, the freeze and the approval again.
            Attempt::Retry => {
                eviction = Eviction::Needed;
                balance_prefetch = Some(BalancePrefetch::start(&payments, &caller.agent));
                payments
                    .reread_decision_inputs(&mut caller, &DecisionKeys { service, ..ask })
                    .await?;
            }
        }
    }
}

impl Authorizing<'_> {
    /// Returns an earlier call's response, or decides and writes the payment, the approval request, or the rejection.
    async fn attempt_authorization(
        &self,
        caller: &mut AuthenticatedCaller<DecisionInputs>,
        catalog_version: &CatalogVersion,
        eviction: Eviction,
        mut balance_prefetch: Option<BalancePrefetch>,
        backoff: &mut Backoff,
    ) -> Result<Attempt, Failure> {
        let (agent, intent, scope) = (&caller.agent, &self.request.intent, caller.key_scope()?);
        let approval = match self.find_prior_outcome(agent, scope, &caller.read).await? {
            PriorOutcome::Answered(response) => return Ok(Attempt::Done(*response)),
            PriorOutcome::Open(approval) => approval,
            PriorOutcome::Raced => return Ok(Attempt::Retry),
        };
        let catalog_match = CatalogMatch::find_in_catalog(intent, self.catalog)?;
        scope.check_service(catalog_match.service.id)?;
        let frozen = caller.read.find_operator_freeze(agent)?;
        let service_state = caller.read.service_state_mut()?;
        if !service_state.is_backfilled {
            let now = self.payments.clock.now();
            let payee = Some(intent.offer.pay_to());
            let ledger = &self.payments.ledger;
            ledger.backfill_payments(agent, payee, self.catalog, now).await?;
            return Ok(Attempt::Retry);
        }
        let unwritten = service_state.is_unwritten;
        let denial = loop {
            let inputs = EvaluationInputs {
                approval: approval.as_deref().map(Approval::as_evaluation_input),
                eviction,
                ..self
                    .payments
                    .evaluation_inputs((agent, self.key), intent, catalog_match, service_state, frozen)
            };
            let inputs = self.payments.add_payee_start_time(catalog_version, inputs).await?;
            match self.payments.decide(inputs, balance_prefetch.take()).await {
                Decision::NeedsTarget => return Err(Error::field_required("target_url").into()),
                Decision::Allow(grant) => {
                    // The first payment stores the service's default policy, unless the policy was updated in the
                    // meantime.
                    if unwritten
                        && !self
                            .payments
                            .ledger
                            .try_write_default_policy(agent, catalog_match.service.id)
                            .await?
                    {
                        backoff.wait_for_retry().await?;
                        return Ok(Attempt::Retry);
                    }
                    return Ok(self.reserve_and_sign(agent, &grant, backoff).await?);
                }
                Decision::Refuse(denial) => match find_window_with_inexact_retry_time(&denial, service_state) {
                    // These payments are read only to compute when the rejected amount fits into the limit.
                    Some(window) => self.payments.ledger.append_next_window_payments(window).await?,
                    None => break denial,
                },
            }
        };
        // The futures below are boxed, because this method's future is moved several times before it runs.
        if !Box::pin(self.verify_denial_is_current(&denial, service_state, backoff)).await? {
            return Ok(Attempt::Retry);
        }
        if denial.requires_approval() {
            Box::pin(self.escalate_payment(agent, catalog_match, denial, approval.map(|approval| approval.id))).await
        } else {
            Box::pin(self.reject_payment(agent, catalog_match, denial)).await
        }
    }

    /// Reserves the amount and signs the payment. Reads the signer first, so that an unusable wallet leaves no
    /// reservation.
    async fn reserve_and_sign(&self, agent: &Agent, grant: &Grant<'_>, backoff: &mut Backoff) -> Result<Attempt> {
        let Self { payments, request, .. } = self;
        payments.hold_limit.check_limit(agent.id, self.started)?;
        let wallet = payments.wallet_signer(agent)?;
        let terms = self.settlement_terms(agent, grant)?;
        let fingerprint = &request.intent.fingerprint;
        match payments
            .ledger
            .reserve_payment(grant, &terms, fingerprint, backoff)
            .await?
        {
            ReserveResult::Done => payments.hold_limit.count_hold(agent.id, self.started),
            // Another call changed the same records first. The next attempt reads that call's result.
            ReserveResult::IdempotencyRecord(_) | ReserveResult::ApprovalUsed { .. } | ReserveResult::Raced => {
                return Ok(Attempt::Retry);
            }
        }
        let hash = self.allow_decision_hash(&terms);
        let terms = PaymentTerms::from_settlement_terms(&terms);
        let offer = &request.intent.offer;
        let payment = self.sign_payment(&wallet, &terms, offer).await?;
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
        let response = Authorized::with_payment(&terms, self.catalog_price(), offer.version(), payment);
        Ok(Attempt::Done(response.with_decision_hash(hash).into_response()))
    }

    /// Builds the settlement terms of an allowed payment, which are stored and signed.
    fn settlement_terms(&self, agent: &Agent, grant: &Grant<'_>) -> Result<SettlementTerms> {
        let Self { payments, request, .. } = self;
        let offer = &request.intent.offer;
        let window = Duration::from_secs_u32(offer.max_timeout_secs()).min(payments.max_authorization);
        let random: [u8; 16] = payments.entropy.random_bytes()?;
        let [settlement, transaction] =
            [random.first_chunk::<8>(), random.last_chunk::<8>()].map(|half| half.copied().unwrap_or_default());
        let id = SettlementId::new_at(grant.authorized_at(), settlement);
        let valid_before = Timestamp::from_secs(grant.authorized_at().secs())
            .unwrap_or(grant.authorized_at())
            .after(window);
        Ok(SettlementTerms {
            id,
            transaction: TransactionId::new_at(grant.authorized_at(), transaction),
            agent: agent.id,
            wallet: agent.wallet.address,
            network: payments.network,
            amount: grant.amount(),
            pay_to: offer.pay_to(),
            authorized_at: grant.authorized_at(),
            valid_before,
            idempotency_key: request.idempotency_key,
            nonce_prefix: NoncePrefix::from_nonce(payments.nonce_key.derive_nonce(id)),
            transfers: agent.transfer_count(),
            purpose: Purpose::Purchase(Purchase {
                key: self.key,
                service: grant.service_id(),
                operation: grant.operation_slug().clone(),
                scope: grant.purchase_scope(),
                x402_version: offer.version(),
                offer_index: offer.index(),
                policy_version: grant.policy_version(),
                inputs: grant.input_versions(),
                budgets: grant.counting_window_ids(WindowMeasure::Amounts).collect(),
                counts: grant.counting_window_ids(WindowMeasure::Payments).collect(),
                approval: grant.approval_id(),
                checks: grant.checks().to_vec(),
            }),
        })
    }
}
