//! The data for automatic freezes: the sums of an agent's hours, and the hours in which the agent was frozen
//! automatically.

use crate::{
    codec::backoff::Backoff,
    usage::{day::AgentOfDay, key, table::UsageTable},
};
use purser_domain::{AgentId, Amount, Anomaly, AnomalyBrake, BRAKE_HOURS, Error, Hour, PersonId, Result, Timestamp};
use std::collections::BTreeMap;
use tokio::task::JoinSet;

impl UsageTable {
    /// Compares an agent's payments of the hour until `at` with its usual hours, by the sums of the owner's decision
    /// history. Payments before the agent's last automatic freeze do not count, so that the agent may be unfrozen.
    /// Reads one item, or two in the first hour of a day, and the items of 14 more days if the sum is not below the
    /// rule's minimum.
    pub async fn anomaly(
        &self,
        owner: &PersonId,
        agent: AgentId,
        at: Timestamp,
        brake: AnomalyBrake,
    ) -> Result<Option<Anomaly>> {
        let hour = Hour::containing(at);
        let today = self.agent_of_day(owner, hour, agent).await?;
        let before = if hour.minus(1).day() == hour.day() {
            today.unbraked_amount(hour.minus(1))
        } else {
            self.agent_of_day(owner, hour.minus(1), agent)
                .await?
                .unbraked_amount(hour.minus(1))
        };
        let before = if today.braked.contains_key(&hour) {
            Amount::ZERO
        } else {
            before
        };
        let sum = AnomalyBrake::sum_within_an_hour(at, today.unbraked_amount(hour), before);
        // Without earlier payments, only the minimum decides.
        if !brake.is_tripped_by(sum, Amount::ZERO) {
            return Ok(None);
        }
        Ok(brake.compare(hour, sum, &self.hours_before(owner, agent, hour).await?))
    }

    async fn agent_of_day(&self, owner: &PersonId, hour: Hour, agent: AgentId) -> Result<AgentOfDay> {
        let key = key::agents_of_day(owner, hour.day(), agent);
        Ok(self
            .agents_of_day(&key)
            .await?
            .agents
            .remove(&agent)
            .unwrap_or_default())
    }

    /// Reads the sums of the hours before `hour`, back to the first hour with which it is compared.
    async fn hours_before(&self, owner: &PersonId, agent: AgentId, hour: Hour) -> Result<BTreeMap<Hour, Amount>> {
        const READING: &str = "reading the hours before";
        let (first, last) = (hour.minus(BRAKE_HOURS).day(), hour.day());
        let mut reads = JoinSet::new();
        for back in 1..=last.since(first) {
            let (table, key) = (self.clone(), key::agents_of_day(owner, last.minus(back), agent));
            reads.spawn(async move { table.agents_of_day(&key).await });
        }
        let mut sums = BTreeMap::new();
        while let Some(read) = reads.join_next().await {
            let mut item = read.map_err(|error| Error::internal(READING, error))??;
            sums.extend(
                item.agents
                    .remove(&agent)
                    .map(|of_day| of_day.hours)
                    .unwrap_or_default(),
            );
        }
        Ok(sums)
    }

    /// Records that the agent was frozen automatically in this hour, so that its payments of this hour so far no longer
    /// count.
    pub async fn note_braked(&self, owner: &PersonId, agent: AgentId, hour: Hour) -> Result<()> {
        let key = key::agents_of_day(owner, hour.day(), agent);
        let mut backoff = Backoff::new();
        loop {
            let mut item = self.agents_of_day(&key).await?;
            let of_agent = item.agents.entry(agent).or_default();
            let sum = of_agent.hours.get(&hour).copied().unwrap_or(Amount::ZERO);
            if of_agent.braked.insert(hour, sum) == Some(sum) || self.put_agents(&key, &item).await? {
                return Ok(());
            }
            backoff.wait().await?;
        }
    }
}
