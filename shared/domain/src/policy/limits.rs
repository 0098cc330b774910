//! Functions that the checks of optional rules share. Each check is in the file of the kind of rule (`rules`).
//!
//! Of these checks, only the budget check is always made. The others are made only if the agent has a rule of
//! the same kind for the service. A new kind of rule therefore changes no earlier decision. No approval is
//! requested if a check other than the balance check blocks the payment, because a user would decide for
//! nothing.

use super::{
    check::{AskingKind, AskingLimit, Block, Check, CheckName, FirstFailure},
    rules::RuleParameters,
};
use crate::{
    Amount, ApprovalException, CallDigest, CallMark, CountingRule, DuplicateGuard, EvaluationInputs, LimitAction,
    NewPayee, Operation, OperationDigest, PayeePrefix, PriceAboveUsual, RecentUpdate, RetryAt, Rule, RuleId, Timestamp,
    Window, WindowMeasure,
};

fn applicable_rules<'a>(inputs: &EvaluationInputs<'a>) -> impl Iterator<Item = &'a Rule> + Clone + use<'a> {
    let (service, key) = (inputs.service, inputs.key);
    let rules = inputs.agent.rules.iter();
    rules.filter(move |rule| rule.kind.applies_to_payment(service, key))
}

/// Returns the rules of one kind that apply to the payment.
pub(super) fn applicable_rules_of_kind<'a, T: RuleParameters>(
    inputs: &EvaluationInputs<'a>,
) -> impl Iterator<Item = (RuleId, &'a T)> + Clone + use<'a, T> {
    applicable_rules(inputs).filter_map(|rule| Some((rule.id, rule.kind.as_kind()?)))
}

/// Returns the limits that require an approval: the threshold, then rules. Limits that an exception waives are omitted.
pub(super) fn limits_requiring_approval<'a>(
    inputs: &EvaluationInputs<'a>,
) -> impl Iterator<Item = AskingLimit> + use<'a> {
    let (evaluation_inputs, amount) = (*inputs, inputs.intent.offer.amount());
    let policy = evaluation_inputs
        .enabled
        .filter(|enabled| enabled.enabled)
        .map(|enabled| &enabled.policy);
    let threshold = policy.map(|policy| policy.require_approval_above);
    let threshold = threshold.filter(|above| amount > *above).map(|above| AskingLimit {
        rule: None,
        above,
        kind: AskingKind::Threshold,
    });
    let rules = applicable_rules(&evaluation_inputs).filter_map(move |rule| {
        let (kind, above) = rule.kind.parameters().exceeded_threshold(rule, &evaluation_inputs)?;
        Some(AskingLimit {
            rule: Some(rule.id),
            above,
            kind,
        })
    });
    let limits = threshold.into_iter().chain(rules);
    limits.filter(move |limit| {
        let mut exceptions = applicable_rules_of_kind::<ApprovalException>(&evaluation_inputs);
        !exceptions.any(|(_, exception)| exception.waives(limit, &evaluation_inputs))
    })
}

/// Returns the remaining part of the rule's window if the payment exceeds the limit and the rule then requires an
/// approval.
pub(super) fn remaining_if_approval_required(rule: &Rule, inputs: &EvaluationInputs<'_>) -> Option<Amount> {
    let rule = CountingRule::new(rule).filter(|rule| rule.action() == LimitAction::Ask)?;
    let window = rule.find_window(inputs.budgets)?;
    is_exceeded(&rule, window, inputs).then(|| window.remaining_at(rule.limit, inputs.at))
}

fn is_exceeded(rule: &CountingRule<'_>, window: &Window, inputs: &EvaluationInputs<'_>) -> bool {
    let units = rule.counted.payment_units(inputs.intent.offer.amount());
    let sum = window.counted_amount_at(inputs.at).plus(units);
    sum.is_none_or(|sum| sum > rule.limit)
}

/// Returns the limit that the window's total must not exceed. A limit that an approval waives does not apply.
pub(super) fn window_cap(rule: &CountingRule<'_>, inputs: &EvaluationInputs<'_>) -> Amount {
    let waived = AskingKind::from_name(rule.rule.kind.name()).filter(|_| rule.action() == LimitAction::Ask);
    let limit = waived.map(|kind| AskingLimit {
        rule: Some(rule.rule.id),
        above: Amount::ZERO,
        kind,
    });
    if limit.is_some_and(|limit| inputs.is_waived_by_approval(&limit)) {
        Amount::MAX
    } else {
        rule.limit
    }
}

