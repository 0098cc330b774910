use super::{RuleParameters, duration_error, rule_kind};
use crate::{
    Amount, Block, Catalog, Check, CheckName, Duration, EvaluationInputs, RuleScope, ServiceSlug, ValidationError,
    WindowMeasure, WindowPeriod,
    policy::{check::FirstFailure, limits},
};

rule_kind! {
    /// The agent may not pay within `interval` after the previous payment.
    MinimumInterval = "minimum_interval" {
        /// The services to which the rule applies; `None` for all services.
        services: Option<Vec<ServiceSlug>> = "services",
        /// The minimum time between two authorizations: [`MIN_INTERVAL`] to [`crate::MAX_BUDGET_WINDOW`].
        interval: Duration = "interval_seconds",
    }
}

/// The minimum interval between two payments, and the minimum duration of a duplicate guard: one second.
pub const MIN_INTERVAL: Duration = Duration::from_secs_u32(1);

impl RuleParameters for MinimumInterval {
    fn is_as_strict_as(&self, before: &Self) -> bool {
        self.covers_services(before) && self.interval >= before.interval
    }

    fn scope(&self) -> RuleScope<'_> {
        RuleScope::for_services(self.services.as_deref())
    }

    fn counted_limit(&self) -> Option<(WindowMeasure, Amount, WindowPeriod)> {
        Some((
            WindowMeasure::Payments,
            Amount::ONE,
            WindowPeriod::Rolling(self.interval),
        ))
    }

    fn parameter_errors(&self, _: &Catalog) -> Vec<ValidationError> {
        duration_error("/interval_seconds", self.interval, MIN_INTERVAL)
            .into_iter()
            .collect()
    }
}

pub(in crate::policy) fn check_intervals(failure: &mut FirstFailure, inputs: &EvaluationInputs<'_>) -> Option<Check> {
    limits::check_counting_rules::<MinimumInterval>(failure, inputs, CheckName::Interval, |rule, _, retry_at| {
        Block::Interval {
            rule: rule.rule.id,
            interval: rule.period.max_duration(),
            retry_at,
        }
    })
}
