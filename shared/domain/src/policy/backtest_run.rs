//! A backtest that runs in the background over several agents of one owner.
//!
//! Invariant: the result covers exactly the first `done` agents. Each write replaces the version that was read, so no
//! agent is added twice.

use crate::{
    Agent, AgentId, AgentStatus, BacktestId, BacktestResult, DuplicateGuard, EnabledService, PolicyUpdate,
    ProposedLimits, Rule, RuleId, RuleKind, RuleScope, ServiceId, Timestamp, UserId, ValidationError,
};
use std::{collections::BTreeMap, convert::Infallible};
use uuid::Uuid;

/// The proposed limits for every agent. A field that is `None` or absent keeps the recorded limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TestedLimits {
    /// The rules that replace all rules of an agent.
    pub rules: Option<Vec<RuleKind>>,
    /// The status that replaces the status of each agent: active or frozen.
    pub status: Option<AgentStatus>,
    /// Changes of the agents' current policies, by service.
    pub policies: BTreeMap<ServiceId, PolicyChange>,
}

/// A change of an agent's current policy for one service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyChange {
    /// Whether the service is enabled under the proposed policy.
    pub enabled: Option<bool>,
    /// The changed fields. Other fields keep the current policy's value, or the default value without a policy.
    pub policy: PolicyUpdate,
}

impl PolicyChange {
    /// Returns these changes. Fields that are not set come from `general`.
    #[must_use]
    pub fn or(self, general: Self) -> Self {
        let (own, other) = (self.policy, general.policy);
        Self {
            enabled: self.enabled.or(general.enabled),
            policy: PolicyUpdate {
                max_per_call: own.max_per_call.or(other.max_per_call),
                max_per_day: own.max_per_day.or(other.max_per_day),
                require_approval_above: own.require_approval_above.or(other.require_approval_above),
                enabled_operations: own.enabled_operations.or(other.enabled_operations),
                allowed_domains: own.allowed_domains.or(other.allowed_domains),
            },
        }
    }
}

impl TestedLimits {
    /// Estimates the DynamoDB read units of a backtest. Each decision is a row of about 900 bytes, which is read
    /// eventually consistently.
    pub fn estimated_read_units(&self, decisions: u64, agents: u64) -> u64 {
        let rows = decisions.saturating_mul(900) / 8_192;
        let mut rules = self.rules.iter().flatten();
        let calls = if rules.any(RuleKind::is_kind::<DuplicateGuard>) {
            let max = u64::try_from(BacktestRun::MAX_CALLS).unwrap_or(u64::MAX);
            decisions.min(agents.saturating_mul(max))
        } else {
            0
        };
        rows.saturating_add(calls).saturating_add(agents.saturating_mul(10))
    }

    /// Returns an agent's limits after the changes to the current policies.
    pub fn proposed_limits(&self, agent: &Agent, current_policies: &[EnabledService]) -> ProposedLimits {
        let policies = self.policies.iter().filter_map(|(service, change)| {
            let current = current_policies.iter().find(|policy| policy.service == *service);
            let has_record = current.is_some() || change.enabled.is_some();
            has_record.then(|| (*service, change.apply(*service, current)))
        });
        ProposedLimits {
            rules: self.rules.as_ref().map(|kinds| assign_rule_numbers(agent, kinds)),
            status: self.status,
            policies: policies.collect(),
        }
    }
}

/// Returns an agent's proposed rules, with numbers as the ids of new rules.
fn assign_rule_numbers(agent: &Agent, kinds: &[RuleKind]) -> Vec<Rule> {
    let numbered = |number| Ok::<_, Infallible>(RuleId::from_uuid(Uuid::from_u128(number)));
    match assign_rule_ids(agent, kinds, numbered) {
        Ok(rules) => rules,
        Err(never) => match never {},
    }
}

impl TestedLimits {
    /// Returns a validation error for each key in the rules that is neither a key of the agent nor in the agent's
    /// present rules.
    pub fn key_errors(&self, agent: &Agent) -> Vec<ValidationError> {
        let present = agent.rules.iter().filter_map(|rule| rule.kind.scope().keys);
        let present = present.collect::<Vec<_>>().concat();
        let rules = self.rules.iter().flatten().enumerate();
        let errors = rules.filter_map(|(number, kind)| {
            let index = agent.find_unknown_key(kind, &present)?;
            let path = format!("/rules/{number}/keys/{index}");
            Some(ValidationError::at_path(path, "is not the id of a key of the agent"))
        });
        errors.collect()
    }
}

