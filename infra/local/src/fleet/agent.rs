//! The agents of the demo fleet, each with a role, and with the limits that the role takes.

use crate::fleet::offer::{
    BUILD, CHAT, CHECKOUT, CRAWL, CRAWLER, DESIGN, EMBEDDING, FORECAST, IMAGE, KINDS, Kind, Offer, PAPERS, RATES,
    REPORT, REPORTS, RESEARCH, SUPPORT,
};
use crate::fleet::size::FleetSize;
use fastrand::Rng;
use serde_json::{Value, json};

/// What an agent does in the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    /// Pays.
    Regular,
    /// Pays, until its owner freezes it.
    Frozen,
    /// Reaches the daily limit of a service.
    DailyLimit,
    /// Is asked for more than its limit per call.
    PerCallLimit,
    /// Asks for pages of other hosts than the allowed ones.
    Domain,
    /// Has an empty wallet.
    NoFunds,
    /// Reaches a budget over all services.
    Budget,
    /// Calls a service that its owner has disabled.
    Disabled,
    /// Calls an operation that is not enabled.
    Operation,
    /// Buys in a category that a rule blocks.
    Category,
    /// Buys from a vendor that is not on its list.
    Vendor,
    /// Asks a person for approval.
    Asking,
    /// Pays; its owner withdraws money.
    Payout,
}

/// Each role with the kind of its agents (`None` for any) and their number among a thousand agents.
static ROLES: [(Role, Option<&Kind>, usize); 13] = [
    (Role::Frozen, None, 20),
    (Role::DailyLimit, Some(&CHECKOUT), 30),
    (Role::PerCallLimit, Some(&RESEARCH), 24),
    (Role::Domain, Some(&CRAWLER), 20),
    (Role::NoFunds, Some(&SUPPORT), 16),
    (Role::Budget, Some(&SUPPORT), 16),
    (Role::Disabled, Some(&DESIGN), 10),
    (Role::Operation, Some(&SUPPORT), 8),
    (Role::Category, Some(&REPORTS), 8),
    (Role::Vendor, Some(&RESEARCH), 8),
    (Role::Asking, Some(&REPORTS), 30),
    (Role::Asking, Some(&DESIGN), 30),
    (Role::Payout, Some(&FORECAST), 4),
];

/// An edit of the policy for one service. Limits are percentages of the price of `priced_by`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PolicyEdit {
    pub(crate) priced_by: Offer,
    pub(crate) per_call: Option<u64>,
    pub(crate) per_day: Option<u64>,
    pub(crate) approval_above: Option<u64>,
    /// The members of the edit that are not amounts.
    pub(crate) other: Value,
}

impl PolicyEdit {
    fn of(priced_by: Offer) -> Self {
        Self {
            priced_by,
            per_call: None,
            per_day: None,
            approval_above: None,
            other: json!({}),
        }
    }
}

/// A rule. The amount is a percentage of the price of `priced_by`, under the name `amount`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewRule {
    pub(crate) body: Value,
    pub(crate) amount: Option<(&'static str, Offer, u64)>,
}

/// An agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlannedAgent {
    pub(crate) name: String,
    pub(crate) labels: Value,
    pub(crate) role: Role,
    /// The day on which it is created.
    pub(crate) created_on: usize,
    /// The day on which its owner freezes it.
    pub(crate) frozen_on: Option<usize>,
    pub(crate) policies: Vec<PolicyEdit>,
    pub(crate) rules: Vec<NewRule>,
    pub(crate) kind: &'static Kind,
}

impl PlannedAgent {
    /// Whether it pays on that day, whatever it wants.
    pub(crate) fn pays_on(&self, day: usize) -> bool {
        let is_payer = matches!(self.role, Role::Regular | Role::Frozen | Role::Payout);
        is_payer && self.created_on <= day && self.frozen_on.is_none_or(|frozen| day < frozen)
    }
}

/// The part of the agents that exist on the first day, in percent; the others come within two thirds of the days.
const FIRST: usize = 60;
/// The host whose pages all crawlers may fetch.
pub(crate) const DOCS: &str = "docs.example.com";
/// One of the values.
pub(crate) fn pick<T: Copy>(rng: &mut Rng, of: &[T], otherwise: T) -> T {
    rng.choice(of).copied().unwrap_or(otherwise)
}

