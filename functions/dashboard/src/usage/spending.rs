//! The recent spending of an owner's agents, from the decision history. The decision history is some seconds behind. No
//! decision about a payment depends on these sums.

use crate::caller::Caller;
use crate::state::People;
use crate::usage::operations::{sums_by_label, sums_by_service};
use purser_domain::{Amount, Catalog, Category, Day, LabelKey, LabelValue, Result, ServiceId, UsageTotals};
use purser_store::{AgentLimit, AgentSums, DaySums, Reasons};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The number of days in the longest period, including today.
const DAYS: u32 = 30;
/// The maximum number of rows in a list of the largest amounts.
const MAX_SHOWN: usize = 8;

/// The sums for each of the last 30 UTC days, oldest first, including days without payments.
#[derive(Clone, Debug)]
pub(crate) struct Spending {
    days: Vec<(Day, DaySums)>,
}

purser_domain::named! {
    /// A period that ends today.
    Period {
        Today = "Today",
        Week = "Last 7 days",
        Month = "Last 30 days",
    }
}

impl Period {
    pub(crate) const fn day_count(self) -> usize {
        match self {
            Self::Today => 1,
            Self::Week => 7,
            Self::Month => 30,
        }
    }
}

impl Spending {
    pub(crate) fn usage_totals_in_period(&self, period: Period) -> UsageTotals {
        let days = self.days.iter().rev().take(period.day_count());
        days.fold(UsageTotals::default(), |sum, (_, day)| sum.plus(day.total))
    }

    /// Returns the spent amount of each day, oldest first.
    pub(crate) fn spent_by_day(&self) -> Vec<(Day, Amount)> {
        self.days
            .iter()
            .map(|(day, sums)| (*day, spent_amount(sums.total)))
            .collect()
    }

    /// Returns the owner's agents that spent most today, largest amount first.
    pub(crate) fn top_agents_today(&self) -> Vec<&AgentSums> {
        let today = self.days.last().map(|(_, sums)| sums.biggest.as_slice());
        today.unwrap_or_default().iter().take(MAX_SHOWN).collect()
    }

    /// Returns the owner's agents whose payments today used the largest share of a daily cap or budget, largest share
    /// first.
    pub(crate) fn nearest_limits_today(&self) -> &[AgentLimit] {
        let today = self.days.last().map(|(_, sums)| sums.nearest.as_slice());
        today.unwrap_or_default()
    }

    /// Returns the services to which the owner's agents paid most in the last 30 days, largest amount first.
    pub(crate) fn top_services(&self) -> Vec<(ServiceId, Amount)> {
        largest_sums(sums_by_service(self.days.iter().map(|(_, sums)| sums)))
    }

    /// Returns the categories with the most spending in the last 30 days, largest amount first. Payments to a service
    /// that has left the catalog are not counted, because the catalog contains the service's category.
    pub(crate) fn top_categories(&self, catalog: &Catalog) -> Vec<(Category, Amount)> {
        let mut sums: BTreeMap<Category, UsageTotals> = BTreeMap::new();
        for (service, of_service) in sums_by_service(self.days.iter().map(|(_, sums)| sums)) {
            if let Some(service) = catalog.find_by_id(service) {
                let sum = sums.entry(service.category).or_default();
                *sum = sum.plus(of_service);
            }
        }
        largest_sums(sums)
    }

    /// Returns the labels of agents with the most spending in the last 30 days, largest amount first. A payment counts
    /// for each label of the paying agent.
    pub(crate) fn top_labels(&self) -> Vec<((LabelKey, LabelValue), Amount)> {
        largest_sums(sums_by_label(self.days.iter().map(|(_, sums)| sums)))
    }

    /// Returns the most common reasons for blocked payments in the last 30 days, most common first, each with the
    /// number of payments.
    pub(crate) fn top_block_reasons(&self) -> Vec<(String, u64)> {
        let mut sums = Reasons::new();
        for (reason, count) in self.days.iter().flat_map(|(_, sums)| &sums.reasons) {
            let sum = sums.entry(reason.clone()).or_default();
            *sum = sum.saturating_add(*count);
        }
        // Payments with this reason required approval and were not blocked.
        sums.remove("approval_required");
        let mut reasons: Vec<(String, u64)> = sums.into_iter().collect();
        reasons.sort_by_key(|(_, count)| Reverse(*count));
        reasons.truncate(MAX_SHOWN);
        reasons
    }
}

/// Returns the authorized amount without the released amount.
pub(crate) fn spent_amount(totals: UsageTotals) -> Amount {
    totals.authorized.minus(totals.released).unwrap_or(Amount::ZERO)
}

impl People {
    pub(crate) async fn read_spending(&self, user: &Caller) -> Result<Spending> {
        let today = Day::containing(self.now());
        let first = today.days_earlier(DAYS.saturating_sub(1));
        let counted = self.usage.read_daily_sums(&user.id, first, today).await?;
        let mut counted: BTreeMap<Day, DaySums> = counted.into_iter().collect();
        let days = (0..DAYS).map(|n| first.days_later(n));
        Ok(Spending {
            days: days
                .map(|day| (day, counted.remove(&day).unwrap_or_default()))
                .collect(),
        })
    }
}

fn largest_sums<T: Ord + Clone>(sums: BTreeMap<T, UsageTotals>) -> Vec<(T, Amount)> {
    let mut sums: Vec<(T, Amount)> = sums
        .into_iter()
        .map(|(of, totals)| (of, spent_amount(totals)))
        .collect();
    sums.retain(|(_, amount)| !amount.is_zero());
    sums.sort_by_key(|(of, amount)| (Reverse(*amount), of.clone()));
    sums.truncate(MAX_SHOWN);
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spending_rankings_exclude_released_amounts() {
        let units = |units| Amount::from_units(units).unwrap();
        let totals = |authorized, released| UsageTotals {
            authorized: units(authorized),
            released: units(released),
            ..UsageTotals::default()
        };
        let sums = [
            (9, 0),
            (20, 15),
            (7, 7),
            (1, 2),
            (5, 0),
            (6, 0),
            (4, 0),
            (3, 0),
            (2, 0),
            (1, 0),
            (2, 0),
        ];
        let sums = (0_u8..).zip(sums.map(|(authorized, released)| totals(authorized, released)));
        let expected = [(0, 9), (5, 6), (1, 5), (4, 5), (6, 4), (7, 3), (8, 2), (10, 2)];
        let expected = expected.map(|(of, amount)| (of, units(amount)));
        assert_eq!(largest_sums(sums.collect()), expected);
    }

    #[test]
    fn spending_periods_end_with_today() {
        let day = |n: u32| Day::parse("2026-11-01").unwrap().days_later(n);
        let sums = |n: u32| DaySums {
            total: UsageTotals {
                blocked: 10_u64.pow(n / 10),
                ..UsageTotals::default()
            },
            ..DaySums::default()
        };
        let days = (0..30).map(|n| (day(n), sums(n))).collect();
        let spending = Spending { days };
        let blocked = Period::ALL
            .iter()
            .map(|period| spending.usage_totals_in_period(*period).blocked);
        assert_eq!(blocked.collect::<Vec<_>>(), [100, 700, 1_110]);
    }
}
