//! The usage table's keys. Days and hours are ISO 8601, so text order is time order.

use crate::{
    codec::key::Key,
    usage::{
        checkpoint::Shard,
        reminder::{Reminder, ReminderKind},
    },
};
use purser_domain::{AgentId, ApprovalId, Day, PersonId, ServiceId, Timestamp};

/// The sort key of the only item of a partition.
const ONLY: &str = "#";

/// The checkpoint of a shard.
pub(super) fn checkpoint(shard: &Shard) -> Key {
    Key {
        pk: format!("C#{}#{}", shard.table, shard.id),
        sk: ONLY.to_owned(),
    }
}

/// The recount in progress. Nothing else is counted while this row exists.
pub(super) fn recount() -> Key {
    Key {
        pk: "RECOUNT".to_owned(),
        sk: ONLY.to_owned(),
    }
}

/// The partition of an owner's sums by day.
pub(super) fn owner_partition(owner: &PersonId) -> String {
    format!("O#{owner}")
}

/// The number of partitions for an owner's sums by agent.
///
/// A batch has some 2,000 records (6 MB), and each row in it costs two write units. An owner with 1,000 payments a
/// second has 2,000 records a second: one batch with up to 1,000 agents, so 2,000 units. One partition accepts 1,000 a
/// second, four accept 4,000.
const AGENT_PARTITIONS: usize = 4;

/// The partitions of an owner's sums by agent.
pub(super) fn agent_partitions(owner: &PersonId) -> [String; AGENT_PARTITIONS] {
    [0, 1, 2, 3].map(|part| format!("{}#{part}", owner_partition(owner)))
}

/// The partition of an owner's sums for this agent.
fn agent_partition(owner: &PersonId, agent: AgentId) -> String {
    // The last bits of a UUID are random. The very last four already select the checkpoint's part.
    let [.., last] = *agent.uuid().as_bytes();
    format!(
        "{}#{}",
        owner_partition(owner),
        usize::from(last >> 4) % AGENT_PARTITIONS
    )
}

/// The prefixes of the sort keys of an owner's sums, by kind.
pub(super) const BY_DAY: &str = "D#";
pub(super) const BY_AGENT: &str = "P#";

/// An owner's sums for a day.
pub(super) fn owner_day(owner: &PersonId, day: Day) -> Key {
    Key {
        pk: owner_partition(owner),
        sk: format!("{BY_DAY}{day}"),
    }
}

/// An owner's sums for a day, an agent and a service.
pub(super) fn owner_agent(owner: &PersonId, day: Day, agent: AgentId, service: ServiceId) -> Key {
    Key {
        pk: agent_partition(owner, agent),
        sk: format!("{BY_AGENT}{day}#{agent}#{service}"),
    }
}

/// The day in a sort key of an owner's sums, and the rest of the key.
pub(super) fn parse_owned(sk: &str) -> Option<(Day, &str)> {
    let (_, rest) = sk.split_once('#')?;
    let (day, other) = rest.split_once('#').unwrap_or((rest, ""));
    Some((Day::parse(day)?, other))
}

/// The partition of reminders of events that happen without a write.
pub(super) const REMINDERS: &str = "REMINDERS";
/// The prefix of a service's id in the sort key of its reminder.
const OF_SERVICE: &str = "S#";

/// A reminder to check a row at its time.
pub(super) fn reminder(reminder: Reminder) -> Key {
    let of = match reminder.of {
        ReminderKind::Expiry(approval) => approval.to_string(),
        ReminderKind::Pricing(service) => format!("{OF_SERVICE}{service}"),
    };
    Key {
        pk: REMINDERS.to_owned(),
        sk: format!("{:016}#{of}", reminder.at.micros()),
    }
}

/// The reminder in a sort key.
pub(super) fn parse_reminder(sk: &str) -> Option<Reminder> {
    let (at, of) = sk.split_once('#')?;
    let of = match of.strip_prefix(OF_SERVICE) {
        Some(service) => ReminderKind::Pricing(ServiceId::parse(service)?),
        None => ReminderKind::Expiry(ApprovalId::parse(of)?),
    };
    let at = Timestamp::from_micros(at.parse().ok()?)?;
    Some(Reminder { of, at })
}

/// The upper bound of the sort keys of reminders at or before this time.
pub(super) fn reminders_until(end: Timestamp) -> String {
    // `~` sorts after every character of a key.
    format!("{:016}#~", end.micros())
}

/// A quarantined change of a row of `table`.
pub(super) fn set_aside(table: &str, sequence: &str) -> Key {
    Key {
        pk: "ASIDE".to_owned(),
        sk: format!("{table}#{sequence}"),
    }
}
