//! Adds changes of the ledger and decisions tables to the decision history and its sums.
//!
//! Invariants:
//! - The entries of an agent are written in the order of each table's stream records, so the history never contains a
//!   later record without the earlier records.
//! - The sums are computed from the entries, and each entry counts on the day of the decision.
//! - An entry belongs to the user who owned the agent at the decision.

use crate::{
    codec::{backoff::Backoff, item::Corrupt},
    stream::{
        owners::Owners,
        payments::{HistoryChange, HistorySource},
        sequence::SequenceNumber,
    },
    usage::{key, table::UsageTable},
};
use purser_domain::{AgentId, Day, Error, HistoryEntry, Result, UserId};
use std::collections::{BTreeMap, BTreeSet};
use tokio::task::JoinSet;

/// The maximum number of owners that are processed concurrently, and of concurrent writes per owner.
const MAX_CONCURRENT: usize = 16;

#[derive(Clone, Debug)]
struct HistoryUpdate {
    source: HistorySource,
    sequence: SequenceNumber,
    old: Option<HistoryEntry>,
    new: HistoryEntry,
}

type ChangesByAgent = BTreeMap<(UserId, AgentId), Vec<HistoryUpdate>>;

impl UsageTable {
    /// Adds the changes to the decision history and its sums. `owners` must be read after the changes were made. Skips
    /// agents that are missing in `owners`. Returns one error for each unreadable item with sums. After any other
    /// error, the caller must repeat the batch.
    pub async fn add_history_changes(&self, changes: Vec<HistoryChange>, owners: &Owners) -> Result<Vec<Error>> {
        let mut by_owner: BTreeMap<UserId, ChangesByAgent> = BTreeMap::new();
        for change in changes {
            let transfers = change.new.transfer_count();
            let Some((owner, then)) = owners
                .find(change.agent)
                .and_then(|agent| agent.owner_after_transfers(transfers))
            else {
                continue;
            };
            let aggregated = HistoryUpdate {
                source: change.source,
                sequence: change.sequence,
                old: change.old.map(|old| HistoryEntry::new(&old, then.name, then.labels)),
                new: HistoryEntry::new(&change.new, then.name, then.labels),
            };
            // A row also has attributes that the entry does not contain, so a changed row may have an unchanged entry.
            if aggregated.old.as_ref() != Some(&aggregated.new) {
                let agents = by_owner.entry(owner.clone()).or_default();
                agents.entry((owner, change.agent)).or_default().push(aggregated);
            }
        }
        let owners = by_owner.into_iter().map(|(owner, agents)| {
            let table = self.clone();
            async move { table.aggregate_owner_changes(owner, agents).await }
        });
        run_all_and_collect_unreadable(owners).await
    }

    /// Adds the changes of an owner's agents: first the entries, then the sums per agent, and then the sums per day.
    async fn aggregate_owner_changes(&self, owner: UserId, mut agents: ChangesByAgent) -> Result<Vec<Error>> {
        for changes in agents.values_mut() {
            changes.sort_by(|a, b| (a.source, &a.sequence).cmp(&(b.source, &b.sequence)));
            changes.dedup_by(|later, earlier| (later.source, &later.sequence) == (earlier.source, &earlier.sequence));
        }
        let writes = agents.values().map(|changes| {
            let (table, owner, changes) = (self.clone(), owner.clone(), changes.clone());
            async move { table.put_history_entries(&owner, &changes).await.map(|()| Vec::new()) }
        });
        let mut unreadable = run_all_and_collect_unreadable(writes).await?;

        let mut items: BTreeMap<(Day, String), ChangesByAgent> = BTreeMap::new();
        for ((owner, agent), changes) in agents {
            for change in changes {
                let day = change.new.day();
                let item = (day, key::agent_sums_shard_key(&owner, day, agent).sk);
                let of_agent = items.entry(item).or_default();
                of_agent.entry((owner.clone(), agent)).or_default().push(change);
            }
        }
        let days: BTreeSet<Day> = items.keys().map(|(day, _)| *day).collect();
        let writes = items.into_iter().map(|((day, _), agents)| {
            let (table, owner) = (self.clone(), owner.clone());
            async move { table.add_agent_sums(&owner, day, agents).await.map(|()| Vec::new()) }
        });
        unreadable.extend(run_all_and_collect_unreadable(writes).await?);
        let writes = days.into_iter().map(|day| {
            let (table, owner) = (self.clone(), owner.clone());
            async move { table.update_day_sums(&owner, day).await.map(|()| Vec::new()) }
        });
        unreadable.extend(run_all_and_collect_unreadable(writes).await?);
        Ok(unreadable)
    }

    /// Writes the entries of an agent's changes. Of consecutive changes of one entry, only the last is written.
    async fn put_history_entries(&self, owner: &UserId, changes: &[HistoryUpdate]) -> Result<()> {
        for (index, change) in changes.iter().enumerate() {
            let next = changes.get(index.saturating_add(1));
            if next.is_some_and(|next| (next.source, next.new.place) == (change.source, change.new.place)) {
                continue;
            }
            self.put_history_entry(owner, &change.new, &change.sequence).await?;
        }
        Ok(())
    }

    /// Adds changes to the payment totals of one day. The totals of all `agents` must be stored in the same item.
    async fn add_agent_sums(&self, owner: &UserId, day: Day, agents: ChangesByAgent) -> Result<()> {
        let Some(((_, first), _)) = agents.first_key_value() else {
            return Ok(());
        };
        let key = key::agent_sums_shard_key(owner, day, *first);
        let mut backoff = Backoff::new();
        loop {
            let mut item = self.read_agent_sums_shard(&key).await?;
            let mut is_changed = false;
            for ((_, agent), changes) in &agents {
                let of_agent = item.agents.entry(*agent).or_default();
                for change in changes {
                    let last = of_agent.last.get(&change.source);
                    if last.is_some_and(|last| change.sequence <= *last) {
                        continue;
                    }
                    of_agent.apply_entry_change(change.old.as_ref(), &change.new);
                    of_agent.last.insert(change.source, change.sequence.clone());
                    is_changed = true;
                }
            }
            if !is_changed || self.try_put_agent_sums_shard(&key, &item).await? {
                return Ok(());
            }
            backoff.wait_for_retry().await?;
        }
    }
}

/// Runs all futures even if one fails. Returns the errors about unreadable rows, and fails with other errors.
async fn run_all_and_collect_unreadable<F>(work: impl Iterator<Item = F>) -> Result<Vec<Error>>
where
    F: Future<Output = Result<Vec<Error>>> + Send + 'static,
{
    let (mut under_way, mut work) = (JoinSet::new(), work.fuse());
    let (mut unreadable, mut failure) = (Vec::new(), None);
    loop {
        while under_way.len() < MAX_CONCURRENT
            && let Some(next) = work.next()
        {
            under_way.spawn(next);
        }
        let Some(joined) = under_way.join_next().await else {
            break;
        };
        let ended = joined.map_err(|error| Error::internal("aggregating the decision history", error));
        match ended.and_then(|ended| ended) {
            Ok(errors) => unreadable.extend(errors),
            Err(error) if Corrupt::is_cause_of(&error) => unreadable.push(error),
            Err(error) => failure = Some(error),
        }
    }
    failure.map_or(Ok(unreadable), Err)
}
