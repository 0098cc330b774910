//! The plan of the demo fleet: which agents there are, and what happens at which minute of which day.
//!
//! The plan depends on the size alone: a fixed seed decides everything. Prices are percentages of the catalog's, so that
//! the plan needs no stack. Each refusal has agents of its own, whose limits the plan knows, so that the outcome of every
//! call is known before it is made.

use crate::fleet::act::{Act, Ending, Purchase, Slot, Twist};
use crate::fleet::agent::{BURST, DOCS, PlannedAgent, Role, agents, pick};
use crate::fleet::offer::{
    CHAT, CRAWL, CRAWLER, EMBEDDING, FORECAST, IMAGE, Offer, PAPERS, PREMIUM_REPORT, RATES, REPORT, REPORTS, WEB_SEARCH,
};
use crate::fleet::size::FleetSize;
use fastrand::Rng;
use std::collections::BTreeMap;

/// The plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) agents: Vec<PlannedAgent>,
    /// The slots of each day, in order.
    pub(crate) days: Vec<Vec<Slot>>,
}

const SEED: u64 = 402;
const SLOTS: usize = 12;
const PAYOUT_UNITS: u64 = 250_000;

impl Plan {
    pub(crate) fn new(size: FleetSize) -> Self {
        let mut rng = Rng::with_seed(SEED);
        let agents = agents(size, &mut rng);
        let mut planner = Planner {
            size,
            agents: &agents,
            rng,
            serial: 0,
            turns: BTreeMap::new(),
            last_burst: BTreeMap::new(),
        };
        let days = (0..size.days).map(|day| planner.day(day)).collect();
        Self { agents, days }
    }
}

const OTHER_HOSTS: [&str; 3] = ["shop.example.net", "intranet.example.com", "files.example.net"];

/// The refusals, by how common they are.
static REFUSALS: [(Refusal, u32); 12] = [
    (Refusal::DailyLimit, 8),
    (Refusal::PerCallLimit, 6),
    (Refusal::NoFunds, 5),
    (Refusal::Domain, 4),
    (Refusal::Frozen, 4),
    (Refusal::Budget, 3),
    (Refusal::Disabled, 2),
    (Refusal::Operation, 2),
    (Refusal::Category, 2),
    (Refusal::Vendor, 2),
    (Refusal::Catalog, 2),
    (Refusal::LowCeiling, 1),
];

#[derive(Clone, Copy, Debug)]
enum Refusal {
    DailyLimit,
    PerCallLimit,
    NoFunds,
    Domain,
    Frozen,
    Budget,
    Disabled,
    Operation,
    Category,
    Vendor,
    Catalog,
    LowCeiling,
}

const APPROVED: [&str; 3] = [
    "Needed for the quarterly review",
    "OK for this week",
    "Within the team's plan",
];
const REJECTED: [&str; 3] = [
    "We already have this one",
    "Too expensive, use the short report",
    "Not for staging",
];

struct Planner<'a> {
    size: FleetSize,
    agents: &'a [PlannedAgent],
    rng: Rng,
    serial: u64,
    /// The number of times that an agent of the role was chosen: they take turns.
    turns: BTreeMap<Role, usize>,
    /// The day on which an agent last filled a window of 24 hours.
    last_burst: BTreeMap<usize, usize>,
}

