use super::{RuleParameters, range_error, rule_kind};
use crate::{
    Amount, Block, Catalog, Check, CheckName, Duration, EvaluationInputs, Rule, RuleWindow, ValidationError,
    WindowMeasure, WindowPeriod,
    policy::{
        check::{AskingKind, FirstFailure},
        limits,
    },
};

rule_kind! {
    /// The agent may make at most `count` payments within a window.
    CountLimit = "count_limit" {
        /// The maximum number of payments: 1 to [`MAX_COUNT`].
        count: u32 = "count",
        /// The window. A rolling window has a duration of [`MIN_COUNT_WINDOW`] to [`crate::MAX_BUDGET_WINDOW`].
        window: RuleWindow = part_with_null("services"),
    }
}

/// The maximum number of payments of a count limit.
pub const MAX_COUNT: u32 = 1_000_000;

/// The minimum window of a count limit: one minute.
pub const MIN_COUNT_WINDOW: Duration = Duration::from_secs_u32(60);

impl RuleParameters for CountLimit {
    fn is_as_strict_as(&self, before: &Self) -> bool {
        self.count <= before.count && self.window.is_as_strict_as(&before.window)
    }

    fn window(&self) -> Option<&RuleWindow> {
        Some(&self.window)
    }

    fn counted_limit(&self) -> Option<(WindowMeasure, Amount, WindowPeriod)> {
        let limit = Amount::from_units(self.count.into()).unwrap_or(Amount::ZERO);
        Some((WindowMeasure::Payments, limit, self.window.period))
    }

    fn parameter_errors(&self, _: &Catalog) -> Vec<ValidationError> {
        let count = range_error("/count", self.count, 1, MAX_COUNT);
        count
            .into_iter()
            .chain(self.window.duration_error(MIN_COUNT_WINDOW))
            .collect()
    }

    fn exceeded_threshold(&self, rule: &Rule, inputs: &EvaluationInputs<'_>) -> Option<(AskingKind, Amount)> {
        limits::remaining_if_approval_required(rule, inputs)?;
        Some((AskingKind::CountLimit, Amount::ZERO))
    }
}

pub(in crate::policy) fn check_count_limits(
    failure: &mut FirstFailure,
    inputs: &EvaluationInputs<'_>,
) -> Option<Check> {
    limits::check_counting_rules::<CountLimit>(failure, inputs, CheckName::Count, |rule, used, retry_at| Block::Count {
        rule: rule.rule.id,
        count: rule.limit,
        used,
        retry_at,
    })
}
