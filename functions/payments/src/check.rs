//! `POST /x402/check`: what authorize would answer, without any effect on money.
//!
//! It does not sign, reserve, stage approvals or write settlements (`docs/spec.md` §4.3). It answers 200 for every
//! outcome of the policy; malformed requests, unknown callers and unknown services stay errors. The outcome is kept
//! under its replay key for a day: the same request is told the same again, another one is a conflict.

use crate::decide::{Case, Exactness, exactness};
use crate::early_balance::EarlyBalance;
use crate::view::{CheckAnswer, CheckBody};
use crate::{Payments, only};
use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use purser_api::{Caller, Failure};
use purser_domain::{CheckRequest, Decision, Error, ErrorKind, Eviction, Preflight, Purchase, Result};
use purser_store::{Ask, Remembered, Standing};
use std::sync::Arc;

purser_api::error_responses! {
    /// What this endpoint may be refused with.
    pub(crate) CheckErrors: 400, 401, 404, 409, 413, 429, 500;
}

/// Judge one payment without effect.
#[utoipa::path(
    post,
    path = "/x402/check",
    tag = "payments",
    security(("agentKey" = [])),
    request_body = CheckBody,
    responses(
        (status = 200, body = CheckAnswer, description = "The outcome, whatever it is. Authorize re-evaluates and is authoritative."),
        CheckErrors,
    )
)]
pub(crate) async fn check(
    State(payments): State<Arc<Payments>>,
    caller: Caller,
    body: Bytes,
) -> Result<Json<CheckAnswer>, Failure> {
    let now = payments.clock.now();
    let request = purser_api::json_body(&body).and_then(|body| CheckRequest::parse(&body, payments.network));
    let intent = request.as_ref().ok().map(|request| &request.intent);
    let ask = |agent, service| Ask { service, ..only(agent) };
    let opening = payments.open(caller, intent, ask).await?;
    let (request, agent) = (request?, &opening.agent);
    let purchase = Purchase::of(&request.intent, &opening.edition.catalog)?;

    let case = Case {
        agent,
        intent: &request.intent,
        purchase,
        approval: None,
        eviction: Eviction::Eager,
    };
    let mut standing = opening
        .snapshot
        .standing
        .ok_or_else(|| Error::internal("reading the standing", "it was not answered"))?;
    let answer = foresee(&payments, case, &mut standing, opening.balance).await?;

    let CheckRequest { intent, replay_key } = &request;
    match payments
        .ledger
        .remember_preflight(agent.id, replay_key, &intent.fingerprint, &answer, now)
        .await?
    {
        Remembered::First => Ok(Json(answer.into())),
        Remembered::Same(first) => Ok(Json(first.into())),
        Remembered::Other => Err(ErrorKind::IdempotencyKeyReused { settlement: None }.into()),
    }
}

/// The decision, read as exactly as authorize would, with reads alone.
async fn foresee(
    payments: &Payments,
    case: Case<'_>,
    standing: &mut Standing,
    mut balance: Option<EarlyBalance>,
) -> Result<Preflight> {
    let amount = case.intent.offer.amount();
    loop {
        match payments.decide(case, standing, balance.take()).await {
            Decision::NeedsTarget => return Err(ErrorKind::FieldRequired("target_url").into()),
            Decision::Allow(grant) => {
                let (result, reason) = ("allow".to_owned(), "x402_authorized".to_owned());
                return Ok(Preflight {
                    result,
                    reason,
                    amount,
                    checks: grant.checks().to_vec(),
                });
            }
            Decision::Refuse(denial) => match exactness(&denial.reason, standing, denial.at) {
                Exactness::HidesExpired => payments.read_further(&denial.reason, standing).await?,
                // Its answer does not say when the call fits.
                Exactness::NeedsMore | Exactness::Exact => {
                    let (result, reason) = (denial.reason.result().to_owned(), denial.reason.text());
                    return Ok(Preflight {
                        result,
                        reason,
                        amount,
                        checks: denial.checks,
                    });
                }
            },
        }
    }
}
