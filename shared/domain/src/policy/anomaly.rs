//! The automatic freeze: freezes an agent that pays far more within an hour than in the agent's usual busiest hour. If
//! one service received most of the amount, the first freeze within 24 hours disables only that service for the agent.
//!
//! The freeze is checked seconds after a payment and does not affect the decision about that payment. Days in the
//! comparison are the previous two weeks without the last 24 hours, so that a day does not raise its own limit.

use crate::{Amount, AutomaticFreeze, Day, EditReason, Hour, ServiceId, Timestamp};
use std::collections::BTreeMap;

/// The number of past hours in the comparison: 14 days.
pub const COMPARED_HOURS: u32 = 336;

/// The newest hours are not compared, so that a day does not raise its own limit.
const EXCLUDED_HOURS: u32 = 24;

/// An hour that triggered an automatic freeze.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anomaly {
    /// The hour in which the agent paid unusually much.
    pub hour: Hour,
    /// The estimated sum of the last 60 minutes ([`AutomaticFreeze::estimated_sliding_hour_sum`]).
    pub sum: Amount,
    /// The lower median, over compared days with payments, of the busiest hour's sum; zero without payments.
    pub usual: Amount,
    /// The service without whose payments the sum would be usual, if any.
    pub service: Option<ServiceId>,
    /// Whether an automatic freeze of the agent or of a service was recorded in the last 24 hours.
    pub is_repeated: bool,
}

/// The sum of an hour's payments, and the sums of the services that received them. The services' sums may be incomplete.
pub type HourSums<'a> = (Amount, &'a BTreeMap<ServiceId, Amount>);

impl AutomaticFreeze {
    /// Returns whether an hour's sum is unusual. Without earlier payments, only the minimum sum decides.
    pub fn is_unusual_sum(self, sum: Amount, usual: Amount) -> bool {
        // The product of a `u32` and a `u64` always fits into a `u128`.
        let max = u128::from(self.times).saturating_mul(u128::from(usual.units()));
        sum >= self.at_least && u128::from(sum.units()) > max
    }

    /// Estimates the sum of the last 60 minutes: the current hour's `sum`, plus a share of the previous
    /// hour's sum `previous_sum`, in proportion to the part of the previous hour in the last 60 minutes. Rounds up.
    pub fn estimated_sliding_hour_sum(at: Timestamp, sum: Amount, previous_sum: Amount) -> Amount {
        let passed = at.since(Hour::containing(at).start_time()).secs();
        let rest = u128::from(Hour::SECONDS.saturating_sub(passed));
        let share = u128::from(previous_sum.units())
            .saturating_mul(rest)
            .div_ceil(Hour::SECONDS.into());
        let share = u64::try_from(share).ok().and_then(Amount::from_units);
        share.and_then(|share| sum.plus(share)).unwrap_or(Amount::MAX)
    }

    /// Returns an anomaly if an hour's `sum` is unusual compared with `sums`, the agent's sums by hour.
    pub fn find_anomaly(self, hour: Hour, sum: Amount, sums: &BTreeMap<Hour, Amount>) -> Option<Anomaly> {
        let mut busiest: BTreeMap<Day, Amount> = BTreeMap::new();
        for (hour, sum) in sums.range(hour.hours_earlier(COMPARED_HOURS)..hour.hours_earlier(EXCLUDED_HOURS)) {
            let of_day = busiest.entry(hour.day()).or_insert(Amount::ZERO);
            *of_day = sum.max(of_day).to_owned();
        }
        let mut busiest: Vec<Amount> = busiest.into_values().collect();
        busiest.sort_unstable();
        let median = busiest.len().saturating_sub(1) / 2;
        let usual = busiest.get(median).copied().unwrap_or(Amount::ZERO);
        self.is_unusual_sum(sum, usual).then_some(Anomaly {
            hour,
            sum,
            usual,
            service: None,
            is_repeated: false,
        })
    }

    /// Returns the service without whose payments the last 60 minutes would not be unusual. `now` and `before` are the
    /// sums of the current and the previous hour.
    pub fn find_unusual_service(
        self,
        at: Timestamp,
        now: HourSums<'_>,
        before: HourSums<'_>,
        usual: Amount,
    ) -> Option<ServiceId> {
        let rest = |service: &ServiceId| {
            let [now, before] = [now, before]
                .map(|(sum, services)| sum.saturating_minus(services.get(service).copied().unwrap_or(Amount::ZERO)));
            Self::estimated_sliding_hour_sum(at, now, before)
        };
        let service = now
            .1
            .keys()
            .chain(before.1.keys())
            .min_by_key(|service| rest(service))?;
        (!self.is_unusual_sum(rest(service), usual)).then_some(*service)
    }
}

impl Anomaly {
    /// Returns the reason for the freeze, for the agent's owner. `None` if the text is too long for a reason.
    pub fn freeze_reason(&self) -> Option<EditReason> {
        let Self { hour, sum, usual, .. } = self;
        let (sum, usual) = (sum.to_dollars(), usual.to_dollars());
        // A reason has at most 200 characters. Each amount has at most 24 characters, and the hour has 30.
        let reason =
            format!("anomaly brake: {sum} within an hour on {hour}, after at most {usual} an hour on a usual day");
        EditReason::parse(&reason)
    }
}

#[cfg(test)]
#[expect(
    clippy::arithmetic_side_effects,
    reason = "a test's plain reference stops where it is wrong"
)]
mod tests {
    use super::*;
    use crate::MIN_FREEZE_MULTIPLE;
    use crate::Timestamp;
    use crate::policy::rules::RuleParameters as _;
    use proptest::prelude::*;

