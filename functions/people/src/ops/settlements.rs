//! Settlements of a person's agents, newest first.

use crate::caller::Caller;
use crate::ops::decisions::{newest, reads_of};
use crate::ops::owned::Owned;
use crate::ops::several::several;
use crate::state::People;
use purser_domain::{AgentId, ErrorKind, ReceiptStatus, Result, Settlement, SettlementId, Timestamp};
use purser_store::{Filter, Page, Slice, page};
use uuid::Uuid;

/// A filter of settlements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SettlementFilter {
    /// Only this agent's.
    pub(crate) agent: Option<AgentId>,
    /// Only those with this status now.
    pub(crate) status: Option<ReceiptStatus>,
    /// Only those authorized from this time on.
    pub(crate) from: Option<Timestamp>,
    /// Only those authorized before this time.
    pub(crate) to: Option<Timestamp>,
}

impl People {
    /// What the person's agents were authorized to pay.
    pub(crate) async fn settlements(
        &self,
        person: &Caller,
        filter: SettlementFilter,
        slice: Slice<Uuid>,
    ) -> Result<Page<Settlement, Uuid>> {
        let agents = self.agents_in(person, filter.agent).await?;
        self.settlements_of(agents, filter, slice).await
    }

    /// The settlements of these agents, which are the person's: one query of each for every read of the page.
    pub(crate) async fn settlements_of(
        &self,
        agents: Vec<AgentId>,
        filter: SettlementFilter,
        slice: Slice<Uuid>,
    ) -> Result<Page<Settlement, Uuid>> {
        // An id begins with its time, so that a time is a place in the list.
        let first_at = |at| SettlementId::at(at, [0; 8]).uuid();
        let (from, to) = (filter.from.map(first_at), filter.to.map(first_at));
        let slice = Slice {
            before: [slice.before, to].into_iter().flatten().min(),
            ..slice
        };
        let keep = |settlement: &Settlement| {
            if from.is_some_and(|from| place(settlement) < from) {
                return Filter::Stop;
            }
            Filter::by(filter.status.is_none_or(|status| settlement.state.status() == status))
        };
        let keep = (filter.status.is_some() || from.is_some()).then_some(keep);
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
