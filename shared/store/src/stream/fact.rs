//! Facts: events before their owner is known and they are published.

use crate::stream::owners::Owners;
use purser_domain::{
    AgentId, Error, Event, EventData, EventId, EventKind, EventSource, EventSubject, Form, PersonId, Result, Timestamp,
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

    /// The event for this fact, with the owner and the labels that `owners` has for an agent.
    pub fn told(self, source: &EventSource, owners: &Owners) -> Result<Event> {
        let (owner, data) = match self.owner {
            FactOwner::Nobody => (None, self.data),
            FactOwner::Person(person) => (Some(person), self.data),
            FactOwner::OfAgent(agent) => {
                let known = owners.get(agent);
                let has_labels = self.kind.fields().any(|field| field.form == Form::Labels);
                let labels = known.map(|known| &known.labels).filter(|_| has_labels);
                let data = match labels {
                    Some(labels) => self.data.labels(labels),
                    None => self.data,
                };
                (known.map(|known| known.owner.clone()), data)
            }
        };
        let event = Event::new(self.id, source.clone(), self.kind, self.time, self.subject, owner, data);
        event.map_err(|problem| Error::internal("building an event", problem))
    }
}
