//! Windows: the amounts authorized within a period, and whether another amount fits (`docs/data-model.md`).
//!
//! Invariant: a window's total is the sum of the stored entries. An entry counts until the [`WindowPeriod`] ends, and a
//! later authorization evicts it.
//!
//! Times are recorded times, not clock readings. [`Window::earliest_recordable_time`] prevents a worker with a slow
//! clock from using a window from which a faster clock already evicted entries.

use crate::{
    AgentId, Amount, Duration, Fingerprint, RuleId, ServiceId, SettlementId, Timestamp, ZoneName,
    catalog::service::named,
};
use chrono::{Datelike as _, Days, Months, NaiveDate};
use std::fmt;

/// The maximum number of counted payments that a denial reads to compute the retry time. The reads take about 40 read
/// units.
pub const MAX_SEARCHED_ENTRIES: usize = 1_000;

named! {
    /// A period of the calendar.
    CalendarPeriod {
        /// From midnight to midnight.
        Day = "day",
        /// From Monday to Sunday.
        Week = "week",
        /// From the first to the last day of a month.
        Month = "month",
    }
}

impl CalendarPeriod {
    fn first_day_of_period(self, day: NaiveDate) -> Option<NaiveDate> {
        match self {
            Self::Day => Some(day),
            Self::Week => day.checked_sub_days(Days::new(day.weekday().num_days_from_monday().into())),
            Self::Month => day.with_day(1),
        }
    }

    /// Returns the first day of the next period. `day` must be the first day of a period.
    fn next_first_day(self, day: NaiveDate) -> Option<NaiveDate> {
        match self {
            Self::Day => day.checked_add_days(Days::new(1)),
            Self::Week => day.checked_add_days(Days::new(7)),
            Self::Month => day.checked_add_months(Months::new(1)),
        }
    }

    /// Returns the start of the period that contains `at`, and the start of the next period.
    fn bounds(self, zone: ZoneName, at: Timestamp) -> Option<(Timestamp, Timestamp)> {
        let first = self.first_day_of_period(zone.local_day(at)?)?;
        let (start, next) = (zone.start_of_day(first)?, self.next_first_day(first)?);
        let end = zone.start_of_day(next)?;
        // A clock change around midnight can put `at` into the period before or after its local day.
        if at < start {
            let previous = self.first_day_of_period(first.pred_opt()?)?;
            Some((zone.start_of_day(previous)?, start))
        } else if at >= end {
            Some((end, zone.start_of_day(self.next_first_day(next)?)?))
        } else {
            Some((start, end))
        }
    }

    /// Returns an upper bound of the period's duration, including clock changes.
    const fn max_duration(self) -> Duration {
        Duration::from_secs_u32(match self {
            Self::Day => 2 * 86_400,
            Self::Week => 8 * 86_400,
            Self::Month => 32 * 86_400,
        })
    }
}

/// How long a payment counts in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WindowPeriod {
    /// A payment counts for this duration.
    Rolling(Duration),
    /// A payment counts until the end of the calendar period in this time zone.
    Calendar(CalendarPeriod, ZoneName),
    /// A payment counts forever.
    Lifetime,
}

impl WindowPeriod {
    /// The rolling window of `max_per_day_units`.
    pub const DAY: Self = Self::Rolling(Duration::DAY);
    /// The name of [`WindowPeriod::Lifetime`] in the API and in storage.
    pub const LIFETIME: &str = "lifetime";

    /// Creates a period from a duration, or from a name and, for a calendar period, a time zone. `None` for any other
    /// combination.
    pub fn from_parts(duration: Option<Duration>, name: Option<&str>, zone: Option<ZoneName>) -> Option<Self> {
        match (duration, name, zone) {
            (Some(duration), None, None) => Some(Self::Rolling(duration)),
            (None, Some(Self::LIFETIME), None) => Some(Self::Lifetime),
            (None, Some(name), Some(zone)) => Some(Self::Calendar(CalendarPeriod::from_name(name)?, zone)),
            _ => None,
        }
    }

