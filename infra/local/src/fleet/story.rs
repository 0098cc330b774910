//! Plans the acts of the demo fleet from `story.json` and a fixed seed.
//!
//! Each kind of denial has separate agents, so that the outcome of every call is known in advance.

use super::FleetSize;
use fastrand::Rng;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The kinds and roles of agents.
#[derive(Deserialize)]
pub(super) struct Story {
    pub(super) kinds: Vec<Kind>,
    roles: Vec<Role>,
    notes: Notes,
}

/// The purpose of an agent, with which the agent's name begins.
#[derive(Clone, Deserialize)]
pub(super) struct Kind {
    name: String,
    team: String,
    cost_centre: String,
    /// The operations that the agent calls, as `service/operation`. The first operation has about the highest price.
    pub(super) offers: Vec<String>,
    /// The host of the pages that the agent fetches.
    page: Option<String>,
}

/// A role: agents with the same limits and acts. An agent without a role pays within its limits.
#[derive(Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a field of story.json, and none excludes another"
)]
struct Role {
    kind: String,
    per_thousand: usize,
    /// The policy by service. `{"percent", "of"}` is a percentage of an operation's catalog price.
    services: Map<String, Value>,
    rules: Vec<Value>,
    has_no_funds: bool,
    is_frozen: bool,
    has_payouts: bool,
    is_full_at_the_end: bool,
    refusal: Option<Refusal>,
    asks: Vec<Purchase>,
}

/// Payments, and then a call that is rejected with this error.
#[derive(Clone, Deserialize)]
struct Refusal {
    #[serde(default)]
    pays: usize,
    paid: Option<Purchase>,
    refused: Purchase,
    error: String,
}

#[derive(Deserialize)]
struct Notes {
    approve: Vec<String>,
    reject: Vec<String>,
}

/// A call of a paid operation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Purchase {
    pub(super) offer: String,
    /// The provider's price as a percentage of the catalog price; 100 by default.
    pub(super) percent: Option<u64>,
    pub(super) page: Option<String>,
    pub(super) has_low_ceiling: bool,
    pub(super) is_above_catalog: bool,
    pub(super) is_to_stranger: bool,
    /// A number that makes the purchase unique.
    pub(super) serial: u64,
}

/// An act of an agent or its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// A payment. The provider may not settle it, or the agent may not report it.
    Pay {
        purchase: Purchase,
        is_settled: bool,
        is_reported: bool,
    },
    /// A call that is rejected with this error.
    Refuse {
        purchase: Purchase,
        error: String,
    },
    /// A call that requires an approval, the owner's decision, and whether the agent then pays.
    Ask {
        purchase: Purchase,
        decision: Option<(&'static str, String)>,
        is_used: bool,
    },
    Freeze,
    PayOut,
}

/// A planned agent.
#[derive(Clone)]
pub(super) struct PlannedAgent {
    pub(super) name: String,
    pub(super) labels: Value,
    pub(super) services: Map<String, Value>,
    pub(super) rules: Vec<Value>,
    pub(super) has_no_funds: bool,
    pub(super) has_payouts: bool,
    /// The days on which the agent is created and frozen.
    pub(super) created_on: usize,
    frozen_on: Option<usize>,
    kind: Kind,
    /// The index of the agent's role.
    role: Option<usize>,
}

/// The acts of one time of day, each with the agent's index.
pub(super) struct Slot {
    /// The second of the UTC day.
    pub(super) second: u64,
    pub(super) acts: Vec<(usize, Act)>,
}

const SEED: u64 = 402;
const SLOTS: usize = 12;
/// The percentage of agents that exist from the first day. The others are created in the first two thirds of the days.
const FIRST_PERCENT: usize = 60;

impl Story {
    pub(super) fn read() -> Result<Self, serde_json::Error> {
        serde_json::from_str(include_str!("story.json"))
    }
}

/// Draws the acts of each day in order.
pub(super) struct Planner {
    story: Story,
    size: FleetSize,
    pub(super) agents: Vec<PlannedAgent>,
    rng: Rng,
    serial: u64,
    /// How often each agent of a role was chosen, by role.
    turns: BTreeMap<usize, usize>,
    /// The index of the role that gets the next denial.
    next_refusal: usize,
}

