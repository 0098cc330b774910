//! Applies one operation to many agents. A failed update does not affect the other agents.

use crate::agents::listing::AgentFilter;
use crate::agents::operations::AgentUpdate;
use crate::agents::outcome::BulkOutcome;
use crate::agents::owned::OwnedAgent;
use crate::caller::Caller;
use crate::several::run_concurrently;
use crate::state::People;
use crate::templates::apply::ApplyTo;
use purser_api::Precondition;
use purser_domain::{
    Act, Agent, AgentId, AgentStatus, AuditKind, Error, LabelFilter, LabelKey, Labels, Overrides, Result, RuleId,
    StartingLimits, TemplateName, Timestamp, ValidationError,
};
use purser_store::{AgentCursor, AgentOrder};
use std::sync::Arc;

const LIMITS: StartingLimits = StartingLimits::Safe;
/// The maximum number of agents in one bulk call.
pub(crate) const MAX_AGENTS: usize = 100;

/// The maximum number of agents in a bulk call that changes limits: an agent may have hundreds of services.
pub(crate) const MAX_LIMITED: usize = 25;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BulkOperation {
    /// Freezes, unfreezes, archives or restores the agents.
    Update(AgentUpdate),
    /// Adds labels. If an agent already has a label with the same key, the new value replaces the old value.
    Label(Labels),
    Unlabel(Vec<LabelKey>),
    /// Sets the limits of `docs/policies/safe.yaml` that an agent does not have yet.
    Limit,
    /// Applies the policy template, which the agents then follow.
    Follow(TemplateName, Overrides),
    /// Detaches the agents from their policy template. Their limits stay.
    Unfollow,
}

impl BulkOperation {
    const fn audit_kind(&self) -> AuditKind {
        match self {
            Self::Update(update) => update.audit_kind(),
            Self::Label(_) | Self::Unlabel(_) => AuditKind::AgentLabelsEdited,
            Self::Limit => AuditKind::RuleAdded,
            Self::Follow(..) => AuditKind::PolicyTemplateApplied,
            Self::Unfollow => AuditKind::PolicyTemplateUnfollowed,
        }
    }

    pub(crate) fn stops_payments(&self) -> bool {
        matches!(self, Self::Update(update) if update.stops_payments())
    }

    /// The maximum number of agents in one call. It is lower for operations that update each service.
    pub(crate) const fn max_agents(&self) -> usize {
        match self {
            Self::Update(_) | Self::Label(_) | Self::Unlabel(_) | Self::Unfollow => MAX_AGENTS,
            Self::Limit | Self::Follow(..) => MAX_LIMITED,
        }
    }

