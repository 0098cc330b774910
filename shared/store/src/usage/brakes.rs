//! What anomaly brakes judge: the sums of an agent's hours, and the hours for which a brake has frozen it.

use crate::{
    codec::backoff::Backoff,
    usage::{key, table::UsageTable},
};
use purser_domain::{AgentId, Amount, Anomaly, AnomalyBrake, BRAKE_HOURS, Error, Hour, PersonId, Result};
use std::collections::BTreeMap;
use tokio::task::JoinSet;

impl UsageTable {
    /// Judges an hour of an agent by the sums of its owner's journal; `None` also if the brake has frozen the agent for
    /// this hour before. It reads one item, and the items of 14 days more if the hour's sum is not below the brake's
    /// least.
    pub async fn anomaly(
        &self,
        owner: &PersonId,
        agent: AgentId,
        hour: Hour,
        brake: AnomalyBrake,
    ) -> Result<Option<Anomaly>> {
        let mut today = self
            .agents_of_day(&key::agents_of_day(owner, hour.day(), agent))
            .await?;
        let Some(today) = today.agents.remove(&agent) else {
            return Ok(None);
        };
        let sum = today.hours.get(&hour).copied().unwrap_or(Amount::ZERO);
        // Without an hour before, the least decides alone.
        if today.braked.contains(&hour) || !brake.is_tripped_by(sum, Amount::ZERO) {
            return Ok(None);
        }
        let mut sums = today.hours;
        sums.extend(self.hours_before(owner, agent, hour).await?);
        Ok(brake.judge(hour, &sums))
    }

    /// The sums of the hours of the days before an hour's, back to the first with which it is compared.
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

    /// Notes that a brake has frozen the agent for this hour, which is not judged again.
    pub async fn note_braked(&self, owner: &PersonId, agent: AgentId, hour: Hour) -> Result<()> {
        let key = key::agents_of_day(owner, hour.day(), agent);
        let mut backoff = Backoff::new();
        loop {
            let mut item = self.agents_of_day(&key).await?;
            let of_agent = item.agents.entry(agent).or_default();
            if !of_agent.braked.insert(hour) || self.put_agents(&key, &item).await? {
                return Ok(());
            }
            backoff.wait().await?;
        }
    }
}
