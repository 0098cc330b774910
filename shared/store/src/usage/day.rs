//! The sums of an owner's payments and rejected requests per day. An item contains the sums of some agents, and for
//! each agent and each source table the sequence number of the last stream record that was added. The sums and the
//! sequence number change together, so a stream record is added exactly once.

use crate::{
    codec::{
        attribute::Item,
        item::{Draft, Row},
        key::{Key, sort_key_text},
        table::{Query, get_item, put_request_if_version},
    },
    stream::{payments::HistorySource, sequence::SequenceNumber},
    transact::was_applied,
    usage::{key, table::UsageTable},
};
use aws_sdk_dynamodb::{primitives::Blob, types::AttributeValue};
use miniz_oxide::{deflate::compress_to_vec_zlib, inflate::decompress_to_vec_zlib_with_limit};
use purser_domain::{
    AgentId, Amount, Day, Error, HistoryEntry, Hour, LabelKey, LabelValue, Labels, LimitUse, Result, ServiceId,
    UsageTotals, UserId, pairs,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{cmp::Reverse, collections::BTreeMap};

/// The number of blocked and escalated requests per `error`.
pub type Reasons = BTreeMap<String, u64>;

/// The maximum number of agents in each list of a day's sums.
const MAX_AGENTS: usize = 10;
/// The maximum number of labels in a day's sums.
const MAX_LABELS: usize = 50;
/// The number of hours before the newest hour that have sums by service. An automatic freeze compares two hours, and a
/// batch may contain payments of two hours.
const EARLIER_SERVICE_HOURS: u32 = 2;
/// The zlib compression level.
const LEVEL: u8 = 6;
/// The maximum size of a usage item's JSON after decompression, in bytes. A larger item is reported as corrupt.
const MAX_BYTES: usize = 16 * 1024 * 1024;

const READING: &str = "reading usage";
const WRITING: &str = "writing usage";

/// The sums of all of an owner's agents on one day (UTC).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaySums {
    /// The sums of all of the owner's payments on this day.
    pub total: UsageTotals,
    /// The sums of the owner's payments on this day, by service.
    pub services: BTreeMap<ServiceId, UsageTotals>,
    /// The number of blocked and escalated requests per `error`.
    pub reasons: Reasons,
    /// The sums of the labels with the largest authorized amounts. An agent counts for each of its labels.
    #[serde(with = "pairs")]
    pub labels: BTreeMap<(LabelKey, LabelValue), UsageTotals>,
    /// The agents with the largest authorized amounts, largest first.
    pub biggest: Vec<AgentSums>,
    /// The agents whose payments used the largest share of a limit, largest share first.
    pub nearest: Vec<AgentLimit>,
    /// The number of agents that had a decision.
    pub agents: u64,
}

/// The largest share of a daily cap or budget that an agent used on one day.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentLimit {
    /// The agent that used the largest share of a limit.
    pub agent: AgentId,
    /// The agent's name when the agent's totals of the day last changed.
    pub name: String,
    /// The daily cap or budget with the largest used share, and the used amount at that time.
    pub limit: LimitUse,
}

/// An agent's totals for one day, with the agent's name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentSums {
    /// The agent that made the payments.
    pub agent: AgentId,
    /// The agent's name when the agent's totals of the day last changed.
    pub name: String,
    /// The amounts and the numbers of the agent's payments on the day.
    pub sums: UsageTotals,
}

/// An item with the totals of several agents on one day.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AgentsOfDay {
    pub(super) version: u64,
    pub(super) agents: BTreeMap<AgentId, AgentOfDay>,
}

