//! Change events: events before their owner is known and before they are published.

use crate::stream::owners::Owners;
use purser_domain::{
    AgentId, Error, Event, EventData, EventId, EventKind, EventSource, EventSubject, Form, Result, Timestamp, UserId,
};

/// A change event of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeEvent {
    /// The id, which is always the same for the same event.
    pub id: EventId,
    /// The kind of the event.
    pub kind: EventKind,
    /// The time of the event.
    pub time: Timestamp,
    /// The subject of the event.
    pub subject: EventSubject,
    /// The owner, as far as the row names the owner.
    pub owner: ChangeEventOwner,
    /// The details, which depend on the kind.
    pub data: EventData,
}

/// The owner of a change event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeEventOwner {
    /// The event has no owner.
    Nobody,
    /// The owner that the row names.
    Person(UserId),
    /// The owner of this agent. The row does not name the owner.
    OfAgent(AgentId),
}

impl ChangeEvent {
    /// Creates a change event of an agent from a row that does not name the owner.
    pub(crate) fn for_agent(agent: AgentId, kind: EventKind, id: EventId, time: Timestamp, data: EventData) -> Self {
        Self {
            id,
            kind,
            time,
            subject: EventSubject::Agent(agent),
            owner: ChangeEventOwner::OfAgent(agent),
            data,
        }
    }

    /// Sets the owner of the event.
    #[must_use]
    pub(crate) fn with_owner(self, owner: UserId) -> Self {
        Self {
            owner: ChangeEventOwner::Person(owner),
            ..self
        }
    }

    /// Returns the agent whose owner must be read before the event can be published.
    pub const fn agent_without_owner(&self) -> Option<AgentId> {
        match self.owner {
            ChangeEventOwner::OfAgent(agent) => Some(agent),
            ChangeEventOwner::Nobody | ChangeEventOwner::Person(_) => None,
        }
    }

    /// Creates the published event, with the owner and the labels that `owners` has for the agent.
    pub fn into_event(self, source: &EventSource, owners: &Owners) -> Result<Event> {
        let (owner, data) = match self.owner {
            ChangeEventOwner::Nobody => (None, self.data),
            ChangeEventOwner::Person(person) => (Some(person), self.data),
            ChangeEventOwner::OfAgent(agent) => {
                let known = owners.find(agent);
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
