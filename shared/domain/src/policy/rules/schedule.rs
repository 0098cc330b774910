use super::{RuleParameters, rule_kind};
use crate::{
    Block, Catalog, Check, CheckName, EvaluationInputs, RetryAt, RuleScope, SchedulePeriod, ServiceSlug, Timestamp,
    ValidationError, ZoneName,
    policy::{
        check::FirstFailure,
        limits,
        rule::{is_at_least_one, list_errors},
    },
};

rule_kind! {
    /// Payments are allowed only in the periods.
    Schedule = "schedule" {
        /// The services to which the rule applies; `None` for all services.
        services: Option<Vec<ServiceSlug>> = "services",
        /// The time zone in which the periods are defined.
        zone: ZoneName = "time_zone",
        /// The periods in which payments are allowed: 1 to [`Schedule::MAX_PERIODS`].
        periods: Vec<SchedulePeriod> = "periods",
    }
}

impl RuleParameters for Schedule {
    fn is_as_strict_as(&self, before: &Self) -> bool {
        self.covers_services(before) && before.covers(self)
    }

    fn scope(&self) -> RuleScope<'_> {
        RuleScope::for_services(self.services.as_deref())
    }

    fn parameter_errors(&self, _: &Catalog) -> Vec<ValidationError> {
        list_errors("/periods", &self.periods, is_at_least_one, Self::MAX_PERIODS, |_| None)
    }
}

pub(in crate::policy) fn check_schedules(failure: &mut FirstFailure, inputs: &EvaluationInputs<'_>) -> Option<Check> {
    let schedules = limits::applicable_rules_of_kind::<Schedule>(inputs);
    schedules.clone().next()?;
    let closed = schedules.clone().find(|(_, schedule)| !schedule.is_open(inputs.at));
    Some(match closed {
        None => Check::passed(CheckName::Schedule),
        Some((rule, _)) => failure.record_check(CheckName::Schedule, false, || {
            let schedules = schedules.map(|(_, schedule)| schedule);
            let retry_at = next_time_all_schedules_open(&schedules, inputs.at);
            Block::Schedule { rule, retry_at }.into()
        }),
    })
}

/// Returns the first time at or after `at` at which all schedules are open. Schedules in different time zones may
/// overlap in only some months.
pub(in crate::policy) fn next_time_all_schedules_open<'a>(
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
