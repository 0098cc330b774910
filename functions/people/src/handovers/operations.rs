//! Handovers: the agents that operators offer to a person, and the acceptance of an offer.

use crate::agents::owned::OwnedAgent;
use crate::caller::Caller;
use crate::state::People;
use purser_domain::{Act, Agent, AgentId, AuditChanges, AuditKind, ErrorKind, Handover, Result};
use purser_store::{Backoff, HandedOver};
use tracing::info;

impl People {
    /// The agents that are offered to the person, with their offers, the oldest offer first.
    pub(crate) async fn handovers(&self, person: &Caller) -> Result<Vec<(Handover, Agent)>> {
        let now = self.now();
        let mut offers = self.ledger.offers_to(&person.id).await?;
        offers.retain(|(offer, _)| offer.is_open_to(&person.id, now));
        Ok(offers)
    }

    /// Makes the person the owner of the agent and of its pending approvals. Requires a recent sign-in. If the agent
    /// already belongs to them, an earlier request accepted it and its response was lost.
    ///
    /// A raise ends with its owner: no payment that was decided before the answer is reserved after it.
    pub(crate) async fn accept_handover(&self, person: &Caller, id: AgentId) -> Result<OwnedAgent> {
        let act = Act::new(AuditKind::HandoverAccepted).on(id);
        self.audit_rejection(&person.acting, &act, self.store_acceptance(person, &act, id))
            .await
    }

    async fn store_acceptance(&self, person: &Caller, act: &Act, id: AgentId) -> Result<OwnedAgent> {
        let mut backoff = Backoff::new();
        loop {
            // The offer is read first: if a concurrent request has accepted it, the agent shows the new owner.
            let offer = self.ledger.offer_of(id).await?;
            let agent = self.ledger.agent(id).await?.ok_or(ErrorKind::NotFound)?;
            if let Some(owned) = OwnedAgent::new(person, agent.clone()) {
                self.ledger.fence_windows(owned.agent()).await?;
                self.ledger.move_approvals(owned.agent(), self.now()).await?;
                return Ok(owned);
            }
            let offer = offer.filter(|offer| offer.is_open_to(&person.id, self.now()));
            let offer = offer.ok_or(ErrorKind::NotFound)?;
            self.limits.recently(person.signed_in_at, self.now())?;
            let changes = AuditChanges::one("owner", agent.owner.as_str(), person.id.as_str());
            let entry = self.entry(&person.acting, act, changes)?;
            match self.ledger.hand_over(&agent, &offer, self.now(), &entry).await? {
                HandedOver::Done => {
                    info!(
                        person = %person.id,
                        agent.id = %id,
                        old.owner = agent.owner,
                        operator.name = %offer.by,
                        "handover.accepted"
                    );
                }
                // Another request changed the agent or the offer: read both and decide again.
                HandedOver::Conflict | HandedOver::NoOffer => backoff.wait().await?,
            }
        }
    }
}
