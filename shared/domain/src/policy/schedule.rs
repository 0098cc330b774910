//! The days and hours at which payments are allowed, in a time zone with daylight saving time.
//!
//! A schedule follows the wall clock. An hour that the clock repeats is allowed twice, and an hour that the clock skips
//! does not exist.

use crate::{Schedule, Timestamp, catalog::service::named};
use chrono::{DateTime, NaiveDate, NaiveTime, Offset as _, TimeZone as _};
use chrono_tz::Tz;
use std::{fmt, str::FromStr as _};

named! {
    /// The day on which a period of a schedule starts.
    Weekday {
        /// Monday.
        Monday = "monday",
        /// Tuesday.
        Tuesday = "tuesday",
        /// Wednesday.
        Wednesday = "wednesday",
        /// Thursday.
        Thursday = "thursday",
        /// Friday.
        Friday = "friday",
        /// Saturday.
        Saturday = "saturday",
        /// Sunday.
        Sunday = "sunday",
    }
}

/// A time zone from the IANA database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneName(Tz);

impl ZoneName {
    /// The time zone `UTC`, which has no daylight saving time.
    pub const UTC: Self = Self(Tz::UTC);

    /// Parses a zone name, for example `Europe/Berlin`. Names are case-sensitive.
    pub fn parse(text: &str) -> Option<Self> {
        Tz::from_str(text).ok().map(Self)
    }

    /// Returns the date in this time zone.
    pub(super) fn local_day(self, at: Timestamp) -> Option<NaiveDate> {
        let secs = unix_seconds(at);
        let local = DateTime::from_timestamp(secs.saturating_add(self.utc_offset(secs)), 0)?;
        Some(local.date_naive())
    }

    /// Returns the first instant of a day, at least [`Timestamp::EPOCH`]. If the clock skips midnight, the day starts
    /// at the skip.
    pub(super) fn start_of_day(self, day: NaiveDate) -> Option<Timestamp> {
        /// The maximum offset of a time zone ahead of UTC, in seconds.
        const MAX_OFFSET: i64 = 15 * 60 * MINUTE;
        let midnight = day.and_time(NaiveTime::MIN);
        let start = self.0.from_local_datetime(&midnight).earliest();
        let start = start.map_or_else(
            || {
                let wall = midnight.and_utc().timestamp();
                wall.saturating_sub(self.utc_offset(wall.saturating_sub(MAX_OFFSET)))
            },
            |start| start.timestamp(),
        );
        Timestamp::from_secs(u64::try_from(start).unwrap_or_default())
    }

    fn utc_offset(self, secs: i64) -> i64 {
        let instant = DateTime::from_timestamp(secs, 0).unwrap_or_default();
        let offset = self.0.offset_from_utc_datetime(&instant.naive_utc());
        offset.fix().local_minus_utc().into()
    }

    /// Returns the first second in `from..=to` at which the UTC offset differs from the offset at `from`. Offsets
    /// change at most once a day.
    fn first_offset_change_between(self, from: i64, to: i64) -> Option<i64> {
        let offset = self.utc_offset(from);
        let (mut before, mut after) = (from, to);
        if self.utc_offset(to) == offset {
            return None;
        }
        while after.saturating_sub(before) > 1 {
            let middle = before.midpoint(after);
            if self.utc_offset(middle) == offset {
                before = middle;
            } else {
                after = middle;
            }
        }
        Some(after)
    }
}

/// Writes the name in the IANA database.
impl fmt::Display for ZoneName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name())
    }
}

/// Orders zones by name.
impl Ord for ZoneName {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.name().cmp(other.0.name())
    }
}

impl PartialOrd for ZoneName {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// A wall-clock time in minutes: `00:00` to `24:00`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimeOfDay(u16);

impl TimeOfDay {
    /// The end of the day: `24:00`.
    pub const END: Self = Self(24 * 60);

    /// Parses `HH:MM`. Returns `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let (hours, minutes) = text.split_once(':')?;
        let number = |digits: &str| -> Option<u16> {
            let is_pair = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
            digits.parse().ok().filter(|_| is_pair)
        };
        let minutes = number(minutes).filter(|minutes| *minutes < 60)?;
        let time = Self(number(hours)?.checked_mul(60)?.checked_add(minutes)?);
        (time <= Self::END).then_some(time)
    }
}