impl Agent {
    /// Returns the agent with the proposed rules. `new_id` creates the ids of new rules.
    pub fn with_replaced_rules<E>(
        self,
        kinds: &[RuleKind],
        mut new_id: impl FnMut() -> Result<RuleId, E>,
    ) -> Result<Self, E> {
        let rules = assign_rule_ids(&self, kinds, |_| new_id())?;
        Ok(Self { rules, ..self })
    }
}

/// Assigns ids to the proposed rules. A rule that counts the same payments over the same period keeps the id, because
/// the id selects the window.
fn assign_rule_ids<E>(
    agent: &Agent,
    kinds: &[RuleKind],
    mut new_id: impl FnMut(u128) -> Result<RuleId, E>,
) -> Result<Vec<Rule>, E> {
    let mut own: Vec<&Rule> = agent.rules.iter().collect();
    let window = |kind: &RuleKind| {
        let (counted, _, period) = kind.counted_limit()?;
        let RuleScope {
            services,
            categories,
            keys,
            per_payee,
        } = kind.scope();
        let lists = (
            services.map(<[_]>::to_vec),
            categories.map(<[_]>::to_vec),
            keys.map(<[_]>::to_vec),
            per_payee,
        );
        Some((kind.name(), counted, period, lists))
    };
    let mut rules = Vec::new();
    for (number, kind) in (1_u128..).zip(kinds) {
        // A rule that stays unchanged keeps its id, so no other proposed rule may take this id.
        let is_free = |rule: &Rule| !kinds.contains(&rule.kind);
        let equal = own.iter().position(|rule| rule.kind == *kind);
        let alike = || {
            own.iter()
                .position(|rule| window(kind).is_some() && window(&rule.kind) == window(kind) && is_free(rule))
        };
        rules.push(match equal.or_else(alike) {
            Some(place) => {
                let rule = own.remove(place);
                let updates = u64::from(rule.kind != *kind);
                Rule {
                    id: rule.id,
                    version: rule.version.saturating_add(updates),
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

/// A backtest that runs in the background, with the result so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BacktestRun {
    /// The id of the backtest.
    pub id: BacktestId,
    /// The user who started the run.
    pub owner: UserId,
    /// The version of the backtest's row, which each write increments.
    pub version: u64,
    /// The time at which the run was requested.
    pub created_at: Timestamp,
    /// The start of the tested time range.
    pub from: Timestamp,
    /// The end of the tested time range.
    pub to: Timestamp,
    /// The proposed limits that the backtest tests.
    pub terms: TestedLimits,
    /// The agents, in the order of the test.
    pub agents: Vec<AgentId>,
    /// The number of decisions in the decision history at the time of the request.
    pub estimated: u64,
    /// The number of agents that were tested or skipped.
    pub done: u32,
    /// The number of skipped agents, which can't be read or have another owner.
    pub left_out: u32,
    /// The number of agents with more decisions than one backtest reads.
    pub partial: u32,
    /// The combined result of the agents that are tested so far.
    pub result: BacktestResult,
}

/// The result of a backtest for one agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentTested {
    /// The backtest evaluated the agent's decisions under the proposed limits.
    Tested {
        /// How the decisions would differ under the proposed limits.
        result: BacktestResult,
        /// Whether the agent had more decisions than one backtest reads.
        is_partial: bool,
    },
    /// The agent was skipped, because the agent can't be read or has another owner.
    LeftOut,
}

impl BacktestRun {
    /// The maximum number of agents in one backtest.
    pub const MAX_AGENTS: usize = 200;
    /// The maximum number of decisions over all agents. A larger backtest is rejected before it starts.
    pub const MAX_DECISIONS: u64 = 500_000;
    /// The maximum number of tested decisions per agent. The oldest decisions are tested.
    pub const MAX_PER_AGENT: usize = 100_000;
    /// The maximum number of provider calls that are read per agent. Decisions that need more are not tested.
    pub const MAX_CALLS: usize = 20_000;
    /// The maximum length of the time range, in days.
    pub const MAX_DAYS: u32 = 31;

    /// Returns the next agent to test; `None` after the last agent.
    pub fn next_agent(&self) -> Option<AgentId> {
        self.agents.get(usize::try_from(self.done).ok()?).copied()
    }

    /// Adds the result of the next agent and increments the version.
    #[must_use]
    pub fn with_tested_agent(mut self, tested_agent: &AgentTested) -> Self {
        self.done = self.done.saturating_add(1);
        self.version = self.version.saturating_add(1);
        match tested_agent {
            AgentTested::LeftOut => self.left_out = self.left_out.saturating_add(1),
            AgentTested::Tested { result, is_partial } => {
                self.partial = self.partial.saturating_add(u32::from(*is_partial));
                self.result.add(result);
            }
        }
        self
    }
}
