//! Times and durations. No code in this module reads a clock: the current time is always an argument.

use chrono::{DateTime, SecondsFormat};
use std::fmt;

/// A UTC time in whole microseconds since the Unix epoch, at or after the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The Unix epoch, 1970-01-01T00:00:00Z.
    pub const EPOCH: Self = Self(0);

    /// 9999-12-31T23:59:59.999999Z, the last time that ISO 8601 can write with a four-digit year.
    pub const MAX: Self = Self(253_402_300_799_999_999);

    /// Creates a time. Returns `None` outside [`Timestamp::EPOCH`] to [`Timestamp::MAX`].
    pub const fn from_micros(micros: i64) -> Option<Self> {
        if micros >= 0 && micros <= Self::MAX.0 {
            Some(Self(micros))
        } else {
            None
        }
    }

    /// Creates a time from seconds since the epoch, the unit of block times and EIP-3009.
    pub fn from_secs(secs: u64) -> Option<Self> {
        i64::try_from(secs)
            .ok()
            .and_then(|secs| secs.checked_mul(MICROS_PER_SECOND))
            .and_then(Self::from_micros)
    }

    /// Parses an RFC 3339 time with any UTC offset. Digits beyond the microsecond are ignored.
    pub fn parse(text: &str) -> Option<Self> {
        let instant = DateTime::parse_from_rfc3339(text).ok()?;
        Self::from_micros(instant.timestamp_micros())
    }

    /// Returns the microseconds since the epoch.
    pub const fn micros(self) -> i64 {
        self.0
    }

    /// Returns the seconds since the epoch, rounded down.
    pub fn secs(self) -> u64 {
        self.0.unsigned_abs() / 1_000_000
    }

    /// Returns the time for display, to the minute: `21 Nov 2026, 01:09 UTC`.
    pub fn to_display_text(self) -> String {
        let text = self.to_string();
        let part = |from, to| text.get(from..to).unwrap_or_default();
        let month = match part(5, 7) {
            "01" => "Jan",
            "02" => "Feb",
            "03" => "Mar",
            "04" => "Apr",
            "05" => "May",
            "06" => "Jun",
            "07" => "Jul",
            "08" => "Aug",
            "09" => "Sep",
            "10" => "Oct",
            "11" => "Nov",
            _ => "Dec",
        };
        let day = part(8, 10).trim_start_matches('0');
        format!("{day} {month} {}, {} UTC", part(0, 4), part(11, 16))
    }

    /// Returns the time `duration` later, at most [`Timestamp::MAX`].
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration.0).min(Self::MAX.0))
    }

    /// Returns the time `duration` earlier, at least [`Timestamp::EPOCH`].
    #[must_use]
    pub fn before(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(duration.0).max(0))
    }

    /// Returns the duration from `earlier` to `self`; zero if `self` is not later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration(self.0.saturating_sub(earlier.0).max(0))
    }
}

/// Writes ISO 8601 in UTC with six decimal places (`docs/spec.md` §2): `2026-11-21T01:09:00.000000Z`.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match DateTime::from_timestamp_micros(self.0) {
            Some(instant) => f.write_str(&instant.to_rfc3339_opts(SecondsFormat::Micros, true)),
            None => write!(f, "{}us", self.0),
        }
    }
}

const MICROS_PER_SECOND: i64 = 1_000_000;

/// A duration in whole microseconds, never negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(i64);

impl Duration {
    /// 24 hours: the rolling window of `max_per_day_units` (`docs/spec.md` §2.6).
    pub const DAY: Self = Self::from_secs_u32(86_400);

    /// Creates a duration from seconds. Every `u32` fits.
    pub const fn from_secs_u32(secs: u32) -> Self {
        #[expect(clippy::as_conversions, reason = "lossless widening; `From` is not const")]
        Self((secs as i64).saturating_mul(MICROS_PER_SECOND))
    }

    /// Creates a duration from milliseconds. Every `u32` fits.
    pub fn from_millis_u32(millis: u32) -> Self {
        Self(i64::from(millis).saturating_mul(1_000))
    }

    /// Returns the duration in microseconds.
    pub const fn micros(self) -> i64 {
        self.0
    }

    /// Returns the duration in seconds, rounded down.
    pub const fn secs(self) -> u64 {
        self.0.unsigned_abs() / 1_000_000
    }

    /// Returns the duration in milliseconds, rounded down.
    pub fn millis(self) -> u64 {
        self.0.unsigned_abs() / 1_000
    }

    /// Returns the duration in seconds, rounded up and at least one, for `Retry-After`.
    pub fn secs_rounded_up(self) -> u64 {
        self.0.unsigned_abs().div_ceil(1_000_000).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_written_in_utc_with_six_places() {
        let at = Timestamp::from_micros(1_795_223_340_000_001).unwrap();
        assert_eq!(at.to_string(), "2026-11-21T01:09:00.000001Z");
    }

    /// Clocks without leap seconds also show the next second.
    #[test]
    fn leap_seconds_count_as_the_next_second() {
        let at = |text: &str| Timestamp::parse(text).unwrap().to_string();
        assert_eq!(at("2016-12-31T23:59:60Z"), "2017-01-01T00:00:00.000000Z");
        assert_eq!(at("2016-12-31T18:59:60.25-05:00"), "2017-01-01T00:00:00.250000Z");
        assert_eq!(at("2016-12-31T23:59:59.999999Z"), "2016-12-31T23:59:59.999999Z");
        assert_eq!(Timestamp::parse("2016-12-31T23:59:61Z"), None);
    }

    #[test]
    fn time_arithmetic_saturates_instead_of_wrapping() {
        assert_eq!(Timestamp::MAX.after(Duration::DAY), Timestamp::MAX);
        assert_eq!(Timestamp::EPOCH.before(Duration::DAY), Timestamp::EPOCH);
        assert_eq!(Timestamp::EPOCH.since(Timestamp::MAX), Duration::from_secs_u32(0));
    }

    #[test]
    fn retry_waits_are_rounded_up_to_whole_seconds() {
        assert_eq!(Duration(1).secs_rounded_up(), 1);
        assert_eq!(Duration(0).secs_rounded_up(), 1);
        assert_eq!(Duration(1_000_001).secs_rounded_up(), 2);
    }
}