/// The totals of one agent's payments on one day. The names in JSON are short, because an item has many agents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AgentOfDay {
    /// The sequence number of each table's last stream record that was added to the totals.
    #[serde(rename = "l")]
    pub(super) last: BTreeMap<HistorySource, SequenceNumber>,
    #[serde(rename = "n")]
    pub(super) name: String,
    #[serde(rename = "g")]
    pub(super) labels: Labels,
    #[serde(rename = "s", with = "pairs")]
    pub(super) services: BTreeMap<Option<ServiceId>, UsageTotals>,
    #[serde(rename = "w", default, skip_serializing_if = "Reasons::is_empty")]
    pub(super) reasons: Reasons,
    /// The daily cap or budget with the largest used share after any of the agent's payments on this day.
    #[serde(rename = "c", skip_serializing_if = "Option::is_none")]
    pub(super) nearest: Option<LimitUse>,
    /// The amount of each hour's payments that are not released. Hours with a zero amount are omitted.
    #[serde(rename = "h", default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) hours: BTreeMap<Hour, Amount>,
    /// The amount of `hours` by service since the hour's last automatic freeze, for the newest hour and the
    /// [`EARLIER_SERVICE_HOURS`] before. The sum of a service may be too small, never too large.
    #[serde(rename = "hs", default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) service_hours: BTreeMap<Hour, BTreeMap<ServiceId, Amount>>,
    /// The hours with an automatic freeze of the agent or of a service, each with the hour's amount at the last freeze.
    #[serde(rename = "b", default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) braked: BTreeMap<Hour, Amount>,
}

impl AgentOfDay {
    /// Returns the amount of an hour's payments. If the agent was frozen automatically in this hour, only payments since
    /// the freeze count.
    pub(super) fn amount_since_automatic_freeze(&self, hour: Hour) -> Amount {
        let sum = |sums: &BTreeMap<Hour, Amount>| sums.get(&hour).copied().unwrap_or(Amount::ZERO);
        sum(&self.hours).saturating_minus(sum(&self.braked))
    }

    /// Adds an entry of the decision history to the agent's totals, and subtracts the entry's previous state `old`.
    pub(super) fn apply_entry_change(&mut self, old: Option<&HistoryEntry>, new: &HistoryEntry) {
        let sums = self.services.entry(new.service).or_default();
        *sums = sums
            .minus(old.map(HistoryEntry::usage_sums).unwrap_or_default())
            .plus(new.usage_sums());
        if let (Some(rejection), None) = (&new.refusal, old) {
            let count = self.reasons.entry(rejection.error.clone()).or_default();
            *count = count.saturating_add(1);
        }
        let nearest = new.payment.as_ref().and_then(|payment| payment.nearest);
        self.nearest = self.nearest.max(nearest);
        // The previous state `old` of an entry is always in the same hour as `new`, so only this hour's amount changes.
        let (hour, before) = (new.hour(), old.map_or(Amount::ZERO, HistoryEntry::amount_for_hour_sum));
        change_sum(&mut self.hours, hour, before, new.amount_for_hour_sum());
        if let Some(service) = new.service {
            let services = self.service_hours.entry(hour).or_default();
            change_sum(services, service, before, new.amount_for_hour_sum());
            let newest = self.service_hours.last_key_value().map_or(hour, |(newest, _)| *newest);
            let first = newest.hours_earlier(EARLIER_SERVICE_HOURS);
            self.service_hours
                .retain(|hour, sums| *hour >= first && !sums.is_empty());
        }
        self.name.clone_from(&new.agent_name);
        self.labels.clone_from(&new.labels);
    }

    pub(super) fn sum_services(&self) -> UsageTotals {
        self.services
            .values()
            .copied()
            .fold(UsageTotals::default(), UsageTotals::plus)
    }
}

/// Replaces the amount `before` in a sum by `now`. A sum of zero is removed.
fn change_sum<K: Ord>(sums: &mut BTreeMap<K, Amount>, key: K, before: Amount, now: Amount) {
    let sum = sums.remove(&key).unwrap_or(Amount::ZERO);
    let sum = sum.saturating_minus(before).plus(now).unwrap_or(Amount::MAX);
    if !sum.is_zero() {
        sums.insert(key, sum);
    }
}

