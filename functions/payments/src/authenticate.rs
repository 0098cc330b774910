//! Who calls, and what is read for them in the same round trip.
//!
//! How a caller is counted and a key is judged: `shared/store/src/people/authenticate.rs`.

use crate::Payments;
use purser_api::AgentCredentials;
use purser_domain::{CatalogMatch, ErrorKind, Intent, PresentedKey, Result, ServiceId, SettlementId, TxHash};
use purser_store::{Authenticated, DecisionInputs, DecisionKeys, Edition, Presented};
use std::sync::Arc;

/// The service of the catalog that an intent is about.
pub(crate) fn service_of(intent: &Intent, edition: &Edition) -> Option<ServiceId> {
    let matched = CatalogMatch::of(intent, &edition.catalog).ok()?;
    Some(matched.service.id)
}

impl Payments {
    /// The agent behind a call, and what was read for it.
    pub(crate) async fn authenticate(
        &self,
        AgentCredentials { key, scope }: AgentCredentials,
        ask: &DecisionKeys,
    ) -> Result<Authenticated<DecisionInputs>> {
        let now = self.clock.now();
        let read = async |key: &PresentedKey| self.ledger.decision_inputs_for(key, now, ask).await;
        self.authenticator
            .authenticate(scope, key, || self.clock.now(), read)
            .await
    }

    /// The same for a decision, and the catalog as of now. Its copy is confirmed beside these reads, which go by the service
    /// that the copy names; what is read for a stranger is the same, whether there is such an agent or not.
    pub(crate) async fn authenticate_for_decision(
        &self,
        caller: AgentCredentials,
        intent: Option<&Intent>,
        ask: DecisionKeys,
    ) -> Result<(Arc<Edition>, Authenticated<DecisionInputs>)> {
        let service_in = |edition: &Edition| service_of(intent?, edition);
        let guess = self.catalog.latest();
        let guess = guess.as_deref().and_then(service_in);
        let ask = DecisionKeys { service: guess, ..ask };
        // Boxed, since joining copies a future that is over, and those of the SDK take kilobytes.
        let (edition, caller) = tokio::join!(
            Box::pin(self.catalog.current(self.clock.now())),
            Box::pin(self.authenticate(caller, &ask))
        );
        let (edition, mut caller) = (edition?, caller?);
        let service = service_in(&edition);
        if service != guess {
            // The catalog has changed underneath the guess, or there was none.
            self.read_again(&mut caller, &DecisionKeys { service, ..ask }).await?;
        }
        Ok((edition, caller))
    }

    /// Reads anew for a caller who got in, and judges the key by the agent's record as it is now.
    pub(crate) async fn read_again(
        &self,
        caller: &mut Authenticated<DecisionInputs>,
        ask: &DecisionKeys,
    ) -> Result<()> {
        let (agent, read) = self.ledger.decision_inputs(caller.agent.id, ask).await?;
        let agent = agent.filter(|agent| agent.takes(caller.key, self.clock.now()));
        caller.agent = agent.ok_or(ErrorKind::InvalidAgentKey)?;
        caller.read = read;
        Ok(())
    }

    /// One of the caller's settlements, none for an unknown id as for somebody else's; and which settlement the transaction
    /// has confirmed that it is to be proven by, if it has any.
    pub(crate) async fn authenticate_for_settlement(
        &self,
        AgentCredentials { key, scope }: AgentCredentials,
        id: Option<SettlementId>,
        proof: Option<TxHash>,
    ) -> Result<Presented> {
        let proof = proof.map(|hash| (self.network, hash));
        let read = async |key: &PresentedKey| self.ledger.presented(key.agent, id, proof).await;
        let caller = self.authenticator.authenticate(scope, key, || self.clock.now(), read);
        Ok(caller.await?.read)
    }
}
