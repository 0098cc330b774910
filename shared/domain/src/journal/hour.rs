//! Hours, for the sums of an agent's payments per hour.

use crate::{Day, Timestamp};
use serde::{Deserialize, Serialize};
use std::fmt;

/// An hour of a day in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Hour(u32);

impl Hour {
    pub(crate) const SECONDS: u64 = 3_600;
    const PER_DAY: u32 = 24;

    /// Returns the UTC hour that contains this time.
    pub fn containing(at: Timestamp) -> Self {
        // The year 9999 ends at hour 71 million, which fits into a `u32`.
        Self(u32::try_from(at.secs() / Self::SECONDS).unwrap_or(u32::MAX))
    }

    /// Returns the UTC day of this hour.
    pub fn day(self) -> Day {
        Day::containing(self.start_time())
    }

    /// Returns the hour of the day, from 0 to 23.
    pub fn hour_of_day(self) -> u8 {
        // A remainder modulo 24 fits into a `u8`.
        u8::try_from(self.0 % Self::PER_DAY).unwrap_or_default()
    }

    /// Returns the time at which the hour starts.
    pub fn start_time(self) -> Timestamp {
        let secs = u64::from(self.0).saturating_mul(Self::SECONDS);
        Timestamp::from_secs(secs).unwrap_or(Timestamp::MAX)
    }

    /// Returns the hour `hours` hours earlier, at least the first hour of 1970.
    #[must_use]
    pub const fn hours_earlier(self, hours: u32) -> Self {
        Self(self.0.saturating_sub(hours))
    }
}

/// Writes the date and the start and end of the hour: `2026-11-21, 14:00 to 15:00 UTC`.
impl fmt::Display for Hour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hour = self.hour_of_day();
        let end = hour.saturating_add(1);
        write!(f, "{}, {hour:02}:00 to {end:02}:00 UTC", self.day())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_hour_belongs_to_its_utc_day() {
        let at = |text| Hour::containing(Timestamp::parse(text).unwrap());
        let last = at("2026-11-21T23:59:59.999999Z");
        let day = Day::parse("2026-11-21").unwrap();
        assert_eq!((last.day(), last.hour_of_day()), (day, 23));
        assert_eq!(last.to_string(), "2026-11-21, 23:00 to 24:00 UTC");
        let first = at("2026-11-22T00:00:00Z");
        assert_eq!((first.day(), first.hour_of_day()), (day.days_later(1), 0));
        assert_eq!(first.hours_earlier(1), last);
    }
}
