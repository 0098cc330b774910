//! What an event counts for: the sums of what agents spend, by agent, service, owner and time.
//!
//! Always true: all that a payment counts for is counted at the time of its decision. So what a day authorized and what
//! came of that stand side by side, whenever the chain showed it.

use crate::{AgentId, Amount, Event, EventKind, PersonId, ServiceId, Timestamp};
use std::fmt;

/// What an event adds to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageCount {
    /// Whose agent.
    pub owner: PersonId,
    /// Which agent.
    pub agent: AgentId,
    /// Which service.
    pub service: ServiceId,
    /// When it was decided.
    pub decided_at: Timestamp,
    /// What is counted.
    pub what: Counted,
}

/// What is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Authorized.
    Authorized(Amount),
    /// Confirmed, the second time too after it was taken back.
    Confirmed(Amount),
    /// Released.
    Released(Amount),
    /// A confirmation that was taken back.
    TakenBack(Amount),
    /// Blocked, with the `error` that was answered.
    Blocked(String),
    /// A person is asked, with the same.
    Escalated(String),
}

impl UsageCount {
    /// What this event counts for; `None` for nothing. Payouts count nowhere: they buy nothing.
    pub fn of(event: &Event) -> Option<Self> {
        let data = event.data();
        let amount = || data.get_amount("amount_units");
        let error = || data.get_text("error").map(str::to_owned);
        let (what, decided_at) = match event.kind() {
            EventKind::PaymentAuthorized => (Counted::Authorized(amount()?), data.get_time("authorized_at")?),
            EventKind::PaymentConfirmed => (Counted::Confirmed(amount()?), data.get_time("authorized_at")?),
            EventKind::PaymentReleased => (Counted::Released(amount()?), data.get_time("authorized_at")?),
            EventKind::PaymentTakenBack => (Counted::TakenBack(amount()?), data.get_time("authorized_at")?),
            EventKind::PaymentRefused => (Counted::Blocked(error()?), event.time()),
            EventKind::PaymentEscalated => (Counted::Escalated(error()?), event.time()),
            _ => return None,
        };
        Some(Self {
            owner: event.owner()?.clone(),
            agent: event.agent()?,
            service: ServiceId::parse(data.get_text("service_id")?)?,
            decided_at,
            what,
        })
    }
}

/// Sums of a part of what was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsageTotals {
    /// What was authorized.
    pub authorized: Amount,
    /// What was confirmed of it.
    pub confirmed: Amount,
    /// What was released.
    pub released: Amount,
    /// What was taken back after its confirmation.
    pub taken_back: Amount,
    /// How many payments were allowed.
    pub allowed: u64,
    /// How many were blocked.
    pub blocked: u64,
    /// How many were escalated.
    pub escalated: u64,
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
    /// The sums of both. An amount that no [`Amount`] holds is its maximum: it is for people to look at.
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

/// A day of UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(u32);

impl Day {
    const SECONDS: u64 = 86_400;

    /// The day of an instant.
    pub fn of(at: Timestamp) -> Self {
        // The last instant is in the year 9999: three million days.
        Self(u32::try_from(at.secs() / Self::SECONDS).unwrap_or(u32::MAX))
    }

    /// Reads `2026-11-21`; `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let day = Timestamp::parse(&format!("{text}T00:00:00Z")).map(Self::of)?;
        (day.to_string() == text).then_some(day)
    }

    /// Its first instant.
    pub fn start(self) -> Timestamp {
        let secs = u64::from(self.0).saturating_mul(Self::SECONDS);
        Timestamp::from_secs(secs).unwrap_or(Timestamp::MAX)
    }

    /// The day so many days later.
    #[must_use]
    pub const fn plus(self, days: u32) -> Self {
        Self(self.0.saturating_add(days))
    }

    /// The day so many days before.
    #[must_use]
    pub const fn minus(self, days: u32) -> Self {
        Self(self.0.saturating_sub(days))
    }

    /// How many days it is after `earlier`; zero if it is not.
    pub const fn since(self, earlier: Self) -> u32 {
        self.0.saturating_sub(earlier.0)
    }
}

/// ISO 8601: `2026-11-21`.
impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let start = self.start().to_string();
        f.write_str(start.split('T').next().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_read_as_it_is_written_and_in_no_other_form() {
        let day = Day::parse("2026-11-21").unwrap();
        assert_eq!(day.to_string(), "2026-11-21");
        assert_eq!(Day::of(Timestamp::parse("2026-11-21T23:59:59.999999Z").unwrap()), day);
        assert_eq!(day.plus(10).to_string(), "2026-12-01");
        assert_eq!(day.plus(10).since(day), 10);
        for text in ["", "2026-11-1", "2026-11-31", "2026-11-21T", "21.11.2026", "1969-12-31"] {
            assert_eq!(Day::parse(text), None, "{text}");
        }
    }
}
