//! Whose agent it is. What is done to an agent takes an [`Owned`], and only the checks here make one, so that nothing of
//! another owner's can be read or written.
//!
//! Here is also how an agent's record is changed: by its next version, while it is the version that was meant.

use crate::state::Dashboard;
use purser_api::{Person, Precondition};
use purser_domain::{Agent, AgentId, AgentStatus, ErrorKind, Result};
use purser_store::{Backoff, Edited};

/// An agent, shown to be the person's own, as of the moment it was read.
#[derive(Clone, Debug)]
pub(crate) struct Owned {
    agent: Agent,
}

impl Owned {
    /// The agent.
    pub(crate) const fn agent(&self) -> &Agent {
        &self.agent
    }

    /// The agent, if it is the person's.
    pub(crate) fn of(person: &Person, agent: Agent) -> Option<Self> {
        (agent.owner == person.sub).then_some(Self { agent })
    }
}

/// What a path names; a text that is no id names nothing.
pub(crate) fn named<T>(id: Option<T>) -> Result<T> {
    id.ok_or_else(|| ErrorKind::NotFound.into())
}

impl Dashboard {
    /// The person's agent of that id. Another's, and one that does not exist, are alike not found.
    pub(crate) async fn own_agent(&self, person: &Person, id: AgentId) -> Result<Owned> {
        let agent = self.ledger.agent(id).await?;
        let owned = agent.and_then(|agent| Owned::of(person, agent));
        owned.ok_or_else(|| ErrorKind::NotFound.into())
    }

    /// The agent after a change. Where `meant` is whatever is there, a change that comes too late is made again on what it
    /// met, so that it is stored in the end: that is how a freeze wins. What changes nothing writes nothing to the record;
    /// but it may be the repetition of a freeze that failed between the record and the windows, and is answered no sooner
    /// than that is made good.
    pub(crate) async fn change(
        &self,
        owned: Owned,
        meant: Precondition,
        change: impl Fn(Agent) -> Result<Agent>,
    ) -> Result<Owned> {
        let mut agent = owned.agent;
        let mut backoff = Backoff::new();
        loop {
            meant.holds(agent.version)?;
            let changed = change(agent.clone())?;
            if changed == agent {
                if is_narrowed(&agent) {
                    self.ledger.fence_windows(&agent).await?;
                }
                return Ok(Owned { agent });
            }
            let next = Agent {
                version: agent.version.saturating_add(1),
                ..changed
            };
            match self.ledger.put_agent(&next).await? {
                Edited::Stored => return Ok(Owned { agent: next }),
                Edited::Conflict => backoff.wait().await?,
            }
            agent = self.ledger.agent(next.id).await?.ok_or(ErrorKind::NotFound)?;
        }
    }
}

/// Whether anything on the record refuses what it once allowed: only then can an edit that made it so have failed before its
/// windows were shut.
fn is_narrowed(agent: &Agent) -> bool {
    agent.status == AgentStatus::Frozen || !agent.rules.is_empty() || agent.keys.iter().any(|key| key.ends_at.is_some())
}
