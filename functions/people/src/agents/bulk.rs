//! One act on many agents.
//!
//! Each agent is edited like a single one, with its own row of the audit log, so one that fails does not affect the
//! others. A repeated call finds what is done, and changes only the rest.

use crate::agents::listing::AgentFilter;
use crate::agents::operations::ARCHIVED;
use crate::agents::owned::Owned;
use crate::caller::Caller;
use crate::several::several;
use crate::state::People;
use purser_api::Precondition;
use purser_domain::{
    Act, Agent, AgentId, AgentStatus, AuditKind, Error, LabelFilter, LabelKey, Labels, Problem, Result,
};
use purser_store::{AgentOrder, AgentPlace};
use std::sync::Arc;

/// The maximum number of agents in one call.
pub(crate) const MOST_AGENTS: usize = 100;

/// An act on many agents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BulkAct {
    Freeze,
    Unfreeze,
    Archive,
    Restore,
    /// Adds labels; their values replace those of equal keys.
    Label(Labels),
    /// Removes the labels with these keys.
    Unlabel(Vec<LabelKey>),
}

impl BulkAct {
    const fn kind(&self) -> AuditKind {
        match self {
            Self::Freeze => AuditKind::AgentFrozen,
            Self::Unfreeze => AuditKind::AgentUnfrozen,
            Self::Archive => AuditKind::AgentArchived,
            Self::Restore => AuditKind::AgentRestored,
            Self::Label(_) | Self::Unlabel(_) => AuditKind::AgentLabelsEdited,
        }
    }

    fn apply(&self, agent: Agent) -> Result<Agent> {
        match self {
            Self::Freeze => Ok(Agent {
                status: AgentStatus::Frozen,
                ..agent
            }),
            Self::Unfreeze if agent.archived => Err(Error::invalid(vec![Problem::at("/status", ARCHIVED)])),
            Self::Unfreeze => Ok(Agent {
                status: AgentStatus::Active,
                ..agent
            }),
            Self::Archive => Ok(agent.archive()),
            Self::Restore => Ok(agent.restore()),
            Self::Label(added) => match agent.labels.with(added) {
                Some(labels) => Ok(Agent { labels, ..agent }),
                None => Err(Error::invalid(vec![Problem::at("/labels", Labels::FORM)])),
            },
            Self::Unlabel(keys) => Ok(Agent {
                labels: agent.labels.without(keys),
                ..agent
            }),
        }
    }
}

/// The agents on which a call acts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BulkTarget {
    /// The agents with these distinct ids.
    Agents(Vec<AgentId>),
    /// All agents, or those with a label, beginning at a position. An act on archived agents is only to restore them.
    All {
        label: Option<LabelFilter>,
        from: Option<AgentPlace>,
    },
}

/// The result of an act on one agent.
#[derive(Debug)]
pub(crate) enum BulkOutcome {
    /// The agent was edited.
    Done,
    /// The agent already was as requested.
    Unchanged,
    Failed(Error),
}

/// The results of a call.
#[derive(Debug)]
pub(crate) struct BulkResult {
    pub(crate) outcomes: Vec<(AgentId, BulkOutcome)>,
    /// The position at which the next call continues.
    pub(crate) next: Option<AgentPlace>,
}

impl People {
    /// Acts on up to [`MOST_AGENTS`] agents. Unfreezing requires a recent sign-in, whatever the agents' states.
    pub(crate) async fn edit_agents(
        self: &Arc<Self>,
        person: &Caller,
        target: BulkTarget,
        act: &BulkAct,
    ) -> Result<BulkResult> {
        if *act == BulkAct::Unfreeze {
            let recently = async { self.limits.recently(person.signed_in_at, self.now()) };
            self.judged(&person.acting, &Act::of(act.kind()), recently).await?;
        }
        let (agents, next) = match target {
            BulkTarget::Agents(ids) => {
                let found = self.own_agents(person, ids.clone()).await?;
                let agent = |id: AgentId| (id, found.iter().find(|owned| owned.agent().id == id).cloned());
                (ids.into_iter().map(agent).collect(), None)
            }
            BulkTarget::All { label, from } => {
                let filter = AgentFilter {
                    label,
                    archived: *act == BulkAct::Restore,
                    ..AgentFilter::default()
                };
                let most = u32::try_from(MOST_AGENTS).unwrap_or(u32::MAX);
                let order = AgentOrder::OldestFirst;
                let page = self.list_agents(person, &filter, order, from, most).await?;
                let agents = page.items.into_iter().map(|owned| (owned.agent().id, Some(owned)));
                (agents.collect::<Vec<_>>(), page.next)
            }
        };
        let outcomes = several(agents, |(id, owned)| {
            let (people, act) = (Arc::clone(self), act.clone());
            async move { Ok((id, people.edit_one(owned, &act).await)) }
        });
        Ok(BulkResult {
            outcomes: outcomes.await?,
            next,
        })
    }

    async fn edit_one(&self, owned: Option<Owned>, act: &BulkAct) -> BulkOutcome {
        let Some(owned) = owned else {
            return BulkOutcome::Failed(purser_domain::ErrorKind::NotFound.into());
        };
        let (id, version) = (owned.agent().id, owned.agent().version);
        let change = |agent: Agent| act.apply(agent);
        let changed = self.change(owned, Precondition::Any, Act::of(act.kind()), change).await;
        match changed {
            Ok(changed) if changed.agent().version == version => BulkOutcome::Unchanged,
            Ok(_) => BulkOutcome::Done,
            Err(error) => {
                tracing::warn!(agent.id = %id, %error, "agent.not_edited");
                BulkOutcome::Failed(error)
            }
        }
    }
}
