//! The data for automatic freezes: an agent's sums per hour, and the hours with an automatic freeze.

use crate::{
    codec::backoff::Backoff,
    usage::{day::AgentOfDay, key, table::UsageTable},
};
use purser_domain::{
    AgentId, Amount, Anomaly, AutomaticFreeze, COMPARED_HOURS, Error, Hour, Result, Timestamp, UserId,
};
use std::collections::BTreeMap;
use tokio::task::JoinSet;

impl UsageTable {
    /// Compares an agent's payments in the current hour, up to `at`, with the agent's usual hours. Ignores payments
    /// before the last automatic freeze, because they would freeze the agent again. Reads up to sixteen items.
    pub async fn find_anomaly(
        &self,
        owner: &UserId,
        agent: AgentId,
        at: Timestamp,
        automatic_freeze: AutomaticFreeze,
    ) -> Result<Option<Anomaly>> {
        let hour = Hour::containing(at);
        let today = self.read_agent_sums_of_day(owner, hour, agent).await?;
        let before = if hour.hours_earlier(1).day() == hour.day() {
            today.amount_since_automatic_freeze(hour.hours_earlier(1))
        } else {
            self.read_agent_sums_of_day(owner, hour.hours_earlier(1), agent)
                .await?
                .amount_since_automatic_freeze(hour.hours_earlier(1))
        };
        let before = if today.braked.contains_key(&hour) {
            Amount::ZERO
        } else {
            before
        };
        let sum = AutomaticFreeze::estimated_sliding_hour_sum(at, today.amount_since_automatic_freeze(hour), before);
        // If the sum is not unusual even for an agent without earlier payments, the earlier payments need not be read.
        if !automatic_freeze.is_unusual_sum(sum, Amount::ZERO) {
            return Ok(None);
        }
        Ok(automatic_freeze.find_anomaly(hour, sum, &self.read_hourly_sums_before(owner, agent, hour).await?))
    }

    async fn read_agent_sums_of_day(&self, owner: &UserId, hour: Hour, agent: AgentId) -> Result<AgentOfDay> {
        let key = key::agent_sums_shard_key(owner, hour.day(), agent);
        Ok(self
            .read_agent_sums_shard(&key)
            .await?
            .agents
            .remove(&agent)
            .unwrap_or_default())
    }

    async fn read_hourly_sums_before(
        &self,
        owner: &UserId,
        agent: AgentId,
        hour: Hour,
    ) -> Result<BTreeMap<Hour, Amount>> {
        const READING: &str = "reading an agent's earlier hourly sums";
        let (first, last) = (hour.hours_earlier(COMPARED_HOURS).day(), hour.day());
        let mut reads = JoinSet::new();
        for back in 1..=last.days_since(first) {
            let (table, key) = (
                self.clone(),
                key::agent_sums_shard_key(owner, last.days_earlier(back), agent),
            );
            reads.spawn(async move { table.read_agent_sums_shard(&key).await });
        }
        let mut sums = BTreeMap::new();
        while let Some(read) = reads.join_next().await {
            let mut item = read.map_err(|error| Error::internal(READING, error))??;
            sums.extend(
                item.agents
                    .remove(&agent)
                    .map(|day_sums| day_sums.hours)
                    .unwrap_or_default(),
            );
        }
        Ok(sums)
    }

    /// Records an automatic freeze, so that the rule ignores the payments of this hour before the freeze.
    pub async fn record_automatic_freeze(&self, owner: &UserId, agent: AgentId, hour: Hour) -> Result<()> {
        let key = key::agent_sums_shard_key(owner, hour.day(), agent);
        let mut backoff = Backoff::new();
        loop {
            let mut item = self.read_agent_sums_shard(&key).await?;
            let of_agent = item.agents.entry(agent).or_default();
            let sum = of_agent.hours.get(&hour).copied().unwrap_or(Amount::ZERO);
            if of_agent.braked.insert(hour, sum) == Some(sum) || self.try_put_agent_sums_shard(&key, &item).await? {
                return Ok(());
            }
            backoff.wait_for_retry().await?;
        }
    }
}
