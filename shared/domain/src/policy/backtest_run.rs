//! A backtest in the background, over agents of one owner.
//!
//! Invariant: the result is that of the first `done` agents, and each agent is added once: a run replaces only the
//! version that it read. No window of one agent depends on another agent, so nothing else has to be kept between them.

use crate::{
    Agent, AgentId, AgentStatus, BacktestId, BacktestResult, Candidate, EnabledService, PersonId, PolicyEdit, Rule,
    RuleId, RuleKind, ServiceId, SpendPolicy, Timestamp,
};
use std::{collections::BTreeMap, convert::Infallible};
use uuid::Uuid;

/// The limits to test, for every agent. What is `None` or absent stays as it was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BacktestTerms {
    /// All rules.
    pub rules: Option<Vec<RuleKind>>,
    /// Whether the agents are frozen.
    pub status: Option<AgentStatus>,
    /// Edits of the agents' present policies.
    pub policies: BTreeMap<ServiceId, PolicyChange>,
}

/// An edit of an agent's present policy for a service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyChange {
    /// Whether the service is enabled.
    pub enabled: Option<bool>,
    /// The changed fields. The others are those of the present policy, or the column defaults without one.
    pub policy: PolicyEdit,
}

impl BacktestTerms {
    /// The read units that this number of decisions takes: rows of some 900 bytes, eventually consistent, the versions of
    /// their inputs, and the call of each for a guard against duplicates.
    pub fn read_units(&self, decisions: u64, agents: u64) -> u64 {
        let rows = decisions.saturating_mul(900) / 8_192;
        let mut rules = self.rules.iter().flatten();
        let calls = if rules.any(|kind| matches!(kind, RuleKind::DuplicateGuard { .. })) {
            let most = u64::try_from(BacktestRun::MOST_CALLS).unwrap_or(u64::MAX);
            decisions.min(agents.saturating_mul(most))
        } else {
            0
        };
        rows.saturating_add(calls).saturating_add(agents.saturating_mul(10))
    }

    /// The candidate for an agent with these present policies.
    pub fn candidate(&self, agent: &Agent, present: &[EnabledService]) -> Candidate {
        let policies = self.policies.iter().filter_map(|(service, change)| {
            let present = present.iter().find(|policy| policy.service == *service);
            let enabled = change.enabled.or(present.map(|present| present.enabled))?;
            let policy = present.map_or_else(SpendPolicy::column_defaults, |present| present.policy.clone());
            let record = EnabledService {
                service: *service,
                version: present.map_or(0, |present| present.version),
                enabled,
                policy: policy.edited(&change.policy),
            };
            Some((*service, record))
        });
        Candidate {
            rules: self.rules.as_ref().map(|kinds| numbered_rules(agent, kinds)),
            status: self.status,
            policies: policies.collect(),
        }
    }
}

/// The rules of an agent with these terms, in which the ids of new rules are numbers.
fn numbered_rules(agent: &Agent, kinds: &[RuleKind]) -> Vec<Rule> {
    let numbered = |number| Ok::<_, Infallible>(RuleId::from_uuid(Uuid::from_u128(number)));
    match rules_of(agent, kinds, numbered) {
        Ok(rules) => rules,
        Err(never) => match never {},
    }
}

impl Agent {
    /// The agent with rules of exactly these terms; see [`BacktestTerms::rules`]. New rules have new ids.
    pub fn with_rules<E>(self, kinds: &[RuleKind], mut new_id: impl FnMut() -> Result<RuleId, E>) -> Result<Self, E> {
        let rules = rules_of(&self, kinds, |_| new_id())?;
        Ok(Self { rules, ..self })
    }
}

/// The rules of an agent with these terms. A rule of the agent keeps its id, and so does one that counts the same payments
/// over the same time, because the use of both is recorded.
fn rules_of<E>(
    agent: &Agent,
    kinds: &[RuleKind],
    mut new_id: impl FnMut(u128) -> Result<RuleId, E>,
) -> Result<Vec<Rule>, E> {
    let mut own: Vec<&Rule> = agent.rules.iter().collect();
    let window = |kind: &RuleKind| {
        let (counted, _, length) = kind.counts()?;
        Some((kind.name(), counted, length, kind.services().map(<[_]>::to_vec)))
    };
    let mut rules = Vec::new();
    for (number, kind) in (1_u128..).zip(kinds) {
        // A rule with the same terms further on keeps its own id.
        let is_free = |rule: &Rule| !kinds.contains(&rule.kind);
        let equal = own.iter().position(|rule| rule.kind == *kind);
        let alike = || {
            own.iter()
                .position(|rule| window(kind).is_some() && window(&rule.kind) == window(kind) && is_free(rule))
        };
        rules.push(match equal.or_else(alike) {
            Some(place) => {
                let rule = own.remove(place);
                let edits = u64::from(rule.kind != *kind);
                Rule {
                    id: rule.id,
                    version: rule.version.saturating_add(edits),
                    kind: kind.clone(),
                }
            }
            None => Rule {
                id: new_id(number)?,
                version: 1,
                kind: kind.clone(),
            },
        });
    }
    Ok(rules)
}

/// A backtest in the background.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BacktestRun {
    /// Its id.
    pub id: BacktestId,
    /// The person who asked for it.
    pub owner: PersonId,
    /// The number of writes.
    pub version: u64,
    /// The time at which it was asked for.
    pub created_at: Timestamp,
    /// The time from which decisions are tested.
    pub from: Timestamp,
    /// The end of that time.
    pub to: Timestamp,
    /// The limits to test.
    pub terms: BacktestTerms,
    /// The agents, in the order in which they are tested.
    pub agents: Vec<AgentId>,
    /// The number of decisions that the journal had when it was asked for.
    pub estimated: u64,
    /// The number of agents that were tested, or left out.
    pub done: u32,
    /// The number of agents that were left out, because they can't be read or have another owner.
    pub left_out: u32,
    /// The number of agents that had more decisions than one backtest reads.
    pub partial: u32,
    /// The result so far.
    pub result: BacktestResult,
}

/// What a backtest found about one agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentTested {
    /// The agent was tested.
    Tested {
        /// The result.
        result: BacktestResult,
        /// Whether it had more decisions than one backtest reads.
        is_partial: bool,
    },
    /// The agent was left out.
    LeftOut,
}

impl BacktestRun {
    /// The maximum number of agents.
    pub const MOST_AGENTS: usize = 200;
    /// The maximum number of decisions of all agents, as the journal counts them.
    pub const MOST_DECISIONS: u64 = 500_000;
    /// The maximum number of tested decisions of one agent, the oldest ones.
    pub const MOST_OF_AGENT: usize = 100_000;
    /// The maximum number of calls of one agent that are read for a guard against duplicates or for pages. Decisions that
    /// need others are not tested.
    pub const MOST_CALLS: usize = 20_000;
    /// The maximum number of days.
    pub const MOST_DAYS: u32 = 31;

    /// The next agent to test; `None` once all are tested.
    pub fn next_agent(&self) -> Option<AgentId> {
        self.agents.get(usize::try_from(self.done).ok()?).copied()
    }

    /// This run after its next agent, as the next version.
    #[must_use]
    pub fn after(mut self, tested: &AgentTested) -> Self {
        self.done = self.done.saturating_add(1);
        self.version = self.version.saturating_add(1);
        match tested {
            AgentTested::LeftOut => self.left_out = self.left_out.saturating_add(1),
            AgentTested::Tested { result, is_partial } => {
                self.partial = self.partial.saturating_add(u32::from(*is_partial));
                self.result.add(result);
            }
        }
        self
    }
}
