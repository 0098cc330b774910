//! A decision as JSON: the `decision` of a blocked or escalated payment, and the `checks[]` of a preflight.

use purser_domain::{Amount, Check, CheckOutcome, Reason, Refusal, RetryAt};
use serde::Serialize;
use utoipa::ToSchema;

/// The result of one check. `limit`, `used` and `remaining` are null if the check compares no numbers. Otherwise they
/// are amounts in micro-units, with two exceptions. For `count_limit` and `minimum_interval`, they are numbers of
/// payments. For `duplicate_guard`, they are seconds: the rule's period, and the time since the call was last
/// authorized.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Check)]
pub struct CheckView {
    /// The name of the check: the field of the limit, the kind of the rule, or another property that is checked.
    #[schema(value_type = String, example = "max_per_call_units")]
    pub name: &'static str,
    /// `passed`, `failed`, `lifted` (an approval permits the payment although the check failed), or `unknown` (the
    /// check was not possible).
    #[schema(value_type = String, example = "passed")]
    pub outcome: &'static str,
    /// Whether the check passed; null if the check was not possible.
    pub passed: Option<bool>,
    /// The limit that applies to the checked value.
    pub limit: Option<u64>,
    /// The used part of the limit, without this call.
    pub used: Option<u64>,
    /// The remaining part of the limit before this call.
    pub remaining: Option<u64>,
}

impl From<&Check> for CheckView {
    fn from(check: &Check) -> Self {
        Self {
            name: check.name.name(),
            outcome: check.outcome.name(),
            passed: match check.outcome {
                CheckOutcome::Passed | CheckOutcome::Waived => Some(true),
                CheckOutcome::Failed => Some(false),
                CheckOutcome::Unknown => None,
            },
            limit: check.limit.map(Amount::units),
            used: check.used.map(Amount::units),
            remaining: check.remaining.map(Amount::units),
        }
    }
}

impl CheckView {
    /// Creates the views of all checks, in their order.
    pub fn list_from_checks(checks: &[Check]) -> Vec<Self> {
        checks.iter().map(Self::from).collect()
    }
}

/// A decision that blocked or escalated a call: the reason, and the result of every check.
// `docs/spec.md` §2.7 defines these fields. The OpenAPI document publishes the doc comment above, so the doc comment
// does not cite `docs/spec.md`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Decision)]
pub struct DecisionView {
    /// `block` or `escalate`.
    #[schema(value_type = String, example = "block")]
    pub result: &'static str,
    /// The reason of the check or rule that decided. If that check has no reason text, the slug of the error.
    #[schema(example = "category_block:finance")]
    pub reason: String,
    /// The check or rule that blocked or escalated the call.
    #[schema(value_type = String, example = "category_block")]
    pub rule_triggered: &'static str,
    /// The time that the decision took, in milliseconds.
    pub latency_ms: u64,
    /// The earliest time at which the same call can be authorized: when the call fits into the budget, count or daily
    /// limit, when a schedule or the duplicate guard allows the call, or when the waiting time of a new payee in the
    /// catalog ends. Null if the call never fits into the limit. Absent for other reasons.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub retry_at: Option<OrNull<String>>,
    /// The results of all checks, in the order of evaluation.
    pub checks: Vec<CheckView>,
}

impl DecisionView {
    /// Creates the view of a blocked or escalated payment.
    pub fn new(reason: &Reason, checks: &[Check], latency_ms: u64) -> Self {
        Self {
            result: reason.result().name(),
            reason: reason.reason_text(),
            rule_triggered: reason.triggered_rule(),
            latency_ms,
            retry_at: reason.retry_at().map(|at| OrNull(retry_time(at))),
            checks: CheckView::list_from_checks(checks),
        }
    }
}

impl From<&Refusal> for DecisionView {
    fn from(rejection: &Refusal) -> Self {
        Self::new(&rejection.reason, &rejection.checks, rejection.latency_ms)
    }
}

/// Returns the earliest time at which the limit allows the same call, or a lower bound; `None` if the limit never
/// allows it.
pub(crate) fn retry_time(retry_at: RetryAt) -> Option<String> {
    match retry_at {
        RetryAt::At(at) | RetryAt::NotBefore(at) => Some(at.to_string()),
        RetryAt::Never => None,
    }
}

/// A value or `null`. `Option<OrNull<T>>` also represents an absent field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OrNull<T>(pub Option<T>);