impl Planner {
    pub(super) fn new(story: Story, size: FleetSize) -> Self {
        let mut rng = Rng::with_seed(SEED);
        let first = size.agents.saturating_mul(FIRST_PERCENT) / 100;
        let mut roles: Vec<Option<usize>> = Vec::new();
        for (place, role) in story.roles.iter().enumerate() {
            roles.extend(std::iter::repeat_n(Some(place), size.share(role.per_thousand, 2)));
        }
        roles.resize(first.max(roles.len()), None);
        rng.shuffle(&mut roles);
        roles.resize(size.agents, None);
        let agents = roles.into_iter().enumerate();
        let agents = agents
            .map(|(index, role)| agent(&story, size, &mut rng, index, role))
            .collect();
        Self {
            story,
            size,
            agents,
            rng,
            serial: 0,
            turns: BTreeMap::new(),
            next_refusal: 0,
        }
    }

    /// Returns the acts of the next day, in slots of about 75 minutes from 07:00 on.
    pub(super) fn day(&mut self, day: usize) -> Vec<Slot> {
        let seconds = (7 * 3_600_u64..).step_by(75 * 60).take(SLOTS);
        let mut slots: Vec<Slot> = seconds
            .map(|second| Slot {
                second: self.rng.u64(second..second.saturating_add(40 * 60)),
                acts: Vec::new(),
            })
            .collect();
        // Two of seven days have fewer payments.
        let payments = self.size.share(if day % 7 < 5 { 70 } else { 40 }, 6);
        for _ in 0..payments.saturating_add(self.rng.usize(..=self.size.share(40, 3))) {
            let actions = self.payment(day).into_iter().collect();
            self.put(&mut slots, 0, actions);
        }
        for _ in 0..self.size.share(10, 4) {
            let actions = self.refusal(day);
            self.put(&mut slots, 2, actions);
        }
        for _ in 0..self.size.share(6, 2) {
            let actions = self.approval(true).into_iter().collect();
            self.put(&mut slots, 0, actions);
        }
        for (index, agent) in self.agents.clone().iter().enumerate() {
            if agent.has_payouts && day % 9 == 3 {
                self.put(&mut slots, SLOTS / 2, vec![(index, Act::PayOut)]);
            }
            if agent.frozen_on == Some(day) {
                self.put(&mut slots, SLOTS - 1, vec![(index, Act::Freeze)]);
            }
        }
        if day.saturating_add(1) == self.size.days {
            self.end(&mut slots, day);
        }
        slots
    }

    /// Adds acts to the end of the last day, so that approvals are pending and limits are nearly reached.
    fn end(&mut self, slots: &mut [Slot], day: usize) {
        for _ in 0..self.size.share(23, 20) {
            let actions = self.approval(false).into_iter().collect();
            self.put(slots, SLOTS - 3, actions);
        }
        for role in 0..self.story.roles.len() {
            let is_full = self.story.roles.get(role).is_some_and(|role| role.is_full_at_the_end);
            for _ in 0..if is_full { self.size.share(5, 1) } else { 0 } {
                let mut actions = self.plan_refusal(role, day).unwrap_or_default();
                actions.pop();
                self.put(slots, SLOTS - 2, actions);
            }
        }
    }

    /// Adds acts to a random slot, from the slot `first` on.
    fn put(&mut self, slots: &mut [Slot], first: usize, actions: Vec<(usize, Act)>) {
        let chosen = self.rng.usize(first..SLOTS);
        if let Some(slot) = slots.get_mut(chosen) {
            slot.acts.extend(actions);
        }
    }

    fn add_number(&mut self, purchase: &Purchase) -> Purchase {
        self.serial = self.serial.saturating_add(1);
        Purchase {
            serial: self.serial,
            ..purchase.clone()
        }
    }

    /// Plans a payment of an agent without a role. Some of them pay far more often than others.
    fn payment(&mut self, day: usize) -> Option<(usize, Act)> {
        let payers = self.agents.iter().enumerate().filter(|(_, agent)| agent.pays_on(day));
        let payers: Vec<usize> = payers.map(|(index, _)| index).collect();
        let max = self.rng.usize(..payers.len().max(1));
        let index = *payers.get(self.rng.usize(..=max))?;
        let kind = self.agents.get(index)?.kind.clone();
        let percent = self.rng.choice([60, 75, 80, 100, 100, 100]);
        let offer = self.rng.choice(kind.offers)?;
        let purchase = self.add_number(&Purchase {
            offer,
            percent,
            page: kind.page,
            ..Purchase::default()
        });
        let ending = self.rng.u32(..100);
        Some((
            index,
            Act::Pay {
                purchase,
                is_settled: ending >= 3,
                is_reported: ending >= 5,
            },
        ))
    }

