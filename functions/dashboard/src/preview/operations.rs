//! Compares proposed limits with the current limits, and tests them on recent decisions. Saves nothing.

use crate::agents::owned::{OwnedAgent, require_valid_exceptions};
use crate::state::People;
use purser_domain::{
    Agent, AgentId, AgentLimits, Backtest, BacktestResult, Catalog, Comparison, Duration, EnabledService,
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
    pub(crate) async fn preview_policy(
        &self,
        owned: &OwnedAgent,
        record: EnabledService,
        days: PreviewDays,
    ) -> Result<UpdatePreview> {
        let (edition, current) =
            tokio::try_join!(self.current_catalog(), self.ledger.list_enabled_services(owned.agent()))?;
        let services: Vec<&Service> = edition.catalog.find_by_id(record.service).into_iter().collect();
        let updated = replace_policies(&current, [record]);
        let agent = owned.agent();
        let limits = |policies| AgentLimits { agent, policies };
        let preview = self.compare_limits(limits(&current), limits(&updated), (&services, &edition.catalog), days);
        self.run_in_long_operation_slot(&agent.owner, preview).await
    }

    /// Previews an update of all rules, of several policies, or of both.
    pub(crate) async fn preview_limits(
        &self,
        owned: &OwnedAgent,
        proposed: &TestedLimits,
        days: PreviewDays,
    ) -> Result<UpdatePreview> {
        let agent = owned.agent();
        let (edition, current) = tokio::try_join!(self.current_catalog(), self.ledger.list_enabled_services(agent))?;
        let ProposedLimits { rules, policies, .. } = proposed.proposed_limits(agent, &current);
        let updated_agent = Agent {
            rules: rules.unwrap_or_else(|| agent.rules.clone()),
            ..agent.clone()
        };
        require_valid_exceptions(&updated_agent, agent, self.now())?;
        let updated = replace_policies(&current, policies.into_values());
        let services = updated
            .iter()
            .filter_map(|policy| edition.catalog.find_by_id(policy.service));
        let services: Vec<&Service> = services.collect();
        let limits = |agent, policies| AgentLimits { agent, policies };
        let (current, updated) = (limits(agent, &current), limits(&updated_agent, &updated));
        let preview = self.compare_limits(current, updated, (&services, &edition.catalog), days);
        self.run_in_long_operation_slot(&agent.owner, preview).await
    }

    /// Previews an update of the agent's rules. `updated_agent` is the agent after the update.
    pub(crate) async fn preview_rules(
        &self,
        owned: &OwnedAgent,
        updated_agent: Agent,
        days: PreviewDays,
    ) -> Result<UpdatePreview> {
        require_valid_exceptions(&updated_agent, owned.agent(), self.now())?;
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
        let compared = (services.as_slice(), &edition.catalog);
        let preview = self.compare_limits(limits(owned.agent()), limits(&updated_agent), compared, days);
        self.run_in_long_operation_slot(&owned.agent().owner, preview).await
    }

    /// Compares two versions of an agent's limits, and simulates both on the agent's newest decisions.
    async fn compare_limits(
        &self,
        current: AgentLimits<'_>,
        proposed_limits: AgentLimits<'_>,
        (services, catalog): (&[&Service], &Catalog),
        days: PreviewDays,
    ) -> Result<UpdatePreview> {
        let agent = current.agent;
        let findings = find_rule_findings(&proposed_limits, catalog, self.now());
        let comparison = compare_limits(&current, &proposed_limits, services, self.network, self.now());
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

/// An update replaces the current policy for the same service.
fn replace_policies(
    current: &[EnabledService],
    updates: impl IntoIterator<Item = EnabledService>,
) -> Vec<EnabledService> {
    let mut policies = current.to_vec();
    for update in updates {
        policies.retain(|policy| policy.service != update.service);
        policies.push(update);
    }
    policies
}
