//! The usage table's keys. Days have ISO 8601 form, so text order is time order.

use crate::{
    codec::key::{Key, ONLY, key_texts, keys},
    usage::reminder::{Reminder, ReminderKind},
};
use purser_domain::{AgentId, ApprovalId, BacktestId, Day, ServiceId, SettlementId, Timestamp, TxHash, UserId};

/// One of the lists in which an owner's decision history is stored.
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

key_texts! {
    /// The partition of the rows that map an owner's transactions to entries.
    transactions_partition(owner: &UserId) = format!("J#{owner}#T");
    transaction_prefix(hash: TxHash) = format!("{hash}#");
    sums_partition(owner: &UserId) = format!("O#{owner}");
    backtests_partition(owner: &UserId) = format!("X#{owner}");
}

keys! {
    /// The row that maps a transaction to an entry. One transaction can confirm several payments.
    transaction_entry(owner: &UserId, hash: TxHash, settlement: SettlementId) =
        transactions_partition(owner), format!("{}{settlement}", transaction_prefix(hash));
    day_sums(owner: &UserId, day: Day) = sums_partition(owner), format!("{DAYS}{day}");
    /// The row that stores how far the decision history is behind the payments.
    history_lag() = "LAG", ONLY;
    /// The marker of an unfinished backtest.
    waiting_backtest(id: BacktestId) = BACKTESTS, id.to_string();
    backtest(owner: &UserId, id: BacktestId) = backtests_partition(owner), id.to_string();
    /// The shadow policy that a user attached to an agent.
    shadow(owner: &UserId, agent: AgentId) = format!("SH#{owner}"), agent.to_string();
    /// A quarantined change of a row in `table`.
    quarantined_row(table: &str, sequence: &str) = "ASIDE", format!("{table}#{sequence}");
    /// A version of an agent's record. Version numbers are padded, so that text order is numeric order.
    agent_version(agent: AgentId, version: u64) = format!("V#A#{agent}"), format!("{version:020}");
    policy_version(agent: AgentId, service: ServiceId, version: u64) =
        format!("V#P#{agent}#{service}"), format!("{version:020}");
    service_version(service: ServiceId, version: u64) = format!("V#S#{service}"), format!("{version:020}");
}

pub(super) fn parse_settlement_sort_key(sk: &str) -> Option<SettlementId> {
    SettlementId::parse(sk.split_once('#')?.1)
}

/// The prefix of the sort keys of an owner's sums by day.
pub(super) const DAYS: &str = "D#";
/// The prefix of the sort keys of an owner's sums by agent.
pub(super) const BY_AGENT: &str = "A#";

/// The number of items over which an owner's agents are distributed in a day's sums. A write replaces a whole item, and
/// takes some six write units for 60 agents.
const AGENT_SHARDS: u8 = 16;

/// The last bits of the agent's UUID are random, so the items fill evenly.
pub(super) fn agent_sums_shard_key(owner: &UserId, day: Day, agent: AgentId) -> Key {
    let [.., last] = *agent.uuid().as_bytes();
    Key::new(
        sums_partition(owner),
        format!("{BY_AGENT}{day}#{:x}", last % AGENT_SHARDS),
    )
}

pub(super) fn parse_day(sk: &str) -> Option<Day> {
    let (_, rest) = sk.split_once('#')?;
    Day::parse(rest.split('#').next()?)
}

pub(super) const REMINDERS: &str = "REMINDERS";
/// The prefix of a service's id in a reminder's sort key. An approval's id has no prefix.
const OF_SERVICE: &str = "S#";

/// The key of a reminder, which sorts by time.
pub(super) fn reminder_key(reminder: Reminder) -> Key {
    let of = match reminder.of {
        ReminderKind::Expiry(approval) => approval.to_string(),
        ReminderKind::Pricing(service) => format!("{OF_SERVICE}{service}"),
    };
    Key::new(REMINDERS, format!("{:016}#{of}", reminder.at.micros()))
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
