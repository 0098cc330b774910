//! The usage table's keys. Days have ISO 8601 form, so text order is time order.

use crate::{
    codec::key::Key,
    usage::reminder::{Reminder, ReminderKind},
};
use purser_domain::{AgentId, ApprovalId, BacktestId, Day, ServiceId, SettlementId, Timestamp, TxHash, UserId};

/// The sort key of a partition's only item.
const ONLY: &str = "#";

/// A part of an owner's decision history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistoryPart {
    /// The list of all entries.
    All,
    /// The list of entries without a settlement: blocked and escalated requests, and reverted confirmations.
    Refusals,
}

/// The partition of an owner's decision history. Sort keys are the positions of the entries.
pub(super) fn history_partition(owner: &UserId, part: HistoryPart) -> String {
    match part {
        HistoryPart::All => format!("J#{owner}"),
        HistoryPart::Refusals => format!("J#{owner}#R"),
    }
}

/// The partition of the rows that map an owner's transactions to entries.
pub(super) fn transactions_partition(owner: &UserId) -> String {
    format!("J#{owner}#T")
}

/// The prefix of the sort keys of one transaction's rows.
pub(super) fn transaction_prefix(hash: TxHash) -> String {
    format!("{hash}#")
}

/// The key of the row that maps a transaction to an entry. One transaction can confirm several payments, so a
/// transaction can have several rows.
pub(super) fn transaction_key(owner: &UserId, hash: TxHash, settlement: SettlementId) -> Key {
    Key {
        pk: transactions_partition(owner),
        sk: format!("{}{settlement}", transaction_prefix(hash)),
    }
}

pub(super) fn parse_transaction(sk: &str) -> Option<SettlementId> {
    SettlementId::parse(sk.split_once('#')?.1)
}

pub(super) fn sums_partition(owner: &UserId) -> String {
    format!("O#{owner}")
}

/// The prefix of the sort keys of an owner's sums by day.
pub(super) const DAYS: &str = "D#";
/// The prefix of the sort keys of an owner's sums by agent.
pub(super) const BY_AGENT: &str = "A#";

pub(super) fn day_sums_key(owner: &UserId, day: Day) -> Key {
    Key {
        pk: sums_partition(owner),
        sk: format!("{DAYS}{day}"),
    }
}

/// The number of items into which a day's sums by agent are divided. A batch of stream records writes each item once.
/// An agent's sums take some 100 bytes, so an item of 60 agents takes some six write units.
const AGENT_SHARDS: u8 = 16;

/// The last bits of the agent's UUID are random, so the items fill evenly.
pub(super) fn agents_of_day_key(owner: &UserId, day: Day, agent: AgentId) -> Key {
    let [.., last] = *agent.uuid().as_bytes();
    Key {
        pk: sums_partition(owner),
        sk: format!("{BY_AGENT}{day}#{:x}", last % AGENT_SHARDS),
    }
}

pub(super) fn parse_day(sk: &str) -> Option<Day> {
    let (_, rest) = sk.split_once('#')?;
    Day::parse(rest.split('#').next()?)
}

/// The key of the row about the delay of the decision history.
pub(super) fn history_lag_key() -> Key {
    Key {
        pk: "LAG".to_owned(),
        sk: ONLY.to_owned(),
    }
}

/// The key of a version of an agent's record. Version numbers are padded, so that text order is numeric order.
pub(super) fn agent_version_key(agent: AgentId, version: u64) -> Key {
    version_key(format!("V#A#{agent}"), version)
}

/// The key of a version of an agent's policy for a service.
pub(super) fn policy_version_key(agent: AgentId, service: ServiceId, version: u64) -> Key {
    version_key(format!("V#P#{agent}#{service}"), version)
}

/// The key of a version of a catalog service.
pub(super) fn service_version_key(service: ServiceId, version: u64) -> Key {
    version_key(format!("V#S#{service}"), version)
}

fn version_key(pk: String, version: u64) -> Key {
    Key {
        pk,
        sk: format!("{version:020}"),
    }
}

/// The partition of all reminders.
pub(super) const REMINDERS: &str = "REMINDERS";
/// The prefix of a service's id in a reminder's sort key.
const OF_SERVICE: &str = "S#";

/// The key of a reminder, which sorts by time.
pub(super) fn reminder_key(reminder: Reminder) -> Key {
    let of = match reminder.of {
        ReminderKind::Expiry(approval) => approval.to_string(),
        ReminderKind::Pricing(service) => format!("{OF_SERVICE}{service}"),
    };
    Key {
        pk: REMINDERS.to_owned(),
        sk: format!("{:016}#{of}", reminder.at.micros()),
    }
}

pub(super) fn parse_reminder(sk: &str) -> Option<Reminder> {
    let (at, of) = sk.split_once('#')?;
    let of = match of.strip_prefix(OF_SERVICE) {
        Some(service) => ReminderKind::Pricing(ServiceId::parse(service)?),
        None => ReminderKind::Expiry(ApprovalId::parse(of)?),
    };
    let at = Timestamp::from_micros(at.parse().ok()?)?;
    Some(Reminder { of, at })
}

/// Returns the upper bound of the sort keys of reminders at or before this time.
pub(super) fn reminder_key_upper_bound(end: Timestamp) -> String {
    // `~` sorts after every character of a key, so the bound is above the keys of all reminders at this time.
    format!("{:016}#~", end.micros())
}

pub(super) const BACKTESTS: &str = "BACKTESTS";

/// The key of the marker of an unfinished backtest.
pub(super) fn waiting_backtest_key(id: BacktestId) -> Key {
    Key {
        pk: BACKTESTS.to_owned(),
        sk: id.to_string(),
    }
}

pub(super) fn backtests_partition(owner: &UserId) -> String {
    format!("X#{owner}")
}

pub(super) fn backtest_key(owner: &UserId, id: BacktestId) -> Key {
    Key {
        pk: backtests_partition(owner),
        sk: id.to_string(),
    }
}

/// The key of the shadow policy that a user attached to an agent.
pub(super) fn shadow_key(owner: &UserId, agent: AgentId) -> Key {
    Key {
        pk: format!("SH#{owner}"),
        sk: agent.to_string(),
    }
}

/// The key of a quarantined change of a row in `table`.
pub(super) fn quarantined_row_key(table: &str, sequence: &str) -> Key {
    Key {
        pk: "ASIDE".to_owned(),
        sk: format!("{table}#{sequence}"),
    }
}
