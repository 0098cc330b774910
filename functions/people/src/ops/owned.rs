//! Ownership of agents. Every operation on an agent takes an [`Owned`], and only the checks here create one, so nothing
//! of another owner can be read or written.
//!
//! Also here: how an agent's record is changed, on the condition of its expected version.

use crate::state::People;
use purser_api::{Person, Precondition};
use purser_domain::{Agent, AgentId, AgentStatus, ErrorKind, Result};
use purser_store::{Backoff, Edited};

/// An agent that was the person's own when it was read.
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

/// The id in a path; a text that is no id is not found.
pub(crate) fn named<T>(id: Option<T>) -> Result<T> {
    id.ok_or_else(|| ErrorKind::NotFound.into())
}

impl People {
    /// The person's agent with this id. Another's and an unknown one are both not found.
    pub(crate) async fn own_agent(&self, person: &Person, id: AgentId) -> Result<Owned> {
        let agent = self.ledger.agent(id).await?;
        let owned = agent.and_then(|agent| Owned::of(person, agent));
        owned.ok_or_else(|| ErrorKind::NotFound.into())
    }

    /// The agent after a change. Where `meant` is any version, a change that lost a race is applied again to the newer
    /// record until it is stored: so a freeze always wins. A change without effect does not write the record; but it
    /// may be the retry of a freeze that failed between the record and the windows, so the windows are completed before
    /// it is answered.
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

/// Whether the record now refuses anything it once allowed: only then can the edit that did it have failed before its
/// windows were shut.
fn is_narrowed(agent: &Agent) -> bool {
    agent.status == AgentStatus::Frozen || !agent.rules.is_empty() || agent.keys.iter().any(|key| key.ends_at.is_some())
}
