//! The spending of a person's agents, from the sums of the journal, which is some seconds behind the payments.

use crate::caller::Caller;
use crate::state::People;
use purser_domain::{Day, LabelKey, LabelValue, Result, ServiceId, UsageTotals};
use purser_store::{DaySums, Reasons};
use std::collections::BTreeMap;

/// The dimension of the sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UsageBy {
    Day,
    Agent,
    Service,
    Label,
    Reason,
}

impl UsageBy {
    pub(crate) const FORM: &'static str = "must be one of: day, agent, service, label, reason";

    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text {
            "day" => Some(Self::Day),
            "agent" => Some(Self::Agent),
            "service" => Some(Self::Service),
            "label" => Some(Self::Label),
            "reason" => Some(Self::Reason),
            _ => None,
        }
    }
}

/// A range of days in UTC, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Days {
    pub(crate) first: Day,
    pub(crate) last: Day,
}

impl Days {
    /// The maximum number of days in one response: each day has items with the sums of all agents that spent on it.
    pub(crate) const MAX: u32 = 31;

    /// The number of days.
    pub(crate) const fn count(self) -> u32 {
        self.last.since(self.first).saturating_add(1)
    }
}

/// Sums by their key: a day, the id of an agent or a service, or the `error` of a refusal.
pub(crate) struct Usage {
    pub(crate) rows: Vec<(String, UsageTotals)>,
}

impl Usage {
    /// The sums of all rows.
    pub(crate) fn total(&self) -> UsageTotals {
        let sums = self.rows.iter().map(|(_, sums)| *sums);
        sums.fold(UsageTotals::default(), UsageTotals::plus)
    }
}

impl People {
    /// The person's sums of these days. Days are in order. Agents and services are sorted by spend, and reasons by
    /// number of refusals, the largest first. There is no row without counted payments.
    ///
    /// Sums by agent take half a read unit for some 60 agents of a day; the others half a unit for some four days.
    pub(crate) async fn usage(&self, person: &Caller, by: UsageBy, days: Days) -> Result<Usage> {
        let (owner, Days { first, last }) = (&person.id, days);
        if by == UsageBy::Agent {
            let agents = self.usage.by_agent(owner, first, last).await?.into_iter();
            let rows = most_first(agents.map(|(agent, sums)| (agent.to_string(), sums)).collect());
            return Ok(Usage { rows });
        }
        let days = self.usage.days(owner, first, last).await?;
        let rows = match by {
            UsageBy::Day | UsageBy::Agent => {
                let days = days.into_iter();
                days.map(|(day, sums)| (day.to_string(), sums.total)).collect()
            }
            UsageBy::Service => {
                let services = by_service(days.iter().map(|(_, sums)| sums)).into_iter();
                most_first(services.map(|(service, sums)| (service.to_string(), sums)).collect())
            }
            UsageBy::Label => {
                let labels = by_label(days.iter().map(|(_, sums)| sums)).into_iter();
                most_first(
                    labels
                        .map(|((key, value), sums)| (format!("{key}={value}"), sums))
                        .collect(),
                )
            }
            UsageBy::Reason => refusals(days.into_iter().map(|(_, sums)| sums.reasons)),
        };
        Ok(Usage { rows })
    }
}

/// The sums of each service over these days.
pub(crate) fn by_service<'a>(days: impl Iterator<Item = &'a DaySums>) -> BTreeMap<ServiceId, UsageTotals> {
    let mut services: BTreeMap<ServiceId, UsageTotals> = BTreeMap::new();
    for (service, sums) in days.flat_map(|day| &day.services) {
        let sum = services.entry(*service).or_default();
        *sum = sum.plus(*sums);
    }
    services
}

/// The sums of each label over these days.
pub(crate) fn by_label<'a>(days: impl Iterator<Item = &'a DaySums>) -> BTreeMap<(LabelKey, LabelValue), UsageTotals> {
    let mut labels: BTreeMap<(LabelKey, LabelValue), UsageTotals> = BTreeMap::new();
    for (label, sums) in days.flat_map(|day| &day.labels) {
        let sum = labels.entry(label.clone()).or_default();
        *sum = sum.plus(*sums);
    }
    labels
}

/// Sorts by spend, the largest first; rows with equal spend by id.
fn most_first(mut rows: Vec<(String, UsageTotals)>) -> Vec<(String, UsageTotals)> {
    rows.sort_by_key(|(_, sums)| std::cmp::Reverse(sums.authorized));
    rows
}

/// The number of refusals by `error`. Only one is an escalation (`docs/spec.md` §7); all others are blocks.
fn refusals(days: impl Iterator<Item = Reasons>) -> Vec<(String, UsageTotals)> {
    const ASKS: &str = "approval_required";
    let mut sums = Reasons::new();
    for (error, count) in days.flatten() {
        let sum = sums.entry(error).or_default();
        *sum = sum.saturating_add(count);
    }
    let mut rows: Vec<(String, u64)> = sums.into_iter().collect();
    rows.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let row = |(error, count): (String, u64)| {
        let (blocked, escalated) = if error == ASKS { (0, count) } else { (count, 0) };
        let sums = UsageTotals {
            blocked,
            escalated,
            ..UsageTotals::default()
        };
        (error, sums)
    };
    rows.into_iter().map(row).collect()
}
