//! Runs backtests in the background, one agent after another.
//!
//! The backtest's row is replaced after each agent, conditional on the row's version. So a killed run loses the work
//! for at most one agent, and one of two concurrent runs stores a result.

use crate::{
    Inner,
    payees::{is_corruption_error, report_unreadable_row},
};
use purser_domain::{AgentId, AgentTested, BacktestRun, ErrorKind, Result};
use purser_store::{BacktestReads, WaitingBacktest};
use std::time::Duration;
use tokio::time::Instant;

const MAX_RUNS: u32 = 20;
/// The time that is enough to test most agents. A run with less time left starts no further agent.
const ONE_AGENT: Duration = Duration::from_secs(20);
/// The time reserved for writing a result.
const RESERVED_TIME: Duration = Duration::from_secs(5);

enum BacktestProgress {
    /// All agents are tested, or the backtest is unreadable and was ended.
    Ended,
    /// A later or concurrent run continues the backtest.
    TimeIsOver,
}

impl Inner {
    /// Continues backtests, oldest first, until all are complete or the time is over.
    pub(crate) async fn run_backtests(&self, time_left: Duration) -> Result<()> {
        let began = Instant::now();
        let after = |duration| began.checked_add(duration).unwrap_or(began);
        let (start_deadline, end_deadline) = (
            after(time_left.saturating_sub(ONE_AGENT)),
            after(time_left.saturating_sub(RESERVED_TIME)),
        );
        let (mut is_first_agent, mut continued) = (true, Ok(()));
        for waiting in self.usage.read_waiting_backtests(MAX_RUNS).await? {
            // A failed backtest does not stop the other backtests.
            let waiting = match waiting {
                Ok(waiting) => waiting,
                Err(error) => {
                    report_unreadable_row(&error);
                    continue;
                }
            };
            match self
                .continue_backtest(&waiting, (start_deadline, end_deadline), &mut is_first_agent)
                .await
            {
                Ok(BacktestProgress::Ended) => {}
                Ok(BacktestProgress::TimeIsOver) => break,
                Err(error) if is_corruption_error(&error) => {
                    report_unreadable_row(&error);
                    self.usage.end_backtest(waiting.id).await?;
                }
                Err(error) => continued = Err(error),
            }
            if Instant::now() >= start_deadline {
                break;
            }
        }
        continued
    }

    async fn continue_backtest(
        &self,
        waiting: &WaitingBacktest,
        (start_deadline, end_deadline): (Instant, Instant),
        is_first_agent: &mut bool,
    ) -> Result<BacktestProgress> {
        let Some(mut run) = self.usage.read_backtest(&waiting.owner, waiting.id).await? else {
            if waiting.is_overdue(self.clock.now()) {
                self.usage.end_backtest(waiting.id).await?;
            }
            return Ok(BacktestProgress::Ended);
        };
        while let Some(agent) = run.next_agent() {
            if Instant::now() >= start_deadline {
                return Ok(BacktestProgress::TimeIsOver);
            }
            let tested = self.backtest_agent_or_skip(&run, agent, end_deadline).await?;
            if Instant::now() >= end_deadline && !*is_first_agent {
                // The next run starts with this agent and has more time for it.
                return Ok(BacktestProgress::TimeIsOver);
            }
            *is_first_agent = false;
            let next = run.with_tested_agent(&tested);
            if !self.usage.try_replace_backtest(&next).await? {
                // A concurrent run has added this agent's result and continues the backtest.
                return Ok(BacktestProgress::TimeIsOver);
            }
            run = next;
        }
        self.usage.end_backtest(waiting.id).await?;
        tracing::info!(backtest.id = %run.id, decisions = run.result.decisions, "backtest.done");
        Ok(BacktestProgress::Ended)
    }

    /// Tests one agent of a backtest. Skips an agent that is unreadable or has a new owner.
    async fn backtest_agent_or_skip(
        &self,
        run: &BacktestRun,
        agent: AgentId,
        end_deadline: Instant,
    ) -> Result<AgentTested> {
        match self.run_agent_backtest(run, agent, end_deadline).await {
            Ok(tested) => Ok(tested),
            Err(error) if matches!(error.kind(), ErrorKind::TemporarilyUnavailable { .. }) => Err(error),
            Err(error) => {
                tracing::error!(agent.id = %agent, cause = %error, "backtest.left_out");
                Ok(AgentTested::LeftOut)
            }
        }
    }

    async fn run_agent_backtest(&self, run: &BacktestRun, id: AgentId, end_deadline: Instant) -> Result<AgentTested> {
        let agent = self.ledger.read_agent_by_id(id).await?;
        let Some(agent) = agent.filter(|agent| agent.owner == run.owner.as_str()) else {
            return Ok(AgentTested::LeftOut);
        };
        let mut present = Vec::new();
        for service in run.terms.policies.keys() {
            present.extend(self.ledger.find_enabled_service(id, *service).await?);
        }
        let proposed_limits = run.terms.proposed_limits(&agent, &present);
        let mut reads = BacktestReads::new(
            &self.usage,
            &self.ledger,
            &self.catalog,
            self.network,
            BacktestRun::MAX_CALLS,
        );
        let range = (run.from, run.to);
        let is_over = || Instant::now() >= end_deadline;
        let most = BacktestRun::MAX_PER_AGENT;
        let (result, is_partial) = reads
            .test_agent_decisions(&agent, proposed_limits, range, most, is_over)
            .await?;
        Ok(AgentTested::Tested { result, is_partial })
    }
}
