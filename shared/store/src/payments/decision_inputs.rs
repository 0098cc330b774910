//! Everything that a decision reads, in one round trip: a `BatchGetItem` of single rows beside a Query of the window.
//!
//! Reads of several items are not a snapshot, so any of them may be torn. That is safe: a condition of the resulting
//! write checks every fact again. Only a policy and the totals with its stamp must agree to be judged at all; they are
//! read again until they do.

use crate::{
    codec::backoff::Backoff, codec::fault::Fault, codec::item::Item, codec::key::Key, codec::ledger::Ledger,
    payments::idempotency::IdempotencyRecord, payments::window::Head,
};
use purser_domain::{
    Agent, AgentId, Approval, ApprovalId, Duration, EnabledService, Error, Fingerprint, PresentedKey, Result, RuleId,
    ServiceId, Timestamp, Window, WindowScope,
};

/// What to read in addition to the calling agent's record.
#[derive(Clone, Copy, Debug, Default)]
pub struct DecisionKeys {
    /// The service; without it no window is read.
    pub service: Option<ServiceId>,
    /// The hash of the idempotency key.
    pub key: Option<Fingerprint>,
    /// The approval that the request carries.
    pub approval: Option<ApprovalId>,
}

/// What was read; nothing in it is older than the call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecisionInputs {
    /// The idempotency record.
    pub record: Option<IdempotencyRecord>,
    /// The approval; it may belong to another agent.
    pub approval: Option<Approval>,
    /// Policy and windows; `None` when no service was requested.
    pub service_state: Option<ServiceState>,
}

/// The policy and the windows of an agent and a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceState {
    /// The service's record on the agent; `None` when it was never enabled.
    pub enabled: Option<EnabledService>,
    /// The day window; empty when nothing was ever authorized.
    pub day: Window,
    /// The window of each of the agent's budgets.
    pub budgets: Vec<(RuleId, Window)>,
}

impl DecisionInputs {
    /// The service state; an error if no service was requested.
    pub fn service_state_mut(&mut self) -> Result<&mut ServiceState> {
        let missing = || Error::internal("reading the service state", Fault::new("no service was asked for"));
        self.service_state.as_mut().ok_or_else(missing)
    }
}

impl ServiceState {
    /// Every window, the day window first.
    pub fn windows(&self) -> impl Iterator<Item = &Window> {
        std::iter::once(&self.day).chain(self.budgets.iter().map(|(_, window)| window))
    }
}

impl Ledger {
    /// Reads the inputs and the agent, if it exists: 3 read units, 4 with an approval, and one more for each budget;
    /// budgets take a second round trip.
    pub async fn decision_inputs(&self, agent: AgentId, ask: &DecisionKeys) -> Result<(Option<Agent>, DecisionInputs)> {
        self.decision_inputs_unless(None, agent, ask).await
    }

    /// The same for a caller who is not authenticated yet: unless the key is the agent's own and valid at `now`, no
    /// budget is read, so that a wrong secret causes the same work as an agent that does not exist.
    pub async fn decision_inputs_for(
        &self,
        key: &PresentedKey,
        now: Timestamp,
        ask: &DecisionKeys,
    ) -> Result<(Option<Agent>, DecisionInputs)> {
        self.decision_inputs_unless(Some((key, now)), key.agent, ask).await
    }

    async fn decision_inputs_unless(
        &self,
        unproven: Option<(&PresentedKey, Timestamp)>,
        agent: AgentId,
        ask: &DecisionKeys,
    ) -> Result<(Option<Agent>, DecisionInputs)> {
        let mut backoff = Backoff::new();
        loop {
            // Boxed, since `join` copies a finished future, and the SDK's take kilobytes.
            let rows = Box::pin(self.single_rows(agent, ask));
            let (rows, head) = tokio::try_join!(rows, Box::pin(self.day(agent, ask)))?;
            let SingleRows {
                agent,
                record,
                approval,
            } = rows;
            let is_known = |agent: &&Agent| unproven.is_none_or(|(key, now)| key.is_valid_for(Some(agent), now));
            let service_state = match head {
                Some(head) => self.service_state(head, agent.as_ref().filter(is_known)).await?,
                None => None,
            };
            if service_state.is_some() || ask.service.is_none() {
                let inputs = DecisionInputs {
                    record,
                    approval,
                    service_state,
                };
                return Ok((agent, inputs));
            }
            backoff.wait().await.map_err(|_| {
                Error::internal(
                    "reading a policy",
                    Fault::new("a policy or budget and its window do not agree"),
                )
            })?;
        }
    }

