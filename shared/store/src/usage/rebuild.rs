//! Computes days of the decision history again, after stream records were lost or could not be read. Changes of the
//! last day are skipped, because the streams will add them, so a rebuild may run at any time.

use crate::{
    codec::{
        attribute::Attribute as _,
        backoff::Backoff,
        item::{Item, Row},
        key as keys,
        ledger::Ledger,
        table::Query,
    },
    payments::decision::read_decision,
    stream::{payments::HistorySource, row_hash::RowHash, sequence::SequenceNumber},
    transact::was_applied,
    usage::{
        day::{AgentOfDay, AgentsOfDay},
        journal::{StoredEntry, history_parts, last_change_time},
        key::{self, HistoryPart},
        table::UsageTable,
    },
};
use aws_sdk_dynamodb::Client;
use purser_domain::{
    Agent, AgentId, Day, DecisionResult, Duration, HistoryEntry, LoggedDecision, Result, SettlementId, Timestamp,
    UserId,
};
use std::collections::BTreeMap;
use uuid::Uuid;

/// The age after which no stream has the record of a change: one day, plus an hour.
const STREAM_RETENTION: Duration = Duration::from_secs_u32(25 * 3_600);
const PAGE_SIZE: u32 = 1_000;
const OPERATION: &str = "rebuilding the decision history";

/// The result of rebuilding one day of a user's decision history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RebuildResult {
    /// The number of missing or outdated entries that were written.
    pub entries: u64,
    /// The number of skipped changes of the last day, whose records the streams still have.
    pub young: u64,
    /// The number of unreadable decisions of the agents that the user owns now.
    pub unreadable: u64,
}

impl UsageTable {
    /// Writes the missing entries of one day in `owner`'s history, and computes the day's sums again. `agents` are the
    /// agents that the user owns or has owned.
    pub async fn rebuild_day(
        &self,
        ledger: &Ledger,
        owner: &UserId,
        agents: &[Agent],
        day: Day,
        now: Timestamp,
    ) -> Result<RebuildResult> {
        let mut rebuilt = RebuildResult::default();
        let stored = self.read_entries_of_day(owner, day).await?;
        for agent in agents {
            let (decisions, unreadable) = ledger.read_decisions_of_day(agent.id, day).await?;
            // An unreadable decision's owner is unknown, so the decision is counted for the agent's current owner.
            if agent.owner == owner.as_str() {
                rebuilt.unreadable = rebuilt.unreadable.saturating_add(unreadable);
            }
            for (decision, _) in decisions {
                let then = agent.owner_after_transfers(decision.transfer_count());
                if then.owner != owner.as_str() {
                    continue;
                }
                let entry = HistoryEntry::new(&decision, then.name, then.labels);
                let known = stored.get(&entry.place);
                if known.is_some_and(|known| is_equal_ignoring_labels(&known.entry, &entry)) {
                    self.put_transaction(owner, &entry).await?;
                    continue;
                }
                if now.since(last_change_time(&entry)) < STREAM_RETENTION {
                    rebuilt.young = rebuilt.young.saturating_add(1);
                } else if self.put_entry_if_unchanged(owner, &entry, known).await? {
                    rebuilt.entries = rebuilt.entries.saturating_add(1);
                }
            }
        }
        self.recompute_day_sums(owner, day).await?;
        Ok(rebuilt)
    }

    /// Writes the current names and labels of `owner`'s agents into one day of the history and the day's sums. Skips
    /// entries that changed within the last day. Returns the number of changed entries.
    pub async fn rename_agents_in_day(
        &self,
        owner: &UserId,
        agents: &[Agent],
        day: Day,
        now: Timestamp,
    ) -> Result<u64> {
        let mut renamed = 0_u64;
        for stored in self.read_entries_of_day(owner, day).await?.into_values() {
            let is_own = |agent: &&Agent| agent.id == stored.entry.agent && agent.owner == owner.as_str();
            let Some(agent) = agents.iter().find(is_own) else {
                continue;
            };
            let entry = HistoryEntry {
                agent_name: agent.name.clone(),
                labels: agent.labels.clone(),
                ..stored.entry.clone()
            };
            if entry != stored.entry
                && now.since(last_change_time(&entry)) >= STREAM_RETENTION
                && self.put_entry_if_unchanged(owner, &entry, Some(&stored)).await?
            {
                renamed = renamed.saturating_add(1);
            }
        }
        if renamed > 0 {
            self.recompute_day_sums(owner, day).await?;
        }
        Ok(renamed)
    }

    /// Stores an entry unless it has changed since the read. Returns whether the list of all entries has the new entry.
    async fn put_entry_if_unchanged(
        &self,
        owner: &UserId,
        entry: &HistoryEntry,
        stored_entry: Option<&StoredEntry>,
    ) -> Result<bool> {
        let sequence = stored_entry.and_then(|known| known.sequence.as_ref());
        let mut is_made = false;
        for part in history_parts(entry) {
            let put = self.put_entry_request(owner, *part, entry, sequence);
            let put = match sequence {
                None => put.condition_expression("attribute_not_exists(seq)"),
                Some(sequence) => put
                    .condition_expression("attribute_not_exists(pk) OR seq = :seq")
                    .expression_attribute_values(":seq", sequence.write()),
            };
            // The last pass of the loop writes to the list of all entries, so this write determines the returned value.
            is_made = was_applied(put.send().await, OPERATION)?;
        }
        self.put_transaction(owner, entry).await?;
        Ok(is_made)
    }

