//! Previews. The proposed limits are compared with the current limits, and tested on the agent's newest decisions.
//! Nothing is saved.

use crate::agents::owned::OwnedAgent;
use crate::state::People;
use purser_domain::{
    Agent, AgentId, AgentLimits, Backtest, BacktestResult, Comparison, Duration, EnabledService, ProposedLimits,
    Result, Service, Timestamp, compare_limits,
};
use purser_store::{BacktestReads, LogRange};

/// The number of days whose decisions a preview tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PreviewDays(u32);

impl PreviewDays {
    /// The maximum number of days whose decisions a preview tests.
    pub(crate) const MAX: u32 = 30;
    pub(crate) const DEFAULT: Self = Self(7);

    /// Returns `None` if `days` is zero or above [`PreviewDays::MAX`].
    pub(crate) const fn new(days: u32) -> Option<Self> {
        if days == 0 || days > Self::MAX {
            return None;
        }
        Some(Self(days))
    }

    pub(crate) const fn count(self) -> u32 {
        self.0
    }

    fn duration(self) -> Duration {
        Duration::from_secs_u32(self.0.saturating_mul(86_400))
    }
}

/// The maximum number of decisions that a preview tests, and the maximum number of earlier payments that a preview
/// counts. The newest decisions are tested. Reading this many rows takes about 800 DynamoDB read units.
const MAX_DECISIONS: usize = 5_000;
/// The maximum number of payments whose calls a preview reads. A call is read only if the decision depends on the page
/// that the call fetches, or on a new duplicate guard.
const MAX_CALLS: usize = 1_000;
/// The number of rows per read.
const ROWS: u32 = 500;

#[derive(Debug)]
pub(crate) struct UpdatePreview {
    pub(crate) agent: AgentId,
    /// The requested number of days.
    pub(crate) days: PreviewDays,
    /// The start of the tested range.
    pub(crate) from: Timestamp,
    /// Whether the range has more decisions than were tested.
    pub(crate) is_partial: bool,
    /// The comparison of the limits before and after the update.
    pub(crate) comparison: Comparison,
    /// The decisions that the update would have changed.
    pub(crate) result: BacktestResult,
}

/// Returns a proposed policy with these limits.
fn to_proposed_limits(limits: &AgentLimits<'_>) -> ProposedLimits {
    let policies = limits.policies.iter().map(|policy| (policy.service, policy.clone()));
    ProposedLimits {
        rules: Some(limits.agent.rules.clone()),
        status: None,
        policies: policies.collect(),
    }
}

impl People {
    /// Previews an update that replaces or adds a policy.
    pub(crate) async fn preview_policy(
        &self,
        owned: &OwnedAgent,
        record: EnabledService,
        days: PreviewDays,
    ) -> Result<UpdatePreview> {
        let (edition, current) =
            tokio::try_join!(self.current_catalog(), self.ledger.list_enabled_services(owned.agent()))?;
        let services: Vec<&Service> = edition.catalog.find_by_id(record.service).into_iter().collect();
        let mut updated = current.clone();
        updated.retain(|policy| policy.service != record.service);
        updated.push(record);
        let agent = owned.agent();
        let limits = |policies| AgentLimits { agent, policies };
        let preview = self.compare_limits(limits(&current), limits(&updated), &services, days);
        self.run_in_user_slot(&agent.owner, preview).await
    }

    /// Previews an update to the rules of `updated_agent`.
    pub(crate) async fn preview_rules(
        &self,
        owned: &OwnedAgent,
        updated_agent: Agent,
        days: PreviewDays,
    ) -> Result<UpdatePreview> {
        let (edition, policies) =
            tokio::try_join!(self.current_catalog(), self.ledger.list_enabled_services(owned.agent()))?;
        let services = policies
            .iter()
            .filter_map(|policy| edition.catalog.find_by_id(policy.service));
        let services: Vec<&Service> = services.collect();
        let limits = |agent| AgentLimits {
            agent,
            policies: policies.as_slice(),
        };
        let preview = self.compare_limits(limits(owned.agent()), limits(&updated_agent), &services, days);
        self.run_in_user_slot(&owned.agent().owner, preview).await
    }

    /// Compares two versions of an agent's limits, and simulates both on the agent's newest decisions.
    async fn compare_limits(
        &self,
        current: AgentLimits<'_>,
        proposed_limits: AgentLimits<'_>,
        services: &[&Service],
        days: PreviewDays,
    ) -> Result<UpdatePreview> {
        let agent = current.agent;
        let comparison = compare_limits(&current, &proposed_limits, services, self.network, self.now());
        let since = self.usage.read_owned_since(agent).await?;
        let now = self.now();
        // One minute later than now, because another function's clock may be ahead.
        let until = now.after(Duration::from_secs_u32(60));
        let mut from = now.before(days.duration()).max(since).min(until);
        let (mut decisions, mut rest) = (Vec::new(), Some(LogRange::new(from, until, true)));
        while let Some(range) = rest.filter(|_| decisions.len() < MAX_DECISIONS) {
            let page = self.ledger.read_decisions_between(agent.id, range, ROWS).await?;
            decisions.extend(page.decisions);
            rest = page.rest;
        }
        let mut is_partial = rest.is_some();
        if let (true, Some(oldest)) = (is_partial, decisions.last()) {
            from = oldest.decided_at();
        }
        let mut backtest = Backtest::for_update(to_proposed_limits(&current), to_proposed_limits(&proposed_limits));
        let mut reads = BacktestReads::new(&self.usage, &self.ledger, &self.catalog_table, self.network, MAX_CALLS);
        let earlier = reads.count_earlier_payments(&mut backtest, agent, (since, from), MAX_DECISIONS);
        is_partial |= Box::pin(earlier).await?;
        decisions.reverse();
        Box::pin(reads.test_decisions(&mut backtest, decisions)).await?;
        Ok(UpdatePreview {
            agent: agent.id,
            days,
            from,
            is_partial,
            comparison,
            result: backtest.current_result(),
        })
    }
}
