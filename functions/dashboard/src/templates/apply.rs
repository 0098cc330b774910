//! Applies a template to agents: first the agent's rules, then the policies in sequence. Widening updates come last.
//!
//! The agent's record stores the template version that is being applied, and the last update marks this version as
//! applied. So the next call can continue interrupted updates. If a sign-in is too old for one update, no update is
//! made.

use crate::agents::listing::follows_template;
use crate::agents::outcome::BulkOutcome;
use crate::agents::owned::OwnedAgent;
use crate::caller::Caller;
use crate::history::operations::Direction;
use crate::several::run_concurrently;
use crate::state::People;
use purser_api::Precondition;
use purser_domain::{
    Act, Agent, AgentId, AuditChanges, AuditFields, AuditKind, Catalog, EditReason, Error, ErrorKind, FollowedTemplate,
    LimitDifference, Overrides, PolicyTemplate, Result, ServiceMerge, TemplateBases, TemplateKey, TemplateTerms,
    ValidationError, merge_rules, merge_services,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The template versions that agents follow, by version number.
pub(crate) type Bases = BTreeMap<u64, TemplateTerms>;

/// The changes that applying a template makes to an agent.
#[derive(Debug)]
pub(crate) struct TemplatePlan {
    /// The services whose limits differ from the template's limits.
    pub(crate) services: Vec<ServiceMerge>,
    /// The rules that differ from the template's rules.
    pub(crate) rules: Vec<LimitDifference>,
    /// The agent with the template's rules.
    edited: Agent,
    pub(crate) direction: Direction,
}

impl TemplatePlan {
    /// Returns, for each difference, whether the agent's value is an override.
    pub(crate) fn override_flags_of_differences(&self) -> impl Iterator<Item = bool> {
        let services = self.services.iter().flat_map(|merge| &merge.differences);
        services.chain(&self.rules).map(|difference| difference.is_override)
    }

    /// Returns the limits that differ from the template: either only the user's overrides, or only the other limits.
    pub(crate) fn differing_limits(&self, are_overrides: bool, catalog: &Catalog) -> AuditChanges {
        let services = self.services.iter().flat_map(|merge| {
            let service = TemplateKey::Service(merge.service).describe(catalog);
            let differences = merge.differences.iter();
            differences.map(move |difference| (format!("services/{service}/{}", difference.member), difference))
        });
        let rules = self.rules.iter().zip(1_u32..);
        let rules = rules.map(|(difference, number)| (format!("rules/{number}"), difference));
        let (mut agent, mut template) = (AuditFields::new(), AuditFields::new());
        for (field, difference) in services
            .chain(rules)
            .filter(|(_, listed_service)| listed_service.is_override == are_overrides)
        {
            agent.push((field.clone(), difference.agent.clone()));
            template.push((field, difference.template.clone()));
        }
        AuditChanges::between(Some(agent), Some(template))
    }

    pub(crate) fn has_changes_for_agent(&self, agent: &Agent) -> bool {
        self.edited.rules != agent.rules
            || self
                .services
                .iter()
                .any(|merge| merge.merged_policy_if_changed().is_some())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ApplyTo {
    Any,
    Followers,
    /// Any agent, for a preview, which writes nothing.
    Preview,
}

#[derive(Debug)]
pub(crate) struct ApplyResult {
    pub(crate) agent: AgentId,
    pub(crate) outcome: BulkOutcome,
    /// The differences before the update; `None` if the operation failed for this agent.
    pub(crate) plan: Option<TemplatePlan>,
}

impl People {
    /// Applies a template to each agent. A failed update does not affect the other agents.
    pub(crate) async fn apply_template_to_agents(
        self: &Arc<Self>,
        user: &Caller,
        agents: Vec<(AgentId, Option<OwnedAgent>)>,
        template: PolicyTemplate,
        overrides: Overrides,
        to: ApplyTo,
    ) -> Result<Vec<ApplyResult>> {
        let current = agents
            .iter()
            .filter_map(|(_, owned)| owned.as_ref())
            .map(OwnedAgent::agent);
        let bases = Arc::new(self.read_template_merge_bases(user, current).await?);
        let template = Arc::new(template);
        let applied = run_concurrently(agents, |(agent, owned)| {
            let (people, template, bases) = (Arc::clone(self), Arc::clone(&template), Arc::clone(&bases));
            async move {
                let applied = match owned {
                    None => Err(ErrorKind::NotFound.into()),
                    Some(owned) => {
                        Box::pin(people.preview_or_apply_template(owned, &template, &bases, overrides, to)).await
                    }
                };
                Ok(match applied {
                    Ok((plan, is_changed)) => ApplyResult {
                        agent,
                        outcome: if is_changed {
                            BulkOutcome::Done
                        } else {
                            BulkOutcome::Unchanged
                        },
                        plan: Some(plan),
                    },
                    Err(error) => {
                        tracing::warn!(agent.id = %agent, %error, "agent.template_not_applied");
                        ApplyResult {
                            agent,
                            outcome: BulkOutcome::Failed(error),
                            plan: None,
                        }
                    }
                })
            }
        });
        self.run_in_long_operation_slot(user.id.as_str(), applied).await
    }

    async fn preview_or_apply_template(
        &self,
        owned: OwnedAgent,
        template: &PolicyTemplate,
        bases: &Bases,
        overrides: Overrides,
        to: ApplyTo,
    ) -> Result<(TemplatePlan, bool)> {
        if to == ApplyTo::Followers && !follows_template(owned.agent(), &template.name) {
            let error = ValidationError::at_path(
                "/agents/ids",
                "this agent does not follow the template; send act `follow` to /agents/bulk first",
            );
            return Err(Error::invalid(vec![error]));
        }
        let plan = Box::pin(self.plan_template(&owned, template, bases, overrides)).await?;
        if to == ApplyTo::Preview {
            let is_change = plan.has_changes_for_agent(owned.agent());
            return Ok((plan, is_change));
        }
        let acting = owned.acting().clone();
        let action = Act::new(AuditKind::PolicyTemplateApplied)
            .on_agent(owned.agent().id)
            .with_object(&template.name);
        let applied = Box::pin(self.apply_template_plan_if_changed(owned, template, &plan, &action));
        let is_changed = self.audit_rejection(&acting, &action, applied).await?;
        Ok((plan, is_changed))
    }

    /// Reads the template versions that these agents' limits were copied from.
    async fn read_template_merge_bases(&self, user: &Caller, agents: impl Iterator<Item = &Agent>) -> Result<Bases> {
        let mut bases = Bases::new();
        for version in agents
            .filter_map(|agent| agent.template.as_ref())
            .flat_map(FollowedTemplate::base_versions_for_merge)
        {
            if !bases.contains_key(&version)
                && let Some(terms) = self.ledger.read_template_limits(&user.id, version).await?
            {
                bases.insert(version, terms);
            }
        }
        Ok(bases)
    }

    async fn plan_template(
        &self,
        owned: &OwnedAgent,
        template: &PolicyTemplate,
        bases: &Bases,
        overrides: Overrides,
    ) -> Result<TemplatePlan> {
        let agent = &owned.agent().clone().without_budgets_of_ended_keys(self.now());
        let (edition, current, starting) = tokio::try_join!(
            self.current_catalog(),
            self.ledger.list_enabled_services(agent),
            self.ledger.read_default_services(agent),
        )?;
        let of = TemplateBases {
            followed_template: agent.template.as_ref(),
            terms: Some(bases),
        };
        let terms = &template.terms;
        let starts = |service| starting.default_policy(service);
        let services = merge_services(terms, of, &current, starts, &edition.catalog, overrides);
        let ids = self.new_rule_ids(terms.rules.iter().flatten().count())?;
        let (updated, rules) = merge_rules(terms, of, agent.clone(), overrides, ids)?;
        let changed_policies = services
            .iter()
            .filter_map(|merge| Some((merge.present.as_ref(), merge.merged_policy_if_changed()?)));
        let mut direction = Direction {
            widens: updated.widens(agent),
            narrows: agent.widens(&updated),
        };
        for (before, now) in changed_policies {
            direction.widens |= now.widens(before);
            direction.narrows |= before.is_some_and(|before| before.widens(Some(&now)));
        }
        Ok(TemplatePlan {
            services,
            rules,
            edited: updated,
            direction,
        })
    }

    /// Applies a template to the agent, and returns whether anything changed. Wider limits require a recent sign-in.
    async fn apply_template_plan_if_changed(
        &self,
        owned: OwnedAgent,
        template: &PolicyTemplate,
        plan: &TemplatePlan,
        action: &Act,
    ) -> Result<bool> {
        let reason = owned.acting().source.reason.clone();
        let owned = owned.with_reason(reason.or_else(|| default_update_reason(template)));
        let before = owned.agent().clone().without_budgets_of_ended_keys(self.now());
        if plan.direction.widens {
            self.limits.require_recent_sign_in(owned.signed_in_at(), self.now())?;
        }
        let changed = plan.services.iter().filter_map(|merge| {
            let updated = merge.merged_policy_if_changed()?;
            Some((updated.widens(merge.present.as_ref()), merge))
        });
        let mut policies: Vec<_> = changed.collect();
        policies.sort_by_key(|(widens, _)| *widens);
        let has_wider_rules = plan.edited.widens(&before);
        let mut owned = owned;
        let mut rules = Some(plan.edited.rules.clone());
        if !policies.is_empty() {
            let first = rules.take_if(|_| !has_wider_rules);
            let mut followed = FollowedTemplate::for_template_being_applied(template, before.template.as_ref());
            if first.is_some() {
                followed.rules = Some(template.version);
            }
            owned = self
                .store_followed_template(owned, action, &followed, first.as_deref())
                .await?;
        }
        for (_, merge) in &policies {
            self.save_service_of_record(&owned, merge.present.as_ref(), merge.service, merge.change.clone())
                .await?;
        }
        let followed = FollowedTemplate::fully_applied(template.name.clone(), template.version);
        let owned = self
            .store_followed_template(owned, action, &followed, rules.as_deref())
            .await?;
        Ok(owned.agent().version != before.version || !policies.is_empty())
    }

    /// Stores which template the agent follows, and replaces the agent's rules if `rules` is `Some`.
    async fn store_followed_template(
        &self,
        owned: OwnedAgent,
        action: &Act,
        template: &FollowedTemplate,
        rules: Option<&[purser_domain::Rule]>,
    ) -> Result<OwnedAgent> {
        let if_match = Precondition::Version(owned.agent().version);
        let change = |agent: Agent| {
            Ok(Agent {
                template: Some(template.clone()),
                rules: rules.map_or(agent.rules, <[_]>::to_vec),
                ..agent
            })
        };
        Box::pin(self.update_agent_record(owned, if_match, action.clone(), change)).await
    }
}

/// The reason that is recorded if the user enters no reason.
fn default_update_reason(template: &PolicyTemplate) -> Option<EditReason> {
    let text = format!("policy template {} version {}", template.name, template.version);
    EditReason::parse(&text)
}
