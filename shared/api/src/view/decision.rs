//! A decision as JSON: the `decision` of a blocked or escalated payment, and the `checks[]` of a preflight.

use purser_domain::{Amount, Check, CheckOutcome, Reason, Refusal, RetryAt};
use serde::Serialize;

purser_macros::views! {
    /// The result of one check. `limit`, `used` and `remaining` are null if the check compares no numbers. Otherwise
    /// they are amounts in micro-units, with two exceptions. For `count_limit` and `minimum_interval`, they are numbers
    /// of payments. For `duplicate_guard`, they are seconds: the rule's period, and the time since the call was last
    /// authorized.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct CheckView {
        fn from(check: &Check);

        /// The name of the check: the field of the limit, the kind of the rule, or another property that is checked.
        #[schema(value_type = String, example = "max_per_call_units")]
        pub name: &'static str = check.name.name(),
        /// `passed`, `failed`, `lifted` (an approval permits the payment although the check failed), or `unknown` (the
        /// check was not possible).
        #[schema(value_type = String, example = "passed")]
        pub outcome: &'static str = check.outcome.name(),
        /// Whether the check passed; null if the check was not possible.
        #[schema(required = false)]
        pub passed: Option<bool> = match check.outcome {
            CheckOutcome::Passed | CheckOutcome::Waived => Some(true),
            CheckOutcome::Failed => Some(false),
            CheckOutcome::Unknown => None,
        },
        /// The limit that applies to the checked value.
        #[schema(required = false)]
        pub limit: Option<u64> = check.limit.map(Amount::units),
        /// The used part of the limit, without this call.
        #[schema(required = false)]
        pub used: Option<u64> = check.used.map(Amount::units),
        /// The remaining part of the limit before this call.
        #[schema(required = false)]
        pub remaining: Option<u64> = check.remaining.map(Amount::units),
    }
}

impl CheckView {
    /// Creates the views of all checks, in their order.
    pub fn list_from_checks(checks: &[Check]) -> Vec<Self> {
        checks.iter().map(Self::from).collect()
    }
}

purser_macros::views! {
    /// A decision that blocked or escalated a call: the reason, and the result of every check.
    // `docs/spec.md` §2.7 defines these fields. A doc comment would publish this reference in the OpenAPI document.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct DecisionView {
        /// Creates the view of a blocked or escalated payment.
        pub fn new(reason: &Reason, checks: &[Check], latency_ms: u64);

        /// `block` or `escalate`.
        #[schema(value_type = String, example = "block")]
        pub result: &'static str = reason.result().name(),
        /// The reason of the check or rule that decided. If that check has no reason text, the slug of the error.
        #[schema(example = "category_block:finance")]
        pub reason: String = reason.reason_text(),
        /// The check or rule that blocked or escalated the call.
        #[schema(value_type = String, example = "category_block")]
        pub rule_triggered: &'static str = reason.triggered_rule(),
        /// The time that the decision took, in milliseconds.
        pub latency_ms: u64,
        /// The earliest time at which the same call can be authorized: when the call fits into the budget, count or
        /// daily limit, when a schedule or the duplicate guard allows the call, or when the waiting time of a new payee
        /// in the catalog ends. Null if the call never fits into the limit. Absent for other reasons.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<String>, format = DateTime)]
        pub retry_at: Option<OrNull<String>> = reason.retry_at().map(|at| OrNull(format_retry_time(at))),
        /// The results of all checks, in the order of evaluation.
        pub checks: Vec<CheckView> = CheckView::list_from_checks(checks),
    }
}

impl From<&Refusal> for DecisionView {
    fn from(rejection: &Refusal) -> Self {
        Self::new(&rejection.reason, &rejection.checks, rejection.latency_ms)
    }
}

/// Returns the earliest time at which the limit allows the same call, or a lower bound; `None` if the limit never
/// allows it.
pub(crate) fn format_retry_time(retry_at: RetryAt) -> Option<String> {
    match retry_at {
        RetryAt::At(at) | RetryAt::NotBefore(at) => Some(at.to_string()),
        RetryAt::Never => None,
    }
}

/// A value or `null`. `Option<OrNull<T>>` also represents an absent field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OrNull<T>(pub Option<T>);