    /// Returns the duration of a rolling window.
    pub const fn duration(self) -> Option<Duration> {
        match self {
            Self::Rolling(duration) => Some(duration),
            Self::Calendar(..) | Self::Lifetime => None,
        }
    }

    /// Returns the calendar period's name or [`WindowPeriod::LIFETIME`]; `None` for a rolling window.
    pub const fn name(self) -> Option<&'static str> {
        match self {
            Self::Rolling(_) => None,
            Self::Calendar(period, _) => Some(period.name()),
            Self::Lifetime => Some(Self::LIFETIME),
        }
    }

    /// Returns the time zone of a calendar period.
    pub const fn time_zone(self) -> Option<ZoneName> {
        match self {
            Self::Calendar(_, zone) => Some(zone),
            Self::Rolling(_) | Self::Lifetime => None,
        }
    }

    /// Returns the newest payment time that no longer counts at `at`; the epoch if every payment counts.
    pub fn newest_expired_time(self, at: Timestamp) -> Timestamp {
        match self {
            Self::Rolling(duration) => at.before(duration),
            Self::Calendar(period, zone) => {
                let before =
                    |(start, _): (Timestamp, Timestamp)| Timestamp::from_micros(start.micros().saturating_sub(1));
                period.bounds(zone, at).and_then(before).unwrap_or(Timestamp::EPOCH)
            }
            Self::Lifetime => Timestamp::EPOCH,
        }
    }

    /// Returns the time from which a payment of the time `at` no longer counts; `None` if it counts forever.
    pub fn end(self, at: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Rolling(duration) => Some(at.after(duration)),
            Self::Calendar(period, zone) => Some(period.bounds(zone, at).map_or(Timestamp::MAX, |(_, end)| end)),
            Self::Lifetime => None,
        }
    }

    /// Returns an upper bound of the time for which a payment counts: [`u32::MAX`] seconds for a lifetime window.
    pub const fn max_duration(self) -> Duration {
        match self {
            Self::Rolling(duration) => duration,
            Self::Calendar(period, _) => period.max_duration(),
            Self::Lifetime => Duration::from_secs_u32(u32::MAX),
        }
    }

    /// Returns whether this period always counts every payment that `other` counts. `false` if this depends on clock
    /// changes.
    pub fn covers(self, other: Self) -> bool {
        match (self, other) {
            (Self::Lifetime, _) => true,
            (Self::Rolling(duration), Self::Rolling(_) | Self::Calendar(..)) => duration >= other.max_duration(),
            (Self::Calendar(period, zone), Self::Calendar(other, other_zone)) => {
                zone == other_zone && (period == other || other == CalendarPeriod::Day)
            }
            (Self::Rolling(_) | Self::Calendar(..), _) => false,
        }
    }
}

/// Writes the seconds of a rolling window, `<period>@<time zone>`, or `lifetime`. Names of stored attributes contain
/// this text.
impl fmt::Display for WindowPeriod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rolling(duration) => write!(f, "{}", duration.secs()),
            Self::Calendar(period, zone) => write!(f, "{}@{zone}", period.name()),
            Self::Lifetime => f.write_str(Self::LIFETIME),
        }
    }
}

/// Which payments a window counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WindowScope {
    /// The window for `max_per_day_units`: one agent's payments to one service within 24 hours.
    Day {
        /// The agent that makes the counted payments.
        agent: AgentId,
        /// The service to which the counted payments are made.
        service: ServiceId,
    },
    /// The window of a rule that counts an agent's payments ([`crate::CountingRule`]).
    Budget {
        /// The agent that makes the counted payments.
        agent: AgentId,
        /// The id of the rule that counts the payments.
        rule: RuleId,
    },
}

impl WindowScope {
    /// Returns the rule, if the window belongs to a rule.
    pub const fn rule_id(self) -> Option<RuleId> {
        match self {
            Self::Budget { rule, .. } => Some(rule),
            Self::Day { .. } => None,
        }
    }
}

