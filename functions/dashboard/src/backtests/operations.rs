//! Operations on backtests. The Lambda function `events` runs the backtests.

use crate::agents::listing::AgentFilter;
use crate::caller::Caller;
use crate::state::People;
use purser_domain::{
    Act, AgentId, AuditChanges, AuditKind, BacktestId, BacktestResult, BacktestRun, Day, Error, ErrorKind, LabelFilter,
    Result, TestedLimits, Timestamp, ValidationError,
};
use purser_store::AgentOrder;

/// The maximum number of unfinished backtests per user.
const MAX_WAITING: usize = 5;
/// The maximum number of backtests in a list.
pub(crate) const MAX_LISTED: u32 = 25;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TestedAgents {
    Ids(Vec<AgentId>),
    /// All agents that are not archived, or only the agents with a label.
    All(Option<LabelFilter>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewBacktest {
    pub(crate) agents: TestedAgents,
    pub(crate) from: Timestamp,
    pub(crate) to: Timestamp,
    pub(crate) terms: TestedLimits,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BacktestPlan {
    pub(crate) agents: Vec<AgentId>,
    /// The number of decisions about the agents' payments on the tested days.
    pub(crate) decisions: u64,
    pub(crate) read_units: u64,
}

impl People {
    /// Estimates a backtest's reads. Rejects a backtest of more than [`BacktestRun::MAX_DECISIONS`] decisions.
    pub(crate) async fn plan_backtest(&self, user: &Caller, new: &NewBacktest) -> Result<BacktestPlan> {
        let agents = self.select_tested_agents(user, &new.agents).await?;
        let days = (Day::containing(new.from), Day::containing(new.to));
        let sums = self.usage.read_sums_by_agent(&user.id, days.0, days.1).await?;
        let counts = agents.iter().filter_map(|agent| sums.get(agent));
        let decisions = counts.fold(0_u64, |sum, of| {
            let all = of.allowed.saturating_add(of.blocked).saturating_add(of.escalated);
            sum.saturating_add(all)
        });
        if decisions > BacktestRun::MAX_DECISIONS {
            let max = BacktestRun::MAX_DECISIONS;
            let message = format!("has some {decisions} decisions; a backtest tests at most {max}");
            return Err(Error::invalid(vec![ValidationError::at_path("/days", message)]));
        }
        let agent_count = u64::try_from(agents.len()).unwrap_or(u64::MAX);
        let read_units = new.terms.estimated_read_units(decisions, agent_count);
        Ok(BacktestPlan {
            agents,
            decisions,
            read_units,
        })
    }

    /// Stores a backtest. Rejects it if the user has [`MAX_WAITING`] unfinished backtests.
    pub(crate) async fn start_backtest(&self, user: &Caller, new: NewBacktest) -> Result<BacktestRun> {
        let action = Act::new(AuditKind::BacktestStarted);
        self.audit_rejection(&user.acting, &action, self.store_backtest(user, &action, new))
            .await
    }

    async fn store_backtest(&self, user: &Caller, action: &Act, new: NewBacktest) -> Result<BacktestRun> {
        let plan = self.plan_backtest(user, &new).await?;
        let others = self.usage.read_backtests(&user.id, MAX_LISTED).await?;
        let waiting = others.iter().filter(|run| run.next_agent().is_some());
        if waiting.count() >= MAX_WAITING {
            let message = format!("{MAX_WAITING} of your backtests are not done yet; wait for one of them");
            return Err(Error::invalid(vec![ValidationError::at_path("", message)]));
        }
        let now = self.now();
        let run = BacktestRun {
            id: BacktestId::new_at(now, self.entropy.random_bytes()?),
            owner: user.id.clone(),
            version: 1,
            created_at: now,
            from: new.from,
            to: new.to,
            terms: new.terms,
            agents: plan.agents,
            estimated: plan.decisions,
            done: 0,
            left_out: 0,
            partial: 0,
            result: BacktestResult::default(),
        };
        let audit_action = action.clone().with_object(&run.id);
        let changes = AuditChanges::between(None, Some(run.audit_log_fields()));
        let entry = self.audit_entry(&user.acting, &audit_action, changes)?;
        self.usage.put_backtest(&run, &entry).await?;
        Ok(run)
    }

    /// Returns `not_found` if the user has no backtest with this id.
    pub(crate) async fn read_backtest(&self, user: &Caller, id: BacktestId) -> Result<BacktestRun> {
        let run = self.usage.read_backtest(&user.id, id).await?;
        run.ok_or_else(|| ErrorKind::NotFound.into())
    }

    pub(crate) async fn list_backtests(&self, user: &Caller) -> Result<Vec<BacktestRun>> {
        self.usage.read_backtests(&user.id, MAX_LISTED).await
    }

    async fn select_tested_agents(&self, user: &Caller, agents: &TestedAgents) -> Result<Vec<AgentId>> {
        let label = match agents {
            TestedAgents::Ids(ids) => {
                let own = self.read_own_agents(user, ids.clone()).await?;
                if own.len() != ids.len() {
                    return Err(ErrorKind::NotFound.into());
                }
                return Ok(ids.clone());
            }
            TestedAgents::All(label) => label.clone(),
        };
        let filter = AgentFilter {
            label,
            ..AgentFilter::default()
        };
        let (mut found, mut from) = (Vec::new(), None);
        loop {
            let page = self
                .list_agents(user, &filter, AgentOrder::OldestFirst, from, 100)
                .await?;
            found.extend(page.items.iter().map(|owned| owned.agent().id));
            if found.len() > BacktestRun::MAX_AGENTS {
                let message = format!("must be at most {} agents", BacktestRun::MAX_AGENTS);
                return Err(Error::invalid(vec![ValidationError::at_path("/agents", message)]));
            }
            from = page.next;
            if from.is_none() {
                break;
            }
        }
        Ok(found)
    }
}
