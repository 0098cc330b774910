//! Lists the agents that operators offer to a user, and accepts an offer.

use crate::agents::owned::OwnedAgent;
use crate::caller::Caller;
use crate::state::People;
use purser_domain::{Act, Agent, AgentId, AuditChanges, AuditKind, ErrorKind, OwnershipOffer, Result};
use purser_store::{Backoff, TransferAgentResult};
use tracing::info;

impl People {
    /// Lists the agents that are offered to the user, oldest offer first.
    pub(crate) async fn list_handovers(&self, user: &Caller) -> Result<Vec<(OwnershipOffer, Agent)>> {
        let now = self.now();
        let mut offers = self.ledger.read_offers_to_user(&user.id).await?;
        offers.retain(|(offer, _)| offer.is_open_to(&user.id, now));
        Ok(offers)
    }

    /// Makes the user the owner of the agent and of the pending approvals. Requires a recent sign-in.
    ///
    /// May be repeated, because a response may be lost. A temporary limit increase ends with the ownership: after this
    /// function returns, no payment that was decided before the transfer can be reserved.
    pub(crate) async fn accept_ownership_offer(&self, user: &Caller, id: AgentId) -> Result<OwnedAgent> {
        let action = Act::new(AuditKind::HandoverAccepted).on_agent(id);
        self.audit_rejection(&user.acting, &action, self.store_offer_acceptance(user, &action, id))
            .await
    }

    async fn store_offer_acceptance(&self, user: &Caller, action: &Act, id: AgentId) -> Result<OwnedAgent> {
        let mut backoff = Backoff::new();
        loop {
            // Read the offer before the agent: if the offer is accepted between the two reads, the agent has the new
            // owner.
            let offer = self.ledger.read_ownership_offer(id).await?;
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
                // The agent or the offer has changed.
                TransferAgentResult::Conflict | TransferAgentResult::NoOffer => backoff.wait_for_retry().await?,
            }
        }
    }
}
