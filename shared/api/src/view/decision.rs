//! The JSON of a decision: the `decision` of a refusal and the `checks[]` of a preflight.

use purser_domain::{Amount, Check, CheckOutcome, Reason, Refusal, RetryAt};
use serde::Serialize;
use utoipa::ToSchema;

/// One check, with its numbers if it has any: in micro-units, except of `count_limit` and `minimum_interval` (payments)
/// and `duplicate_guard` (seconds: the rule's time, and the time since the last authorization of the call).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Check)]
pub struct CheckView {
    /// The name of the check.
    #[schema(value_type = String, example = "max_per_call_units")]
    pub name: &'static str,
    /// `passed`, `failed`, `lifted` (by an approval), or `unknown` (it could not be made).
    #[schema(value_type = String, example = "passed")]
    pub outcome: &'static str,
    /// Whether the check passed; null if that is unknown.
    pub passed: Option<bool>,
    /// The limit.
    pub limit: Option<u64>,
    /// The used part of the limit, not including this call.
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
    /// All checks, in their order.
    pub fn all(checks: &[Check]) -> Vec<Self> {
        checks.iter().map(Self::from).collect()
    }
}

/// The reason that a call was blocked or escalated, and the result of every check.
// `docs/spec.md` §2.7. The line above is the API's own description, whose readers have no such file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Decision)]
pub struct DecisionView {
    /// `block` or `escalate`.
    #[schema(value_type = String, example = "block")]
    pub result: &'static str,
    /// The reason of the rule or check; otherwise the error's slug.
    #[schema(example = "category_block:finance")]
    pub reason: String,
    /// The check or rule that failed.
    #[schema(value_type = String, example = "category_block")]
    pub rule_triggered: &'static str,
    /// The duration of the decision.
    pub latency_ms: u64,
    /// The earliest time at which the same call fits into the budget, count or daily limit (null if it never fits), is
    /// allowed by a schedule or as a repetition, or at which a payee that is new in the catalog may be paid. Absent for
    /// other reasons.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub retry_at: Option<OrNull<String>>,
    /// Every check, in the order in which they are made.
    pub checks: Vec<CheckView>,
}

impl DecisionView {
    /// The view of a refusal or an escalation.
    pub fn of(reason: &Reason, checks: &[Check], latency_ms: u64) -> Self {
        Self {
            result: reason.result().name(),
            reason: reason.text(),
            rule_triggered: reason.rule(),
            latency_ms,
            retry_at: reason.retry_at().map(|at| OrNull(instant(at))),
            checks: CheckView::all(checks),
        }
    }
}

impl From<&Refusal> for DecisionView {
    fn from(refusal: &Refusal) -> Self {
        Self::of(&refusal.reason, &refusal.checks, refusal.latency_ms)
    }
}

/// The time at which the call fits; a lower bound if only more entries could show it exactly; `None` if it never fits.
pub(crate) fn instant(fits: RetryAt) -> Option<String> {
    match fits {
        RetryAt::At(at) | RetryAt::NotBefore(at) => Some(at.to_string()),
        RetryAt::Never => None,
    }
}

/// A member that is present, and may be `null`. `Option<OrNull<T>>` distinguishes "absent" from "null".
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OrNull<T>(pub Option<T>);
