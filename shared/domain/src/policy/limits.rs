//! The checks of optional rules: schedules, budgets, counts, intervals, duplicates, prices and payees.
//!
//! Of these checks, only the budget check is always made. The others are made only if the agent has a rule of
//! the same kind for the service. A new kind of rule therefore changes no earlier decision. No approval is
//! requested if a check other than the balance check blocks the payment, because a user would decide for
//! nothing.

use super::check::{AskingKind, AskingLimit, Block, Check, CheckName, FirstFailure};
use crate::{
    Amount, CallDigest, CallInputs, CallMark, Category, CountingRule, Duration, EvaluationInputs, LimitAction,
    Operation, OperationDigest, PayeePrefix, RecentUpdate, RetryAt, Rule, RuleId, RuleKind, Schedule, Timestamp,
    UsualPrice, Window, WindowMeasure,
};

fn applicable_rules<'a>(inputs: &EvaluationInputs<'a>) -> impl Iterator<Item = &'a Rule> + Clone + use<'a> {
    let (service, key) = (inputs.service, inputs.key);
    let rules = inputs.agent.rules.iter();
    rules.filter(move |rule| rule.kind.applies_to_payment(service, key))
}

pub(super) fn check_schedules(failure: &mut FirstFailure, inputs: &EvaluationInputs<'_>) -> Option<Check> {
    let mut schedules = applicable_schedules(inputs).peekable();
    schedules.peek()?;
    let closed = schedules.find(|(_, schedule)| !schedule.is_open(inputs.at));
    Some(match closed {
        None => Check::passed(CheckName::Schedule),
        Some((rule, _)) => failure.record_check(CheckName::Schedule, false, || {
            let schedules = applicable_schedules(inputs).map(|(_, schedule)| schedule);
            let retry_at = next_time_all_schedules_open(&schedules, inputs.at);
            Block::Schedule { rule, retry_at }.into()
        }),
    })
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
        let (kind, above) = exceeded_threshold(rule, &evaluation_inputs)?;
        Some(AskingLimit {
            rule: Some(rule.id),
            above,
            kind,
        })
    });
    let limits = threshold.into_iter().chain(rules);
    limits.filter(move |limit| {
        let mut rules = applicable_rules(&evaluation_inputs);
        !rules.any(|rule| match &rule.kind {
            RuleKind::ApprovalException(exception) => exception.waives(limit, &evaluation_inputs),
            _ => false,
        })
    })
}

/// Returns the kind of the limit and the amount above which the rule requires an approval. Returns `None` if
/// the rule requires no approval for the payment.
fn exceeded_threshold(rule: &Rule, inputs: &EvaluationInputs<'_>) -> Option<(AskingKind, Amount)> {
    let amount = inputs.intent.offer.amount();
    match &rule.kind {
        RuleKind::BudgetLimit { .. } | RuleKind::CountLimit { .. } => {
            let rule = CountingRule::new(rule).filter(|rule| rule.action() == LimitAction::Ask)?;
            let window = rule.find_window(inputs.budgets)?;
            let above = match rule.counted {
                WindowMeasure::Amounts => window.remaining_at(rule.limit, inputs.at),
                WindowMeasure::Payments => Amount::ZERO,
            };
            let kind = AskingKind::from_name(rule.rule.kind.name())?;
            is_exceeded(&rule, window, inputs).then_some((kind, above))
        }
        RuleKind::ApprovalRequired {
            categories: listed,
            above,
            ..
        } => {
            let is_listed = |listed: &Vec<Category>| {
                CallInputs::from(inputs)
                    .categories()
                    .any(|category| listed.contains(&category))
            };
            let above = above.unwrap_or(Amount::ZERO);
            let is_exceeded = amount > above && listed.as_ref().is_none_or(is_listed);
            is_exceeded.then_some((AskingKind::ApprovalRequired, above))
        }
        RuleKind::DuplicateGuard {
            within,
            action: LimitAction::Ask,
            ..
        } => {
            let last = last_call_time(inputs, inputs.operation?)?;
            (inputs.at.since(last) < *within).then_some((AskingKind::DuplicateGuard, Amount::ZERO))
        }
        RuleKind::PriceAboveUsual {
            percent,
            over,
            action: LimitAction::Ask,
            ..
        } => {
            let max = max_price_above_usual(usual_price(inputs, inputs.operation?, *over)?, *percent);
            (amount > max).then_some((AskingKind::PriceAboveUsual, max))
        }
        RuleKind::NewPayee { .. } => (!is_known_payee(inputs)).then_some((AskingKind::NewPayee, Amount::ZERO)),
        _ => None,
    }
}

