//! Settlements of a person's agents, newest first.

use crate::ops::decisions::{newest, reads_of};
use crate::ops::owned::Owned;
use crate::ops::several::several;
use crate::page::{Filter, Page, Slice, page};
use crate::state::People;
use purser_api::Person;
use purser_domain::{AgentId, ErrorKind, ReceiptStatus, Result, Settlement, SettlementId};
use uuid::Uuid;

/// A filter of settlements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SettlementFilter {
    /// Only this agent's.
    pub(crate) agent: Option<AgentId>,
    /// Only those with this status now.
    pub(crate) status: Option<ReceiptStatus>,
}

impl People {
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
            .map(|status| move |settlement: &Settlement| Filter::by(settlement.state.status() == status));
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
