//! Reads all inputs of a decision in one round trip, or two if rules count payments. The items are not a snapshot, but
//! the conditions of the resulting write check every input again.

use crate::{
    codec::backoff::Backoff,
    codec::fault::Fault,
    codec::item::Item,
    codec::key::{self, Key},
    codec::ledger::Ledger,
    payments::idempotency::IdempotencyRecord,
    payments::window::PagesLeft,
};
use purser_domain::{
    Address, Agent, AgentId, Approval, ApprovalId, EnabledService, Error, Fingerprint, Freeze, Freezes, PresentedKey,
    RecentPayments, Result, RuleId, ServiceId, Timestamp, Window, WindowScope,
};

/// The items to read in addition to the agent's record.
#[derive(Clone, Copy, Debug, Default)]
pub struct DecisionKeys {
    /// The service to pay. Without a service, no window is read.
    pub service: Option<ServiceId>,
    /// The payee. Without a payee, the windows of rules that count each payee alone are not read.
    pub payee: Option<Address>,
    /// The hash of the idempotency key whose record is read.
    pub key: Option<Fingerprint>,
    /// The approval in the request.
    pub approval: Option<ApprovalId>,
    /// Whether to read the operators' freezes, which every decision about a payment needs.
    pub freezes: bool,
}

/// The inputs of a decision, read from the tables and never from a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecisionInputs {
    /// The record of the idempotency key, if the key was already used.
    pub record: Option<IdempotencyRecord>,
    /// The approval in the request. It may belong to another agent.
    pub approval: Option<Approval>,
    /// The policy and windows; `None` if no service was requested.
    pub service_state: Option<ServiceState>,
    /// The operators' freezes; `None` if they were not requested.
    pub freezes: Option<Freezes>,
}

/// The policy and windows of an agent and a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceState {
    /// The agent's policy for the service; `None` if the service was never enabled for the agent.
    pub enabled: Option<EnabledService>,
    /// Whether `enabled` is a default policy that [`Ledger::try_write_default_policy`] must store before a payment.
    pub is_unwritten: bool,
    /// The day window; empty before the first payment to the service.
    pub day: Window,
    /// The windows of the agent's counting rules, except windows that are not backfilled yet.
    pub budgets: Vec<(RuleId, Window)>,
    /// Whether `budgets` and `recent` are complete. Otherwise, call [`Ledger::backfill_payments`] and read again.
    pub is_backfilled: bool,
    /// The agent's recent payments to the service that the agent's rules need.
    pub recent: RecentPayments,
}

/// The caller for whom a decision's inputs are read.
#[derive(Clone, Copy)]
pub enum Reader<'a> {
    /// An agent whose key was verified.
    Verified(AgentId),
    /// A caller whose key is not verified yet, and the time of the request.
    Unverified(&'a PresentedKey, Timestamp),
}

impl From<AgentId> for Reader<'_> {
    fn from(agent: AgentId) -> Self {
        Self::Verified(agent)
    }
}

impl DecisionInputs {
    /// Returns the policy and windows, or an error if no service was requested.
    pub fn service_state_mut(&mut self) -> Result<&mut ServiceState> {
        let missing = || Error::internal("reading the service state", Fault::new("no service was requested"));
        self.service_state.as_mut().ok_or_else(missing)
    }

    /// Returns the operators' freeze that applies to the agent, or an error if the freezes were not requested.
    pub fn find_operator_freeze(&self, agent: &Agent) -> Result<Option<Freeze>> {
        let missing = || Error::internal("reading the freezes", Fault::new("the freezes were not requested"));
        Ok(self.freezes.as_ref().ok_or_else(missing)?.widest_for_agent(agent))
    }
}

impl ServiceState {
    /// Returns all windows, the day window first.
    pub fn all_windows(&self) -> impl Iterator<Item = &Window> {
        std::iter::once(&self.day).chain(self.budgets.iter().map(|(_, window)| window))
    }

