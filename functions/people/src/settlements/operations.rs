//! Settlements of a person's agents, newest first.

use crate::agents::operations::PartPlace;
use crate::agents::owned::Owned;
use crate::caller::Caller;
use crate::decisions::operations::{newest, reads_of};
use crate::several::several;
use crate::span::Span;
use crate::state::People;
use purser_domain::{AgentId, ErrorKind, ReceiptStatus, Result, Settlement, SettlementId};
use purser_store::{Filter, Page, PageRequest, page};
use uuid::Uuid;

/// A filter of settlements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SettlementFilter {
    /// Only settlements of this agent.
    pub(crate) agent: Option<AgentId>,
    /// Only settlements that have this status now.
    pub(crate) status: Option<ReceiptStatus>,
    /// Only settlements authorized in this time range.
    pub(crate) span: Span,
}

impl People {
    /// The settlements of the person's agents.
    pub(crate) async fn settlements(
        &self,
        person: &Caller,
        filter: SettlementFilter,
        slice: PageRequest<PartPlace>,
    ) -> Result<Page<Settlement, PartPlace>> {
        let PartPlace { first, before } = slice.before.unwrap_or_default();
        let part = self.part_of_agents(person, filter.agent, first).await?;
        let slice = PageRequest {
            before,
            limit: slice.limit,
        };
        let page = self.settlements_of(part.agents.clone(), filter, slice).await?;
        Ok(part.page(page))
    }

    /// The settlements of these agents, which must belong to the person. Each read of the page makes one query per
    /// agent.
    pub(crate) async fn settlements_of(
        &self,
        agents: Vec<AgentId>,
        filter: SettlementFilter,
        slice: PageRequest<Uuid>,
    ) -> Result<Page<Settlement, Uuid>> {
        let slice = PageRequest {
            before: filter.span.before(slice.before),
            ..slice
        };
        let keep = |settlement: &Settlement| {
            if filter.span.is_over(place(settlement)) {
                return Filter::Stop;
            }
            Filter::by(filter.status.is_none_or(|status| settlement.state.status() == status))
        };
        let is_filtered = filter.status.is_some() || filter.span.from.is_some();
        let keep = is_filtered.then_some(keep);
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
