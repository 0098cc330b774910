//! The days and hours at which payments are allowed, in a time zone with daylight saving time.
//!
//! A schedule follows the wall clock: a payment is allowed while the zone's clock shows a time in an allowed period.
//! When the clock is put back, the repeated hour is therefore allowed twice. When the clock is put forward, a period
//! within the skipped hour does not exist on that day.

use crate::{Timestamp, catalog::service::named};
use chrono::{DateTime, Offset as _, TimeZone as _};
use chrono_tz::Tz;
use std::{fmt, str::FromStr as _};

named! {
    /// A day of the week.
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
    /// Coordinated Universal Time.
    pub const UTC: Self = Self(Tz::UTC);

    /// Parses a zone name, for example `Europe/Berlin`. Names are case-sensitive.
    pub fn parse(text: &str) -> Option<Self> {
        Tz::from_str(text).ok().map(Self)
    }

    /// Returns the zone's UTC offset at this time, in seconds.
    fn utc_offset(self, secs: i64) -> i64 {
        let instant = DateTime::from_timestamp(secs, 0).unwrap_or_default();
        let offset = self.0.offset_from_utc_datetime(&instant.naive_utc());
        offset.fix().local_minus_utc().into()
    }
}

/// Writes the name in the IANA database.
impl fmt::Display for ZoneName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name())
    }
}

/// A wall-clock time in minutes: `00:00` to `24:00`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimeOfDay(u16);

impl TimeOfDay {
    /// The start of the day.
    pub const START: Self = Self(0);
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

    /// Returns the minutes since midnight.
    pub const fn minutes_since_midnight(self) -> u16 {
        self.0
    }
}

/// Writes `HH:MM`.
impl fmt::Display for TimeOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}:{:02}", self.0 / 60, self.0 % 60)
    }
}

/// The allowed periods: the same period on certain days of the week. If the end is before the start, the period ends on
/// the following day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// The time zone of `from` and `to`.
    pub zone: ZoneName,
    /// The days on which a period starts.
    pub days: Vec<Weekday>,
    /// The start of the period, inclusive.
    pub from: TimeOfDay,
    /// The end of the period, exclusive.
    pub to: TimeOfDay,
}

const MINUTE: i64 = 60;
const DAY: i64 = 24 * 60 * MINUTE;
/// The number of days in which the next period is searched. In two weeks, a period that daylight saving time skips
/// occurs again.
const SEARCHED_DAYS: u8 = 15;

impl Schedule {
    /// Returns whether payments are allowed at this time.
    pub fn is_open(&self, at: Timestamp) -> bool {
        let secs = seconds(at);
        self.is_open_at_wall_time(secs.saturating_add(self.zone.utc_offset(secs)))
    }

    /// Returns the first time at or after `at` at which payments are allowed; `None` if there is no such time.
    pub fn next_opening(&self, at: Timestamp) -> Option<Timestamp> {
        if self.is_open(at) {
            return Some(at);
        }
        let mut from = seconds(at);
        for _ in 0..SEARCHED_DAYS {
            let to = from.saturating_add(DAY);
            let change = self.first_offset_change_between(from, to);
            let first = self.first_opening_between(from, change.unwrap_or(to));
            let opening = first.or_else(|| self.first_opening_between(change?, to));
            if let Some(opening) = opening {
                return Timestamp::from_secs(opening.unsigned_abs());
            }
            from = to;
        }
        None
    }

    /// Returns whether this schedule allows payments whenever `other` does. Returns `false` if the time zones differ.
    pub fn covers(&self, other: &Self) -> bool {
        // All minutes of a week without daylight saving time, from the epoch.
        let mut minutes = (0..7 * DAY).step_by(60);
        self.zone == other.zone
            && minutes.all(|wall| self.is_open_at_wall_time(wall) || !other.is_open_at_wall_time(wall))
    }

    /// Returns whether a clock with this time, in seconds since the epoch, is in an allowed period.
    fn is_open_at_wall_time(&self, wall: i64) -> bool {
        let (day, minute) = (wall.div_euclid(DAY), wall.rem_euclid(DAY).div_euclid(MINUTE));
        let (from, to) = (i64::from(self.from.0), i64::from(self.to.0));
        if from < to {
            self.starts_on_day(day) && (from..to).contains(&minute)
        } else {
            (self.starts_on_day(day) && minute >= from) || (self.starts_on_day(day.saturating_sub(1)) && minute < to)
        }
    }

    /// Returns whether a period starts on this day, in days since the epoch.
    fn starts_on_day(&self, day: i64) -> bool {
        // The epoch was a Thursday.
        let index = usize::try_from(day.saturating_add(3).rem_euclid(7)).ok();
        let weekday = index.and_then(|index| Weekday::ALL.get(index));
        weekday.is_some_and(|weekday| self.days.contains(weekday))
    }

