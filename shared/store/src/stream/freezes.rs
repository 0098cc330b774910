//! Change events of freezes by operators, from the row with the reason.

use crate::{
    codec::ledger::Ledger,
    stream::{
        change::Change,
        fact::{Fact, FactOwner},
    },
};
use purser_domain::{EventData, EventId, EventKind, EventSubject, FreezeTarget, OperatorFreeze, Result, Timestamp};

impl Ledger {
    /// Returns the change event if operators began or ended a freeze. A new reason for an existing freeze is not an
    /// event, and neither are changes of the copies.
    pub(crate) fn facts_of_freeze(&self, change: &Change) -> Result<Vec<Fact>> {
        match (&change.old, &change.new) {
            (None, Some(new)) if new.contains_key("why") => {
                let freeze = self.read_freeze(new)?;
                Ok(vec![fact(&freeze, true, freeze.at)])
            }
            (Some(old), None) if old.contains_key("why") => {
                let freeze = self.read_freeze(old)?;
                Ok(vec![fact(&freeze, false, change.at)])
            }
            _ => Ok(Vec::new()),
        }
    }
}

fn fact(freeze: &OperatorFreeze, begins: bool, time: Timestamp) -> Fact {
    let kind = |frozen, unfrozen| if begins { frozen } else { unfrozen };
    let (kind, subject, owner, data) = match &freeze.target {
        FreezeTarget::Agent(agent) => (
            kind(EventKind::AgentFrozen, EventKind::AgentUnfrozen),
            EventSubject::Agent(*agent),
            FactOwner::OfAgent(*agent),
            EventData::new().text("by", "operator"),
        ),
        FreezeTarget::Owner(person) => (
            kind(EventKind::OwnerFrozen, EventKind::OwnerUnfrozen),
            EventSubject::Person(person.clone()),
            FactOwner::Person(person.clone()),
            EventData::new(),
        ),
        FreezeTarget::Deployment => (
            kind(EventKind::DeploymentFrozen, EventKind::DeploymentUnfrozen),
            EventSubject::Deployment,
            FactOwner::Nobody,
            EventData::new(),
        ),
    };
    Fact {
        id: EventId::derive(kind, &[&"operator", &subject, &freeze.at.micros()]),
        kind,
        time,
        subject,
        owner,
        data,
    }
}
