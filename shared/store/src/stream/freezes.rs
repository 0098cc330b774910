use crate::{
    codec::ledger::Ledger,
    stream::{
        change::Change,
        fact::{ChangeEvent, ChangeEventOwner},
    },
};
use purser_domain::{EventData, EventId, EventKind, EventSubject, FreezeTarget, OperatorFreeze, Result, Timestamp};

impl Ledger {
    /// Returns the change event if operators began or ended a freeze. A change of the reason has no event.
    pub(crate) fn freeze_change_events(&self, change: &Change) -> Result<Vec<ChangeEvent>> {
        match (&change.old, &change.new) {
            (None, Some(new)) if new.contains_key("why") => {
                let freeze = self.read_freeze_item(new)?;
                Ok(vec![freeze_event(&freeze, true, freeze.at)])
            }
            (Some(old), None) if old.contains_key("why") => {
                let freeze = self.read_freeze_item(old)?;
                Ok(vec![freeze_event(&freeze, false, change.at)])
            }
            _ => Ok(Vec::new()),
        }
    }
}

fn freeze_event(freeze: &OperatorFreeze, is_start: bool, time: Timestamp) -> ChangeEvent {
    let kind = |frozen, unfrozen| if is_start { frozen } else { unfrozen };
    let (kind, subject, owner, data) = match &freeze.target {
        FreezeTarget::Agent(agent) => (
            kind(EventKind::AgentFrozen, EventKind::AgentUnfrozen),
            EventSubject::Agent(*agent),
            ChangeEventOwner::OfAgent(*agent),
            EventData::new().text("by", "operator"),
        ),
        FreezeTarget::Owner(user) => (
            kind(EventKind::OwnerFrozen, EventKind::OwnerUnfrozen),
            EventSubject::Person(user.clone()),
            ChangeEventOwner::Person(user.clone()),
            EventData::new(),
        ),
        FreezeTarget::Deployment => (
            kind(EventKind::DeploymentFrozen, EventKind::DeploymentUnfrozen),
            EventSubject::Deployment,
            ChangeEventOwner::Nobody,
            EventData::new(),
        ),
    };
    ChangeEvent {
        id: EventId::derive(kind, &[&"operator", &subject, &freeze.at.micros()]),
        kind,
        time,
        subject,
        owner,
        data,
    }
}
