//! Operations that list, add, replace and remove an agent's rules.

use crate::agents::owned::OwnedAgent;
use crate::preview::operations::{PreviewDays, UpdatePreview};
use crate::state::People;
use purser_api::Precondition;
use purser_domain::{
    Act, Agent, AgentLimits, AuditKind, Catalog, Error, ErrorKind, Result, Rule, RuleFinding, RuleId, RuleKind,
    RuleRejection, Spend, ValidationError, WindowScope, find_rule_findings,
};

/// A rule, with the used part of the rule's window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RuleUsage {
    pub(crate) rule: Rule,
    /// `None` for rules that count no payments, and for rules with a separate window for each payee.
    pub(crate) used: Option<Spend>,
}

/// A rule whose services and values are valid for the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CheckedRule(RuleKind);

impl CheckedRule {
    pub(crate) fn check(kind: RuleKind, catalog: &Catalog) -> Result<Self, Vec<ValidationError>> {
        let errors = kind.validation_errors(catalog);
        if errors.is_empty() { Ok(Self(kind)) } else { Err(errors) }
    }

    pub(crate) const fn kind(&self) -> &RuleKind {
        &self.0
    }
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

    pub(crate) async fn add_rule(
        &self,
        owned: OwnedAgent,
        if_match: Precondition,
        rule: &CheckedRule,
    ) -> Result<(OwnedAgent, RuleId)> {
        let id = RuleId::from_uuid(self.random_uuid()?);
        let now = self.now();
        let add = |agent: Agent| {
            let agent = agent.without_budgets_of_ended_keys(now);
            agent.with_rule(id, rule.kind().clone()).map_err(rule_rejection_error)
        };
        let action = Act::new(AuditKind::RuleAdded).with_object(&id);
        Ok((self.update_agent_record(owned, if_match, action, add).await?, id))
    }

    /// The new rule must be of the same kind.
    pub(crate) async fn replace_rule(
        &self,
        owned: OwnedAgent,
        if_match: Precondition,
        id: RuleId,
        rule: &CheckedRule,
    ) -> Result<OwnedAgent> {
        let replace = |agent: Agent| {
            agent
                .with_changed_rule(id, rule.kind().clone())
                .map_err(rule_rejection_error)
        };
        self.update_agent_record(
            owned,
            if_match,
            Act::new(AuditKind::RuleReplaced).with_object(&id),
            replace,
        )
        .await
    }

    pub(crate) async fn preview_added_rule(
        &self,
        owned: &OwnedAgent,
        if_match: Precondition,
        rule: &CheckedRule,
        days: PreviewDays,
    ) -> Result<UpdatePreview> {
        if_match.check_version(owned.agent().version)?;
        let id = RuleId::from_uuid(self.random_uuid()?);
        let agent = owned.agent().clone().without_budgets_of_ended_keys(self.now());
        let added = agent.with_rule(id, rule.kind().clone());
        self.preview_rules(owned, added.map_err(rule_rejection_error)?, days)
            .await
    }

    pub(crate) async fn preview_replaced_rule(
        &self,
        owned: &OwnedAgent,
        if_match: Precondition,
        id: RuleId,
        rule: &CheckedRule,
        days: PreviewDays,
    ) -> Result<UpdatePreview> {
        if_match.check_version(owned.agent().version)?;
        let replaced = owned.agent().clone().with_changed_rule(id, rule.kind().clone());
        self.preview_rules(owned, replaced.map_err(rule_rejection_error)?, days)
            .await
    }

    pub(crate) async fn preview_removed_rule(
        &self,
        owned: &OwnedAgent,
        if_match: Precondition,
        id: RuleId,
        days: PreviewDays,
    ) -> Result<UpdatePreview> {
        if_match.check_version(owned.agent().version)?;
        let left = owned.agent().clone().without_rule(id);
        self.preview_rules(owned, left.map_err(rule_rejection_error)?, days)
            .await
    }

    pub(crate) async fn remove_rule(
        &self,
        owned: OwnedAgent,
        if_match: Precondition,
        id: RuleId,
    ) -> Result<OwnedAgent> {
        let remove = |agent: Agent| agent.without_rule(id).map_err(rule_rejection_error);
        self.update_agent_record(
            owned,
            if_match,
            Act::new(AuditKind::RuleRemoved).with_object(&id),
            remove,
        )
        .await
    }
}

pub(crate) fn rule_rejection_error(rejection: RuleRejection) -> Error {
    let error = match rejection {
        RuleRejection::Unknown => return ErrorKind::NotFound.into(),
        RuleRejection::TooMany => {
            let message = format!("an agent has at most {} rules; remove one first", Agent::MAX_RULES);
            ValidationError::at_path("", message)
        }
        RuleRejection::TooManyBudgets => {
            let message = format!(
                "an agent has at most {} budgets, count limits and minimum intervals together; remove one first",
                Agent::MAX_BUDGETS
            );
            ValidationError::at_path("", message)
        }
        RuleRejection::SecondBrake => {
            ValidationError::at_path("/kind", "an agent has at most one anomaly brake; edit or remove it")
        }
        RuleRejection::UnknownKey { index } => {
            ValidationError::at_path(format!("/keys/{index}"), "is not the id of a key of the agent")
        }
        RuleRejection::OtherKind => ValidationError::at_path(
            "/kind",
            "must be the rule's own, and `per_payee` too; remove the rule and add another",
        ),
    };
    Error::invalid(vec![error])
}
