//! Operations that list, add, replace and remove an agent's rules.

use crate::agents::owned::OwnedAgent;
use crate::state::People;
use purser_api::Precondition;
use purser_domain::{
    AgentLimits, Result, Rule, RuleFinding, RuleId, RuleUpdate, Spend, WindowScope, find_rule_findings,
};

/// A rule, with the used part of the rule's window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RuleUsage {
    pub(crate) rule: Rule,
    /// `None` for rules that count no payments, and for rules with a separate window for each payee.
    pub(crate) used: Option<Spend>,
}

impl People {
    pub(crate) async fn list_rules(&self, owned: &OwnedAgent) -> Result<Vec<RuleUsage>> {
        let agent = owned.agent();
        let counting = agent.counting_rules();
        let counting = counting.filter_map(|counting| Some((counting.window_scope(agent.id, None)?, counting.period)));
        let mut spends = self.read_spend_in_windows(&counting.collect::<Vec<_>>()).await?;
        let edition = self.current_catalog().await?;
        let earlier = self
            .ledger
            .estimate_unbackfilled_windows(agent, &edition.catalog, self.now());
        spends.replace_windows(earlier.await?);
        let scope = |rule| WindowScope::Budget { agent: agent.id, rule };
        let usages = agent.rules.iter().map(|rule| RuleUsage {
            used: rule
                .kind
                .counted_limit()
                .filter(|_| !rule.kind.scope().per_payee)
                .map(|_| spends.spend_in_window(scope(rule.id))),
            rule: rule.clone(),
        });
        Ok(usages.collect())
    }

    pub(crate) async fn list_rule_findings(&self, owned: &OwnedAgent) -> Result<Vec<RuleFinding>> {
        let agent = owned.agent();
        let (edition, policies) = tokio::try_join!(self.current_catalog(), self.ledger.list_enabled_services(agent))?;
        let limits = AgentLimits {
            agent,
            policies: &policies,
        };
        Ok(find_rule_findings(&limits, &edition.catalog, self.now()))
    }

    /// Saves an update of the agent's rules. Wider limits require a recent sign-in.
    pub(crate) async fn save_rules(
        &self,
        owned: OwnedAgent,
        if_match: Precondition,
        update: &RuleUpdate,
    ) -> Result<OwnedAgent> {
        let now = self.now();
        let change = |agent| update.apply(agent, now);
        self.update_agent_record(owned, if_match, update.act(), change).await
    }

    pub(crate) fn new_rule_id(&self) -> Result<RuleId> {
        Ok(RuleId::from_uuid(self.random_uuid()?))
    }

    pub(crate) fn new_rule_ids(&self, count: usize) -> Result<Vec<RuleId>> {
        (0..count).map(|_| self.new_rule_id()).collect()
    }
}
