//! The anomaly brake: a rule that freezes an agent whose payments of an hour are far above those of its busiest hour of
//! the two weeks before.
//!
//! It decides no payment. The sums are judged after the journal has them, some seconds later, so payments can be made
//! until then. An amount counts in the hour of its decision, until it is released.

use crate::{Amount, EditReason, Hour, Rule, RuleKind};
use std::collections::BTreeMap;

/// The terms of an anomaly brake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnomalyBrake {
    /// An hour is unusual above this multiple of the busiest hour: [`BRAKE_TIMES_MIN`] to [`BRAKE_TIMES_MAX`].
    pub times: u32,
    /// An hour with a smaller sum is never unusual. At least one micro-unit.
    pub at_least: Amount,
}

/// The smallest multiple of a brake.
pub const BRAKE_TIMES_MIN: u32 = 2;

/// The largest multiple of a brake.
pub const BRAKE_TIMES_MAX: u32 = 100;

/// The number of hours before an hour with which it is compared: 14 days.
pub const BRAKE_HOURS: u32 = 336;

/// An hour that tripped a brake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anomaly {
    /// The hour.
    pub hour: Hour,
    /// The sum of its payments.
    pub sum: Amount,
    /// The sum of the busiest hour before it; zero if there were no payments.
    pub busiest: Amount,
}

impl AnomalyBrake {
    /// The brake among an agent's rules, of which at most one is a brake.
    pub fn among(rules: &[Rule]) -> Option<Self> {
        rules.iter().find_map(|rule| match &rule.kind {
            RuleKind::AnomalyBrake(brake) => Some(*brake),
            _ => None,
        })
    }

    /// Whether this sum of an hour is unusual. Without payments before, the least amount decides alone.
    pub fn is_tripped_by(self, sum: Amount, busiest: Amount) -> bool {
        // The product of a `u32` and a `u64` always fits.
        let usual = u128::from(self.times).saturating_mul(u128::from(busiest.units()));
        sum >= self.at_least && u128::from(sum.units()) > usual
    }

    /// Judges an hour by the sums of an agent's hours, of which others than the [`BRAKE_HOURS`] before it are left out.
    pub fn judge(self, hour: Hour, sums: &BTreeMap<Hour, Amount>) -> Option<Anomaly> {
        let sum = sums.get(&hour).copied().unwrap_or(Amount::ZERO);
        let before = sums.range(hour.minus(BRAKE_HOURS)..hour).map(|(_, sum)| *sum);
        let busiest = before.max().unwrap_or(Amount::ZERO);
        self.is_tripped_by(sum, busiest)
            .then_some(Anomaly { hour, sum, busiest })
    }

    /// Whether it freezes wherever `before` did.
    pub(crate) fn is_as_strict_as(self, before: Self) -> bool {
        self.times <= before.times && self.at_least <= before.at_least
    }
}

impl Anomaly {
    /// The reason of the freeze, for the agent's person; `None` only if it were longer than a reason may be.
    pub fn reason(&self) -> Option<EditReason> {
        let Self { hour, sum, busiest } = self;
        let (sum, busiest) = (sum.to_dollars(), busiest.to_dollars());
        // Two amounts of at most 24 characters and an hour of 31 leave room below the 200 of a reason.
        let reason = format!("anomaly brake: {sum} on {hour}, after at most {busiest} an hour in the two weeks before");
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
    use crate::Timestamp;
    use proptest::prelude::*;

    fn units(units: u64) -> Amount {
        Amount::from_units(units).unwrap()
    }

    fn hour(number: u32) -> Hour {
        Hour::of(Timestamp::from_secs(u64::from(number) * 3_600).unwrap())
    }

    #[test]
    fn a_brake_trips_above_both_limits() {
        let brake = AnomalyBrake {
            times: 10,
            at_least: units(50),
        };
        let rows = [
            // Sum, busiest hour before, tripped.
            (49, 0, false),
            (50, 0, true),
            (50, 4, true),
            (50, 5, false),
            (51, 5, true),
            (Amount::MAX.units(), Amount::MAX.units(), false),
        ];
        for (sum, busiest, expected) in rows {
            assert_eq!(
                brake.is_tripped_by(units(sum), units(busiest)),
                expected,
                "{sum} {busiest}"
            );
        }
    }

    #[test]
    fn the_longest_reason_fits() {
        let anomaly = Anomaly {
            hour: Hour::of(Timestamp::MAX),
            sum: Amount::MAX,
            busiest: Amount::MAX,
        };
        assert!(anomaly.reason().is_some());
        let usual = Anomaly {
            hour: Hour::of(Timestamp::parse("2026-11-26T14:59:00Z").unwrap()),
            sum: units(31_200_000),
            busiest: units(4_100_000),
        };
        let reason = usual.reason().unwrap();
        let expected = "anomaly brake: $31.20 on 2026-11-26, 14:00 to 15:00 UTC, after at most $4.10 an hour in the two \
            weeks before";
        assert_eq!(reason.as_str(), expected);
    }

    proptest! {
        /// The brake judges as this plain reference: it looks at each of the 336 hours before.
        #[test]
        fn a_brake_judges_as_the_plain_reference(
            sums in prop::collection::btree_map(0_u32..720, 0_u64..100, 0..60),
            at in 0_u32..720,
            times in BRAKE_TIMES_MIN..=20,
            at_least in 1_u64..200,
        ) {
            let of = |hour: u32| sums.get(&hour).copied().unwrap_or_default();
            let mut busiest = 0;
            for before in 1..=336 {
                if at >= before {
                    busiest = busiest.max(of(at - before));
                }
            }
            let trips = of(at) >= at_least && of(at) > busiest * u64::from(times);
            let expected = trips.then(|| Anomaly { hour: hour(at), sum: units(of(at)), busiest: units(busiest) });
            let by_hour = sums.iter().map(|(number, sum)| (hour(*number), units(*sum))).collect();
            let brake = AnomalyBrake { times, at_least: units(at_least) };
            prop_assert_eq!(brake.judge(hour(at), &by_hour), expected);
        }

        /// A brake as strict as another trips wherever that does.
        #[test]
        fn a_stricter_brake_trips_wherever_the_other_does(
            numbers in (2_u32..10, 1_u64..100, 2_u32..10, 1_u64..100),
            sum in 0_u64..1_000,
            busiest in 0_u64..100,
        ) {
            let brake = |times, at_least| AnomalyBrake { times, at_least: units(at_least) };
            let (now, before) = (brake(numbers.0, numbers.1), brake(numbers.2, numbers.3));
            if now.is_as_strict_as(before) && before.is_tripped_by(units(sum), units(busiest)) {
                prop_assert!(now.is_tripped_by(units(sum), units(busiest)));
            }
        }
    }
}
