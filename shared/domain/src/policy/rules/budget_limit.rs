use super::{RuleParameters, rule_kind};
use crate::{
    Amount, Block, Catalog, Check, CheckName, Duration, EvaluationInputs, Rule, RuleWindow, ValidationError,
    WindowMeasure, WindowPeriod,
    policy::{
        check::{AskingKind, FirstFailure},
        limits,
    },
};

rule_kind! {
    /// The agent may pay at most `limit` within a window.
    BudgetLimit = "budget_limit" {
        /// The maximum sum of the payments in the window, in micro-USDC.
        limit: Amount = "limit_units",
        /// The window. A rolling window has a duration of [`MIN_BUDGET_WINDOW`] to [`crate::MAX_BUDGET_WINDOW`].
        window: RuleWindow = part,
    }
}

/// The minimum window of a budget: one hour.
pub const MIN_BUDGET_WINDOW: Duration = Duration::from_secs_u32(3_600);

impl RuleParameters for BudgetLimit {
    fn is_as_strict_as(&self, before: &Self) -> bool {
        self.limit <= before.limit && self.window.is_as_strict_as(&before.window)
    }

    fn window(&self) -> Option<&RuleWindow> {
        Some(&self.window)
    }

    fn counted_limit(&self) -> Option<(WindowMeasure, Amount, WindowPeriod)> {
        Some((WindowMeasure::Amounts, self.limit, self.window.period))
    }

    fn parameter_errors(&self, _: &Catalog) -> Vec<ValidationError> {
        self.window.duration_error(MIN_BUDGET_WINDOW).into_iter().collect()
    }

    fn exceeded_threshold(&self, rule: &Rule, inputs: &EvaluationInputs<'_>) -> Option<(AskingKind, Amount)> {
        let remaining = limits::remaining_if_approval_required(rule, inputs)?;
        Some((AskingKind::BudgetLimit, remaining))
    }
}

pub(in crate::policy) fn check_budgets(failure: &mut FirstFailure, inputs: &EvaluationInputs<'_>) -> Option<Check> {
    limits::check_counting_rules::<BudgetLimit>(failure, inputs, CheckName::Budget, |rule, used, retry_at| {
        Block::Budget {
            rule: rule.rule.id,
            limit: rule.limit,
            used,
            retry_at,
        }
    })
}