    /// Plans the acts of the next role with a denial.
    fn refusal(&mut self, day: usize) -> Vec<(usize, Act)> {
        for _ in 0..self.story.roles.len() {
            let role = self.next_refusal;
            let next = role.saturating_add(1);
            self.next_refusal = if next < self.story.roles.len() { next } else { 0 };
            if let Some(actions) = self.plan_refusal(role, day) {
                return actions;
            }
        }
        Vec::new()
    }

    fn plan_refusal(&mut self, role: usize, day: usize) -> Option<Vec<(usize, Act)>> {
        let rejection = self.story.roles.get(role)?.refusal.clone()?;
        let index = self.next(role, |agent| agent.frozen_on.is_none_or(|frozen| frozen < day))?;
        let pay = |purchase| Act::Pay {
            purchase,
            is_settled: true,
            is_reported: true,
        };
        let paid = rejection
            .paid
            .iter()
            .cycle()
            .take(if rejection.paid.is_some() { rejection.pays } else { 0 });
        let mut actions: Vec<(usize, Act)> = paid.map(|paid| (index, pay(self.add_number(paid)))).collect();
        let purchase = self.add_number(&rejection.refused);
        actions.push((
            index,
            Act::Refuse {
                purchase,
                error: rejection.error,
            },
        ));
        Some(actions)
    }

    /// Plans a call that needs an approval, and the approval's outcome.
    fn approval(&mut self, may_be_decided: bool) -> Option<(usize, Act)> {
        let roles = self
            .story
            .roles
            .iter()
            .enumerate()
            .filter(|(_, role)| !role.asks.is_empty());
        let (role, asks) = self.rng.choice(
            roles
                .map(|(index, role)| (index, role.asks.clone()))
                .collect::<Vec<_>>(),
        )?;
        let index = self.next(role, |_| true)?;
        let purchase = self.rng.choice(asks)?;
        let purchase = self.add_number(&purchase);
        let fate = self.rng.u32(..100);
        let (verdict, notes) = if fate < 55 {
            ("approve", &self.story.notes.approve)
        } else {
            ("reject", &self.story.notes.reject)
        };
        let note = if fate.is_multiple_of(3) {
            self.rng.choice(notes).cloned()
        } else {
            None
        };
        let decision = (may_be_decided && fate < 75).then(|| (verdict, note.unwrap_or_default()));
        Some((
            index,
            Act::Ask {
                purchase,
                decision,
                is_used: fate < 45,
            },
        ))
    }

    /// Returns the next agent of the role that satisfies `is_match`.
    fn next(&mut self, role: usize, is_match: impl Fn(&PlannedAgent) -> bool) -> Option<usize> {
        let agents = self.agents.iter().enumerate();
        let fitting = agents.filter(|(_, agent)| agent.role == Some(role) && is_match(agent));
        let fitting: Vec<usize> = fitting.map(|(index, _)| index).collect();
        let turn = self.turns.entry(role).or_default();
        let chosen = turn.checked_rem(fitting.len())?;
        *turn = turn.saturating_add(1);
        fitting.get(chosen).copied()
    }
}

impl PlannedAgent {
    /// Returns whether the agent makes payments without a denial on that day.
    fn pays_on(&self, day: usize) -> bool {
        let is_payer = self.role.is_none() || self.has_payouts || self.frozen_on.is_some_and(|frozen| day < frozen);
        is_payer && self.created_on <= day
    }
}