/// Writes `HH:MM`.
impl fmt::Display for TimeOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}:{:02}", self.0 / 60, self.0 % 60)
    }
}

/// An allowed period on certain weekdays. If `to` is not after `from`, the period ends on the following day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedulePeriod {
    /// For each day of [`Weekday::ALL`], whether the period starts on that day. At least one is `true`.
    starts: [bool; 7],
    /// The start of the period, inclusive.
    from: TimeOfDay,
    /// The end of the period, exclusive.
    to: TimeOfDay,
}

const MINUTE: i64 = 60;
const DAY: i64 = 24 * 60 * MINUTE;
/// The maximum number of days until the next start of a period. A clock change can skip one start of a weekly period.
const MAX_SEARCH_DAYS: u8 = 15;

impl Schedule {
    /// The maximum number of periods.
    pub const MAX_PERIODS: usize = 14;

    /// Returns whether payments are allowed at this time.
    pub fn is_open(&self, at: Timestamp) -> bool {
        let secs = unix_seconds(at);
        self.is_open_at_wall_time(secs.saturating_add(self.zone.utc_offset(secs)))
    }

    /// Returns the first time at or after `at` at which payments are allowed; `None` if there is no such time.
    pub fn next_open_time(&self, at: Timestamp) -> Option<Timestamp> {
        if self.is_open(at) {
            return Some(at);
        }
        let open_times = self.periods.iter().map(|period| period.next_start(self.zone, at));
        open_times.flatten().min()
    }

    /// Returns whether this schedule is open whenever `other` is. `false` for different time zones.
    pub fn covers(&self, other: &Self) -> bool {
        // Compares every minute of a week without a clock change, starting at the epoch.
        let mut minutes = (0..7 * DAY).step_by(60);
        self.zone == other.zone
            && minutes.all(|wall| self.is_open_at_wall_time(wall) || !other.is_open_at_wall_time(wall))
    }

    fn is_open_at_wall_time(&self, wall_time: i64) -> bool {
        self.periods.iter().any(|period| period.contains(wall_time))
    }
}

impl SchedulePeriod {
    /// Parses days and times, such as `monday-friday 09:00-17:00`. Rejects repeated days and equal times.
    pub fn parse(text: &str) -> Option<Self> {
        let (days, times) = text.split_once(' ')?;
        let (from, to) = times.split_once('-')?;
        let [from, to] = [TimeOfDay::parse(from)?, TimeOfDay::parse(to)?];
        let mut starts = [false; 7];
        for days in days.split(',') {
            let (first, last) = days.split_once('-').unwrap_or((days, days));
            let [first, last] = [Weekday::from_name(first)?, Weekday::from_name(last)?];
            // A range may continue into the next week: `saturday-monday` is Saturday, Sunday and Monday.
            let week = starts.iter_mut().zip(Weekday::ALL);
            let (early, late): (Vec<_>, Vec<_>) = week.partition(|(_, day)| **day < first);
            for (is_start, day) in late.into_iter().chain(early) {
                if std::mem::replace(is_start, true) {
                    return None;
                }
                if *day == last {
                    break;
                }
            }
        }
        (from != to && from != TimeOfDay::END).then_some(Self { starts, from, to })
    }

    /// Returns the first start of the period after `at`, which is outside the period.
    fn next_start(&self, zone: ZoneName, at: Timestamp) -> Option<Timestamp> {
        let mut from = unix_seconds(at);
        for _ in 0..MAX_SEARCH_DAYS {
            let to = from.saturating_add(DAY);
            let change = zone.first_offset_change_between(from, to);
            let first = self.first_open_time_between(zone, from, change.unwrap_or(to));
            let open_time = first.or_else(|| self.first_open_time_between(zone, change?, to));
            if let Some(open_time) = open_time {
                return Timestamp::from_secs(open_time.unsigned_abs());
            }
            from = to;
        }
        None
    }

    /// Returns whether a clock that shows this time, in seconds since the epoch, is in the period.
    fn contains(&self, wall_time: i64) -> bool {
        let (day, minute) = (wall_time.div_euclid(DAY), wall_time.rem_euclid(DAY).div_euclid(MINUTE));
        let (from, to) = (i64::from(self.from.0), i64::from(self.to.0));
        if from < to {
            self.starts_on_day(day) && (from..to).contains(&minute)
        } else {
            (self.starts_on_day(day) && minute >= from) || (self.starts_on_day(day.saturating_sub(1)) && minute < to)
        }
    }