/// A counted payment: one authorization in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The `authorized_at` of the settlement.
    pub at: Timestamp,
    /// The amount in the window's total: one unit if the window counts the number of payments.
    pub amount: Amount,
    /// The settlement that authorized the payment.
    pub settlement: SettlementId,
}

/// A window, as it was read from the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// Which payments the window counts.
    pub scope: WindowScope,
    /// How long a payment counts in the window.
    pub period: WindowPeriod,
    /// The sum of the stored entries.
    pub total: Amount,
    /// The version of the window, which each write of counted payments changes.
    pub version: u64,
    /// The policy or rule version of the last write; zero if the window was never written.
    pub stamp: u64,
    /// The eviction watermark: the time of the newest evicted payment.
    pub watermark: Timestamp,
    /// The oldest counted payments, oldest first.
    pub oldest: Vec<Entry>,
    /// Whether `oldest` contains all counted payments.
    pub complete: bool,
}

/// The used part of a window, according to the counted payments that were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spend {
    /// The amount that counts, or an upper bound.
    pub amount: Amount,
    /// Whether the amount is exact. Unread payments make it an upper bound, because they may have expired.
    pub is_exact: bool,
}

impl Spend {
    /// The used part of a window without counted payments: exactly zero.
    pub const NONE: Self = Self {
        amount: Amount::ZERO,
        is_exact: true,
    };

    /// Adds two amounts. The sum is exact only if both amounts are.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            amount: self.amount.plus(other.amount).unwrap_or(Amount::MAX),
            is_exact: self.is_exact && other.is_exact,
        }
    }
}

/// The time from which an amount fits into a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryAt {
    /// The same call can be authorized at this time, unless another payment is authorized earlier.
    At(Timestamp),
    /// Never, because the amount alone exceeds the cap.
    Never,
    /// Not before this time. The exact time is unknown, because some counted payments were not read.
    NotBefore(Timestamp),
}

/// An amount to add to a window, with the conditions of the write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge<'a> {
    /// The window to which the amount is added.
    pub scope: WindowScope,
    /// How long a payment counts in the window.
    pub period: WindowPeriod,
    /// The amount to add: one unit if the window counts the number of payments.
    pub amount: Amount,
    /// The cap that the new total must not exceed.
    pub cap: Amount,
    /// The window's total when the decision read the window.
    pub total: Amount,
    /// The version of the policy or rule that was evaluated.
    pub stamp: u64,
    /// The write fails if another write has evicted a payment that is newer than this time.
    pub watermark: Timestamp,
    /// The expired payments that the write evicts.
    pub evict: &'a [Entry],
    /// The sum of the amounts of the payments in `evict`.
    pub evicted: Amount,
    /// The eviction watermark when the window was read. A write never lowers the watermark, even if a slow clock added
    /// an older payment.
    pub cleared: Timestamp,
    /// The [`crate::Agent::recent_payment_rules_fingerprint`] to store with a day window's first payment. `None` for
    /// every other charge.
    pub coverage: Option<Fingerprint>,
}

impl Charge<'_> {
    /// Returns whether the new total, without the evicted payments, is within the cap.
    pub fn is_within_cap(&self) -> bool {
        let kept = self.total.saturating_minus(self.evicted);
        kept.plus(self.amount).is_some_and(|total| total <= self.cap)
    }
}

/// Which expired payments a write evicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// Evicts all expired payments that were read, so that they don't accumulate.
    Eager,
    /// Evicts only what the new payment needs to fit. Retries use this variant, because each deletion can conflict.
    Needed,
}

impl Window {
    /// Returns the earliest time that may be recorded now: the current time, or the later time at which the
    /// newest evicted payment stopped counting.
    pub fn earliest_recordable_time(&self, now: Timestamp) -> Timestamp {
        now.max(self.period.end(self.watermark).unwrap_or(now))
    }

    /// Returns the payments in `oldest` that no longer count at `at`.
    pub fn expired_payments(&self, at: Timestamp) -> &[Entry] {
        let cut = self.period.newest_expired_time(at);
        let count = self.oldest.partition_point(|entry| entry.at <= cut);
        self.oldest.get(..count).unwrap_or_default()
    }

