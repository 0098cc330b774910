//! `POST /x402/raises`: asks the agent's owner for a temporary limit increase, after a cap blocked a payment.
//!
//! An approved request increases the caps and does not approve the payment, so the agent calls authorize
//! again. An agent has at most one pending request for a service. Further calls return the pending request,
//! or for a day after a rejection the rejected request.

use crate::AppState;
use crate::view::RaiseBody;
use axum::Json;
use purser_api::{AgentCredentials, ApprovalView, Body, LimitIncreaseCall, Reply, endpoint};
use purser_domain::{
    Agent, Amount, Approval, ApprovalId, CheckName, CheckOutcome, Error, ErrorKind, Freeze, LimitIncreaseRequest,
    LoggedDecision, LoggedDenial, Permission, Resolution, Result, SpendPolicy, UnpaidDenial, ValidationError,
};
use purser_store::{DecisionKeys, LimitIncreaseRequestResult};

/// The seconds to wait before a retry if the agent has the maximum number of pending approval requests.
const RETRY_AFTER: u64 = 60;

/// Ask your owner for a temporary limit increase, after a cap blocked a payment.
///
/// You may request a multiple of the cap that your owner set, by default ten times the cap. The error of a higher request
/// contains the maximum.
///
/// While a request for the service is pending, and for a day after a rejection, the call returns the earlier request.
/// Its `raised_caps` may differ from the caps that you requested. Poll the approval with `GET /approvals/{id}`. Once
/// the request is approved, repeat the payment with a new `idempotency_key` and without `approval_id`.
#[endpoint(
    post "/x402/raises", operation_id = "raise",
    returns = "The approval request, which this call or an earlier call created.", errors(PolicyBlocked, NotFound)
)]
pub(crate) async fn request_limit_increase(
    payments: AppState,
    caller: AgentCredentials,
    body: Body<RaiseBody>,
) -> Reply<Json<ApprovalView>> {
    let now = payments.clock.now();
    let call = body.json().and_then(|body| LimitIncreaseCall::parse(&body, now));
    let keys = DecisionKeys {
        freezes: true,
        ..DecisionKeys::default()
    };
    let caller = payments.authenticate(caller, Permission::Pay, &keys).await?;
    let call = call?;
    if let Some(freeze) = Freeze::effective_freeze(&caller.agent, caller.read.find_operator_freeze(&caller.agent)?) {
        let rejection = UnpaidDenial::for_freeze(freeze, payments.clock.now().since(now).millis());
        return Err(ErrorKind::UnpaidRefused(Box::new(rejection)).into());
    }
    let rejection = match call.refused {
        Some(id) => payments.ledger.find_recorded_decision(caller.agent.id, id).await?,
        None => None,
    };
    let Some(LoggedDecision::Refused(rejection)) = rejection else {
        return Err(ErrorKind::NotFound.into());
    };
    caller.key_scope()?.check_service(rejection.service)?;
    let present = payments.ledger.find_enabled_service(caller.agent.id, rejection.service);
    let present = present.await?.ok_or(ErrorKind::NotFound)?;
    let limit = find_rejecting_cap(&rejection, &call, &caller.agent, &present.policy)?;
    let Some(operation) = rejection.operation else {
        let words = "is of a call that is no operation of the service";
        return Err(Error::invalid(vec![ValidationError::at_path("/transaction_id", words)]).into());
    };
    let increase = LimitIncreaseRequest {
        caps: call.caps,
        until: call.until,
        reason: call.reason,
        asked_of: caller.agent.owner.clone(),
    };
    let fingerprint = Approval::limit_increase_fingerprint(rejection.service);
    let request = Approval {
        id: ApprovalId::derive(caller.agent.id, &fingerprint, 0),
        agent: caller.agent.id,
        owner: caller.agent.owner.clone(),
        key: caller.key,
        transaction: rejection.transaction,
        fingerprint,
        service: rejection.service,
        operation,
        amount: rejection.amount,
        pay_to: rejection.pay_to,
        call: rejection.call,
        threshold: limit,
        asking: Vec::new(),
        created_at: now,
        expires_at: now.after(payments.approval_ttl).min(increase.until),
        raise: None,
        granted: None,
        resolution: Resolution::Pending,
    };
    let approval = match payments
        .ledger
        .store_limit_increase_request(&request, &increase, payments.most_open_approvals)
        .await?
    {
        LimitIncreaseRequestResult::New(approval) => {
            tracing::info!(approval.id = %approval.id, agent.id = %approval.agent, "raise.asked");
            approval
        }
        LimitIncreaseRequestResult::Already(approval) => approval,
        LimitIncreaseRequestResult::TooMany => {
            return Err(ErrorKind::TooManyRequests {
                retry_after: RETRY_AFTER,
            }
            .into());
        }
    };
    Ok(Json(ApprovalView::from_approval(&approval, now)))
}

/// Checks that each requested cap blocked the denied payment, and that the new value is within the allowed range.
///
/// Returns the limit at the time of the denial: of the cap per call if requested, otherwise of the cap per 24 hours.
fn find_rejecting_cap(
    denial: &LoggedDenial,
    call: &LimitIncreaseCall,
    agent: &Agent,
    policy: &SpendPolicy,
) -> Result<Amount> {
    let (per_call, per_day) = (call.caps.max_per_call, call.caps.max_per_day);
    let requested = [
        (CheckName::PerCall, "/max_per_call_units", per_call, policy.max_per_call),
        (CheckName::Day, "/max_per_day_units", per_day, policy.max_per_day),
    ];
    let mut limits = Vec::new();
    let mut errors = Vec::new();
    for (name, path, cap, present) in requested {
        let Some(cap) = cap else { continue };
        let (max, factor) = (agent.max_requestable_cap(present), agent.max_increase_factor);
        if cap > max {
            let words = format!("must be at most {max} units: your owner lets you request {factor} times the cap");
            errors.push(ValidationError::at_path(path, words));
            continue;
        }
        let mut checks = denial.checks.iter();
        let failed = checks.find(|check| check.name == name && check.outcome == CheckOutcome::Failed);
        match failed.and_then(|check| check.limit) {
            None => errors.push(ValidationError::at_path(path, "did not refuse this payment")),
            Some(limit) if cap <= limit => {
                errors.push(ValidationError::at_path(
                    path,
                    format!("must be above the limit of {limit} units"),
                ));
            }
            Some(limit) => limits.push(limit),
        }
    }
    match limits.first() {
        Some(limit) if errors.is_empty() => Ok(*limit),
        _ => Err(Error::invalid(errors)),
    }
}