    fn starts_on_day(&self, day: i64) -> bool {
        // The epoch was a Thursday, index 3 in [`Weekday::ALL`].
        let index = usize::try_from(day.saturating_add(3).rem_euclid(7)).ok();
        index
            .and_then(|index| self.starts.get(index))
            .is_some_and(|is_start| *is_start)
    }

    /// Returns the first second in `from..to` that is in the period. The zone's UTC offset must be constant in this
    /// range.
    fn first_open_time_between(&self, zone: ZoneName, from: i64, to: i64) -> Option<i64> {
        let offset = zone.utc_offset(from);
        let (start, end) = (from.saturating_add(offset), to.saturating_add(offset));
        if from < to && self.contains(start) {
            return Some(from);
        }
        let days = start.div_euclid(DAY)..=end.div_euclid(DAY);
        let open_times = days.filter(|day| self.starts_on_day(*day)).map(|day| {
            day.saturating_mul(DAY)
                .saturating_add(i64::from(self.from.0).saturating_mul(MINUTE))
        });
        let mut open_times = open_times.filter(|open_time| (start..end).contains(open_time));
        open_times.next().map(|open_time| open_time.saturating_sub(offset))
    }
}

/// Writes the text that [`SchedulePeriod::parse`] reads. Three or more consecutive days are a range.
impl fmt::Display for SchedulePeriod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut days = self.starts.iter().zip(Weekday::ALL).peekable();
        let mut separator = "";
        while let Some((is_start, first)) = days.next() {
            if !is_start {
                continue;
            }
            let run = std::iter::from_fn(|| days.next_if(|(is_start, _)| **is_start)).map(|(_, day)| day);
            let run: Vec<&Weekday> = run.collect();
            write!(f, "{separator}{}", first.name())?;
            match run.as_slice() {
                [] => {}
                [last] => write!(f, ",{}", last.name())?,
                [.., last] => write!(f, "-{}", last.name())?,
            }
            separator = ",";
        }
        write!(f, " {}-{}", self.from, self.to)
    }
}

