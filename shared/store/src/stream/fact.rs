//! Facts: events before their owner is known and they are published.

use purser_domain::{
    AgentId, Error, Event, EventData, EventId, EventKind, EventSource, EventSubject, PersonId, Result, Timestamp,
};

/// A fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// The id, which is always the same for the same fact.
    pub id: EventId,
    /// The kind of the event.
    pub kind: EventKind,
    /// The time of the event.
    pub time: Timestamp,
    /// The subject of the event.
    pub subject: EventSubject,
    /// The owner, as far as the row names it.
    pub owner: FactOwner,
    /// The details, which depend on the kind.
    pub data: EventData,
}

/// The owner of a fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FactOwner {
    /// The fact has no owner.
    Nobody,
    /// The owner that the row names.
    Person(PersonId),
    /// The owner of this agent, whom the row does not name.
    OfAgent(AgentId),
}

impl Fact {
    /// A fact about an agent from a row that does not name the owner.
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

    /// The same fact, owned by this person.
    #[must_use]
    pub(crate) fn owned_by(self, owner: PersonId) -> Self {
        Self {
            owner: FactOwner::Person(owner),
            ..self
        }
    }

    /// The agent whose owner must be read before the fact can be published.
    pub const fn agent_of_owner(&self) -> Option<AgentId> {
        match self.owner {
            FactOwner::OfAgent(agent) => Some(agent),
            FactOwner::Nobody | FactOwner::Person(_) => None,
        }
    }

    /// The event for this fact, with the owner that `owner_of` returns for an agent.
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
        event.map_err(|problem| Error::internal("building an event", problem))
    }
}