fn agent(story: &Story, size: FleetSize, rng: &mut Rng, index: usize, agent_index: Option<usize>) -> PlannedAgent {
    let role = agent_index.and_then(|place| story.roles.get(place)).cloned();
    let kind = role
        .as_ref()
        .and_then(|role| story.kinds.iter().find(|kind| kind.name == role.kind));
    let kind = kind.or_else(|| rng.choice(&story.kinds)).cloned();
    let kind = kind.unwrap_or_else(|| Kind {
        name: String::new(),
        team: String::new(),
        cost_centre: String::new(),
        offers: Vec::new(),
        page: None,
    });
    let first = size.agents.saturating_mul(FIRST_PERCENT) / 100;
    let later = (size.days.saturating_mul(2) / 3).max(1);
    let created_on = index
        .saturating_sub(first)
        .saturating_mul(later)
        .checked_div(size.agents.saturating_sub(first));
    let mut role = role.unwrap_or_default();
    if agent_index.is_none() {
        role.services = generous(&kind, rng);
    }
    PlannedAgent {
        name: format!("{}-{:03}", kind.name, index.saturating_add(1)),
        labels: json!({
            "team": kind.team, "cost-centre": kind.cost_centre,
            "env": if rng.u32(..10) < 7 { "production" } else { "staging" },
        }),
        services: role.services,
        rules: role.rules,
        has_no_funds: role.has_no_funds,
        has_payouts: role.has_payouts,
        created_on: if agent_index.is_some() {
            0
        } else {
            created_on.unwrap_or_default().min(size.days.saturating_sub(1))
        },
        frozen_on: role.is_frozen.then(|| rng.usize(..size.days.max(1))),
        kind,
        role: agent_index,
    }
}

/// Returns limits for some of the services, which payments up to the catalog price never reach.
fn generous(kind: &Kind, rng: &mut Rng) -> Map<String, Value> {
    let mut services = Map::new();
    for offer in kind.offers.iter().rev() {
        let service = offer.split('/').next().unwrap_or_default().to_owned();
        let mut amount = |percents: [u64; 3]| json!({"percent": rng.choice(percents), "of": offer});
        let limits = json!({
            "max_per_call_units": amount([300, 500, 1_000]),
            "max_per_day_units": amount([5_000, 10_000, 25_000]),
            "require_approval_above_units": amount([200, 250, 400]),
        });
        services.insert(service, limits);
    }
    services.retain(|_, _| rng.u32(..10) >= 4);
    services
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    type Days = Vec<Vec<(usize, Act)>>;

    fn plan(agents: usize, days: usize) -> (Vec<PlannedAgent>, Days) {
        let mut planner = Planner::new(Story::read().unwrap(), FleetSize { agents, days });
        let slots = (0..days).map(|day| planner.day(day));
        let days = slots.map(|slots| {
            assert!(
                slots
                    .windows(2)
                    .all(|two| two[1].second.saturating_sub(two[0].second) >= 30 * 60)
            );
            slots.into_iter().flat_map(|slot| slot.acts).collect()
        });
        let days = days.collect();
        (planner.agents, days)
    }

    #[test]
    fn the_demo_plan_depends_only_on_its_size() {
        for (agents, days) in [
            (FleetSize::FEWEST_AGENTS, 1),
            (50, 3),
            (200, FleetSize::MAX_DAYS),
            (1_000, 30),
        ] {
            let (planned, acts) = plan(agents, days);
            assert!(plan(agents, days).1 == acts);
            let names: BTreeSet<&str> = planned.iter().map(|agent| agent.name.as_str()).collect();
            assert_eq!((names.len(), acts.len()), (agents, days));
            for (day, acts) in acts.iter().enumerate() {
                assert!(acts.iter().all(|(place, _)| planned[*place].created_on <= day));
            }
        }
    }

    #[test]
    fn the_demo_month_has_payments_denials_and_approvals_of_all_kinds() {
        let (_, days) = plan(1_000, 30);
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for (_, act) in days.into_iter().flatten() {
            let kind = match act {
                Act::Pay {
                    is_settled,
                    is_reported,
                    ..
                } => format!("paid {is_settled} {is_reported}"),
                Act::Refuse { error, .. } => error,
                Act::Ask { decision, is_used, .. } => format!("{:?} {is_used}", decision.map(|(verdict, _)| verdict)),
                Act::Freeze => "freeze".to_owned(),
                Act::PayOut => "payout".to_owned(),
            };
            *counts.entry(kind).or_default() += 1_usize;
        }
        for kind in [
            "paid true true",
            "paid true false",
            "paid false false",
            "Some(\"approve\") true",
            "Some(\"approve\") false",
            "Some(\"reject\") false",
            "None true",
            "freeze",
            "payout",
            "amount_exceeds_max",
            "amount_exceeds_per_call_limit",
            "daily_spend_limit_exceeded",
            "domain_not_allowed",
            "insufficient_usdc_balance",
            "operation_not_enabled_for_agent",
            "policy_blocked",
            "service_not_enabled",
        ] {
            assert!(counts.get(kind).is_some_and(|count| *count > 2), "{kind}: {counts:?}");
        }
    }
}
