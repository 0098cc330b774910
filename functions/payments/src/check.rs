//! `POST /x402/check`: evaluates a payment like `POST /x402/authorize`, without moving or reserving money
//! (`docs/spec.md` §4.3).
//!
//! Each call is evaluated with the current state. The replay key only detects a different request with the same key
//! within a day.

use crate::authenticate::find_called_service;
use crate::early_balance::BalancePrefetch;
use crate::idempotency::used_approval_error;
use crate::refuse::find_window_with_inexact_retry_time;
use crate::view::{CheckAnswer, CheckBody};
use crate::{AppState, Payments};
use axum::Json;
use purser_api::{
    AgentCredentials, Body, CheckRequest, DecisionView, REQUIREMENT, Reply, SpendView, endpoint,
    intent_with_earlier_requirements,
};
use purser_domain::{
    Agent, AgentId, Amount, Approval, ApprovalStatus, Block, CatalogMatch, Check, Decision, Denial, Error, ErrorKind,
    EvaluationInputs, Fingerprint, Freeze, Intent, KeyId, Reason, Result, Timestamp,
};
use purser_store::{CatalogVersion, DecisionKeys, ReplayKey, ServiceState};
use serde_json::Value;

/// Evaluate a payment without reserving or signing it.
#[endpoint(
    post "/x402/check", operation_id = "check",
    returns = "The result of evaluating the payment now. `POST /x402/authorize` evaluates the payment again and can return a different result.",
    errors(IdempotencyKeyReused, IdempotentReplay, NotFound, ServiceNotFound)
)]
pub(crate) async fn preflight_payment(
    payments: AppState,
    caller: AgentCredentials,
    body: Body<CheckBody>,
) -> Reply<Json<CheckAnswer>> {
    let now = payments.clock.now();
    let request = purser_api::parse_json_body_with_raw_field(body.bytes(), REQUIREMENT)
        .and_then(|(body, _)| Ok((CheckRequest::parse(&body, payments.network)?, body)));
    let parsed = request.as_ref().ok().map(|(request, _)| request);
    let intent = parsed.map(|request| &request.intent);
    let ask = DecisionKeys {
        payee: intent.map(|intent| intent.offer.pay_to()),
        approval: parsed.and_then(|request| request.approval),
        ..DecisionKeys::default()
    };
    let balance = intent.and_then(|_| BalancePrefetch::start_for_caller(&payments, &caller));
    let (edition, mut caller) = payments
        .authenticate_for_decision(caller, intent.map(Into::into), ask)
        .await?;
    let (request, body) = request?;
    while caller
        .read
        .service_state
        .as_ref()
        .is_some_and(|state| !state.is_backfilled)
    {
        let service = find_called_service(&request.intent, &edition);
        payments
            .ledger
            .backfill_payments(&caller.agent, ask.payee, &edition.catalog, now)
            .await?;
        payments
            .reread_decision_inputs(&mut caller, &DecisionKeys { service, ..ask })
            .await?;
    }
    let agent = &caller.agent;
    let approval = match (request.approval, caller.read.approval.take()) {
        (None, _) => None,
        (Some(_), Some(approval)) if approval.agent == agent.id => Some(approval),
        (Some(_), _) => return Err(ErrorKind::NotFound.into()),
    };
    if let Some(approval) = &approval {
        caller.key_scope()?.check_service(approval.service)?;
    }
    if let Some(executed) = approval.as_ref().and_then(used_approval_error) {
        return Err(executed.into());
    }
    // The handler evaluates the approved payment requirements, even if the provider now sends others too.
    let approved = approval.as_ref().and_then(|approval| {
        intent_with_earlier_requirements(&request.intent, &body, payments.network, &approval.fingerprint)
    });
    let intent = approved.as_ref().unwrap_or(&request.intent);
    let catalog_match = CatalogMatch::find_in_catalog(intent, &edition.catalog)?;
    caller.key_scope()?.check_service(catalog_match.service.id)?;
    let frozen = caller.read.find_operator_freeze(agent)?;
    let service_state = caller.read.service_state_mut()?;
    let preflight = Preflight {
        payments: &payments,
        agent,
        key: caller.key,
        edition: &edition,
        frozen_by_operators: frozen,
        intent,
        approval: approval.as_ref(),
        matched: catalog_match,
        started: now,
    };
    let response = preflight.evaluate(service_state, balance).await?;

    if payments.try_reserve_replay_key(agent.id, &request, &body, now).await? {
        Ok(Json(response))
    } else {
        Err(ErrorKind::IdempotencyKeyReused { settlement: None }.into())
    }
}

impl Payments {
    /// Stores the replay key with the request. Returns false if another request used the key within a day.
    async fn try_reserve_replay_key(
        &self,
        agent: AgentId,
        request: &CheckRequest,
        body: &Value,
        now: Timestamp,
    ) -> Result<bool> {
        let hold = async |fingerprint: &Fingerprint| {
            let key = &request.replay_key;
            self.ledger.try_reserve_replay_key(agent, key, fingerprint, now).await
        };
        match hold(&request.intent.fingerprint).await? {
            ReplayKey::Held => Ok(true),
            ReplayKey::Taken(first) => {
                match intent_with_earlier_requirements(&request.intent, body, self.network, &first) {
                    Some(_) => Ok(hold(&first).await? == ReplayKey::Held),
                    None => Ok(false),
                }
            }
        }
    }
}