    /// Returns a window whose spend at `at` is unknown, because it has more expired payments than one call reads.
    pub fn find_window_with_unknown_spend(&self, at: Timestamp) -> Option<&Window> {
        self.all_windows().find(|window| window.may_overstate_spend(at))
    }
}

impl Ledger {
    /// Reads the inputs and the agent. Takes 5 read units, or 6 with an approval, and one more per counting rule, in a
    /// second round trip. Without a valid key, budgets are not read, so that a wrong secret takes as long as an unknown
    /// agent.
    pub async fn read_decision_inputs(
        &self,
        caller: impl Into<Reader<'_>>,
        keys: &DecisionKeys,
    ) -> Result<(Option<Agent>, DecisionInputs)> {
        let caller = caller.into();
        let agent = match caller {
            Reader::Verified(agent) => agent,
            Reader::Unverified(key, _) => key.agent,
        };
        let mut backoff = Backoff::new();
        loop {
            // Boxed, because `join` copies a finished future, and the SDK's futures take kilobytes.
            let rows = Box::pin(self.read_decision_rows(agent, keys));
            let (rows, day) = tokio::try_join!(rows, Box::pin(self.read_day_window(agent, keys)))?;
            let SingleRows {
                agent,
                record,
                approval,
                policy,
                freezes,
            } = rows;
            let is_known = |agent: &&Agent| match caller {
                Reader::Verified(_) => true,
                Reader::Unverified(key, now) => key.is_valid_for(Some(agent), now),
            };
            let service_state = match day {
                Some(day) => {
                    let agent = agent.as_ref().filter(is_known);
                    self.read_service_state(policy, day, agent, keys.payee).await?
                }
                None => None,
            };
            if service_state.is_some() || keys.service.is_none() {
                let inputs = DecisionInputs {
                    record,
                    approval,
                    service_state,
                    freezes,
                };
                return Ok((agent, inputs));
            }
            backoff.wait_for_retry().await.map_err(|_| {
                Error::internal(
                    "reading a policy",
                    Fault::new("a policy or budget has another version than the window"),
                )
            })?;
        }
    }

    /// Reads the remaining expired payments of each window, so that the spend at `at` is exact. If one call can't read
    /// all of them, [`ServiceState::find_window_with_unknown_spend`] returns a window.
    pub async fn load_expired_payments(&self, service_state: &mut ServiceState, at: Timestamp) -> Result<()> {
        let left = PagesLeft::for_one_call();
        let budgets = service_state.budgets.iter_mut().map(|(_, window)| window);
        for window in std::iter::once(&mut service_state.day).chain(budgets) {
            self.read_past_expired_payments(window, at, &left).await?;
        }
        Ok(())
    }

    /// Returns `None` if the version of the policy or of a budget differs from the version in the window.
    async fn read_service_state(
        &self,
        policy: Option<EnabledService>,
        (mut day, recent): (Window, RecentPayments),
        agent: Option<&Agent>,
        payee: Option<Address>,
    ) -> Result<Option<ServiceState>> {
        // A stored policy has a day window with the same version. If neither is stored, a default policy may apply.
        let is_stored = day.stamp != 0;
        if policy.is_some() != is_stored || policy.as_ref().is_some_and(|enabled| enabled.version != day.stamp) {
            return Ok(None);
        }
        let default = if let (Some(agent), WindowScope::Day { service, .. }, false) = (agent, day.scope, is_stored) {
            Box::pin(self.read_default_policy(agent, service)).await?
        } else {
            None
        };
        if let Some(default) = &default {
            day.stamp = default.version;
        }
        let budgets = self.read_counting_rule_windows(agent, payee).await?;
        // Before the first payment to the service, the list of recent payments is empty and therefore complete.
        let is_remembered = day.version == 0
            || agent
                .and_then(Agent::recent_payment_rules_fingerprint)
                .is_none_or(|coverage| recent.coverage == Some(coverage));
        let is_unwritten = default.is_some();
        let enabled = policy.or(default);
        Ok(budgets.map(|(budgets, is_backfilled)| ServiceState {
            enabled,
            is_unwritten,
            day,
            budgets,
            is_backfilled: is_backfilled && is_remembered,
            recent,
        }))
    }

