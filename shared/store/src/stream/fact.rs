//! Change events: events that are not published yet. Their owner may still be unknown.

use crate::stream::owners::Owners;
use purser_domain::{
    AgentId, Error, Event, EventData, EventId, EventKind, EventSource, EventSubject, Form, Result, Timestamp, UserId,
};

/// An event about a change of a row, before publication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeEvent {
    /// The id of the event, which stays the same if the stream delivers the change again.
    pub id: EventId,
    /// The kind of event, which determines the fields of `data`.
    pub kind: EventKind,
    /// The time at which the event happened, possibly before the change of the row.
    pub time: Timestamp,
    /// The agent, service, user or deployment that the event is about.
    pub subject: EventSubject,
    /// The user who owns the subject, or how to find this user.
    pub owner: ChangeEventOwner,
    /// The details of the event. The event's kind determines the fields.
    pub data: EventData,
}

/// How the owner of a change event is determined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeEventOwner {
    /// The event has no owner, for example a change of a service.
    Nobody,
    /// The changed row names the owner: this user.
    Person(UserId),
    /// The owner must be read from the record of this agent.
    OfAgent(AgentId),
}

impl ChangeEvent {
    /// Creates an event about an agent from a changed row that does not contain the agent's owner.
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

    #[must_use]
    pub(crate) fn with_owner(self, owner: UserId) -> Self {
        Self {
            owner: ChangeEventOwner::Person(owner),
            ..self
        }
    }

    /// Returns the agent whose owner must be read before the event can be published.
    pub const fn agent_requiring_owner_lookup(&self) -> Option<AgentId> {
        match self.owner {
            ChangeEventOwner::OfAgent(agent) => Some(agent),
            ChangeEventOwner::Nobody | ChangeEventOwner::Person(_) => None,
        }
    }

    /// Creates the published event, with the agent's owner and labels from `owners`.
    pub fn into_event(self, source: &EventSource, owners: &Owners) -> Result<Event> {
        let (owner, data) = match self.owner {
            ChangeEventOwner::Nobody => (None, self.data),
            ChangeEventOwner::Person(user) => (Some(user), self.data),
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
        event.map_err(|error| Error::internal("building an event", error))
    }
}
