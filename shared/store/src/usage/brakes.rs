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

/// An automatic freeze is repeated if another was recorded in this number of hours.
const REPEAT_HOURS: u32 = 24;

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
        let previous = hour.hours_earlier(1);
        let today = self.read_agent_sums_of_day(owner, hour, agent).await?;
        let yesterday = if previous.day() == hour.day() {
            None
        } else {
            Some(self.read_agent_sums_of_day(owner, previous, agent).await?)
        };
        let previous_sums = yesterday.as_ref().unwrap_or(&today);
        let before = if today.braked.contains_key(&hour) {
            Amount::ZERO
        } else {
            previous_sums.amount_since_automatic_freeze(previous)
        };
        let now = today.amount_since_automatic_freeze(hour);
        let sum = AutomaticFreeze::estimated_sliding_hour_sum(at, now, before);
        // If the sum is not unusual even for an agent without earlier payments, the earlier payments need not be read.
        if !automatic_freeze.is_unusual_sum(sum, Amount::ZERO) {
            return Ok(None);
        }
        let days = self.read_days_before(owner, agent, hour).await?;
        let sums = days.iter().flat_map(|day| &day.hours);
        let sums = sums.map(|(hour, sum)| (*hour, *sum)).collect();
        let Some(anomaly) = automatic_freeze.find_anomaly(hour, sum, &sums) else {
            return Ok(None);
        };
        let none = BTreeMap::new();
        let before_services = previous_sums.service_hours.get(&previous).filter(|_| !before.is_zero());
        let now = (now, today.service_hours.get(&hour).unwrap_or(&none));
        let before = (before, before_services.unwrap_or(&none));
        let mut freezes = days.iter().chain([&today]).flat_map(|day| day.braked.keys());
        Ok(Some(Anomaly {
            service: automatic_freeze.find_unusual_service(at, now, before, anomaly.usual),
            is_repeated: freezes.any(|freeze| *freeze >= hour.hours_earlier(REPEAT_HOURS)),
            ..anomaly
        }))
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

    /// Reads the agent's sums of the previous days that an automatic freeze compares.
    async fn read_days_before(&self, owner: &UserId, agent: AgentId, hour: Hour) -> Result<Vec<AgentOfDay>> {
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
        let mut days = Vec::new();
        while let Some(read) = reads.join_next().await {
            let mut item = read.map_err(|error| Error::internal(READING, error))??;
            days.extend(item.agents.remove(&agent));
        }
        Ok(days)
    }

    /// Records an automatic freeze of the agent or of a service, so that the rule ignores the payments of this hour before the freeze.
    pub async fn record_automatic_freeze(&self, owner: &UserId, agent: AgentId, hour: Hour) -> Result<()> {
        let key = key::agent_sums_shard_key(owner, hour.day(), agent);
        let mut backoff = Backoff::new();
        loop {
            let mut item = self.read_agent_sums_shard(&key).await?;
            let of_agent = item.agents.entry(agent).or_default();
            let sum = of_agent.hours.get(&hour).copied().unwrap_or(Amount::ZERO);
            of_agent.service_hours.remove(&hour);
            if of_agent.braked.insert(hour, sum) == Some(sum) || self.try_put_agent_sums_shard(&key, &item).await? {
                return Ok(());
            }
            backoff.wait_for_retry().await?;
        }
    }
}