    /// Returns the first second in `from..to` that is in a period. The zone's offset must be constant in the range.
    fn first_opening_between(&self, from: i64, to: i64) -> Option<i64> {
        let offset = self.zone.utc_offset(from);
        let (start, end) = (from.saturating_add(offset), to.saturating_add(offset));
        if from < to && self.is_open_at_wall_time(start) {
            return Some(from);
        }
        let days = start.div_euclid(DAY)..=end.div_euclid(DAY);
        let openings = days.filter(|day| self.starts_on_day(*day)).map(|day| {
            day.saturating_mul(DAY)
                .saturating_add(i64::from(self.from.0).saturating_mul(MINUTE))
        });
        let mut openings = openings.filter(|opening| (start..end).contains(opening));
        openings.next().map(|opening| opening.saturating_sub(offset))
    }

    /// Returns the first second in `from..=to` at which the zone's offset differs from the offset at `from`. Offsets
    /// change at most once a day.
    fn first_offset_change_between(&self, from: i64, to: i64) -> Option<i64> {
        let offset = self.zone.utc_offset(from);
        let (mut before, mut after) = (from, to);
        if self.zone.utc_offset(to) == offset {
            return None;
        }
        while after.saturating_sub(before) > 1 {
            let middle = before.midpoint(after);
            if self.zone.utc_offset(middle) == offset {
                before = middle;
            } else {
                after = middle;
            }
        }
        Some(after)
    }
}

fn seconds(at: Timestamp) -> i64 {
    i64::try_from(at.secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn schedule(zone: &str, days: &[Weekday], from: &str, to: &str) -> Schedule {
        Schedule {
            zone: ZoneName::parse(zone).unwrap(),
            days: days.to_vec(),
            from: TimeOfDay::parse(from).unwrap(),
            to: TimeOfDay::parse(to).unwrap(),
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

    /// 29 February 2028 is a Tuesday, and 31 December 2027 is a Friday. A period over midnight continues in the next
    /// month.
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
            assert_eq!(schedule.next_opening(time(at)), Some(time(opens)), "{schedule:?} {at}");
            assert_eq!(schedule.is_open(time(at)), at == opens, "{schedule:?} {at}");
        }
    }

    /// In 2026, Berlin's clock skips 02:00 to 03:00 on 29 March and repeats 02:00 to 03:00 on 25 October. Both days are
    /// Sundays.
    #[test]
    fn schedules_follow_the_wall_clock_through_clock_changes() {
        use Weekday::{Friday, Monday, Sunday};
        let berlin = |days: &[Weekday], from, to| schedule("Europe/Berlin", days, from, to);
        let rows = [
            // Before, in and at the end of the period. 09:00 is 08:00 UTC in winter and 07:00 UTC in summer.
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
            // The clock skips the whole period, so the next period is a week later.
            (
                berlin(&[Sunday], "02:15", "02:45"),
                "2026-03-29T00:59:00Z",
                "2026-04-05T00:15:00Z",
            ),
            // The clock skips the start of the period, so the period starts when the clock jumps.
            (
                berlin(&[Sunday], "02:30", "04:00"),
                "2026-03-29T00:30:00Z",
                "2026-03-29T01:00:00Z",
            ),
            // The repeated hour is allowed twice.
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
            assert_eq!(schedule.next_opening(time(at)), Some(time(opens)), "{schedule:?} {at}");
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

    proptest! {
        /// The next opening is the first allowed minute in a linear search.
        #[test]
        fn the_next_opening_of_a_schedule_is_its_first_open_minute(
            zone in prop::sample::select(vec!["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu",
                "Australia/Lord_Howe", "Pacific/Chatham", "America/St_Johns", "Africa/Casablanca"]),
            days in prop::sample::subsequence(Weekday::ALL.to_vec(), 1..=7),
            (from, to) in (0_u16..1_440, 0_u16..=1_440).prop_filter("not empty", |(from, to)| from != to),
            // The years 2026 and 2027, which include clock changes.
            minute in 29_454_240_u64..30_505_440,
        ) {
            let schedule = Schedule {
                zone: ZoneName::parse(zone).unwrap(), days, from: TimeOfDay(from), to: TimeOfDay(to),
            };
            let at = Timestamp::from_secs(minute * 60).unwrap();
            let mut minutes = (minute..minute + 15 * 1_440).map(|minute| Timestamp::from_secs(minute * 60).unwrap());
            prop_assert_eq!(schedule.next_opening(at), minutes.find(|at| schedule.is_open(*at)));
        }
    }
}