    /// Reads more entries of each window that hides expired ones, until [`Window::live`] at `at` is exact; 503
    /// `temporarily_unavailable` if more has rolled out than a read-only call should read: authorize evicts it.
    pub async fn read_live(&self, service_state: &mut ServiceState, at: Timestamp) -> Result<()> {
        /// 50,000 entries, some 2,000 read units.
        const MOST_PAGES: u32 = 50;
        let mut pages = 0_u32;
        let budgets = service_state.budgets.iter_mut().map(|(_, window)| window);
        for window in std::iter::once(&mut service_state.day).chain(budgets) {
            while window.hides_expired(at) {
                if pages >= MOST_PAGES {
                    let words = Fault::new("too much has rolled out of it");
                    return Err(Error::temporarily_unavailable("reading a window", words));
                }
                pages = pages.saturating_add(1);
                self.read_further(window).await?;
            }
        }
        Ok(())
    }

    /// The service state from the day window and the agent's budgets; `None` when a policy or budget and its window
    /// were read at different versions.
    async fn service_state(&self, day: Head, agent: Option<&Agent>) -> Result<Option<ServiceState>> {
        let Head {
            policy: enabled,
            window: day,
        } = day;
        if enabled.as_ref().is_some_and(|enabled| enabled.version != day.stamp) {
            return Ok(None);
        }
        let budgets = self.budgets(agent).await?;
        Ok(budgets.map(|budgets| ServiceState { enabled, day, budgets }))
    }

    async fn single_rows(&self, id: AgentId, ask: &DecisionKeys) -> Result<SingleRows> {
        let agent = Key::agent(id);
        let record = ask.key.map(|key| Key::idempotency(id, &key));
        let approval = ask.approval.map(Key::approval);
        let keys: Vec<Key> = [Some(agent.clone()), record.clone(), approval.clone()]
            .into_iter()
            .flatten()
            .collect();
        let items = self.get_all(&keys).await?;
        let item_of =
            |key: Option<&Key>| -> Option<&Item> { items.iter().find(|item| key.is_some_and(|key| key.is_of(item))) };
        Ok(SingleRows {
            agent: item_of(Some(&agent))
                .map(|item| self.read_agent(id, item))
                .transpose()?,
            record: item_of(record.as_ref())
                .map(|item| IdempotencyRecord::read(self.row(item)))
                .transpose()?,
            approval: item_of(approval.as_ref())
                .zip(ask.approval)
                .map(|(item, id)| self.read_approval(id, item))
                .transpose()?,
        })
    }

    async fn day(&self, agent: AgentId, ask: &DecisionKeys) -> Result<Option<Head>> {
        let Some(service) = ask.service else { return Ok(None) };
        let scope = WindowScope::Day { agent, service };
        self.head(scope, Duration::DAY).await.map(Some)
    }

    /// The windows of the agent's budgets, read concurrently; `None` when one does not have its rule's stamp.
    async fn budgets(&self, agent: Option<&Agent>) -> Result<Option<Vec<(RuleId, Window)>>> {
        let mut reads = tokio::task::JoinSet::new();
        let Some(agent) = agent else {
            return Ok(Some(Vec::new()));
        };
        for budget in agent.budgets() {
            let (scope, length) = (budget.scope(agent.id), budget.length);
            let (ledger, id, version) = (self.clone(), budget.rule.id, budget.rule.version);
            reads.spawn(async move { ledger.head(scope, length).await.map(|head| (id, version, head.window)) });
        }
        let mut budgets = Vec::with_capacity(reads.len());
        while let Some(read) = reads.join_next().await {
            let (id, version, window) = read.map_err(|error| Error::internal("reading a budget", error))??;
            if window.stamp != version {
                return Ok(None);
            }
            budgets.push((id, window));
        }
        budgets.sort_by_key(|(id, _)| *id);
        Ok(Some(budgets))
    }
}

struct SingleRows {
    agent: Option<Agent>,
    record: Option<IdempotencyRecord>,
    approval: Option<Approval>,
}