    /// Returns the amount that counts at `at`, an upper bound if [`Window::may_overstate_spend`].
    pub fn counted_amount_at(&self, at: Timestamp) -> Amount {
        self.total.saturating_minus(sum_entries(self.expired_payments(at)))
    }

    /// Returns whether unread payments may also have expired, so that [`Window::counted_amount_at`] may be too high.
    pub fn may_overstate_spend(&self, at: Timestamp) -> bool {
        !self.complete && self.expired_payments(at).len() == self.oldest.len()
    }

    /// Returns the amount that counts at `at`, and whether the amount is exact.
    pub fn spend_at(&self, at: Timestamp) -> Spend {
        Spend {
            amount: self.counted_amount_at(at),
            is_exact: !self.may_overstate_spend(at),
        }
    }

    /// Removes expired payments, so that a long window can be summed page by page. The result is only for display: the
    /// stored total still contains these payments.
    pub fn forget_expired(&mut self, at: Timestamp) {
        let expired = self.expired_payments(at);
        let (count, amount) = (expired.len(), sum_entries(expired));
        self.total = self.total.saturating_minus(amount);
        self.oldest.drain(..count);
    }

    /// Returns the remaining part of `cap` at `at`.
    pub fn remaining_at(&self, cap: Amount, at: Timestamp) -> Amount {
        cap.saturating_minus(self.counted_amount_at(at))
    }

    /// Returns the time from which `amount` fits into `cap` without further payments.
    pub fn first_fitting_time(&self, amount: Amount, cap: Amount, at: Timestamp) -> RetryAt {
        let Some(room) = cap.minus(amount) else {
            return RetryAt::Never;
        };
        let mut left = self.total;
        let mut from = at;
        if left <= room {
            return RetryAt::At(from);
        }
        for entry in &self.oldest {
            let Some(end) = self.period.end(entry.at) else {
                return RetryAt::Never;
            };
            left = left.saturating_minus(entry.amount);
            from = from.max(end);
            if left <= room {
                return RetryAt::At(from);
            }
        }
        if self.complete {
            RetryAt::Never
        } else {
            RetryAt::NotBefore(from)
        }
    }

    /// Returns whether more counted payments must be read to compute the exact retry time. `false` after about
    /// [`MAX_SEARCHED_ENTRIES`] payments.
    pub fn needs_more_entries(&self, retry_at: RetryAt) -> bool {
        matches!(retry_at, RetryAt::NotBefore(_)) && !self.complete && self.oldest.len() < MAX_SEARCHED_ENTRIES
    }

    /// Creates the charge of `amount` at `at`. The caller may write the charge only if
    /// [`Charge::is_within_cap`].
    pub fn charge(&self, amount: Amount, cap: Amount, at: Timestamp, eviction: Eviction) -> Charge<'_> {
        let expired = self.expired_payments(at);
        let evict = match eviction {
            Eviction::Eager => expired,
            Eviction::Needed => shortest_prefix_with_sum(
                expired,
                self.total.plus(amount).unwrap_or(Amount::MAX).saturating_minus(cap),
            ),
        };
        Charge {
            scope: self.scope,
            period: self.period,
            amount,
            cap,
            total: self.total,
            stamp: self.stamp,
            watermark: self.period.newest_expired_time(at),
            evict,
            evicted: sum_entries(evict),
            cleared: self.watermark,
            coverage: None,
        }
    }
}

/// Returns the shortest prefix of the payments whose sum is at least `min_sum`, or all payments.
fn shortest_prefix_with_sum(entries: &[Entry], min_sum: Amount) -> &[Entry] {
    let mut held = Amount::ZERO;
    let count = entries.iter().take_while(|entry| {
        let more = held < min_sum;
        held = held.plus(entry.amount).unwrap_or(Amount::MAX);
        more
    });
    entries.get(..count.count()).unwrap_or_default()
}