impl DaySums {
    pub(super) fn sum_agents<'a>(agents: impl Iterator<Item = (AgentId, &'a AgentOfDay)>) -> Self {
        let mut day = Self::default();
        for (agent, day_sums) in agents {
            let sums = day_sums.sum_services();
            day.total = day.total.plus(sums);
            for (service, sums) in &day_sums.services {
                if let Some(service) = service {
                    let of_service = day.services.entry(*service).or_default();
                    *of_service = of_service.plus(*sums);
                }
            }
            for (reason, count) in &day_sums.reasons {
                let sum = day.reasons.entry(reason.clone()).or_default();
                *sum = sum.saturating_add(*count);
            }
            for (key, value) in day_sums.labels.iter() {
                let of_label = day.labels.entry((key.clone(), value.clone())).or_default();
                *of_label = of_label.plus(sums);
            }
            day.agents = day.agents.saturating_add(1);
            let name = day_sums.name.clone();
            if let Some(limit) = day_sums.nearest {
                let name = name.clone();
                day.nearest.push(AgentLimit { agent, name, limit });
            }
            day.biggest.push(AgentSums { agent, name, sums });
        }
        day.nearest.sort_by_key(|agent| (Reverse(agent.limit), agent.agent));
        day.nearest.truncate(MAX_AGENTS);
        day.biggest.retain(|agent| !agent.sums.authorized.is_zero());
        day.biggest
            .sort_by_key(|agent| (Reverse(agent.sums.authorized), agent.agent));
        day.biggest.truncate(MAX_AGENTS);
        let mut labels: Vec<_> = std::mem::take(&mut day.labels).into_iter().collect();
        labels.sort_by_key(|(_, sums)| Reverse(sums.authorized));
        labels.truncate(MAX_LABELS);
        day.labels = labels.into_iter().collect();
        day
    }
}

impl UsageTable {
    /// Reads an owner's sums for each day from `first` to `last`, eventually consistent. Days without sums are skipped.
    /// Takes about half a read unit per four days.
    pub async fn read_daily_sums(&self, owner: &UserId, first: Day, last: Day) -> Result<Vec<(Day, DaySums)>> {
        let items = self.read_sums_between(owner, key::DAYS, (first, last), false).await?;
        let days = items.iter().map(|item| {
            let row = Row::new(&self.table, item);
            let day = key::parse_day(sort_key_text(item)).ok_or_else(|| row.corrupt_error("sk"))?;
            Ok((day, unpack_item(row, item)?))
        });
        days.collect()
    }

    /// Reads the totals of each of an owner's agents over the days from `first` to `last`, eventually consistent. Takes
    /// about half a read unit for each day and each 60 agents.
    pub async fn read_sums_by_agent(
        &self,
        owner: &UserId,
        first: Day,
        last: Day,
    ) -> Result<BTreeMap<AgentId, UsageTotals>> {
        let items = self
            .read_sums_between(owner, key::BY_AGENT, (first, last), false)
            .await?;
        let mut agents: BTreeMap<AgentId, UsageTotals> = BTreeMap::new();
        for item in &items {
            for (agent, day_sums) in self.read_agent_sums_shard_item(item)?.agents {
                let sums = agents.entry(agent).or_default();
                *sums = sums.plus(day_sums.sum_services());
            }
        }
        Ok(agents)
    }

    /// Computes the sums of a whole day from the agents' sums, and writes them if they changed.
    pub(super) async fn update_day_sums(&self, owner: &UserId, day: Day) -> Result<()> {
        loop {
            let key = Key::day_sums(owner, day);
            let before = self.read_packed_item(&key).await?;
            let items = self.read_sums_between(owner, key::BY_AGENT, (day, day), true).await?;
            let items: Vec<AgentsOfDay> = items
                .iter()
                .map(|item| self.read_agent_sums_shard_item(item))
                .collect::<Result<_>>()?;
            let agents = items
                .iter()
                .flat_map(|item| item.agents.iter().map(|(agent, of)| (*agent, of)));
            let packed = compress_json(&DaySums::sum_agents(agents))?;
            let version = match before {
                Some((_, stored)) if stored == packed => return Ok(()),
                Some((version, _)) => version,
                None if items.is_empty() => return Ok(()),
                None => 0,
            };
            if self.put_packed_bytes_if_unchanged(&key, version, packed).await? {
                return Ok(());
            }
        }
    }