    async fn read_decision_rows(&self, id: AgentId, decision_keys: &DecisionKeys) -> Result<SingleRows> {
        let agent = Key::agent(id);
        let record = decision_keys.key.map(|key| Key::idempotency(id, &key));
        let approval = decision_keys.approval.map(Key::approval);
        let policy = decision_keys.service.map(|service| Key::policy(id, service));
        let freezes = decision_keys
            .freezes
            .then(|| Key::freezes(key::freeze_list_copy_index(id)));
        let keys = [
            Some(agent.clone()),
            record.clone(),
            approval.clone(),
            policy.clone(),
            freezes.clone(),
        ];
        let keys: Vec<Key> = keys.into_iter().flatten().collect();
        let items = self.get_items(&keys).await?;
        let item_of = |key: Option<&Key>| -> Option<&Item> {
            items.iter().find(|item| key.is_some_and(|key| key.is_key_of(item)))
        };
        Ok(SingleRows {
            agent: item_of(Some(&agent))
                .map(|item| self.read_agent_item(item))
                .transpose()?,
            record: item_of(record.as_ref())
                .map(|item| IdempotencyRecord::read_record(self.item_row(item)))
                .transpose()?,
            approval: item_of(approval.as_ref())
                .zip(decision_keys.approval)
                .map(|(item, id)| self.read_approval_item(id, item))
                .transpose()?,
            policy: item_of(policy.as_ref())
                .map(|item| self.read_policy(item))
                .transpose()?,
            freezes: freezes
                .map(|key| self.read_freezes_item(item_of(Some(&key))))
                .transpose()?,
        })
    }

    async fn read_day_window(&self, agent: AgentId, keys: &DecisionKeys) -> Result<Option<(Window, RecentPayments)>> {
        let Some(service) = keys.service else { return Ok(None) };
        let scope = WindowScope::Day { agent, service };
        self.read_day_window_head(scope).await.map(Some)
    }

    /// Reads the windows of the agent's counting rules, and returns whether all are backfilled. Returns `None` if a
    /// rule and its window have different versions.
    async fn read_counting_rule_windows(
        &self,
        agent: Option<&Agent>,
        payee: Option<Address>,
    ) -> Result<Option<(Vec<(RuleId, Window)>, bool)>> {
        let mut reads = tokio::task::JoinSet::new();
        let Some(agent) = agent else {
            return Ok(Some((Vec::new(), true)));
        };
        for budget in agent.counting_rules() {
            let Some(scope) = budget.window_scope(agent.id, payee) else {
                continue;
            };
            let (period, coverage, is_per_payee) =
                (budget.period, budget.coverage_fingerprint(), budget.is_per_payee());
            let (ledger, id, version) = (self.clone(), budget.rule.id, budget.rule.version);
            reads.spawn(async move {
                let (window, is_backfilled) = ledger.read_rule_window(scope, period, &coverage).await?;
                // The backfill starts a payee's window, and writes the version of a changed rule to the window.
                let is_current = window.stamp == version;
                Ok::<_, Error>((id, is_current || is_per_payee, window, is_backfilled && is_current))
            });
        }
        let mut budgets = Vec::with_capacity(reads.len());
        let mut all_backfilled = true;
        while let Some(read) = reads.join_next().await {
            let read = read.map_err(|error| Error::internal("reading a budget", error))?;
            let (id, is_consistent, window, is_backfilled) = read?;
            if !is_consistent {
                return Ok(None);
            }
            if is_backfilled {
                budgets.push((id, window));
            } else {
                all_backfilled = false;
            }
        }
        budgets.sort_by_key(|(id, _)| *id);
        Ok(Some((budgets, all_backfilled)))
    }
}

struct SingleRows {
    agent: Option<Agent>,
    record: Option<IdempotencyRecord>,
    approval: Option<Approval>,
    policy: Option<EnabledService>,
    freezes: Option<Freezes>,
}