fn unix_seconds(at: Timestamp) -> i64 {
    i64::try_from(at.secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn schedule(zone: &str, days: &[Weekday], from: &str, to: &str) -> Schedule {
        let days: Vec<&str> = days.iter().map(|day| day.name()).collect();
        let text = format!("{} {from}-{to}", days.join(","));
        Schedule {
            services: None,
            zone: ZoneName::parse(zone).unwrap(),
            periods: vec![SchedulePeriod::parse(&text).unwrap()],
        }
    }

    fn time(text: &str) -> Timestamp {
        Timestamp::parse(text).unwrap()
    }

    #[test]
    fn times_of_day_have_two_digits_each() {
        for text in ["00:00", "09:30", "23:59", "24:00"] {
            assert_eq!(TimeOfDay::parse(text).unwrap().to_string(), text);
        }
        for text in ["", "9:30", "09:60", "24:01", "25:00", "+9:00", "09:3", "09:300", "0900"] {
            assert_eq!(TimeOfDay::parse(text), None, "{text}");
        }
    }

    /// 29 February 2028 is a Tuesday, and 31 December 2027 is a Friday.
    #[test]
    fn schedule_periods_span_leap_days_and_month_ends() {
        use Weekday::{Friday, Monday, Tuesday, Wednesday};
        let rows = [
            (
                Tuesday,
                "00:00",
                "24:00",
                "2028-02-28T23:59:59Z",
                "2028-02-29T00:00:00Z",
            ),
            (
                Tuesday,
                "00:00",
                "24:00",
                "2028-03-01T00:00:00Z",
                "2028-03-07T00:00:00Z",
            ),
            (
                Wednesday,
                "08:00",
                "10:00",
                "2028-02-29T23:00:00Z",
                "2028-03-01T08:00:00Z",
            ),
            (Monday, "22:00", "02:00", "2028-02-29T01:59:59Z", "2028-02-29T01:59:59Z"),
            (Monday, "22:00", "02:00", "2028-02-29T02:00:00Z", "2028-03-06T22:00:00Z"),
            (
                Tuesday,
                "22:00",
                "02:00",
                "2028-03-01T01:59:59Z",
                "2028-03-01T01:59:59Z",
            ),
            (Friday, "22:00", "02:00", "2028-01-01T01:59:59Z", "2028-01-01T01:59:59Z"),
            (Friday, "22:00", "02:00", "2028-01-01T02:00:00Z", "2028-01-07T22:00:00Z"),
        ];
        for (day, from, to, at, opens) in rows {
            let schedule = schedule("UTC", &[day], from, to);
            assert_eq!(
                schedule.next_open_time(time(at)),
                Some(time(opens)),
                "{schedule:?} {at}"
            );
            assert_eq!(schedule.is_open(time(at)), at == opens, "{schedule:?} {at}");
        }
    }

    /// In 2026, Berlin's clock skips 02:00 to 03:00 on 29 March and repeats 02:00 to 03:00 on 25 October, both Sundays.
    #[test]
    fn schedules_follow_the_wall_clock_through_clock_changes() {
        use Weekday::{Friday, Monday, Sunday};
        let berlin = |days: &[Weekday], from, to| schedule("Europe/Berlin", days, from, to);
        let rows = [
            // In Berlin, 09:00 is 08:00 UTC in winter and 07:00 UTC in summer.
            (
                berlin(&[Monday], "09:00", "17:00"),
                "2026-03-23T07:59:59Z",
                "2026-03-23T08:00:00Z",
            ),
            (
                berlin(&[Monday], "09:00", "17:00"),
                "2026-03-30T06:59:59Z",
                "2026-03-30T07:00:00Z",
            ),
            (
                berlin(&[Monday], "09:00", "17:00"),
                "2026-03-30T07:00:00Z",
                "2026-03-30T07:00:00Z",
            ),
            (
                berlin(&[Monday], "09:00", "17:00"),
                "2026-03-23T16:00:00Z",
                "2026-03-30T07:00:00Z",
            ),
            // The clock skips the whole period.
            (
                berlin(&[Sunday], "02:15", "02:45"),
                "2026-03-29T00:59:00Z",
                "2026-04-05T00:15:00Z",
            ),
            // The clock skips the start of the period.
            (
                berlin(&[Sunday], "02:30", "04:00"),
                "2026-03-29T00:30:00Z",
                "2026-03-29T01:00:00Z",
            ),
            // The clock shows 02:00 to 03:00 twice.
            (
                berlin(&[Sunday], "02:00", "02:30"),
                "2026-10-25T00:10:00Z",
                "2026-10-25T00:10:00Z",
            ),
            (
                berlin(&[Sunday], "02:00", "02:30"),
                "2026-10-25T00:30:00Z",
                "2026-10-25T01:00:00Z",
            ),
            (
                berlin(&[Sunday], "02:00", "02:30"),
                "2026-10-25T01:30:00Z",
                "2026-11-01T01:00:00Z",
            ),
            // The period over midnight starts on Friday and ends on Saturday.
            (
                berlin(&[Friday], "22:00", "02:00"),
                "2026-07-04T00:00:00Z",
                "2026-07-10T20:00:00Z",
            ),
            (
                berlin(&[Friday], "22:00", "02:00"),
                "2026-07-03T23:59:59Z",
                "2026-07-03T23:59:59Z",
            ),
            // The clock is put forward by half an hour, from 02:00 to 02:30 on 4 October.
            (
                schedule("Australia/Lord_Howe", &[Sunday], "02:10", "03:00"),
                "2026-10-03T15:00:00Z",
                "2026-10-03T15:30:00Z",
            ),
        ];
        for (schedule, at, opens) in rows {
            assert_eq!(
                schedule.next_open_time(time(at)),
                Some(time(opens)),
                "{schedule:?} {at}"
            );
            assert_eq!(schedule.is_open(time(at)), at == opens, "{schedule:?} {at}");
        }
    }

    #[test]
    fn a_schedule_covers_the_schedules_within_it() {
        use Weekday::{Friday, Monday};
        let utc = |days: &[Weekday], from, to| schedule("UTC", days, from, to);
        let office = utc(&[Monday, Friday], "09:00", "17:00");
        for (within, covered) in [
            (utc(&[Monday], "09:00", "17:00"), true),
            (utc(&[Friday, Monday], "10:00", "16:59"), true),
            (utc(&[Monday], "08:59", "17:00"), false),
            (utc(&[Monday], "09:00", "17:01"), false),
            (utc(&[Monday, Friday], "17:00", "09:00"), false),
            (schedule("Europe/London", &[Monday], "09:00", "17:00"), false),
        ] {
            assert_eq!(office.covers(&within), covered, "{within:?}");
        }
    }

    #[test]
    fn schedule_periods_are_parsed_strictly_and_formatted_canonically() {
        for (text, written) in [
            ("monday-friday 09:00-17:00", "monday-friday 09:00-17:00"),
            ("saturday 00:00-24:00", "saturday 00:00-24:00"),
            ("sunday,monday,tuesday 22:00-02:00", "monday,tuesday,sunday 22:00-02:00"),
            (
                "saturday-tuesday,thursday 08:00-09:00",
                "monday,tuesday,thursday,saturday,sunday 08:00-09:00",
            ),
            ("monday,tuesday,wednesday 08:00-09:00", "monday-wednesday 08:00-09:00"),
        ] {
            assert_eq!(SchedulePeriod::parse(text).unwrap().to_string(), written);
        }
        for text in [
            "",
            "monday",
            "09:00-17:00",
            "Monday 09:00-17:00",
            "mon 09:00-17:00",
            "monday,monday 09:00-17:00",
            "monday-friday,friday 09:00-17:00",
            "monday  09:00-17:00",
            "monday 09:00-09:00",
            "monday 24:00-09:00",
            "monday 09:00-17:00 ",
            ", 09:00-17:00",
        ] {
            assert_eq!(SchedulePeriod::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_schedule_is_open_in_each_of_its_periods() {
        let [week, saturday] =
            ["monday-friday 09:00-17:00", "saturday 09:00-12:00"].map(|text| SchedulePeriod::parse(text).unwrap());
        let zone = ZoneName::UTC;
        let schedule = |periods: &[SchedulePeriod]| Schedule {
            services: None,
            zone,
            periods: periods.to_vec(),
        };
        let both = schedule(&[week, saturday]);
        for (at, opens) in [
            // 2026-11-27 is a Friday.
            ("2026-11-27T16:59:59Z", "2026-11-27T16:59:59Z"),
            ("2026-11-27T17:00:00Z", "2026-11-28T09:00:00Z"),
            ("2026-11-28T11:59:59Z", "2026-11-28T11:59:59Z"),
            ("2026-11-28T12:00:00Z", "2026-11-30T09:00:00Z"),
        ] {
            assert_eq!(both.next_open_time(time(at)), Some(time(opens)), "{at}");
        }
        assert!(both.covers(&schedule(&[saturday])) && !schedule(&[week]).covers(&both));
    }

    proptest! {
        #[test]
        fn the_next_open_time_of_a_schedule_is_its_first_open_minute(
            zone in prop::sample::select(vec!["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu",
                "Australia/Lord_Howe", "Pacific/Chatham", "America/St_Johns", "Africa/Casablanca"]),
            periods in prop::collection::vec(
                (
                    any::<[bool; 7]>().prop_filter("some day", |starts| starts.contains(&true)),
                    (0_u16..1_440, 0_u16..=1_440).prop_filter("not empty", |(from, to)| from != to),
                ),
                1..=3,
            ),
            // The minutes of the years 2026 and 2027, which include clock changes.
            minute in 29_454_240_u64..30_505_440,
        ) {
            let periods = periods.into_iter().map(|(starts, (from, to))| {
                SchedulePeriod { starts, from: TimeOfDay(from), to: TimeOfDay(to) }
            });
            let zone = ZoneName::parse(zone).unwrap();
            let schedule = Schedule { services: None, zone, periods: periods.collect() };
            for period in &schedule.periods {
                prop_assert_eq!(SchedulePeriod::parse(&period.to_string()), Some(*period));
            }
            let at = Timestamp::from_secs(minute * 60).unwrap();
            let mut minutes = (minute..minute + 15 * 1_440).map(|minute| Timestamp::from_secs(minute * 60).unwrap());
            prop_assert_eq!(schedule.next_open_time(at), minutes.find(|at| schedule.is_open(*at)));
        }
    }
}
