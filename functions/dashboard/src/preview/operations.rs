//! Compares proposed limits with the current limits, and tests them on recent decisions. Saves nothing.

use crate::agents::owned::{OwnedAgent, require_valid_exceptions};
use crate::state::People;
use purser_api::Precondition;
use purser_domain::{
    Agent, AgentId, AgentLimits, Backtest, BacktestResult, Catalog, Comparison, Duration, EnabledService, LimitUpdate,
    ProposedLimits, Result, RuleFinding, Service, TestedLimits, Timestamp, compare_limits, find_rule_findings,
};
use purser_store::BacktestReads;

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

    /// The range ends a minute after `now`, because the clock of another Lambda function may be ahead.
    pub(crate) fn range_until(self, now: Timestamp) -> (Timestamp, Timestamp) {
        let from = now.before(Duration::from_secs_u32(self.0.saturating_mul(86_400)));
        (from, now.after(Duration::from_secs_u32(60)))
    }
}

/// The maximum number of decisions that a preview tests. Reading them takes about 800 DynamoDB read units.
pub(crate) const MAX_DECISIONS: usize = 5_000;
/// The maximum number of payments whose provider calls a preview reads. Further payments whose result depends
/// on the call are untested.
const MAX_CALLS: usize = 1_000;

#[derive(Debug)]
pub(crate) struct UpdatePreview {
    pub(crate) agent: AgentId,
    pub(crate) days: PreviewDays,
    /// The start of the tested range.
    pub(crate) from: Timestamp,
    /// Whether the range has more decisions than were tested.
    pub(crate) is_partial: bool,
    pub(crate) comparison: Comparison,
    /// The decisions that the update would have changed.
    pub(crate) result: BacktestResult,
    /// Findings about the agent's rules after the update, for example that a rule never blocks a payment.
    pub(crate) findings: Vec<RuleFinding>,
}

fn to_proposed_limits(limits: &AgentLimits<'_>) -> ProposedLimits {
    let policies = limits.policies.iter().map(|policy| (policy.service, policy.clone()));
    ProposedLimits {
        rules: Some(limits.agent.rules.clone()),
        status: None,
        policies: policies.collect(),
    }
}

impl People {
    /// Saves an update of an agent's limits. Wider limits require a recent sign-in.
    pub(crate) async fn save_update(
        &self,
        owned: OwnedAgent,
        if_match: Precondition,
        update: &LimitUpdate,
    ) -> Result<()> {
        match update {
            LimitUpdate::Rules(update) => self.save_rules(owned, if_match, update).await.map(|_| ()),
            LimitUpdate::Service(service, update) => {
                self.save_service(&owned, if_match, *service, update).await.map(|_| ())
            }
        }
    }

    /// Previews an update of an agent's limits. `if_match` applies to the record that the update would replace.
    pub(crate) async fn preview_update(
        &self,
        owned: &OwnedAgent,
        if_match: Precondition,
        update: &LimitUpdate,
        days: PreviewDays,
    ) -> Result<UpdatePreview> {
        let updated = |policies: &[EnabledService], catalog: &Catalog| {
            if_match.check_version(update.replaced_version(owned.agent(), policies)?)?;
            update.apply(owned.agent(), policies, catalog, self.now())
        };
        self.preview_limits(owned, updated, days).await
    }

    /// Previews limits that replace all rules, several policies, or both.
    pub(crate) async fn preview_tested_limits(
        &self,
        owned: &OwnedAgent,
        tested: &TestedLimits,
        days: PreviewDays,
    ) -> Result<UpdatePreview> {
        let agent = owned.agent();
        let updated = |policies: &[EnabledService], _: &Catalog| {
            Ok(tested.proposed_limits(agent, policies).apply(agent, policies))
        };
        self.preview_limits(owned, updated, days).await
    }

    /// `updated_limits` returns the agent and the policies after the update, from the current policies and the catalog.
    async fn preview_limits(
        &self,
        owned: &OwnedAgent,
        updated_limits: impl FnOnce(&[EnabledService], &Catalog) -> Result<(Agent, Vec<EnabledService>)>,
        days: PreviewDays,
    ) -> Result<UpdatePreview> {
        let agent = owned.agent();
        let (edition, current) = tokio::try_join!(self.current_catalog(), self.ledger.list_enabled_services(agent))?;
        let (updated_agent, updated) = updated_limits(&current, &edition.catalog)?;
        require_valid_exceptions(&updated_agent, agent, self.now())?;
        let limits = |agent, policies| AgentLimits { agent, policies };
        let (current, updated) = (limits(agent, &current), limits(&updated_agent, &updated));
        let preview = self.compare_and_simulate(current, updated, &edition.catalog, days);
        self.run_in_long_operation_slot(&agent.owner, preview).await
    }

    /// Compares the limits before and after an update. Examples are requests to the services that the update can affect.
    pub(crate) fn compare_limits(
        &self,
        current: &AgentLimits<'_>,
        updated: &AgentLimits<'_>,
        catalog: &Catalog,
    ) -> Comparison {
        let has_same_rules = current.agent.rules == updated.agent.rules;
        let policies = updated.policies.iter();
        let services: Vec<&Service> = policies
            .filter(|policy| !has_same_rules || !current.policies.contains(policy))
            .filter_map(|policy| catalog.find_by_id(policy.service))
            .collect();
        compare_limits(current, updated, &services, self.network, self.now())
    }

    /// Compares two versions of an agent's limits, and simulates both on the agent's newest decisions.
    async fn compare_and_simulate(
        &self,
        current: AgentLimits<'_>,
        proposed_limits: AgentLimits<'_>,
        catalog: &Catalog,
        days: PreviewDays,
    ) -> Result<UpdatePreview> {
        let agent = current.agent;
        let findings = find_rule_findings(&proposed_limits, catalog, self.now());
        let comparison = self.compare_limits(&current, &proposed_limits, catalog);
        let range = days.range_until(self.now());
        let mut backtest = Backtest::for_update(to_proposed_limits(&current), to_proposed_limits(&proposed_limits));
        let mut reads = BacktestReads::new(&self.usage, &self.ledger, &self.catalog_table, self.network, MAX_CALLS);
        let run = reads.test_newest_decisions(&mut backtest, agent, range, MAX_DECISIONS, || false);
        let (from, _, is_partial) = Box::pin(run).await?;
        Ok(UpdatePreview {
            agent: agent.id,
            days,
            from,
            is_partial,
            comparison,
            result: backtest.result_so_far(),
            findings,
        })
    }
}