/// Returns the rule whose result the check records. Exceeded rules come first, then blocking rules, then rules with the
/// least remaining amount.
fn most_restrictive_rule<'a, T: RuleParameters>(
    inputs: &EvaluationInputs<'a>,
) -> Option<(CountingRule<'a>, &'a Window)> {
    let rules = inputs.agent.counting_rules();
    let rules = rules.filter(|rule| rule.rule.kind.is_kind::<T>() && rule.applies_to(inputs.service, inputs.key));
    rules
        .filter_map(|rule| Some((rule, rule.find_window(inputs.budgets)?)))
        .min_by_key(|(rule, window)| {
            let is_exceeded = is_exceeded(rule, window, inputs);
            let asks = is_exceeded && rule.action() == LimitAction::Ask;
            (!is_exceeded, asks, window.remaining_at(rule.limit, inputs.at))
        })
}

/// Makes the check for all rules of the kind `T`, which counts payments. `block` creates the reason from the rule, the
/// used part and the retry time.
pub(super) fn check_counting_rules<T: RuleParameters>(
    failure: &mut FirstFailure,
    inputs: &EvaluationInputs<'_>,
    name: CheckName,
    block: fn(CountingRule<'_>, Amount, RetryAt) -> Block,
) -> Option<Check> {
    let (rule, window) = most_restrictive_rule::<T>(inputs)?;
    let used = window.counted_amount_at(inputs.at);
    let check = if is_exceeded(&rule, window, inputs) {
        failure.record_exceeded_limit(name, rule.action(), inputs, limits_requiring_approval(inputs), || {
            let units = rule.counted.payment_units(inputs.intent.offer.amount());
            block(rule, used, window.first_fitting_time(units, rule.limit, inputs.at))
        })
    } else {
        Check::passed(name)
    };
    Some(Check {
        limit: Some(rule.limit),
        used: Some(used),
        remaining: Some(rule.limit.saturating_minus(used)),
        ..check
    })
}

/// Returns the update of the recent payments for an allowed payment; `None` if no rule needs it.
pub(super) fn recent_payments_update(inputs: &EvaluationInputs<'_>, operation: &Operation) -> Option<RecentUpdate> {
    let guards = applicable_rules_of_kind::<DuplicateGuard>(inputs);
    let forbidding = guards.clone().filter(|(rule, guard)| {
        let limit = AskingLimit {
            rule: Some(*rule),
            above: Amount::ZERO,
            kind: AskingKind::DuplicateGuard,
        };
        guard.action == LimitAction::Block || !inputs.is_waived_by_approval(&limit)
    });
    let forbidden = forbidding.map(|(_, guard)| guard.within).max();
    let offer = &inputs.intent.offer;
    let new_payee = applicable_rules_of_kind::<NewPayee>(inputs).next();
    let payee = new_payee.map(|_| PayeePrefix::from_address(offer.pay_to()));
    let uses_median = applicable_rules_of_kind(inputs).any(|(_, rule): (_, &PriceAboveUsual)| rule.uses_median());
    let price = uses_median.then(|| (OperationDigest::from_slug(&operation.slug), offer.amount()));
    let call = guards.clone().next().map(|_| CallMark {
        call: CallDigest::from_intent(inputs.intent, &operation.slug),
        not_after: forbidden.map(|within| Timestamp::before(inputs.at, within)),
    });
    let is_needed = call.is_some() || payee.is_some() || price.is_some();
    is_needed.then(|| inputs.recent.update_for_payment(inputs.at, call, payee, price))
}

/// Returns the ids of the windows of rules that count the payment in the unit `measure`.
pub(super) fn counting_window_ids(
    inputs: EvaluationInputs<'_>,
    measure: WindowMeasure,
) -> impl Iterator<Item = RuleId> + use<'_> {
    let rules = inputs.agent.counting_rules();
    let rules = rules.filter(move |rule| rule.counted == measure && rule.applies_to(inputs.service, inputs.key));
    rules.filter_map(move |rule| rule.window_id(Some(inputs.intent.offer.pay_to())))
}