fn applicable_schedules<'a>(
    inputs: &EvaluationInputs<'a>,
) -> impl Iterator<Item = (RuleId, &'a Schedule)> + Clone + use<'a> {
    applicable_rules(inputs).filter_map(|rule| match &rule.kind {
        RuleKind::Schedule { schedule, .. } => Some((rule.id, schedule)),
        _ => None,
    })
}

/// Returns the first time at or after `at` at which all schedules are open. Schedules in different time zones may
/// overlap in only some months.
pub(super) fn next_time_all_schedules_open<'a>(
    schedules: &(impl Iterator<Item = &'a Schedule> + Clone),
    mut at: Timestamp,
) -> RetryAt {
    /// The maximum number of rounds. A round moves the time to the next open time of each schedule in turn.
    const MAX_ROUNDS: u16 = 512;
    for _ in 0..MAX_ROUNDS {
        let next = schedules
            .clone()
            .try_fold(at, |at, schedule| schedule.next_open_time(at));
        match next {
            None => return RetryAt::Never,
            Some(next) if next == at => return RetryAt::At(at),
            Some(next) => at = next,
        }
    }
    RetryAt::Never
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
fn most_restrictive_rule<'a>(
    inputs: &EvaluationInputs<'a>,
    is_of_kind: fn(&RuleKind) -> bool,
) -> Option<(CountingRule<'a>, &'a Window)> {
    let rules = inputs.agent.counting_rules();
    let rules = rules.filter(|rule| is_of_kind(&rule.rule.kind) && rule.applies_to(inputs.service, inputs.key));
    rules
        .filter_map(|rule| Some((rule, rule.find_window(inputs.budgets)?)))
        .min_by_key(|(rule, window)| {
            let is_exceeded = is_exceeded(rule, window, inputs);
            let asks = is_exceeded && rule.action() == LimitAction::Ask;
            (!is_exceeded, asks, window.remaining_at(rule.limit, inputs.at))
        })
}

/// Makes the check for all rules of one kind that count payments. `block` creates the reason from the rule, the used
/// part and the retry time.
fn check_counting_rules(
    failure: &mut FirstFailure,
    inputs: &EvaluationInputs<'_>,
    name: CheckName,
    is_of_kind: fn(&RuleKind) -> bool,
    block: fn(CountingRule<'_>, Amount, RetryAt) -> Block,
) -> Option<Check> {
    let (rule, window) = most_restrictive_rule(inputs, is_of_kind)?;
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

pub(super) fn check_budgets(failure: &mut FirstFailure, inputs: &EvaluationInputs<'_>) -> Option<Check> {
    let is_budget = |kind: &RuleKind| matches!(kind, RuleKind::BudgetLimit { .. });
    check_counting_rules(failure, inputs, CheckName::Budget, is_budget, |rule, used, retry_at| {
        Block::Budget {
            rule: rule.rule.id,
            limit: rule.limit,
            used,
            retry_at,
        }
    })
}

pub(super) fn check_count_limits(failure: &mut FirstFailure, inputs: &EvaluationInputs<'_>) -> Option<Check> {
    let is_count = |kind: &RuleKind| matches!(kind, RuleKind::CountLimit { .. });
    check_counting_rules(failure, inputs, CheckName::Count, is_count, |rule, used, retry_at| {
        Block::Count {
            rule: rule.rule.id,
            count: rule.limit,
            used,
            retry_at,
        }
    })
}

pub(super) fn check_intervals(failure: &mut FirstFailure, inputs: &EvaluationInputs<'_>) -> Option<Check> {
    let is_interval = |kind: &RuleKind| matches!(kind, RuleKind::MinimumInterval { .. });
    check_counting_rules(
        failure,
        inputs,
        CheckName::Interval,
        is_interval,
        |rule, _, retry_at| Block::Interval {
            rule: rule.rule.id,
            interval: rule.period.max_duration(),
            retry_at,
        },
    )
}

/// Checks that the call does not repeat a recent call. A failed check contains durations in seconds.
pub(super) fn check_duplicate(failure: &mut FirstFailure, inputs: &EvaluationInputs<'_>) -> Option<Check> {
    let mut guards = applicable_rules(inputs)
        .filter_map(|rule| match rule.kind {
            RuleKind::DuplicateGuard { within, action, .. } => Some((rule.id, within, action)),
            _ => None,
        })
        .peekable();
    guards.peek()?;
    let Some(operation) = inputs.operation else {
        return Some(Check::unknown(CheckName::Duplicate));
    };
    let Some(last) = last_call_time(inputs, operation) else {
        return Some(Check::passed(CheckName::Duplicate));
    };
    let age = inputs.at.since(last);
    let violated = guards
        .filter(|(_, within, _)| age < *within)
        .max_by_key(|(_, within, action)| (*action == LimitAction::Block, *within));
    let Some((rule, within, action)) = violated else {
        return Some(Check::passed(CheckName::Duplicate));
    };
    let block = || Block::Duplicate {
        rule,
        within,
        retry_at: last.after(within),
    };
    Some(Check {
        limit: seconds_as_amount(within),
        used: seconds_as_amount(age),
        ..failure.record_exceeded_limit(
            CheckName::Duplicate,
            action,
            inputs,
            limits_requiring_approval(inputs),
            block,
        )
    })
}

fn last_call_time(inputs: &EvaluationInputs<'_>, operation: &Operation) -> Option<Timestamp> {
    inputs
        .recent
        .last_call_time(CallDigest::from_intent(inputs.intent, &operation.slug))
}

fn seconds_as_amount(duration: Duration) -> Option<Amount> {
    Amount::from_units(duration.secs())
}

/// Checks that the price is not too far above the usual price. The check's limit is the maximum price that every rule
/// accepts.
pub(super) fn check_price(failure: &mut FirstFailure, inputs: &EvaluationInputs<'_>) -> Option<Check> {
    let mut limits = applicable_rules(inputs)
        .filter_map(|rule| match rule.kind {
            RuleKind::PriceAboveUsual {
                percent, over, action, ..
            } => Some((rule.id, percent, over, action)),
            _ => None,
        })
        .peekable();
    limits.peek()?;
    let Some(operation) = inputs.operation else {
        return Some(Check::unknown(CheckName::Price));
    };
    let amount = inputs.intent.offer.amount();
    let judged = limits.filter_map(|(rule, percent, over, action)| {
        let max = max_price_above_usual(usual_price(inputs, operation, over)?, percent);
        Some((rule, max, action))
    });
    // Blocking rules come before rules that require an approval.
    let tightest = judged.min_by_key(|(_, max, action)| (amount <= *max, *action == LimitAction::Ask, *max));
    let Some((rule, max, action)) = tightest else {
        return Some(Check::passed(CheckName::Price));
    };
    let check = if amount <= max {
        Check::passed(CheckName::Price)
    } else {
        failure.record_exceeded_limit(
            CheckName::Price,
            action,
            inputs,
            limits_requiring_approval(inputs),
            || Block::PriceAboveUsual { rule, most: max },
        )
    };
    Some(Check {
        limit: Some(max),
        ..check
    })
}

fn usual_price(inputs: &EvaluationInputs<'_>, operation: &Operation, basis: UsualPrice) -> Option<Amount> {
    match basis {
        UsualPrice::Catalog => Some(operation.expected_price(inputs.at)),
        UsualPrice::Median(count) => inputs
            .recent
            .usual_price(OperationDigest::from_slug(&operation.slug), count),
    }
}

/// Returns the maximum price that exceeds the usual price by at most `percent` percent, rounded down.
pub(super) fn max_price_above_usual(usual_price: Amount, percent: u32) -> Amount {
    let hundredths = u128::from(percent).saturating_add(100);
    let max = u128::from(usual_price.units()).saturating_mul(hundredths) / 100;
    let max = u64::try_from(max).ok().and_then(Amount::from_units);
    max.unwrap_or(Amount::MAX)
}

/// Returns the lowest usual price from which [`max_price_above_usual`] computes `max`; `None` if there is none.
pub(super) fn lowest_usual_price_for_max_price(max: Amount, percent: u32) -> Option<Amount> {
    let hundredths = u128::from(percent).saturating_add(100);
    let usual = u128::from(max.units()).saturating_mul(100).div_ceil(hundredths);
    let usual = u64::try_from(usual).ok().and_then(Amount::from_units)?;
    (max_price_above_usual(usual, percent) == max).then_some(usual)
}

/// Checks that the payee was paid before, if a rule requires an approval for new payees.
pub(super) fn check_payee(failure: &mut FirstFailure, inputs: &EvaluationInputs<'_>) -> Option<Check> {
    applicable_rules(inputs).find(|rule| matches!(rule.kind, RuleKind::NewPayee { .. }))?;
    if is_known_payee(inputs) {
        return Some(Check::passed(CheckName::Payee));
    }
    Some(failure.record_approval_requirement(CheckName::Payee, inputs, limits_requiring_approval(inputs)))
}

fn is_known_payee(inputs: &EvaluationInputs<'_>) -> bool {
    inputs
        .recent
        .has_paid(PayeePrefix::from_address(inputs.intent.offer.pay_to()))
}

/// Returns the update of the recent payments for an allowed payment; `None` if no rule needs it.
pub(super) fn recent_payments_update(inputs: &EvaluationInputs<'_>, operation: &Operation) -> Option<RecentUpdate> {
    let mut guarded = false;
    let mut forbidden: Option<Duration> = None;
    let mut payee = None;
    let mut price = None;
    for rule in applicable_rules(inputs) {
        match rule.kind {
            RuleKind::DuplicateGuard { within, action, .. } => {
                guarded = true;
                let limit = AskingLimit {
                    rule: Some(rule.id),
                    above: Amount::ZERO,
                    kind: AskingKind::DuplicateGuard,
                };
                if action == LimitAction::Block || !inputs.is_waived_by_approval(&limit) {
                    forbidden = forbidden.max(Some(within));
                }
            }
            RuleKind::NewPayee { .. } => payee = Some(PayeePrefix::from_address(inputs.intent.offer.pay_to())),
            RuleKind::PriceAboveUsual {
                over: UsualPrice::Median(_),
                ..
            } => {
                price = Some((
                    OperationDigest::from_slug(&operation.slug),
                    inputs.intent.offer.amount(),
                ));
            }
            _ => {}
        }
    }
    let call = guarded.then(|| CallMark {
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
