//! Ownership transfers: lists the agents that operators offer to a user, and accepts an offer.

use crate::agents::owned::OwnedAgent;
use crate::caller::Caller;
use crate::state::People;
use purser_domain::{Act, Agent, AgentId, AuditChanges, AuditKind, ErrorKind, OwnershipOffer, Result};
use purser_store::{Backoff, TransferAgentResult};
use tracing::info;

impl People {
    /// Lists the agents that are offered to the user, with their offers, oldest offer first.
    pub(crate) async fn list_handovers(&self, user: &Caller) -> Result<Vec<(OwnershipOffer, Agent)>> {
        let now = self.now();
        let mut offers = self.ledger.read_offers_to_user(&user.id).await?;
        offers.retain(|(offer, _)| offer.is_open_to(&user.id, now));
        Ok(offers)
    }

    /// Makes the user the owner of the agent, and moves the pending approvals to the user. Requires a recent sign-in.
    /// If the agent already belongs to the user, the result is the same, because an earlier response may have been
    /// lost.
    ///
    /// A temporary limit increase ends with the ownership: once this function returns, no payment that was decided
    /// before the transfer can be reserved.
    pub(crate) async fn accept_ownership_offer(&self, user: &Caller, id: AgentId) -> Result<OwnedAgent> {
        let action = Act::new(AuditKind::HandoverAccepted).on_agent(id);
        self.audit_rejection(&user.acting, &action, self.store_offer_acceptance(user, &action, id))
            .await
    }

    async fn store_offer_acceptance(&self, user: &Caller, action: &Act, id: AgentId) -> Result<OwnedAgent> {
        let mut backoff = Backoff::new();
        loop {
            // The offer is read first. If a concurrent request accepts the offer, the agent's record, which is read
            // next, has the new owner.
            let offer = self.ledger.read_agent_offer(id).await?;
            let agent = self.ledger.read_agent_by_id(id).await?.ok_or(ErrorKind::NotFound)?;
            if let Some(owned) = OwnedAgent::new(user, agent.clone()) {
                self.ledger.fence_windows(owned.agent()).await?;
                self.ledger
                    .move_open_approvals_to_owner(owned.agent(), self.now())
                    .await?;
                return Ok(owned);
            }
            let offer = offer.filter(|offer| offer.is_open_to(&user.id, self.now()));
            let offer = offer.ok_or(ErrorKind::NotFound)?;
            self.limits.require_recent_sign_in(user.signed_in_at, self.now())?;
            let changes = AuditChanges::single("owner", agent.owner.as_str(), user.id.as_str());
            let entry = self.audit_entry(&user.acting, action, changes)?;
            match self.ledger.transfer_agent(&agent, &offer, self.now(), &entry).await? {
                TransferAgentResult::Done => {
                    info!(
                        person = %user.id,
                        agent.id = %id,
                        old.owner = agent.owner,
                        operator.name = %offer.by,
                        "handover.accepted"
                    );
                }
                // Another request changed the agent or the offer, so both are read again.
                TransferAgentResult::Conflict | TransferAgentResult::NoOffer => backoff.wait_for_retry().await?,
            }
        }
    }
}