    /// Reads the item with an agent's sums of a day, strongly consistent.
    pub(super) async fn read_agent_sums_shard(&self, key: &Key) -> Result<AgentsOfDay> {
        let item = self.read_day_item(key).await?;
        item.map_or_else(
            || Ok(AgentsOfDay::default()),
            |item| self.read_agent_sums_shard_item(&item),
        )
    }

    /// Stores the item as the next version. Returns `false` if the version that was read is no longer stored.
    pub(super) async fn try_put_agent_sums_shard(&self, key: &Key, agents: &AgentsOfDay) -> Result<bool> {
        self.put_packed_bytes_if_unchanged(key, agents.version, compress_json(&agents.agents)?)
            .await
    }

    /// Reads an item with sums of a day, either of several agents or of the whole day, strongly consistent.
    async fn read_day_item(&self, key: &Key) -> Result<Option<Item>> {
        get_item(&self.db, &self.table, key, READING).await
    }

    async fn read_packed_item(&self, key: &Key) -> Result<Option<(u64, Vec<u8>)>> {
        let item = self.read_day_item(key).await?;
        let read = |item: Item| {
            let row = Row::new(&self.table, &item);
            Ok((row.get("ver")?, read_packed_bytes(row, &item)?.to_vec()))
        };
        item.map(read).transpose()
    }

    async fn put_packed_bytes_if_unchanged(&self, key: &Key, version: u64, packed: Vec<u8>) -> Result<bool> {
        let item = Draft::new(key)
            .with("ver", &version.saturating_add(1))
            .with_value(PACKED, AttributeValue::B(Blob::new(packed)));
        let put = put_request_if_version(&self.db, &self.table, item.into_item(), version);
        was_applied(put.send().await, WRITING)
    }

    async fn read_sums_between(
        &self,
        owner: &UserId,
        kind: &str,
        (first, last): (Day, Day),
        is_consistent: bool,
    ) -> Result<Vec<Item>> {
        // `~` sorts after every character of a key, so the range includes all keys of the day `last`.
        Query::new(&self.db, &self.table, key::sums_partition(owner))
            .range(format!("{kind}{first}"), format!("{kind}{last}~"))
            .consistent_if(is_consistent)
            .collect(READING)
            .await
    }

    fn read_agent_sums_shard_item(&self, item: &Item) -> Result<AgentsOfDay> {
        let row = Row::new(&self.table, item);
        Ok(AgentsOfDay {
            version: row.get("ver")?,
            agents: unpack_item(row, item)?,
        })
    }
}

/// The attribute with the compressed JSON.
pub(super) const PACKED: &str = "z";

pub(super) fn compress_json(value: &impl Serialize) -> Result<Vec<u8>> {
    let text = serde_json::to_vec(value).map_err(|error| Error::internal(WRITING, error))?;
    Ok(compress_to_vec_zlib(&text, LEVEL))
}

fn read_packed_bytes<'a>(row: Row<'_>, item: &'a Item) -> Result<&'a [u8]> {
    let bytes = item.get(PACKED).and_then(|value| value.as_b().ok());
    Ok(bytes.ok_or_else(|| row.corrupt_error(PACKED))?.as_ref())
}

pub(super) fn unpack_item<T: DeserializeOwned>(row: Row<'_>, item: &Item) -> Result<T> {
    let text = decompress_to_vec_zlib_with_limit(read_packed_bytes(row, item)?, MAX_BYTES);
    let text = text.map_err(|_| row.corrupt_error(PACKED))?;
    serde_json::from_slice(&text).map_err(|_| row.corrupt_error(PACKED))
}
