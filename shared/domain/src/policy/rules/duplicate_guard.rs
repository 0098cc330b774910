use super::{RuleParameters, duration_error, rule_kind};
use crate::{
    Amount, Block, CallDigest, Catalog, Check, CheckName, Duration, EvaluationInputs, LimitAction, MIN_INTERVAL,
    Operation, Rule, RuleScope, ServiceSlug, Timestamp, ValidationError,
    policy::{
        boundaries::Boundaries,
        check::{AskingKind, FirstFailure},
        limits,
    },
};

rule_kind! {
    /// A call with the same [`crate::CallDigest`] as a recent call is denied or needs an approval.
    DuplicateGuard = "duplicate_guard" {
        /// The services to which the rule applies; `None` for all services.
        services: Option<Vec<ServiceSlug>> = "services",
        /// A call is repeated if the same call was authorized less than this long ago: [`MIN_INTERVAL`] to
        /// [`crate::MAX_BUDGET_WINDOW`].
        within: Duration = "within_seconds",
        /// What the rule does with a repeated call.
        action: LimitAction = "action",
    }
}

impl RuleParameters for DuplicateGuard {
    fn is_as_strict_as(&self, before: &Self) -> bool {
        self.covers_services(before) && self.within >= before.within && self.action.is_as_strict_as(before.action)
    }

    fn scope(&self) -> RuleScope<'_> {
        RuleScope::for_services(self.services.as_deref())
    }

    fn needs_recent_payments(&self) -> bool {
        true
    }

    fn parameter_errors(&self, _: &Catalog) -> Vec<ValidationError> {
        duration_error("/within_seconds", self.within, MIN_INTERVAL)
            .into_iter()
            .collect()
    }

    fn exceeded_threshold(&self, _: &Rule, inputs: &EvaluationInputs<'_>) -> Option<(AskingKind, Amount)> {
        let last = last_call_time(inputs, inputs.operation?)?;
        let is_repeated = self.action == LimitAction::Ask && inputs.at.since(last) < self.within;
        is_repeated.then_some((AskingKind::DuplicateGuard, Amount::ZERO))
    }

    fn add_boundaries(&self, boundaries: &mut Boundaries) {
        boundaries.compares_calls = true;
        boundaries.durations.insert(self.within);
    }
}

/// Checks that the call does not repeat a recent call. A failed check contains durations in seconds.
pub(in crate::policy) fn check_duplicate(failure: &mut FirstFailure, inputs: &EvaluationInputs<'_>) -> Option<Check> {
    let mut guards = limits::applicable_rules_of_kind::<DuplicateGuard>(inputs).peekable();
    guards.peek()?;
    let Some(operation) = inputs.operation else {
        return Some(Check::unknown(CheckName::Duplicate));
    };
    let Some(last) = last_call_time(inputs, operation) else {
        return Some(Check::passed(CheckName::Duplicate));
    };
    let age = inputs.at.since(last);
    let violated = guards
        .filter(|(_, guard)| age < guard.within)
        .max_by_key(|(_, guard)| (guard.action == LimitAction::Block, guard.within));
    let Some((rule, &DuplicateGuard { within, action, .. })) = violated else {
        return Some(Check::passed(CheckName::Duplicate));
    };
    let block = || Block::Duplicate {
        rule,
        within,
        retry_at: last.after(within),
    };
    Some(Check {
        limit: Amount::from_units(within.secs()),
        used: Amount::from_units(age.secs()),
        ..failure.record_exceeded_limit(
            CheckName::Duplicate,
            action,
            inputs,
            limits::limits_requiring_approval(inputs),
            block,
        )
    })
}

fn last_call_time(inputs: &EvaluationInputs<'_>, operation: &Operation) -> Option<Timestamp> {
    inputs
        .recent
        .last_call_time(CallDigest::from_intent(inputs.intent, &operation.slug))
}
