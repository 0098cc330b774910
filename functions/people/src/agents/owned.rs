//! Ownership of agents. Every operation on an agent takes an [`OwnedAgent`], and only the checks here create one, so nothing
//! of another owner can be read or written.
//!
//! This module also changes the records of agents, on the condition of the expected version.

use crate::caller::Caller;
use crate::state::People;
use purser_api::Precondition;
use purser_domain::{
    Act, Acting, Agent, AgentId, AgentStatus, AuditChanges, EditReason, ErrorKind, Labels, Result, Timestamp,
};
use purser_store::{Backoff, EditResult};

/// An agent that belonged to the person when it was read.
#[derive(Clone, Debug)]
pub(crate) struct OwnedAgent {
    agent: Agent,
    /// The caller, with the time of their sign-in: an edit that allows the agent more requires a recent one.
    caller: Caller,
}

impl OwnedAgent {
    pub(crate) const fn agent(&self) -> &Agent {
        &self.agent
    }

    /// The time of the person's sign-in.
    pub(crate) const fn signed_in_at(&self) -> Timestamp {
        self.caller.signed_in_at
    }

    /// The acting person, for the audit log.
    pub(crate) const fn acting(&self) -> &Acting {
        &self.caller.acting
    }

    /// The agent, to be edited for this reason.
    #[must_use]
    pub(crate) fn because(mut self, reason: Option<EditReason>) -> Self {
        self.caller.acting.source.reason = reason;
        self
    }

    /// The agent, if it belongs to the person.
    pub(crate) fn new(person: &Caller, agent: Agent) -> Option<Self> {
        let is_own = agent.owner == person.id.as_str();
        is_own.then(|| Self {
            agent,
            caller: person.clone(),
        })
    }
}

/// An agent as its owner at a decision knew it. Only [`KnownAgent::at`] creates one, so no user reads a decision that was
/// made before or after their own time.
#[derive(Clone, Debug)]
pub(crate) struct KnownAgent {
    pub(crate) id: AgentId,
    pub(crate) name: String,
    pub(crate) labels: Labels,
}

impl KnownAgent {
    /// The agent at a decision that was made after this number of ownership transfers, if the person owned it then.
    pub(crate) fn at(person: &Caller, agent: &Agent, transfers: u32) -> Result<Self> {
        let then = agent.owner_then(transfers);
        if then.owner != person.id.as_str() {
            return Err(ErrorKind::NotFound.into());
        }
        Ok(Self {
            id: agent.id,
            name: then.name.to_owned(),
            labels: then.labels.clone(),
        })
    }
}

/// The id in a path; `not_found` if it is invalid.
pub(crate) fn parse_id<T>(id: Option<T>) -> Result<T> {
    id.ok_or_else(|| ErrorKind::NotFound.into())
}

impl People {
    /// The person's agent with this id. An agent of another person is `not_found`, like an unknown one.
    pub(crate) async fn own_agent(&self, person: &Caller, id: AgentId) -> Result<OwnedAgent> {
        let agent = self.ledger.agent(id).await?;
        let owned = agent.and_then(|agent| OwnedAgent::new(person, agent));
        owned.ok_or_else(|| ErrorKind::NotFound.into())
    }

    /// An agent that the person owns or has owned. Of a former owner's agent nothing may be shown but the decisions of
    /// their time ([`KnownAgent::at`]).
    pub(crate) async fn find_known_agent(&self, person: &Caller, id: AgentId) -> Result<Agent> {
        let agent = self.ledger.agent(id).await?.ok_or(ErrorKind::NotFound)?;
        let owners = agent.former_owners.iter().map(|former| &former.owner);
        if !owners.chain([&agent.owner]).any(|owner| owner == person.id.as_str()) {
            return Err(ErrorKind::NotFound.into());
        }
        Ok(agent)
    }

    /// Stores a change of the agent, with its row of the audit log. A change that allows the agent more requires a
    /// recent sign-in. If `if_match` is any version, a change that lost a race is applied again to the newer record until
    /// it is stored, so a freeze always wins. A change without effect does not write the record. It may, however, be
    /// the retry of a freeze that failed after it had stored the record, so the agent's windows are fenced before the
    /// response is sent.
    pub(crate) async fn change(
        &self,
        owned: OwnedAgent,
        if_match: Precondition,
        act: Act,
        change: impl Fn(Agent) -> Result<Agent>,
    ) -> Result<OwnedAgent> {
        let act = act.on(owned.agent.id);
        let acting = owned.acting().clone();
        self.audit_rejection(&acting, &act, self.store_change(owned, if_match, &act, change))
            .await
    }

    async fn store_change(
        &self,
        owned: OwnedAgent,
        if_match: Precondition,
        act: &Act,
        change: impl Fn(Agent) -> Result<Agent>,
    ) -> Result<OwnedAgent> {
        let OwnedAgent { mut agent, caller } = owned;
        let mut backoff = Backoff::new();
        loop {
            if_match.holds(agent.version)?;
            let changed = change(agent.clone())?;
            if changed == agent {
                if is_narrowed(&agent) {
                    self.ledger.fence_windows(&agent).await?;
                }
                return Ok(OwnedAgent { agent, caller });
            }
            if changed.widens(&agent) {
                self.limits.recently(caller.signed_in_at, self.now())?;
            }
            let next = Agent {
                version: agent.version.saturating_add(1),
                ..changed
            };
            let [before, after] = [&agent, &next].map(|agent| Some(agent.audit_members()));
            let entry = self.entry(&caller.acting, act, AuditChanges::between(before, after))?;
            match self.ledger.put_agent(&next, &entry).await? {
                EditResult::Stored => {
                    return Ok(OwnedAgent { agent: next, caller });
                }
                EditResult::Conflict => backoff.wait().await?,
            }
            let newer = self.ledger.agent(next.id).await?;
            // The agent may have been handed over to another owner meanwhile.
            let newer = newer.filter(|newer| newer.owner == agent.owner);
            agent = newer.ok_or(ErrorKind::NotFound)?;
        }
    }
}

/// Whether the record may refuse a payment that it once allowed. Only then can windows still have to be fenced, if an
/// edit failed after it had stored the record.
fn is_narrowed(agent: &Agent) -> bool {
    agent.status == AgentStatus::Frozen || !agent.rules.is_empty() || agent.keys.iter().any(|key| key.ends_at.is_some())
}
