//! Handing an agent to another owner: an operator offers it, and the new owner accepts.

use crate::{AgentId, Duration, OperatorName, OperatorReason, PersonId, Timestamp};

/// An operator's offer of an agent to a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handover {
    /// The agent.
    pub agent: AgentId,
    /// The person to whom it is offered.
    pub to: PersonId,
    /// Why; the new owner sees it.
    pub reason: OperatorReason,
    /// Who offered it.
    pub by: OperatorName,
    /// The time.
    pub at: Timestamp,
    /// It can't be accepted from this instant on.
    pub ends_at: Timestamp,
}

impl Handover {
    /// How long an offer can be accepted.
    pub const OPEN_FOR: Duration = Duration::from_secs_u32(7 * 86_400);

    /// Whether the person may accept it at `now`.
    pub fn is_open_to(&self, person: &PersonId, now: Timestamp) -> bool {
        self.to == *person && now < self.ends_at
    }
}