/// The agents, in order of creation.
pub(crate) fn agents(size: FleetSize, rng: &mut Rng) -> Vec<PlannedAgent> {
    let first = size.agents.saturating_mul(FIRST) / 100;
    let mut parts: Vec<(Role, Option<&'static Kind>)> = Vec::new();
    for (role, kind, count) in &ROLES {
        let count = size.share(*count, 2);
        parts.extend(std::iter::repeat_n((*role, *kind), count));
    }
    // Agents of a role exist from the first day, in any order.
    parts.resize(first.max(parts.len()), (Role::Regular, None));
    rng.shuffle(&mut parts);
    parts.resize(size.agents, (Role::Regular, None));
    let later = (size.days.saturating_mul(2) / 3).max(1);
    let place = |index: usize| {
        let place = index.saturating_sub(first).saturating_mul(later);
        place.checked_div(size.agents.saturating_sub(first)).unwrap_or_default()
    };
    let agents = parts.into_iter().enumerate().map(|(index, (role, kind))| {
        let kind = kind.unwrap_or_else(|| pick(rng, &KINDS, &BUILD));
        let created_on = if index < first {
            0
        } else {
            place(index).min(size.days.saturating_sub(1))
        };
        let environment = if rng.u32(..10) < 7 { "production" } else { "staging" };
        let frozen_on = (role == Role::Frozen).then(|| rng.usize(..size.days.max(1)));
        let (policies, rules) = limits(role, kind, rng);
        PlannedAgent {
            name: format!("{}-{:03}", kind.name, index.saturating_add(1)),
            labels: json!({"team": kind.team, "env": environment, "cost-centre": kind.cost_centre}),
            role,
            created_on,
            frozen_on,
            policies,
            rules,
            kind,
        }
    });
    agents.collect()
}

/// The payments of [`Role::DailyLimit`] and [`Role::Budget`] that fit into a day.
pub(crate) const BURST: u64 = 3;
const BURST_PERCENT: u64 = BURST * 100;

/// An agent's limits. Those of agents that only pay are never reached: they pay at most the listed price.
fn limits(role: Role, kind: &Kind, rng: &mut Rng) -> (Vec<PolicyEdit>, Vec<NewRule>) {
    let edit = PolicyEdit::of;
    let plain = |body: Value| NewRule { body, amount: None };
    match role {
        Role::Regular | Role::Frozen | Role::Payout => {
            // A service's first offer is its dearest, or nearly.
            let offers = kind.offers.iter().enumerate();
            let firsts = offers.filter(|(place, offer)| {
                let earlier = kind.offers.iter().take(*place);
                !earlier.map(|one| one.service).any(|service| service == offer.service)
            });
            let mut policies = Vec::new();
            for (_, offer) in firsts {
                if rng.u32(..10) < 4 {
                    continue;
                }
                policies.push(PolicyEdit {
                    per_call: Some(pick(rng, &[300, 500, 1_000], 500)),
                    per_day: Some(pick(rng, &[2_500, 5_000, 10_000, 25_000], 5_000)),
                    approval_above: Some(pick(rng, &[200, 250, 400], 250)),
                    ..edit(*offer)
                });
            }
            (policies, Vec::new())
        }
        Role::DailyLimit => {
            let day = PolicyEdit {
                per_day: Some(BURST_PERCENT),
                ..edit(RATES)
            };
            (vec![day], Vec::new())
        }
        Role::PerCallLimit => {
            let call = PolicyEdit {
                per_call: Some(100),
                ..edit(PAPERS)
            };
            (vec![call], Vec::new())
        }
        Role::Domain => {
            let hosts = PolicyEdit {
                other: json!({"allowed_domains": [DOCS, "*.example.org"]}),
                ..edit(CRAWL)
            };
            (vec![hosts], Vec::new())
        }
        Role::NoFunds => (Vec::new(), Vec::new()),
        Role::Budget => {
            let budget = NewRule {
                body: json!({"kind": "budget_limit", "window_seconds": 86_400}),
                amount: Some(("limit_units", CHAT, BURST_PERCENT)),
            };
            (Vec::new(), vec![budget])
        }
        Role::Disabled => {
            let off = PolicyEdit {
                other: json!({"enabled": false}),
                ..edit(IMAGE)
            };
            (vec![off], Vec::new())
        }
        Role::Operation => {
            let only = PolicyEdit {
                other: json!({"enabled_operations": [EMBEDDING.operation]}),
                ..edit(EMBEDDING)
            };
            (vec![only], Vec::new())
        }
        Role::Category => {
            let block = plain(json!({"kind": "category_block", "categories": ["ai", "creative"]}));
            (Vec::new(), vec![block])
        }
        Role::Vendor => {
            let list = plain(json!({"kind": "vendor_allowlist", "services": [PAPERS.service]}));
            (Vec::new(), vec![list])
        }
        Role::Asking if *kind == DESIGN => {
            let asking = NewRule {
                body: json!({"kind": "approval_required", "services": [IMAGE.service]}),
                amount: Some(("above_units", IMAGE, 50)),
            };
            (Vec::new(), vec![asking])
        }
        Role::Asking => {
            let asking = PolicyEdit {
                per_day: Some(20_000),
                approval_above: Some(80),
                ..edit(REPORT)
            };
            (vec![asking], Vec::new())
        }
    }
}
