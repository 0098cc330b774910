//! Previews: an edit is compared with the present limits, and tested over the agent's newest decisions. Nothing is
//! saved.

use crate::agents::owned::OwnedAgent;
use crate::state::People;
use purser_domain::{
    Agent, AgentId, AgentLimits, Backtest, BacktestResult, Candidate, Comparison, Duration, EnabledService, Result,
    Service, Timestamp, compare,
};
use purser_store::{BacktestReads, LogRange};

/// The number of days that a preview tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PreviewDays(u32);

impl PreviewDays {
    /// The maximum number of days.
    pub(crate) const MAX: u32 = 30;
    /// The days of a preview that names none.
    pub(crate) const DEFAULT: Self = Self(7);

    /// `None` for no day, and for more than [`PreviewDays::MAX`].
    pub(crate) const fn new(days: u32) -> Option<Self> {
        if days == 0 || days > Self::MAX {
            return None;
        }
        Some(Self(days))
    }

    /// The number.
    pub(crate) const fn count(self) -> u32 {
        self.0
    }

    fn length(self) -> Duration {
        Duration::from_secs_u32(self.0.saturating_mul(86_400))
    }
}

/// The maximum number of decisions that a preview tests, the newest ones, and of earlier payments that it counts: some
/// 800 read units.
const MAX_DECISIONS: usize = 5_000;
/// The maximum number of calls that a preview reads for a guard against duplicates or for pages.
const MAX_CALLS: usize = 1_000;
/// The number of rows in one read.
const ROWS: u32 = 500;

/// The preview of an edit.
#[derive(Debug)]
pub(crate) struct EditPreview {
    /// The agent.
    pub(crate) agent: AgentId,
    /// The days that were asked for.
    pub(crate) days: PreviewDays,
    /// The time from which decisions were tested.
    pub(crate) from: Timestamp,
    /// Whether there are more decisions than were tested.
    pub(crate) is_partial: bool,
    /// The limits before and after the edit.
    pub(crate) comparison: Comparison,
    /// What the edit would have changed.
    pub(crate) result: BacktestResult,
}

/// The candidate with exactly these limits.
fn candidate_of(limits: &AgentLimits<'_>) -> Candidate {
    let policies = limits.policies.iter().map(|policy| (policy.service, policy.clone()));
    Candidate {
        rules: Some(limits.agent.rules.clone()),
        status: None,
        policies: policies.collect(),
    }
}

impl People {
    /// The preview of replacing a policy, or of adding one.
    pub(crate) async fn preview_policy(
        &self,
        owned: &OwnedAgent,
        record: EnabledService,
        days: PreviewDays,
    ) -> Result<EditPreview> {
        let (edition, present) = tokio::try_join!(self.catalog(), self.ledger.list_enabled_services(owned.agent()))?;
        let services: Vec<&Service> = edition.catalog.by_id(record.service).into_iter().collect();
        let mut edited = present.clone();
        edited.retain(|policy| policy.service != record.service);
        edited.push(record);
        let agent = owned.agent();
        let limits = |policies| AgentLimits { agent, policies };
        let preview = self.compare_limits(limits(&present), limits(&edited), &services, days);
        self.run_long(&agent.owner, preview).await
    }

    /// The preview of other rules.
    pub(crate) async fn preview_rules(
        &self,
        owned: &OwnedAgent,
        edited: Agent,
        days: PreviewDays,
    ) -> Result<EditPreview> {
        let (edition, policies) = tokio::try_join!(self.catalog(), self.ledger.list_enabled_services(owned.agent()))?;
        let services = policies
            .iter()
            .filter_map(|policy| edition.catalog.by_id(policy.service));
        let services: Vec<&Service> = services.collect();
        let limits = |agent| AgentLimits {
            agent,
            policies: policies.as_slice(),
        };
        let preview = self.compare_limits(limits(owned.agent()), limits(&edited), &services, days);
        self.run_long(&owned.agent().owner, preview).await
    }

    /// Compares two versions of an agent's limits, and simulates both over its newest decisions.
    async fn compare_limits(
        &self,
        current: AgentLimits<'_>,
        proposed: AgentLimits<'_>,
        services: &[&Service],
        days: PreviewDays,
    ) -> Result<EditPreview> {
        let agent = current.agent;
        let comparison = compare(&current, &proposed, services, self.network, self.now());
        let since = self.usage.read_owned_since(agent).await?;
        let now = self.now();
        // The clock of another function may be ahead.
        let until = now.after(Duration::from_secs_u32(60));
        let mut from = now.before(days.length()).max(since).min(until);
        let (mut decisions, mut rest) = (Vec::new(), Some(LogRange::new(from, until, true)));
        while let Some(range) = rest.filter(|_| decisions.len() < MAX_DECISIONS) {
            let page = self.ledger.decisions_between(agent.id, range, ROWS).await?;
            decisions.extend(page.decisions);
            rest = page.rest;
        }
        let mut is_partial = rest.is_some();
        if let (true, Some(oldest)) = (is_partial, decisions.last()) {
            from = oldest.at();
        }
        let mut backtest = Backtest::for_update(candidate_of(&current), candidate_of(&proposed));
        let mut reads = BacktestReads::new(&self.usage, &self.ledger, &self.catalog_table, self.network, MAX_CALLS);
        let earlier = reads.count_earlier(&mut backtest, agent, (since, from), MAX_DECISIONS);
        is_partial |= Box::pin(earlier).await?;
        decisions.reverse();
        Box::pin(reads.test(&mut backtest, decisions)).await?;
        Ok(EditPreview {
            agent: agent.id,
            days,
            from,
            is_partial,
            comparison,
            result: backtest.result(),
        })
    }
}
