//! `POST /x402/check`: what authorize would answer, without any effect on money.
//!
//! It does not sign, reserve, stage approvals or write settlements (`docs/spec.md` §4.3). It answers 200 for every
//! result of the policy; malformed requests, unknown callers and unknown services stay errors. Each call is evaluated
//! anew, with the current state. The replay key only detects repetitions: for a day another request under it is a
//! conflict.

use crate::Payments;
use crate::early_balance::EarlyBalance;
use crate::view::{CheckAnswer, CheckBody};
use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use purser_api::{AgentCredentials, CheckRequest, CheckView, Failure, SpendView};
use purser_domain::{
    Agent, Amount, Block, CatalogMatch, Decision, Denial, Error, ErrorKind, Freeze, Intent, Reason, Result,
};
use purser_store::{DecisionKeys, Edition, ReplayKey, ServiceState};
use std::sync::Arc;

purser_api::error_responses! {
    /// What this endpoint may be refused with.
    pub(crate) CheckErrors: 400, 401, 403, 404, 409, 413, 429, 500;
}

/// Judge one payment without effect.
#[utoipa::path(
    post,
    path = "/x402/check",
    tag = "payments",
    security(("agentKey" = [])),
    request_body = CheckBody,
    responses(
        (status = 200, body = CheckAnswer, description = "The outcome now, whatever it is. Authorize re-evaluates and is authoritative."),
        CheckErrors,
    )
)]
pub(crate) async fn check(
    State(payments): State<Arc<Payments>>,
    caller: AgentCredentials,
    body: Bytes,
) -> Result<Json<CheckAnswer>, Failure> {
    let now = payments.clock.now();
    let request = purser_api::json_body(&body).and_then(|body| CheckRequest::parse(&body, payments.network));
    let intent = request.as_ref().ok().map(|request| &request.intent);
    let balance = intent.and_then(|_| EarlyBalance::of_caller(&payments, &caller));
    let (edition, mut caller) = payments
        .authenticate_for_decision(caller, intent, DecisionKeys::default())
        .await?;
    let (request, agent) = (request?, &caller.agent);
    let matched = CatalogMatch::of(&request.intent, &edition.catalog)?;
    caller.scope()?.check_service(matched.service.id)?;
    let frozen = caller.read.frozen_by_operators(agent)?;
    let service_state = caller.read.service_state_mut()?;
    let answer = preflight_reason_of(
        &payments,
        agent,
        frozen,
        &request.intent,
        (&edition, matched),
        service_state,
        balance,
    );
    let answer = answer.await?;

    let CheckRequest { intent, replay_key } = &request;
    let key = payments
        .ledger
        .hold_replay_key(agent.id, replay_key, &intent.fingerprint, now);
    match key.await? {
        ReplayKey::Held => Ok(Json(answer)),
        ReplayKey::Taken => Err(ErrorKind::IdempotencyKeyReused { settlement: None }.into()),
    }
}

/// The decision, as exact as authorize's, using only reads.
async fn preflight_reason_of(
    payments: &Payments,
    agent: &Agent,
    frozen_by_operators: Option<Freeze>,
    intent: &Intent,
    (edition, matched): (&Edition, CatalogMatch<'_>),
    service_state: &mut ServiceState,
    mut balance: Option<EarlyBalance>,
) -> Result<CheckAnswer> {
    loop {
        let at = payments.recorded_time(service_state);
        payments.ledger.read_live(service_state, at).await?;
        if let Some(window) = service_state.too_long(at) {
            return Err(payments.too_long(window).await);
        }
        let facts = payments.facts(agent, intent, matched, service_state, frozen_by_operators);
        let facts = payments.with_payee_from(edition, facts).await?;
        let (result, reason, checks, at) = match payments.decide(facts, balance.take()).await {
            Decision::NeedsTarget => return Err(Error::field_required("target_url")),
            Decision::Allow(grant) => {
                let reason = "x402_authorized".to_owned();
                ("allow", reason, CheckView::all(grant.checks()), grant.at())
            }
            // The answer does not say when the call fits, so no entries are read for that.
            Decision::Refuse(denial) => {
                let reason = preflight_reason(payments, agent, intent, &denial).await?;
                let checks = CheckView::all(&denial.checks);
                (reason.result().name(), reason.text(), checks, denial.at)
            }
        };
        // Entries may have expired since they were read.
        if service_state.too_long(at).is_none() {
            let policy = service_state.enabled.as_ref().map(|enabled| &enabled.policy);
            let max_per_day = policy.map_or(Amount::ZERO, |policy| policy.max_per_day);
            let spend = SpendView::at(at, agent, max_per_day, &service_state.day, &service_state.budgets);
            let listed = matched.operation.map(|operation| operation.price(at));
            let amount = intent.offer.amount();
            return Ok(CheckAnswer::new(result, reason, amount, listed, checks, spend));
        }
    }
}

/// The reason for a refusal, where nothing is staged: an approval above the limit of open ones is a block.
async fn preflight_reason(payments: &Payments, agent: &Agent, intent: &Intent, denial: &Denial) -> Result<Reason> {
    let limit = payments.most_open_approvals;
    let too_many = payments
        .ledger
        .asks_too_many(agent.id, &intent.fingerprint, limit, denial.at);
    if denial.escalates() && too_many.await? {
        return Ok(Reason::PolicyBlocked(Block::TooManyApprovals { limit }));
    }
    Ok(denial.reason.clone())
}