    fn units(units: u64) -> Amount {
        Amount::from_units(units).unwrap()
    }

    fn hour(number: u32) -> Hour {
        Hour::containing(Timestamp::from_secs(u64::from(number) * 3_600).unwrap())
    }

    #[test]
    fn an_automatic_freeze_requires_exceeding_both_limits() {
        let automatic_freeze = AutomaticFreeze {
            times: 10,
            at_least: units(50),
        };
        let rows = [
            // The sum, the usual amount, and the expected result.
            (49, 0, false),
            (50, 0, true),
            (50, 4, true),
            (50, 5, false),
            (51, 5, true),
            (Amount::MAX.units(), Amount::MAX.units(), false),
        ];
        for (sum, busiest, expected) in rows {
            assert_eq!(
                automatic_freeze.is_unusual_sum(units(sum), units(busiest)),
                expected,
                "{sum} {busiest}"
            );
        }
    }

    #[test]
    fn spending_that_grows_tenfold_hourly_is_frozen_in_the_second_hour() {
        let automatic_freeze = AutomaticFreeze {
            times: 10,
            at_least: units(50_000),
        };
        for usual in [0, 49_999, 50_000] {
            let start = hour(20 * 24);
            let mut sums = BTreeMap::from([(start.hours_earlier(100), units(usual))]);
            let steps = [49_999_u64, 500_000, 5_000_000, 50_000_000];
            let frozen = steps.iter().enumerate().find_map(|(step, sum)| {
                let hour = hour(20 * 24 + u32::try_from(step).unwrap());
                sums.insert(hour, units(*sum));
                automatic_freeze.find_anomaly(hour, units(*sum), &sums).map(|_| step)
            });
            assert_eq!(frozen, Some(if usual == 50_000 { 2 } else { 1 }), "{usual}");
        }
    }

    #[test]
    fn the_longest_automatic_freeze_reason_fits_its_field() {
        let anomaly = Anomaly {
            hour: Hour::containing(Timestamp::MAX),
            sum: Amount::MAX,
            usual: Amount::MAX,
            service: None,
            is_repeated: false,
        };
        assert!(anomaly.freeze_reason().is_some());
        let usual = Anomaly {
            hour: Hour::containing(Timestamp::parse("2026-11-26T14:59:00Z").unwrap()),
            sum: units(31_200_000),
            usual: units(4_100_000),
            service: None,
            is_repeated: false,
        };
        let reason = usual.freeze_reason().unwrap();
        let expected = "anomaly brake: $31.20 within an hour on 2026-11-26, 14:00 to 15:00 UTC, after at most $4.10 an hour \
            on a usual day";
        assert_eq!(reason.as_str(), expected);
    }

    proptest! {
        #[test]
        fn a_minority_of_unusual_days_does_not_raise_the_freeze_threshold(
            usual in prop::collection::vec(1_u64..100, 2..=6),
            paid in prop::collection::vec((0_u32..24, 0_u64..u64::from(u32::MAX)), 6),
            last in prop::collection::vec(0_u64..u64::from(u32::MAX), 24),
            first_day in any::<prop::sample::Index>(),
            times in MIN_FREEZE_MULTIPLE..=20,
            at_least in 1_u64..2_000,
        ) {
            let now = hour(20 * 24);
            let at_least = units(at_least);
            let brake = AutomaticFreeze { times, at_least };
            let mut sums = BTreeMap::new();
            // Attacks are on fewer than half of the days with payments, so the median stays a usual day.
            let attacks = paid.iter().take(usual.len() - 1);
            let first = first_day.index(13 - usual.len() - attacks.len());
            let days = usual.iter().map(|sum| (0, *sum)).chain(attacks.copied());
            for (day, (at, sum)) in (first + 2..).zip(days) {
                sums.insert(now.hours_earlier(u32::try_from(day).unwrap() * 24 - at), units(sum));
            }
            for (back, sum) in (1..).zip(&last) {
                sums.insert(now.hours_earlier(back), units(*sum));
            }
            let most = usual.iter().max().unwrap() * u64::from(times);
            prop_assert!(brake.find_anomaly(now, units(most + 1).max(at_least), &sums).is_some());
        }

        #[test]
        fn the_sliding_hour_sum_weights_the_previous_hour_by_the_overlap(
            secs in 0_u64..3_600,
            now in 0_u64..1_000,
            before in 0_u64..1_000,
        ) {
            let at = Timestamp::from_secs(7_200 + secs).unwrap();
            let sum = AutomaticFreeze::estimated_sliding_hour_sum(at, units(now), units(before)).units();
            prop_assert_eq!(sum, now + (before * (3_600 - secs)).div_ceil(3_600));
        }

        #[test]
        fn a_stricter_automatic_freeze_trips_whenever_a_looser_one_does(
            numbers in (2_u32..10, 1_u64..100, 2_u32..10, 1_u64..100),
            sum in 0_u64..1_000,
            busiest in 0_u64..100,
        ) {
            let brake = |times, at_least| AutomaticFreeze { times, at_least: units(at_least) };
            let (now, before) = (brake(numbers.0, numbers.1), brake(numbers.2, numbers.3));
            if now.is_as_strict_as(&before) && before.is_unusual_sum(units(sum), units(busiest)) {
                prop_assert!(now.is_unusual_sum(units(sum), units(busiest)));
            }
        }
    }
}