    /// Applies the operation to one agent. `ids` are the ids for the rules that [`BulkOperation::Limit`] adds.
    fn apply(&self, agent: Agent, ids: &[RuleId], now: Timestamp) -> Result<Agent> {
        match self {
            Self::Update(update) => update.apply(agent),
            Self::Label(added) => match agent.labels.with_added(added) {
                Some(labels) => Ok(Agent { labels, ..agent }),
                None => Err(Error::invalid(vec![ValidationError::at_path("/labels", Labels::FORM)])),
            },
            Self::Unlabel(keys) => Ok(Agent {
                labels: agent.labels.without(keys),
                ..agent
            }),
            // `templates::apply` applies templates, because they also change the agent's services.
            Self::Follow(..) => Ok(agent),
            Self::Unfollow => Ok(Agent {
                template: None,
                ..agent
            }),
            Self::Limit => {
                let rules = LIMITS.to_rules().into_iter().zip(ids);
                let agent = agent.without_budgets_of_ended_keys(now);
                rules
                    .filter(|(kind, _)| !agent.rules.iter().any(|own| own.kind.is_as_strict_as(kind)))
                    .try_fold(agent.clone(), |agent, (kind, id)| Ok(agent.with_rule(*id, kind)?))
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BulkTarget {
    /// The ids must be distinct.
    Agents(Vec<AgentId>),
    /// All agents, or all agents with a label, starting at the cursor `from`. An update that restores agents selects
    /// only archived agents, and all other operations select only agents that are not archived.
    All {
        label: Option<LabelFilter>,
        from: Option<AgentCursor>,
    },
}

#[derive(Debug)]
pub(crate) struct BulkResult {
    pub(crate) outcomes: Vec<(AgentId, BulkOutcome)>,
    /// The cursor for the next call; `None` if all agents were processed.
    pub(crate) next: Option<AgentCursor>,
}

impl People {
    /// Unfreezing always requires a recent sign-in.
    pub(crate) async fn update_agents(
        self: &Arc<Self>,
        user: &Caller,
        target: BulkTarget,
        operation: &BulkOperation,
    ) -> Result<BulkResult> {
        if *operation == BulkOperation::Update(AgentUpdate::for_status(AgentStatus::Active)) {
            let recently = async { self.limits.require_recent_sign_in(user.signed_in_at, self.now()) };
            self.audit_rejection(&user.acting, &Act::new(operation.audit_kind()), recently)
                .await?;
        }
        let template = match operation {
            BulkOperation::Follow(name, overrides) => Some((self.find_template(user, name).await?, *overrides)),
            _ => None,
        };
        let filter = AgentFilter {
            archived: *operation == BulkOperation::Update(AgentUpdate::for_archived(false)),
            ..AgentFilter::default()
        };
        let (agents, next) = self
            .select_bulk_agents(user, target, filter, operation.max_agents())
            .await?;
        if let Some((template, overrides)) = template {
            let applied =
                Box::pin(self.apply_template_to_agents(user, agents, template, overrides, ApplyTo::Any)).await?;
            let outcomes = applied.into_iter().map(|applied| (applied.agent, applied.outcome));
            return Ok(BulkResult {
                outcomes: outcomes.collect(),
                next,
            });
        }
        let outcomes = run_concurrently(agents, |(id, owned)| {
            let (people, action) = (Arc::clone(self), operation.clone());
            async move { Ok((id, people.update_agent_in_bulk(owned, &action).await)) }
        });
        let outcomes = if operation.stops_payments() {
            // Freezing and archiving take no slot for long operations, because all slots may be taken.
            outcomes.await?
        } else {
            self.run_in_long_operation_slot(user.id.as_str(), outcomes).await?
        };
        Ok(BulkResult { outcomes, next })
    }

    pub(crate) async fn select_bulk_agents(
        &self,
        user: &Caller,
        target: BulkTarget,
        filter: AgentFilter,
        max_agents: usize,
    ) -> Result<(Vec<(AgentId, Option<OwnedAgent>)>, Option<AgentCursor>)> {
        match target {
            BulkTarget::Agents(ids) => {
                let found = self.read_own_agents(user, ids.clone()).await?;
                let agent = |id: AgentId| (id, found.iter().find(|owned| owned.agent().id == id).cloned());
                Ok((ids.into_iter().map(agent).collect(), None))
            }
            BulkTarget::All { label, from } => {
                let filter = AgentFilter { label, ..filter };
                let max = u32::try_from(max_agents).unwrap_or(u32::MAX);
                let order = AgentOrder::OldestFirst;
                let page = self.list_agents(user, &filter, order, from, max).await?;
                let agents = page.items.into_iter().map(|owned| (owned.agent().id, Some(owned)));
                Ok((agents.collect(), page.next))
            }
        }
    }

    async fn update_agent_in_bulk(
        self: &Arc<Self>,
        owned: Option<OwnedAgent>,
        operation: &BulkOperation,
    ) -> BulkOutcome {
        let Some(owned) = owned else {
            return BulkOutcome::Failed(purser_domain::ErrorKind::NotFound.into());
        };
        let id = owned.agent().id;
        match self.update_agent_if_changed(owned, operation).await {
            Ok(false) => BulkOutcome::Unchanged,
            Ok(true) => BulkOutcome::Done,
            Err(error) => {
                tracing::warn!(agent.id = %id, %error, "agent.not_edited");
                BulkOutcome::Failed(error)
            }
        }
    }

    /// Updates the agent, and with [`BulkOperation::Limit`] also the services without limits. Returns whether
    /// anything changed.
    async fn update_agent_if_changed(self: &Arc<Self>, owned: OwnedAgent, operation: &BulkOperation) -> Result<bool> {
        let version = owned.agent().version;
        let ids = match operation {
            BulkOperation::Limit => self.new_rule_ids(LIMITS.to_rules().len())?,
            _ => Vec::new(),
        };
        let now = self.now();
        let change = |agent: Agent| operation.apply(agent, &ids, now);
        let changed = self
            .update_agent_record(owned, Precondition::Any, Act::new(operation.audit_kind()), change)
            .await?;
        let is_changed = changed.agent().version != version;
        let Some(caps) = LIMITS.to_caps().filter(|_| *operation == BulkOperation::Limit) else {
            return Ok(is_changed);
        };
        let limited = self.limit_unlimited_services(&changed, &caps.into()).await?;
        Ok(is_changed || !limited.is_empty())
    }
}