fn sum_entries(entries: &[Entry]) -> Amount {
    entries
        .iter()
        .fold(Amount::ZERO, |sum, entry| sum.plus(entry.amount).unwrap_or(Amount::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use uuid::Uuid;

    const LENGTH: Duration = Duration::DAY;

    fn entry(at: i64, units: u64) -> Entry {
        Entry {
            at: Timestamp::from_micros(at).unwrap(),
            amount: Amount::from_units(units).unwrap(),
            settlement: SettlementId::from_uuid(Uuid::from_u128(u128::try_from(at).unwrap())),
        }
    }

    fn window(mut entries: Vec<Entry>, shown: usize) -> Window {
        entries.sort_by_key(|entry| entry.at);
        let total = sum_entries(&entries);
        let complete = shown >= entries.len();
        entries.truncate(shown);
        let (agent, rule) = (AgentId::from_uuid(Uuid::nil()), RuleId::from_uuid(Uuid::nil()));
        Window {
            scope: WindowScope::Budget { agent, rule },
            period: WindowPeriod::Rolling(LENGTH),
            total,
            version: 1,
            stamp: 1,
            watermark: Timestamp::EPOCH,
            oldest: entries,
            complete,
        }
    }

    fn amount(units: u64) -> Amount {
        Amount::from_units(units).unwrap()
    }

    #[test]
    fn counted_payments_expire_exactly_after_the_window_duration() {
        let window = window(vec![entry(1_000, 60)], 8);
        let free = Timestamp::from_micros(1_000).unwrap().after(LENGTH);
        let before = Timestamp::from_micros(free.micros() - 1).unwrap();
        assert_eq!(window.counted_amount_at(before), amount(60));
        assert_eq!(window.counted_amount_at(free), Amount::ZERO);
        assert_eq!(
            window.first_fitting_time(amount(50), amount(100), before),
            RetryAt::At(free)
        );
        assert!(
            !window
                .charge(amount(50), amount(100), before, Eviction::Eager)
                .is_within_cap()
        );
        let charge = window.charge(amount(50), amount(100), free, Eviction::Eager);
        assert_eq!((charge.is_within_cap(), charge.evicted), (true, amount(60)));
    }

    #[test]
    fn an_amount_above_the_cap_never_fits_a_window() {
        assert_eq!(
            window(vec![], 8).first_fitting_time(amount(101), amount(100), Timestamp::EPOCH),
            RetryAt::Never
        );
    }

    #[test]
    fn a_reservation_evicts_no_more_payments_than_needed() {
        let window = window(vec![entry(1, 10), entry(2, 10), entry(3, 10)], 8);
        let late = Timestamp::EPOCH.after(LENGTH).after(LENGTH);
        for (wanted, eviction, evicted) in [
            (10, Eviction::Needed, 1),
            (5, Eviction::Needed, 0),
            (5, Eviction::Eager, 3),
            (36, Eviction::Needed, 3),
        ] {
            let charge = window.charge(amount(wanted), amount(35), late, eviction);
            assert_eq!(charge.evict, &window.oldest[..evicted], "{wanted} {eviction:?}");
            assert_eq!(charge.is_within_cap(), wanted <= 35, "{wanted} {eviction:?}");
        }
    }

    fn time(text: &str) -> Timestamp {
        Timestamp::parse(text).unwrap()
    }

    fn calendar(period: CalendarPeriod, zone: &str) -> WindowPeriod {
        WindowPeriod::Calendar(period, ZoneName::parse(zone).unwrap())
    }

    /// The time, the start of the current period, and the start of the next period.
    #[test]
    fn calendar_periods_start_at_local_midnight_in_every_zone() {
        use CalendarPeriod::{Day, Month, Week};
        let rows = [
            // Berlin has 23 hours on 28 March 2027 and 25 hours on 31 October 2027.
            (
                Day,
                "Europe/Berlin",
                "2027-03-28T12:00:00Z",
                "2027-03-27T23:00:00Z",
                "2027-03-28T22:00:00Z",
            ),
            (
                Day,
                "Europe/Berlin",
                "2027-10-31T22:59:59Z",
                "2027-10-30T22:00:00Z",
                "2027-10-31T23:00:00Z",
            ),
            (
                Month,
                "Europe/Berlin",
                "2027-10-31T22:59:59Z",
                "2027-09-30T22:00:00Z",
                "2027-10-31T23:00:00Z",
            ),
            (
                Week,
                "America/New_York",
                "2027-03-14T12:00:00Z",
                "2027-03-08T05:00:00Z",
                "2027-03-15T04:00:00Z",
            ),
            (
                Month,
                "UTC",
                "2028-02-29T23:59:59Z",
                "2028-02-01T00:00:00Z",
                "2028-03-01T00:00:00Z",
            ),
            (
                Day,
                "Pacific/Kiritimati",
                "2027-01-01T09:59:59Z",
                "2026-12-31T10:00:00Z",
                "2027-01-01T10:00:00Z",
            ),
            // In Cairo the clock skips the hour from midnight on 30 April 2027.
            (
                Day,
                "Africa/Cairo",
                "2027-04-29T21:59:59Z",
                "2027-04-28T22:00:00Z",
                "2027-04-29T22:00:00Z",
            ),
            (
                Day,
                "Africa/Cairo",
                "2027-04-29T22:00:00Z",
                "2027-04-29T22:00:00Z",
                "2027-04-30T21:00:00Z",
            ),
            // Havana repeats the hour from midnight on 7 November 2027.
            (
                Day,
                "America/Havana",
                "2027-11-07T05:30:00Z",
                "2027-11-07T04:00:00Z",
                "2027-11-08T05:00:00Z",
            ),
            // Samoa skipped 30 December 2011.
            (
                Day,
                "Pacific/Apia",
                "2011-12-30T09:59:59Z",
                "2011-12-29T10:00:00Z",
                "2011-12-30T10:00:00Z",
            ),
        ];
        for (period, zone, at, start, end) in rows {
            let (window, at) = (calendar(period, zone), time(at));
            let last = Timestamp::from_micros(time(start).micros() - 1).unwrap();
            assert_eq!(
                (window.newest_expired_time(at), window.end(at)),
                (last, Some(time(end))),
                "{zone} {at}"
            );
        }
    }

    #[test]
    fn a_lifetime_window_counts_every_payment_and_never_fits_again() {
        let mut window = window(vec![entry(1, 60)], 8);
        window.period = WindowPeriod::Lifetime;
        assert_eq!(window.counted_amount_at(Timestamp::MAX), amount(60));
        assert_eq!(window.earliest_recordable_time(Timestamp::EPOCH), Timestamp::EPOCH);
        let fits = |units| window.first_fitting_time(amount(units), amount(100), Timestamp::MAX);
        assert_eq!((fits(40), fits(41)), (RetryAt::At(Timestamp::MAX), RetryAt::Never));
        assert!(
            window
                .charge(amount(1), amount(100), Timestamp::MAX, Eviction::Eager)
                .evict
                .is_empty()
        );
    }

    fn periods() -> impl Strategy<Value = WindowPeriod> {
        let zones = [
            "UTC",
            "Europe/Berlin",
            "Africa/Cairo",
            "America/Havana",
            "Australia/Lord_Howe",
            "Pacific/Apia",
        ];
        let hours = prop_oneof![1_u32..800, Just(24), Just(25), Just(49), Just(193)];
        prop_oneof![
            hours.prop_map(|hours| WindowPeriod::Rolling(Duration::from_secs_u32(hours * 3_600))),
            (
                prop::sample::select(CalendarPeriod::ALL.to_vec()),
                prop::sample::select(zones.to_vec())
            )
                .prop_map(|(period, zone)| calendar(period, zone)),
            Just(WindowPeriod::Lifetime),
        ]
    }

    proptest! {
        #[test]
        fn a_payment_counts_exactly_until_the_end_of_its_period(
            period in periods(), paid in 946_684_800_000_000_i64..2_000_000_000_000_000, later in 0..40 * LENGTH.micros(),
        ) {
            let (paid, now) = (Timestamp::from_micros(paid).unwrap(), Timestamp::from_micros(paid + later).unwrap());
            let end = period.end(paid).unwrap_or(Timestamp::MAX);
            prop_assert!(period.newest_expired_time(paid) < paid && paid < end);
            prop_assert_eq!(period.newest_expired_time(now) < paid, now < end, "{:?}", end);
            let cut = period.newest_expired_time(now);
            if cut > Timestamp::EPOCH {
                prop_assert!(
                    period.newest_expired_time(period.end(cut).unwrap()) >= cut && period.end(cut).unwrap() <= now
                );
            }
        }

        #[test]
        fn a_window_period_covering_another_counts_all_payments_of_the_other(
            wide in periods(), narrow in periods(), paid in 1_293_840_000_000_000_i64..2_000_000_000_000_000,
            later in 0..40 * LENGTH.micros(),
        ) {
            let (paid, now) = (Timestamp::from_micros(paid).unwrap(), Timestamp::from_micros(paid + later).unwrap());
            if wide.covers(narrow) && narrow.newest_expired_time(now) < paid {
                prop_assert!(wide.newest_expired_time(now) < paid, "{wide} {narrow} {paid} {now}");
            }
        }

        #[test]
        fn payments_of_one_period_never_exceed_the_cap(
            period in periods(), start in 1_293_840_000_000_000_i64..1_900_000_000_000_000,
            steps in prop::collection::vec((-LENGTH.micros()..3 * LENGTH.micros(), 1_u64..60), 1..40),
            cap in 50_u64..200, needed in any::<bool>(),
        ) {
            let mut stored = window(Vec::new(), 100);
            stored.period = period;
            let mut now = start;
            let mut paid: Vec<Entry> = Vec::new();
            for (step, units) in steps {
                now += step;
                let at = stored.earliest_recordable_time(Timestamp::from_micros(now).unwrap());
                let eviction = if needed { Eviction::Needed } else { Eviction::Eager };
                let charge = stored.charge(amount(units), amount(cap), at, eviction);
                if charge.is_within_cap() && charge.watermark >= stored.watermark {
                    let evicted = charge.evict.len();
                    if let Some(newest) = charge.evict.last() {
                        stored.watermark = stored.watermark.max(newest.at);
                    }
                    stored.oldest.drain(..evicted);
                    let new = entry(at.micros(), units);
                    paid.push(new);
                    stored.oldest.push(new);
                    stored.oldest.sort_by_key(|entry| entry.at);
                    stored.total = sum_entries(&stored.oldest);
                }
            }
            for last in &paid {
                let counted = paid
                    .iter()
                    .filter(|entry| entry.at <= last.at && entry.at > period.newest_expired_time(last.at));
                let sum: u64 = counted.map(|entry| entry.amount.units()).sum();
                prop_assert!(sum <= cap, "{sum} in {period} at {}", last.at);
            }
        }

        #[test]
        fn the_spent_amount_is_the_sum_of_unexpired_payments(
            entries in prop::collection::vec((0..3 * LENGTH.micros(), 1_u64..1_000), 0..20),
            now in 0..4 * LENGTH.micros(),
        ) {
            let entries: Vec<Entry> = entries.into_iter().map(|(at, units)| entry(at, units)).collect();
            let at = Timestamp::from_micros(now).unwrap();
            let young = entries.iter().filter(|entry| now - entry.at.micros() < LENGTH.micros());
            let plain: u64 = young.map(|entry| entry.amount.units()).sum();
            prop_assert_eq!(window(entries, 100).counted_amount_at(at).units(), plain);
        }

        #[test]
        fn the_first_time_at_which_an_amount_fits_is_exact(
            entries in prop::collection::vec((0..LENGTH.micros(), 1_u64..100), 1..12),
            wanted in 1_u64..100,
        ) {
            let entries: Vec<Entry> = entries.into_iter().map(|(at, units)| entry(at, units)).collect();
            let window = window(entries, 100);
            let (cap, wanted) = (amount(100), amount(wanted));
            let now = Timestamp::from_micros(LENGTH.micros() - 1).unwrap();
            let RetryAt::At(first) = window.first_fitting_time(wanted, cap, now) else { return Err(TestCaseError::fail("must fit")) };
            prop_assert!(window.charge(wanted, cap, first, Eviction::Needed).is_within_cap());
            if first > now {
                let earlier = Timestamp::from_micros(first.micros() - 1).unwrap();
                prop_assert!(!window.charge(wanted, cap, earlier, Eviction::Eager).is_within_cap());
            }
        }

        #[test]
        fn dropping_expired_payments_changes_neither_spending_nor_retry_time(
            entries in prop::collection::vec((0..3 * LENGTH.micros(), 1_u64..100), 0..20),
            shown in 0_usize..20, now in 0..4 * LENGTH.micros(), wanted in 1_u64..100,
        ) {
            let entries: Vec<Entry> = entries.into_iter().map(|(at, units)| entry(at, units)).collect();
            let at = Timestamp::from_micros(now).unwrap();
            let read = window(entries, shown);
            let mut kept = read.clone();
            kept.forget_expired(at);
            prop_assert_eq!(kept.spend_at(at), read.spend_at(at));
            let cap = amount(100);
            prop_assert_eq!(kept.first_fitting_time(amount(wanted), cap, at), read.first_fitting_time(amount(wanted), cap, at));
        }

        #[test]
        fn a_partially_read_window_never_understates_spending(
            entries in prop::collection::vec((0..3 * LENGTH.micros(), 1_u64..100), 0..20),
            shown in 0_usize..20, now in 0..4 * LENGTH.micros(),
        ) {
            let entries: Vec<Entry> = entries.into_iter().map(|(at, units)| entry(at, units)).collect();
            let at = Timestamp::from_micros(now).unwrap();
            prop_assert!(window(entries.clone(), shown).counted_amount_at(at) >= window(entries, 100).counted_amount_at(at));
        }
    }

    #[test]
    fn unread_payments_make_a_window_sum_inexact() {
        let at = Timestamp::from_micros(2).unwrap().after(LENGTH);
        let entries = || vec![entry(1, 10), entry(2, 10), entry(3, 10)];
        for (shown, is_exact) in [(1, false), (2, false), (3, true)] {
            let window = window(entries(), shown);
            assert_eq!(window.may_overstate_spend(at), !is_exact, "{shown}");
            assert_eq!(window.spend_at(at).is_exact, is_exact, "{shown}");
        }
        let early = Timestamp::from_micros(1).unwrap().after(LENGTH);
        assert!(window(entries(), 2).spend_at(early).is_exact);
    }

    #[test]
    fn more_payments_of_a_window_are_read_if_its_retry_time_is_unknown() {
        let not_before = RetryAt::NotBefore(Timestamp::EPOCH);
        let many = |count: usize| (1..).take(count).map(|at| entry(at, 1)).collect::<Vec<_>>();
        for (shown, fits, tells) in [
            (1, not_before, true),
            (MAX_SEARCHED_ENTRIES - 1, not_before, true),
            (MAX_SEARCHED_ENTRIES, not_before, false),
            (MAX_SEARCHED_ENTRIES + 1, not_before, false),
            (1, RetryAt::At(Timestamp::EPOCH), false),
        ] {
            assert_eq!(
                window(many(MAX_SEARCHED_ENTRIES + 2), shown).needs_more_entries(fits),
                tells,
                "{shown} {fits:?}"
            );
        }
        assert!(!window(many(1), 1).needs_more_entries(not_before));
        assert_eq!(window(many(1), 1).scope.rule_id(), Some(RuleId::from_uuid(Uuid::nil())));
        let day = WindowScope::Day {
            agent: AgentId::from_uuid(Uuid::nil()),
            service: ServiceId::from_uuid(Uuid::nil()),
        };
        assert_eq!(day.rule_id(), None);
    }
}
