//! The sums of the entries in the decision history, by UTC day.
//!
//! An entry counts on the day of the decision, even if the settlement's state changes later. A day's authorized,
//! confirmed and released sums can therefore be compared.

use crate::{Amount, Timestamp};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Sums over a set of decisions. The JSON form is short and omits zeros, because a day has the sums of many agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UsageTotals {
    /// The sum of all authorized payments, including payments that were confirmed or released later.
    #[serde(rename = "au", skip_serializing_if = "is_zero")]
    pub authorized: Amount,
    /// The part of `authorized` that is confirmed.
    #[serde(rename = "cu", skip_serializing_if = "is_zero")]
    pub confirmed: Amount,
    /// The part of `authorized` that is released.
    #[serde(rename = "ru", skip_serializing_if = "is_zero")]
    pub released: Amount,
    /// The sum of the payments whose confirmations were reverted.
    #[serde(rename = "tu", skip_serializing_if = "is_zero")]
    pub taken_back: Amount,
    /// The number of allowed payments.
    #[serde(rename = "an", skip_serializing_if = "is_zero_count")]
    pub allowed: u64,
    /// The number of blocked payments.
    #[serde(rename = "bn", skip_serializing_if = "is_zero_count")]
    pub blocked: u64,
    /// The number of escalated payments.
    #[serde(rename = "en", skip_serializing_if = "is_zero_count")]
    pub escalated: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(amount: &Amount) -> bool {
    amount.is_zero()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero_count(number: &u64) -> bool {
    *number == 0
}

impl Default for UsageTotals {
    fn default() -> Self {
        Self {
            authorized: Amount::ZERO,
            confirmed: Amount::ZERO,
            released: Amount::ZERO,
            taken_back: Amount::ZERO,
            allowed: 0,
            blocked: 0,
            escalated: 0,
        }
    }
}

impl UsageTotals {
    /// Returns the part of `authorized` that is neither confirmed nor released.
    pub fn pending_amount(self) -> Amount {
        let settled = self.confirmed.plus(self.released).unwrap_or(Amount::MAX);
        self.authorized.minus(settled).unwrap_or(Amount::ZERO)
    }

    /// Subtracts `other`. Each result is at least zero. `self` may lack a payment of `other`, because an ownership
    /// transfer can separate a payment from the payment's release.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        let difference = |a: Amount, b: Amount| a.minus(b).unwrap_or(Amount::ZERO);
        Self {
            authorized: difference(self.authorized, other.authorized),
            confirmed: difference(self.confirmed, other.confirmed),
            released: difference(self.released, other.released),
            taken_back: difference(self.taken_back, other.taken_back),
            allowed: self.allowed.saturating_sub(other.allowed),
            blocked: self.blocked.saturating_sub(other.blocked),
            escalated: self.escalated.saturating_sub(other.escalated),
        }
    }

    /// Adds `other`. Sums are at most [`Amount::MAX`], because they are only displayed.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let sum = |a: Amount, b: Amount| a.plus(b).unwrap_or(Amount::MAX);
        Self {
            authorized: sum(self.authorized, other.authorized),
            confirmed: sum(self.confirmed, other.confirmed),
            released: sum(self.released, other.released),
            taken_back: sum(self.taken_back, other.taken_back),
            allowed: self.allowed.saturating_add(other.allowed),
            blocked: self.blocked.saturating_add(other.blocked),
            escalated: self.escalated.saturating_add(other.escalated),
        }
    }
}

/// A day in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(u32);

impl Day {
    const SECONDS: u64 = 86_400;

    /// Returns the UTC day that contains this time.
    pub fn containing(at: Timestamp) -> Self {
        // The year 9999 ends at day three million, which fits into a `u32`.
        Self(u32::try_from(at.secs() / Self::SECONDS).unwrap_or(u32::MAX))
    }

    /// Parses a date, for example `2026-11-21`. Returns `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let day = Timestamp::parse(&format!("{text}T00:00:00Z")).map(Self::containing)?;
        (day.to_string() == text).then_some(day)
    }

    /// Returns the time at which the day starts.
    pub fn start_time(self) -> Timestamp {
        let secs = u64::from(self.0).saturating_mul(Self::SECONDS);
        Timestamp::from_secs(secs).unwrap_or(Timestamp::MAX)
    }

    /// Returns the day `days` days later, at most the last representable day.
    #[must_use]
    pub const fn days_later(self, days: u32) -> Self {
        Self(self.0.saturating_add(days))
    }

    /// Returns the day `days` days earlier, at least 1970-01-01.
    #[must_use]
    pub const fn days_earlier(self, days: u32) -> Self {
        Self(self.0.saturating_sub(days))
    }

    /// Returns the number of days from `earlier` to this day; zero if `earlier` is later.
    pub const fn days_since(self, earlier: Self) -> u32 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Writes the ISO 8601 date, for example `2026-11-21`.
impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let start = self.start_time().to_string();
        f.write_str(start.split('T').next().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_parsed_only_in_canonical_form() {
        let day = Day::parse("2026-11-21").unwrap();
        assert_eq!(day.to_string(), "2026-11-21");
        assert_eq!(
            Day::containing(Timestamp::parse("2026-11-21T23:59:59.999999Z").unwrap()),
            day
        );
        assert_eq!(day.days_later(10).to_string(), "2026-12-01");
        assert_eq!(day.days_later(10).days_since(day), 10);
        // The last day of a month and the next day.
        for (before, after) in [
            ("2026-12-31", "2027-01-01"),
            ("2027-02-28", "2027-03-01"),
            ("2028-02-28", "2028-02-29"),
            ("2028-02-29", "2028-03-01"),
            ("2100-02-28", "2100-03-01"),
        ] {
            let [before, after] = [before, after].map(|text| Day::parse(text).unwrap());
            assert_eq!((before.days_later(1), after.days_earlier(1)), (after, before));
            let last = before.start_time().after(crate::Duration::DAY);
            assert_eq!((Day::containing(last), last), (after, after.start_time()));
        }
        for text in ["2027-02-29", "2100-02-29"] {
            assert_eq!(Day::parse(text), None, "{text}");
        }
        for text in ["", "2026-11-1", "2026-11-31", "2026-11-21T", "21.11.2026", "1969-12-31"] {
            assert_eq!(Day::parse(text), None, "{text}");
        }
    }
}
