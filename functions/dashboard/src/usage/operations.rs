//! Sums of the user's payments from the decision history, which is some seconds behind.

use crate::caller::Caller;
use crate::state::People;
use purser_domain::{Day, LabelKey, LabelValue, Result, ServiceId, UsageTotals};
use purser_store::{DaySums, Reasons};
use std::collections::BTreeMap;

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

/// A range of UTC days, including the first and the last day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Days {
    pub(crate) first: Day,
    pub(crate) last: Day,
}

impl Days {
    /// The maximum number of days in one response.
    pub(crate) const MAX: u32 = 31;

    pub(crate) const fn count(self) -> u32 {
        self.last.days_since(self.first).saturating_add(1)
    }
}

/// Sums by key. A key is a day, the id of an agent or a service, or the error slug of denied payments.
pub(crate) struct Usage {
    pub(crate) rows: Vec<(String, UsageTotals)>,
}

impl Usage {
    pub(crate) fn total(&self) -> UsageTotals {
        let sums = self.rows.iter().map(|(_, sums)| *sums);
        sums.fold(UsageTotals::default(), UsageTotals::plus)
    }
}

impl People {
    /// Reads the sums of the user's payments on these days. Rows for days are sorted by date. All other rows are sorted
    /// by amount or number, largest first. Rows without payments are omitted.
    pub(crate) async fn read_usage(&self, user: &Caller, grouping: UsageBy, days: Days) -> Result<Usage> {
        let (owner, Days { first, last }) = (&user.id, days);
        if grouping == UsageBy::Agent {
            let agents = self.usage.read_sums_by_agent(owner, first, last).await?.into_iter();
            let rows = sort_by_amount(agents.map(|(agent, sums)| (agent.to_string(), sums)).collect());
            return Ok(Usage { rows });
        }
        let days = self.usage.read_daily_sums(owner, first, last).await?;
        let rows = match grouping {
            UsageBy::Day | UsageBy::Agent => {
                let days = days.into_iter();
                days.map(|(day, sums)| (day.to_string(), sums.total)).collect()
            }
            UsageBy::Service => {
                let services = sums_by_service(days.iter().map(|(_, sums)| sums)).into_iter();
                sort_by_amount(services.map(|(service, sums)| (service.to_string(), sums)).collect())
            }
            UsageBy::Label => {
                let labels = sums_by_label(days.iter().map(|(_, sums)| sums)).into_iter();
                sort_by_amount(
                    labels
                        .map(|((key, value), sums)| (format!("{key}={value}"), sums))
                        .collect(),
                )
            }
            UsageBy::Reason => rejection_totals_by_reason(days.into_iter().map(|(_, sums)| sums.reasons)),
        };
        Ok(Usage { rows })
    }
}

pub(crate) fn sums_by_service<'a>(days: impl Iterator<Item = &'a DaySums>) -> BTreeMap<ServiceId, UsageTotals> {
    let mut services: BTreeMap<ServiceId, UsageTotals> = BTreeMap::new();
    for (service, sums) in days.flat_map(|day| &day.services) {
        let sum = services.entry(*service).or_default();
        *sum = sum.plus(*sums);
    }
    services
}

pub(crate) fn sums_by_label<'a>(
    days: impl Iterator<Item = &'a DaySums>,
) -> BTreeMap<(LabelKey, LabelValue), UsageTotals> {
    let mut labels: BTreeMap<(LabelKey, LabelValue), UsageTotals> = BTreeMap::new();
    for (label, sums) in days.flat_map(|day| &day.labels) {
        let sum = labels.entry(label.clone()).or_default();
        *sum = sum.plus(*sums);
    }
    labels
}

/// Sorts the rows by amount, largest first. Rows with equal amounts stay in the order of the rows' keys.
fn sort_by_amount(mut rows: Vec<(String, UsageTotals)>) -> Vec<(String, UsageTotals)> {
    rows.sort_by_key(|(_, sums)| std::cmp::Reverse(sums.authorized));
    rows
}

/// Sums the numbers of payments that were not allowed, by reason. Payments with the reason
/// `approval_required` count as escalated, and all others count as blocked (`docs/spec.md` §7).
fn rejection_totals_by_reason(days: impl Iterator<Item = Reasons>) -> Vec<(String, UsageTotals)> {
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
