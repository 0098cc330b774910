//! The usage table's keys. Days and hours are ISO 8601, so text order is time order.

use crate::codec::key::Key;
use purser_domain::{AgentId, ApprovalId, Day, EventId, PersonId, ServiceId, Timestamp};

/// The sort key of an item that is alone in its partition.
const ONLY: &str = "#";

/// That an event was counted.
pub(super) fn marker(event: EventId) -> Key {
    Key {
        pk: format!("E#{event}"),
        sk: ONLY.to_owned(),
    }
}

/// The sums of one owner.
pub(super) fn owner_partition(owner: &PersonId) -> String {
    format!("O#{owner}")
}

/// The kinds of an owner's sums, as their sort keys begin.
pub(super) const BY_DAY: &str = "D#";
pub(super) const BY_AGENT: &str = "A#";
pub(super) const BY_SERVICE: &str = "S#";

/// An owner's sums of a day.
pub(super) fn owner_day(owner: &PersonId, day: Day) -> Key {
    Key {
        pk: owner_partition(owner),
        sk: format!("{BY_DAY}{day}"),
    }
}

/// The same, of one agent.
pub(super) fn owner_agent(owner: &PersonId, day: Day, agent: AgentId) -> Key {
    Key {
        pk: owner_partition(owner),
        sk: format!("{BY_AGENT}{day}#{agent}"),
    }
}

/// The same, of one service.
pub(super) fn owner_service(owner: &PersonId, day: Day, service: ServiceId) -> Key {
    Key {
        pk: owner_partition(owner),
        sk: format!("{BY_SERVICE}{day}#{service}"),
    }
}

/// An agent's sums at a service, of a day.
pub(super) fn agent_day(agent: AgentId, day: Day, service: ServiceId) -> Key {
    Key {
        pk: format!("U#{agent}"),
        sk: format!("{BY_DAY}{day}#{service}"),
    }
}

/// The same, of an hour.
pub(super) fn agent_hour(agent: AgentId, at: Timestamp, service: ServiceId) -> Key {
    let time = at.to_string();
    let hour = time.split(':').next().unwrap_or_default();
    Key {
        pk: format!("U#{agent}"),
        sk: format!("H#{hour}#{service}"),
    }
}

/// The day in a sort key of an owner's sums, and what follows it.
pub(super) fn parse_owned(sk: &str) -> Option<(Day, &str)> {
    let (_, rest) = sk.split_once('#')?;
    let (day, other) = rest.split_once('#').unwrap_or((rest, ""));
    Some((Day::parse(day)?, other))
}

/// The partition of approvals that will have expired.
pub(super) const EXPIRIES: &str = "EXPIRIES";

/// When to look whether an approval has expired.
pub(super) fn expiry(end: Timestamp, approval: ApprovalId) -> Key {
    Key {
        pk: EXPIRIES.to_owned(),
        sk: format!("{:016}#{approval}", end.micros()),
    }
}

/// The approval in the sort key of its expiry, and its end.
pub(super) fn parse_expiry(sk: &str) -> Option<(Timestamp, ApprovalId)> {
    let (end, approval) = sk.split_once('#')?;
    let end = Timestamp::from_micros(end.parse().ok()?)?;
    Some((end, ApprovalId::parse(approval)?))
}

/// The upper bound of the sort keys of what ended at or before this time.
pub(super) fn expiries_until(end: Timestamp) -> String {
    // `~` sorts after every character of a key.
    format!("{:016}#~", end.micros())
}

/// What could not be told, of one table.
pub(super) fn set_aside(table: &str, sequence: &str) -> Key {
    Key {
        pk: "ASIDE".to_owned(),
        sk: format!("{table}#{sequence}"),
    }
}
