//! What happened, before it is known whose it is and who tells it.

use purser_domain::{
    AgentId, Error, Event, EventData, EventId, EventKind, EventSource, EventSubject, PersonId, Result, Timestamp,
};

/// One fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// The same for the same fact.
    pub id: EventId,
    /// What happened.
    pub kind: EventKind,
    /// When.
    pub time: Timestamp,
    /// What it is about.
    pub subject: EventSubject,
    /// Whose it is.
    pub owner: FactOwner,
    /// The rest.
    pub data: EventData,
}

/// Whose a fact is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FactOwner {
    /// Nobody's.
    Nobody,
    /// This person's: the row says so.
    Person(PersonId),
    /// The agent's owner's: the row does not name them.
    OfAgent(AgentId),
}

impl Fact {
    /// A fact about an agent, whose row does not say whose it is.
    pub(crate) fn of_agent(agent: AgentId, kind: EventKind, id: EventId, time: Timestamp, data: EventData) -> Self {
        Self {
            id,
            kind,
            time,
            subject: EventSubject::Agent(agent),
            owner: FactOwner::OfAgent(agent),
            data,
        }
    }

    /// The same, of this person.
    #[must_use]
    pub(crate) fn owned_by(self, owner: PersonId) -> Self {
        Self {
            owner: FactOwner::Person(owner),
            ..self
        }
    }

    /// The agent whose owner must be known to tell it.
    pub const fn agent_of_owner(&self) -> Option<AgentId> {
        match self.owner {
            FactOwner::OfAgent(agent) => Some(agent),
            FactOwner::Nobody | FactOwner::Person(_) => None,
        }
    }

    /// The event that tells it, where the agents have these owners.
    pub fn told(self, source: &EventSource, owner_of: impl FnOnce(AgentId) -> Option<PersonId>) -> Result<Event> {
        let owner = match self.owner {
            FactOwner::Nobody => None,
            FactOwner::Person(person) => Some(person),
            FactOwner::OfAgent(agent) => owner_of(agent),
        };
        let event = Event::new(
            self.id,
            source.clone(),
            self.kind,
            self.time,
            self.subject,
            owner,
            self.data,
        );
        event.map_err(|problem| Error::internal("telling a fact", problem))
    }
}