/// One check call of an authenticated agent.
struct Preflight<'a> {
    payments: &'a Payments,
    agent: &'a Agent,
    key: KeyId,
    frozen_by_operators: Option<Freeze>,
    edition: &'a CatalogVersion,
    intent: &'a Intent,
    /// The agent's own approval, unless it was already used.
    approval: Option<&'a Approval>,
    matched: CatalogMatch<'a>,
    started: Timestamp,
}

impl Preflight<'_> {
    /// Decides like `POST /x402/authorize`, but reserves nothing.
    async fn evaluate(
        &self,
        service_state: &mut ServiceState,
        mut balance: Option<BalancePrefetch>,
    ) -> Result<CheckAnswer> {
        let (payments, agent, amount) = (self.payments, self.agent, self.intent.offer.amount());
        let now = payments.clock.now();
        loop {
            let at = payments.earliest_decision_time(service_state);
            payments.ledger.load_expired_payments(service_state, at).await?;
            if let Some(window) = service_state.find_window_with_unknown_spend(at) {
                return Err(payments.request_eviction_and_build_error(window).await);
            }
            if let Some(block) = self
                .approval
                .and_then(|approval| self.unusable_approval_reason(approval, now))
            {
                let reason = Reason::PolicyBlocked(block);
                return Ok(self.rejection_response(&reason, &[], service_state, at));
            }
            let approved = self
                .approval
                .filter(|approval| approval.status(now) == ApprovalStatus::Approved);
            let inputs = EvaluationInputs {
                approval: approved.map(Approval::as_evaluation_input),
                ..payments.evaluation_inputs(
                    (agent, self.key),
                    self.intent,
                    self.matched,
                    service_state,
                    self.frozen_by_operators,
                )
            };
            let inputs = payments.add_payee_start_time(self.edition, inputs).await?;
            let decided = match payments.decide(inputs, balance.take()).await {
                Decision::NeedsTarget => return Err(Error::field_required("target_url")),
                Decision::Allow(grant) => Ok((grant.checks().to_vec(), grant.authorized_at())),
                Decision::Refuse(denial) => Err(denial),
            };
            // The call is already rejected. These payments are read only to compute when a retry fits into
            // the limit.
            if let Err(denial) = &decided
                && let Some(window) = find_window_with_inexact_retry_time(denial, service_state)
            {
                payments.ledger.append_next_window_payments(window).await?;
                continue;
            }
            let at = match &decided {
                Ok((_, at)) => *at,
                Err(denial) => denial.at,
            };
            // Payments that expired after the window was read make the window's sum inexact.
            if service_state.find_window_with_unknown_spend(at).is_some() {
                continue;
            }
            return Ok(match decided {
                Ok((checks, at)) => CheckAnswer::for_allow(
                    amount,
                    self.catalog_price(at),
                    &checks,
                    self.spend_view(service_state, at),
                ),
                Err(denial) => {
                    let reason = self.rejection_reason(&denial).await?;
                    self.rejection_response(&reason, &denial.checks, service_state, at)
                }
            });
        }
    }

    /// Returns why authorize would reject the approval: it belongs to another request, was rejected or has
    /// expired. Returns `None` for every other approval.
    fn unusable_approval_reason(&self, approval: &Approval, now: Timestamp) -> Option<Block> {
        if !approval.covers_intent(self.intent) {
            return Some(Block::ApprovalMismatch);
        }
        match approval.status(now) {
            ApprovalStatus::Rejected => Some(Block::ApprovalRejected),
            ApprovalStatus::Expired => Some(Block::ApprovalExpired),
            ApprovalStatus::Pending | ApprovalStatus::Approved | ApprovalStatus::Executed => None,
        }
    }

    /// Returns the reason for a rejection. An escalation becomes a block if too many approvals are open.
    async fn rejection_reason(&self, denial: &Denial) -> Result<Reason> {
        let (limit, ledger) = (self.payments.most_open_approvals, &self.payments.ledger);
        let (agent, fingerprint) = (self.agent.id, &self.intent.fingerprint);
        if let Reason::ApprovalRequired {
            asking: asking_limits, ..
        } = &denial.reason
            && ledger
                .would_exceed_approval_limit(agent, fingerprint, asking_limits, limit, denial.at)
                .await?
        {
            return Ok(Reason::PolicyBlocked(Block::TooManyApprovals { limit }));
        }
        Ok(denial.reason.clone())
    }

    fn rejection_response(
        &self,
        reason: &Reason,
        checks: &[Check],
        service_state: &ServiceState,
        at: Timestamp,
    ) -> CheckAnswer {
        let latency_ms = self.payments.clock.now().since(self.started).millis();
        let decision = DecisionView::new(reason, checks, latency_ms);
        CheckAnswer::for_rejection(
            self.intent.offer.amount(),
            self.catalog_price(at),
            decision,
            self.spend_view(service_state, at),
        )
    }

    fn catalog_price(&self, at: Timestamp) -> Option<Amount> {
        self.matched.operation.map(|operation| operation.expected_price(at))
    }

    fn spend_view(&self, service_state: &ServiceState, at: Timestamp) -> SpendView {
        let policy = service_state.enabled.as_ref().map(|enabled| &enabled.policy);
        let caps = policy.map(|policy| policy.caps(&self.agent.owner, at));
        let max_per_day = caps.map_or(Amount::ZERO, |caps| caps.per_day);
        SpendView::from_windows(
            at,
            (self.agent, self.key),
            max_per_day,
            &service_state.day,
            &service_state.budgets,
        )
    }
}