    async fn recompute_day_sums(&self, owner: &UserId, day: Day) -> Result<()> {
        let mut backoff = Backoff::new();
        'again: loop {
            let first = self.read_entries_of_day(owner, day).await?;
            let mut items: BTreeMap<String, (keys::Key, AgentsOfDay)> = BTreeMap::new();
            for stored in first.values() {
                let key = key::agent_sums_shard_key(owner, day, stored.entry.agent);
                if !items.contains_key(&key.sk) {
                    let AgentsOfDay { version, agents } = self.read_agent_sums_shard(&key).await?;
                    // The history's entries do not show automatic freezes, so the rebuilt sums keep the stored hours with a freeze.
                    let frozen = agents.into_iter().filter(|(_, of)| !of.braked.is_empty());
                    let agents = frozen.map(|(agent, of)| {
                        let frozen = of.braked;
                        (
                            agent,
                            AgentOfDay {
                                braked: frozen,
                                ..AgentOfDay::default()
                            },
                        )
                    });
                    let agents = agents.collect();
                    items.insert(key.sk.clone(), (key, AgentsOfDay { version, agents }));
                }
            }
            // The item versions were read between two equal reads of the entries, so the versions match the entries.
            let entries = self.read_entries_of_day(owner, day).await?;
            let is_equal = first.len() == entries.len()
                && first.iter().zip(&entries).all(|((place, one), (other_place, other))| {
                    place == other_place && one.sequence == other.sequence && one.entry == other.entry
                });
            if !is_equal {
                backoff.wait_for_retry().await?;
                continue;
            }
            for StoredEntry { entry, sequence } in entries.into_values() {
                let key = key::agent_sums_shard_key(owner, day, entry.agent);
                let Some((_, item)) = items.get_mut(&key.sk) else {
                    continue;
                };
                let of_agent = item.agents.entry(entry.agent).or_default();
                of_agent.apply_entry_change(None, &entry);
                advance_last_sequence(of_agent, &entry, sequence);
            }
            for (key, mut item) in items.into_values() {
                for of in item.agents.values_mut() {
                    of.service_hours.retain(|hour, _| !of.braked.contains_key(hour));
                }
                if !self.try_put_agent_sums_shard(&key, &item).await? {
                    backoff.wait_for_retry().await?;
                    continue 'again;
                }
            }
            return self.update_day_sums(owner, day).await;
        }
    }

    /// Reads the entries of an owner's day by position, strongly consistent.
    async fn read_entries_of_day(&self, owner: &UserId, day: Day) -> Result<BTreeMap<Uuid, StoredEntry>> {
        let (first, end) = id_range_of_day(day);
        let (mut found, mut before) = (BTreeMap::new(), end);
        loop {
            let entries = self
                .read_entries_before(owner, HistoryPart::All, Some(before), PAGE_SIZE, true)
                .await?;
            let Some(last) = entries.last().map(|stored| stored.entry.place) else {
                return Ok(found);
            };
            let day_sums = entries.into_iter().filter(|stored| stored.entry.place >= first);
            found.extend(day_sums.map(|stored| (stored.entry.place, stored)));
            if last < first {
                return Ok(found);
            }
            before = last;
        }
    }
}

/// Compares two entries without the agent's name and labels, which may have changed since the decision.
fn is_equal_ignoring_labels(left: &HistoryEntry, right: &HistoryEntry) -> bool {
    let other = HistoryEntry {
        agent_name: left.agent_name.clone(),
        labels: left.labels.clone(),
        ..right.clone()
    };
    *left == other
}

fn advance_last_sequence(agent_day: &mut AgentOfDay, entry: &HistoryEntry, sequence: Option<SequenceNumber>) {
    let source = match entry.result {
        DecisionResult::Allow | DecisionResult::Payout => HistorySource::Ledger,
        DecisionResult::Block | DecisionResult::Escalate | DecisionResult::RevertConfirmation => {
            HistorySource::Decisions
        }
    };
    if let Some(sequence) = sequence {
        let last = agent_day.last.entry(source).or_insert_with(|| sequence.clone());
        *last = sequence.max(last.clone());
    }
}

/// Returns the first position of the day, and the first position of the next day, in the decision history.
fn id_range_of_day(day: Day) -> (Uuid, Uuid) {
    let first = |day: Day| SettlementId::new_at(day.start_time(), [0; 8]).uuid();
    (first(day), first(day.days_later(1)))
}

impl Ledger {
    /// Reads an agent's decisions of a day, each with the hash of the row, and the number of unreadable rows.
    pub async fn read_decisions_of_day(
        &self,
        agent: AgentId,
        day: Day,
    ) -> Result<(Vec<(LoggedDecision, RowHash)>, u64)> {
        let (mut found, mut unreadable) = (Vec::new(), 0_u64);
        let settlements = read_rows_of_day(&self.db, &self.table, keys::settlement_partition(agent), day).await?;
        for item in &settlements {
            match self.read_settlement_item(item) {
                Ok(settlement) => found.push((LoggedDecision::from_settlement(settlement), RowHash::from_item(item))),
                Err(_) => unreadable = unreadable.saturating_add(1),
            }
        }
        let table = self.decisions_table()?;
        let decisions = read_rows_of_day(&self.db, table, keys::decision_partition(agent), day).await?;
        for item in &decisions {
            match read_decision(Row::new(table, item)) {
                Ok(decision) => found.push((decision, RowHash::from_item(item))),
                Err(_) => unreadable = unreadable.saturating_add(1),
            }
        }
        Ok((found, unreadable))
    }
}

/// Reads the rows of a partition whose sort keys are positions of one day, strongly consistent.
async fn read_rows_of_day(db: &Client, table: &str, pk: String, day: Day) -> Result<Vec<Item>> {
    let (first, end) = id_range_of_day(day);
    Query::new(db, table, pk)
        .range(first.to_string(), end.to_string())
        .consistent()
        .collect(OPERATION)
        .await
}
