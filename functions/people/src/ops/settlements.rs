//! Settlements of a person's agents, newest first.

use crate::ops::decisions::{newest, reads_of};
use crate::ops::owned::Owned;
use crate::ops::several::several;
use crate::page::{Filter, Page, Slice, page};
use crate::state::Dashboard;
use purser_api::Person;
use purser_domain::{AgentId, ErrorKind, Result, Settlement, SettlementId, SettlementState};
use uuid::Uuid;

/// Where a settlement stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReceiptStatus {
    /// Reserved and signed.
    Authorized,
    /// Seen on chain.
    Confirmed,
    /// Given back.
    Expired,
}

impl ReceiptStatus {
    /// Every status.
    pub(crate) const ALL: [Self; 3] = [Self::Authorized, Self::Confirmed, Self::Expired];

    /// The status of that name in our API.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }

    /// What a status is asked for by, for the message of a problem.
    pub(crate) fn choices() -> String {
        format!("must be one of: {}", Self::ALL.map(Self::name).join(", "))
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Authorized => "authorized",
            Self::Confirmed => "confirmed",
            Self::Expired => "expired",
        }
    }

    const fn of(state: &SettlementState) -> Self {
        match state {
            SettlementState::Authorized => Self::Authorized,
            SettlementState::Confirmed { .. } => Self::Confirmed,
            SettlementState::Expired => Self::Expired,
        }
    }
}

/// Which settlements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SettlementFilter {
    /// This agent's.
    pub(crate) agent: Option<AgentId>,
    /// Those that stand so now.
    pub(crate) status: Option<ReceiptStatus>,
}

impl Dashboard {
    /// What the person's agents were authorized to pay.
    pub(crate) async fn settlements(
        &self,
        person: &Person,
        filter: SettlementFilter,
        slice: Slice<Uuid>,
    ) -> Result<Page<Settlement, Uuid>> {
        let agents = self.agents_in(person, filter.agent).await?;
        let keep = filter
            .status
            .map(|status| move |settlement: &Settlement| Filter::by(ReceiptStatus::of(&settlement.state) == status));
        let read = |before, count| {
            let ledger = self.ledger.clone();
            let lists = several(agents.clone(), move |agent| {
                let ledger = ledger.clone();
                async move { ledger.settlements(agent, before, count).await }
            });
            async move { Ok(newest(lists.await?, place, count)) }
        };
        page(slice, reads_of(agents.len()), keep, place, read).await
    }

    /// One settlement of the agent.
    pub(crate) async fn settlement(&self, owned: &Owned, id: SettlementId) -> Result<Settlement> {
        let settlement = self.ledger.settlement(owned.agent().id, id).await?;
        settlement.ok_or_else(|| ErrorKind::NotFound.into())
    }
}

const fn place(settlement: &Settlement) -> Uuid {
    settlement.terms.id.uuid()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_called_as_its_receipt_is() {
        for state in [SettlementState::Authorized, SettlementState::Expired] {
            assert_eq!(ReceiptStatus::of(&state).name(), state.name());
        }
        assert_eq!(ReceiptStatus::from_name("confirmed"), Some(ReceiptStatus::Confirmed));
        assert_eq!(ReceiptStatus::from_name("Confirmed"), None);
    }
}
