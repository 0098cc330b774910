//! The sums that an event adds to: the spending of agents, by agent, service, owner and time.
//!
//! Invariant: everything about a payment is counted at the time of its decision. So a day's authorized sum and its
//! later outcomes stand side by side, whenever the chain showed them.

use crate::{AgentId, Amount, Event, EventKind, PersonId, ServiceId, Timestamp};
use std::fmt;

/// The sums that an event adds to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageCount {
    /// The agent's owner.
    pub owner: PersonId,
    /// The agent.
    pub agent: AgentId,
    /// The service.
    pub service: ServiceId,
    /// The time of the decision.
    pub decided_at: Timestamp,
    /// The counted amount.
    pub what: Counted,
}

/// The counted amount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Authorized.
    Authorized(Amount),
    /// Confirmed; counted again after a revert.
    Confirmed(Amount),
    /// Released.
    Released(Amount),
    /// A reverted confirmation.
    TakenBack(Amount),
    /// Blocked, with the answered `error`.
    Blocked(String),
    /// Escalated, with the answered `error`.
    Escalated(String),
}

impl UsageCount {
    /// The sums that this event adds to; `None` if it is not counted. Payouts are not counted, since they buy nothing.
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

/// The sums over some decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsageTotals {
    /// The authorized amount.
    pub authorized: Amount,
    /// The confirmed part of it.
    pub confirmed: Amount,
    /// The released part.
    pub released: Amount,
    /// The part that was confirmed and reverted.
    pub taken_back: Amount,
    /// The number of allowed payments.
    pub allowed: u64,
    /// The number of blocked payments.
    pub blocked: u64,
    /// The number of escalated payments.
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
    /// The sums of both. A sum above the largest [`Amount`] is that amount, since it is only displayed.
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

    /// The day `days` days later.
    #[must_use]
    pub const fn plus(self, days: u32) -> Self {
        Self(self.0.saturating_add(days))
    }

    /// The day `days` days earlier.
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
    fn days_are_parsed_only_in_canonical_form() {
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
