//! The recent spending of a person's agents, from the sums that `events` counts. They are some seconds behind the
//! payments, and no decision depends on them.

use crate::caller::Caller;
use crate::state::People;
use crate::usage::operations::by_service;
use purser_domain::{AgentId, Amount, Day, Result, ServiceId, UsageTotals};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The length of the range in days, today included.
const DAYS: u32 = 30;
/// The length of the range by which many agents are ranked. It is shorter, since each agent has a row for each day on
/// which it spent.
const DAYS_OF_MANY: u32 = 2;
/// The number of agents and of services in the rankings.
const BIGGEST: usize = 5;

/// The recent spending.
#[derive(Clone, Debug)]
pub(crate) struct Spending {
    /// The sums of each day, oldest first, days without payments included.
    pub(crate) days: Vec<(Day, UsageTotals)>,
    /// The agents with the most spending, the largest first.
    pub(crate) agents: Vec<(AgentId, Amount)>,
    /// The services with the most spending, the largest first.
    pub(crate) services: Vec<(ServiceId, Amount)>,
    /// The number of days that the two rankings cover.
    pub(crate) ranked_days: u32,
}

/// The amount that was authorized and not released.
pub(crate) fn spent(totals: UsageTotals) -> Amount {
    // The two are counted one after the other, so `released` may exceed `authorized` for a moment.
    totals.authorized.minus(totals.released).unwrap_or(Amount::ZERO)
}

impl People {
    /// The recent spending of the person's agents.
    pub(crate) async fn spending(&self, person: &Caller, are_many: bool) -> Result<Spending> {
        let today = Day::of(self.now());
        let first = today.minus(DAYS.saturating_sub(1));
        let ranked_days = if are_many { DAYS_OF_MANY } else { DAYS };
        let since = today.minus(ranked_days.saturating_sub(1));
        let (days, agents) = tokio::try_join!(
            self.usage.days(&person.id, first, today),
            self.usage.by_agent(&person.id, since, today),
        )?;
        let services = by_service(days.iter().filter(|(day, _)| *day >= since).map(|(_, sums)| sums));
        let counted: BTreeMap<Day, UsageTotals> = days.into_iter().map(|(day, sums)| (day, sums.total)).collect();
        let days = (0..DAYS).map(|n| first.plus(n));
        Ok(Spending {
            days: days
                .map(|day| (day, counted.get(&day).copied().unwrap_or_default()))
                .collect(),
            agents: biggest(agents),
            services: biggest(services),
            ranked_days,
        })
    }
}

/// The largest sums, the largest first.
fn biggest<T: Ord + Copy>(sums: BTreeMap<T, UsageTotals>) -> Vec<(T, Amount)> {
    let mut sums: Vec<(T, Amount)> = sums.into_iter().map(|(of, totals)| (of, spent(totals))).collect();
    sums.retain(|(_, amount)| !amount.is_zero());
    sums.sort_by_key(|(of, amount)| (Reverse(*amount), *of));
    sums.truncate(BIGGEST);
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The list has the five largest.
    #[test]
    fn spending_is_ranked_without_released_amounts() {
        let units = |units| Amount::from_units(units).unwrap();
        let totals = |authorized, released| UsageTotals {
            authorized: units(authorized),
            released: units(released),
            ..UsageTotals::default()
        };
        let sums = [(9, 0), (20, 15), (7, 7), (1, 2), (5, 0), (6, 0), (4, 0), (3, 0)];
        let sums = (0_u8..).zip(sums.map(|(authorized, released)| totals(authorized, released)));
        let expected = [(0, 9), (5, 6), (1, 5), (4, 5), (6, 4)].map(|(of, amount)| (of, units(amount)));
        assert_eq!(biggest(sums.collect()), expected);
    }
}