impl Planner<'_> {
    fn day(&mut self, day: usize) -> Vec<Slot> {
        let is_last = day.saturating_add(1) == self.size.days;
        let mut slots: Vec<Slot> = (0..SLOTS).map(|slot| self.slot(slot)).collect();
        // Two days of seven are quiet.
        let payments = self.size.share(if day % 7 < 5 { 70 } else { 40 }, 6);
        let payments = payments.saturating_add(self.rng.usize(..=self.size.share(40, 3)));
        for _ in 0..payments {
            if let Some(act) = self.payment(day) {
                self.put(&mut slots, 0..SLOTS, [act]);
            }
        }
        for _ in 0..self.size.share(10, 4) {
            let acts = self.refusal(day);
            self.put(&mut slots, 2..SLOTS, acts);
        }
        let freezes = self.agents.iter().enumerate();
        let frozen_today = freezes.filter(|(_, agent)| agent.frozen_on == Some(day));
        let freezes: Vec<Act> = frozen_today.map(|(agent, _)| Act::Freeze { agent }).collect();
        self.put(&mut slots, SLOTS.saturating_sub(1)..SLOTS, freezes);
        for _ in 0..self.size.share(6, 2) {
            self.approval(&mut slots, is_last);
        }
        for act in self.payout(day) {
            self.put(&mut slots, 5..6, [act]);
        }
        if is_last {
            self.end(&mut slots, day);
        }
        slots
    }

    /// Slots are 75 minutes apart, from seven o'clock on, give or take some minutes.
    fn slot(&mut self, slot: usize) -> Slot {
        let slot = u64::try_from(slot).unwrap_or_default();
        let minute = slot.saturating_mul(75).saturating_add(7 * 60);
        let second = minute.saturating_mul(60).saturating_add(self.rng.u64(..40 * 60));
        Slot {
            second,
            acts: Vec::new(),
        }
    }

    /// Puts acts into one of the slots; returns which.
    fn put(&mut self, slots: &mut [Slot], among: std::ops::Range<usize>, acts: impl IntoIterator<Item = Act>) -> usize {
        let chosen = self.rng.usize(among);
        if let Some(slot) = slots.get_mut(chosen) {
            slot.acts.extend(acts);
        }
        chosen
    }

    fn purchase(&mut self, agent: usize, offer: Offer, percent: u64) -> Purchase {
        self.serial = self.serial.saturating_add(1);
        let is_fetch = CRAWLER.offers.contains(&offer);
        Purchase {
            agent,
            offer,
            percent,
            twist: if is_fetch { Twist::Page(DOCS) } else { Twist::Nothing },
            serial: self.serial,
        }
    }

    /// An agent that pays on that day; some pay far more often than others.
    fn payer(&mut self, day: usize) -> Option<usize> {
        let payers = self.agents.iter().enumerate().filter(|(_, agent)| agent.pays_on(day));
        let payers: Vec<usize> = payers.map(|(place, _)| place).collect();
        let most = self.rng.usize(..payers.len().max(1));
        payers.get(self.rng.usize(..=most)).copied()
    }

    /// The next agent of that role.
    fn next(&mut self, role: Role, fits: impl Fn(usize, &PlannedAgent) -> bool) -> Option<usize> {
        let agents = self.agents.iter().enumerate();
        let fitting: Vec<usize> = agents
            .filter(|(place, agent)| agent.role == role && fits(*place, agent))
            .map(|(place, _)| place)
            .collect();
        let turn = self.turns.entry(role).or_default();
        let chosen = turn.checked_rem(fitting.len())?;
        *turn = turn.saturating_add(1);
        fitting.get(chosen).copied()
    }

    fn payment(&mut self, day: usize) -> Option<Act> {
        let agent = self.payer(day)?;
        let offers = self.agents.get(agent)?.kind.offers;
        let offer = *self.rng.choice(offers)?;
        let percent = pick(&mut self.rng, &[60, 75, 80, 100, 100, 100], 100);
        let ending = match self.rng.u32(..100) {
            0..3 => Ending::Abandoned,
            3..5 => Ending::Unreported,
            _ => Ending::Completed,
        };
        Some(Act::Pay(self.purchase(agent, offer, percent), ending))
    }

    /// The acts of one agent that lead to a refusal.
    fn refusal(&mut self, day: usize) -> Vec<Act> {
        let total: u32 = REFUSALS.iter().map(|(_, weight)| weight).sum();
        let mut place = self.rng.u32(..total);
        for (refusal, weight) in REFUSALS {
            match place.checked_sub(weight) {
                Some(left) => place = left,
                None => return self.refused(refusal, day).unwrap_or_else(|| self.low_ceiling(day)),
            }
        }
        Vec::new()
    }

    /// Also where no agent of the chosen refusal is free: any agent can do this at any time.
    fn low_ceiling(&mut self, day: usize) -> Vec<Act> {
        let Some(agent) = self.payer(day) else {
            return Vec::new();
        };
        let kind = self.agents.get(agent).map_or(&FORECAST, |agent| agent.kind);
        let Some(offer) = kind.offers.first() else {
            return Vec::new();
        };
        let purchase = self.purchase(agent, *offer, 100);
        let twist = Twist::LowCeiling;
        vec![Act::Refused(Purchase { twist, ..purchase }, "amount_exceeds_max")]
    }

    fn refused(&mut self, refusal: Refusal, day: usize) -> Option<Vec<Act>> {
        let any = |_: usize, _: &PlannedAgent| true;
        let blocked = "policy_blocked";
        Some(match refusal {
            Refusal::DailyLimit => self.burst(Role::DailyLimit, RATES, day, "daily_spend_limit_exceeded")?,
            Refusal::Budget => self.burst(Role::Budget, CHAT, day, blocked)?,
            Refusal::PerCallLimit => {
                let agent = self.next(Role::PerCallLimit, any)?;
                let percent = pick(&mut self.rng, &[120, 150, 200], 150);
                let (listed, raised) = (self.purchase(agent, PAPERS, 100), self.purchase(agent, PAPERS, percent));
                vec![
                    Act::Pay(listed, Ending::Completed),
                    Act::Refused(raised, "amount_exceeds_per_call_limit"),
                ]
            }
            Refusal::NoFunds => {
                let agent = self.next(Role::NoFunds, any)?;
                vec![Act::Refused(
                    self.purchase(agent, CHAT, 100),
                    "insufficient_usdc_balance",
                )]
            }
            Refusal::Domain => {
                let agent = self.next(Role::Domain, any)?;
                let (inside, outside) = (self.purchase(agent, CRAWL, 100), self.purchase(agent, CRAWL, 100));
                let twist = Twist::Page(pick(&mut self.rng, &OTHER_HOSTS, "shop.example.net"));
                vec![
                    Act::Pay(inside, Ending::Completed),
                    Act::Refused(Purchase { twist, ..outside }, "domain_not_allowed"),
                ]
            }
            Refusal::Frozen => {
                let is_frozen = |_: usize, agent: &PlannedAgent| agent.frozen_on.is_some_and(|frozen| frozen < day);
                let agent = self.next(Role::Frozen, is_frozen)?;
                let offer = *self.agents.get(agent)?.kind.offers.first()?;
                vec![Act::Refused(self.purchase(agent, offer, 100), blocked)]
            }
            Refusal::Disabled => {
                let agent = self.next(Role::Disabled, any)?;
                vec![Act::Refused(self.purchase(agent, IMAGE, 100), "service_not_enabled")]
            }
            Refusal::Operation => {
                let agent = self.next(Role::Operation, any)?;
                let (enabled, other) = (self.purchase(agent, EMBEDDING, 100), self.purchase(agent, CHAT, 100));
                vec![
                    Act::Pay(enabled, Ending::Completed),
                    Act::Refused(other, "operation_not_enabled_for_agent"),
                ]
            }
            Refusal::Category => {
                let agent = self.next(Role::Category, any)?;
                let offer = pick(&mut self.rng, &[CHAT, IMAGE], CHAT);
                vec![Act::Refused(self.purchase(agent, offer, 100), blocked)]
            }
            Refusal::Vendor => {
                let agent = self.next(Role::Vendor, any)?;
                let (listed, other) = (self.purchase(agent, PAPERS, 100), self.purchase(agent, WEB_SEARCH, 100));
                vec![Act::Pay(listed, Ending::Completed), Act::Refused(other, blocked)]
            }
            Refusal::Catalog => {
                // A policy's limit per call would be judged first.
                let is_unlimited = |_: usize, agent: &PlannedAgent| {
                    agent.policies.is_empty() && agent.created_on <= day && agent.kind.offers != CRAWLER.offers
                };
                let agent = self.next(Role::Regular, is_unlimited)?;
                let offer = *self.agents.get(agent)?.kind.offers.first()?;
                let twist = pick(
                    &mut self.rng,
                    &[Twist::AboveCatalog, Twist::OtherPayee],
                    Twist::OtherPayee,
                );
                let purchase = self.purchase(agent, offer, 100);
                vec![Act::Refused(Purchase { twist, ..purchase }, blocked)]
            }
            Refusal::LowCeiling => self.low_ceiling(day),
        })
    }

    /// Fills a window of 24 hours, and one call more.
    fn burst(&mut self, role: Role, offer: Offer, day: usize, error: &'static str) -> Option<Vec<Act>> {
        let mut acts = self.filled(role, offer, day, BURST)?;
        let agent = acts.first()?.agent();
        acts.push(Act::Refused(self.purchase(agent, offer, 100), error));
        Some(acts)
    }

    /// Payments of an agent whose window is empty on that day.
    fn filled(&mut self, role: Role, offer: Offer, day: usize, payments: u64) -> Option<Vec<Act>> {
        let last_burst = self.last_burst.clone();
        // From any time of a day to any time of the day after next are more than 24 hours.
        let is_empty =
            |place: usize, _: &PlannedAgent| last_burst.get(&place).is_none_or(|last| last.saturating_add(1) < day);
        let agent = self.next(role, is_empty)?;
        self.last_burst.insert(agent, day);
        let acts = (0..payments).map(|_| Act::Pay(self.purchase(agent, offer, 100), Ending::Completed));
        Some(acts.collect())
    }

    fn asking(&mut self) -> Option<Purchase> {
        let agent = self.next(Role::Asking, |_, _| true)?;
        let is_report = self.agents.get(agent)?.kind == &REPORTS;
        Some(if !is_report {
            let percent = pick(&mut self.rng, &[80, 100, 150], 100);
            self.purchase(agent, IMAGE, percent)
        } else if self.rng.u32(..8) == 0 {
            self.purchase(agent, PREMIUM_REPORT, 100)
        } else {
            self.purchase(agent, REPORT, 100)
        })
    }

    /// A request for approval, and what becomes of it on the same day. What nobody decides expires after a day.
    fn approval(&mut self, slots: &mut [Slot], is_last: bool) {
        let Some(purchase) = self.asking() else { return };
        let (agent, approval) = (purchase.agent, purchase.serial);
        let asked = self.put(slots, 0..SLOTS.saturating_sub(3), [Act::Ask(purchase.clone())]);
        let fate = self.rng.u32(..if is_last { 75 } else { 100 });
        let is_approved = fate < 55;
        if fate >= 75 {
            return;
        }
        let notes = if is_approved { &APPROVED } else { &REJECTED };
        let note = if self.rng.u32(..3) == 0 {
            pick(&mut self.rng, notes, "")
        } else {
            ""
        };
        let decide = Act::Decide {
            agent,
            approval,
            is_approved,
            note,
        };
        let after = |slot: usize, limit: usize| slot.saturating_add(1)..limit;
        let decided = self.put(slots, after(asked, SLOTS.saturating_sub(1)), [decide]);
        if fate < 45 {
            self.put(slots, after(decided, SLOTS), [Act::Use(purchase)]);
        }
    }

    /// Payout addresses are set on the second day, and used every ninth day from the fourth on.
    fn payout(&mut self, day: usize) -> Vec<Act> {
        let agents = self.agents.iter().enumerate();
        let agents = agents
            .filter(|(_, agent)| agent.role == Role::Payout)
            .map(|(place, _)| place);
        match day {
            1 => agents.map(|agent| Act::SetPayoutAddress { agent }).collect(),
            3.. if day % 9 == 3 => agents
                .map(|agent| Act::PayOut {
                    agent,
                    units: PAYOUT_UNITS,
                })
                .collect(),
            _ => Vec::new(),
        }
    }

    /// The end of the last day: approvals that wait, and agents that are near a limit.
    fn end(&mut self, slots: &mut [Slot], day: usize) {
        for _ in 0..self.size.share(23, 20) {
            if let Some(purchase) = self.asking() {
                self.put(slots, SLOTS.saturating_sub(3)..SLOTS, [Act::Ask(purchase)]);
            }
        }
        for _ in 0..self.size.share(5, 1) {
            if let Some(acts) = self.filled(Role::DailyLimit, RATES, day, BURST) {
                self.put(slots, SLOTS.saturating_sub(2)..SLOTS, acts);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const SIZES: [FleetSize; 4] = [
        FleetSize {
            agents: FleetSize::FEWEST_AGENTS,
            days: 1,
        },
        FleetSize { agents: 50, days: 3 },
        FleetSize {
            agents: 200,
            days: FleetSize::MOST_DAYS,
        },
        FleetSize {
            agents: 1_000,
            days: 30,
        },
    ];

    fn acts(plan: &Plan) -> impl Iterator<Item = (usize, &Act)> {
        let slots = plan.days.iter().enumerate();
        slots.flat_map(|(day, slots)| {
            slots
                .iter()
                .flat_map(move |slot| slot.acts.iter().map(move |act| (day, act)))
        })
    }

    #[test]
    fn the_size_alone_determines_the_plan() {
        for size in SIZES {
            assert!(Plan::new(size) == Plan::new(size), "{size:?}");
        }
    }

    #[test]
    fn names_are_unique_and_every_agent_exists_before_it_acts() {
        for size in SIZES {
            let plan = Plan::new(size);
            let mut names: Vec<&str> = plan.agents.iter().map(|agent| agent.name.as_str()).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!((names.len(), plan.days.len()), (size.agents, size.days));
            for (day, act) in acts(&plan) {
                assert!(plan.agents[act.agent()].created_on <= day, "{act:?}");
            }
        }
    }

    #[test]
    fn slots_are_in_order() {
        for size in SIZES {
            for slots in Plan::new(size).days {
                assert!(slots.windows(2).all(|two| two[0].second + 30 * 60 <= two[1].second));
            }
        }
    }

    /// A thousand agents and a month, as a newcomer sees them.
    #[test]
    fn a_month_has_payments_refusals_and_approvals_of_all_kinds() {
        let plan = Plan::new(SIZES[3]);
        let count = |is: &dyn Fn(&Act) -> bool| acts(&plan).filter(|(_, act)| is(act)).count();
        let paid = count(&|act| matches!(act, Act::Pay(..)));
        let (refused, asked) = (
            count(&|act| matches!(act, Act::Refused(..))),
            count(&|act| matches!(act, Act::Ask(_))),
        );
        assert!((60 * 30..140 * 30).contains(&paid), "{paid}");
        assert_eq!((refused, asked), (10 * 30, 6 * 30 + 23));
        for ending in [Ending::Completed, Ending::Unreported, Ending::Abandoned] {
            assert!(count(&|act| matches!(act, Act::Pay(_, ended) if *ended == ending)) > 20);
        }
        for error in [
            "amount_exceeds_max",
            "amount_exceeds_per_call_limit",
            "daily_spend_limit_exceeded",
            "domain_not_allowed",
            "insufficient_usdc_balance",
            "operation_not_enabled_for_agent",
            "policy_blocked",
            "service_not_enabled",
        ] {
            assert!(
                count(&|act| matches!(act, Act::Refused(_, slug) if *slug == error)) > 2,
                "{error}"
            );
        }
        let decided =
            |approved: bool| count(&|act| matches!(act, Act::Decide { is_approved, .. } if *is_approved == approved));
        let used = count(&|act| matches!(act, Act::Use(_)));
        assert!(used > 20 && decided(true) > used && decided(false) > 10);
        assert!(count(&|act| matches!(act, Act::PayOut { .. })) > 0);
        let payers: BTreeSet<usize> = acts(&plan)
            .filter(|(_, act)| matches!(act, Act::Pay(..)))
            .map(|(_, act)| act.agent())
            .collect();
        assert!(payers.len() > 300, "{}", payers.len());
    }
}
