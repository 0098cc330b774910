//! Authenticates agents, and reads the decision inputs in the same round trip.
//!
//! Request counting and key checks are in `shared/store/src/people/authenticate.rs`.

use crate::Payments;
use purser_api::AgentCredentials;
use purser_domain::{
    CatalogMatch, ErrorKind, Permission, ProviderCall, Purchase, Result, ServiceId, Settlement, SettlementId,
};
use purser_store::{AuthenticatedCaller, CatalogVersion, DecisionInputs, DecisionKeys, Reader};
use std::sync::Arc;

/// Finds the catalog service for a call.
pub(crate) fn find_called_service<'a>(
    call: impl Into<ProviderCall<'a>>,
    edition: &'a CatalogVersion,
) -> Option<ServiceId> {
    let catalog_match = CatalogMatch::find_in_catalog(call, &edition.catalog).ok()?;
    Some(catalog_match.service.id)
}

impl Payments {
    /// Authenticates the agent for a call that needs this permission. Returns the agent with the decision inputs that
    /// were read at the same time.
    pub(crate) async fn authenticate(
        &self,
        caller: AgentCredentials,
        permission: Permission,
        keys: &DecisionKeys,
    ) -> Result<AuthenticatedCaller<DecisionInputs>> {
        let (now, key_use) = (self.clock.now(), caller.key_use(permission));
        let call = self
            .authenticator
            .begin_call(caller.scope, caller.key, key_use, now)
            .await?;
        let read = self
            .ledger
            .read_decision_inputs(Reader::Unverified(&call.key, now), keys);
        let (agent, inputs) = self.authenticator.run_throttled(&call, read).await?;
        self.authenticator.verify_call(call, agent, inputs, self.clock.now())
    }

    /// Authenticates the agent like [`Self::authenticate`], for a decision with the current catalog. The decision
    /// inputs are read for the service in the in-memory catalog, while another read checks whether this catalog is
    /// current. For an unauthenticated caller, the reads are the same whether or not the agent exists.
    pub(crate) async fn authenticate_for_decision(
        &self,
        caller: AgentCredentials,
        call: Option<ProviderCall<'_>>,
        keys: DecisionKeys,
    ) -> Result<(Arc<CatalogVersion>, AuthenticatedCaller<DecisionInputs>)> {
        let service_in = |edition: &CatalogVersion| find_called_service(call?, edition);
        let guess = self.catalog.latest();
        let guess = guess.as_deref().and_then(service_in);
        let ask = DecisionKeys {
            service: guess,
            freezes: call.is_some(),
            ..keys
        };
        // Boxed, because joining copies finished futures, and the AWS SDK's futures take kilobytes.
        let (edition, caller) = tokio::join!(
            Box::pin(self.catalog.current(self.clock.now())),
            Box::pin(self.authenticate(caller, Permission::Pay, &ask))
        );
        let (edition, mut caller) = (edition?, caller?);
        let service = service_in(&edition);
        if service != guess {
            // The catalog was replaced after the service was looked up, or no catalog was in memory, so the decision
            // inputs are read again.
            self.reread_decision_inputs(&mut caller, &DecisionKeys { service, ..ask })
                .await?;
        }
        Ok((edition, caller))
    }

    /// Reads an authenticated caller's decision inputs again, and checks the key against the agent's current record.
    pub(crate) async fn reread_decision_inputs(
        &self,
        caller: &mut AuthenticatedCaller<DecisionInputs>,
        keys: &DecisionKeys,
    ) -> Result<()> {
        let ask = DecisionKeys { freezes: true, ..*keys };
        let (agent, read) = self.ledger.read_decision_inputs(caller.agent.id, &ask).await?;
        let agent = agent.filter(|agent| agent.accepts_key(caller.key, self.clock.now()));
        caller.agent = agent.ok_or(ErrorKind::InvalidAgentKey)?;
        caller.read = read;
        Ok(())
    }

    /// Authenticates the caller and reads the caller's settlement. The settlement is `None` if the id is unknown or
    /// belongs to another agent. `permission` is the permission that the caller's key must have, if any.
    pub(crate) async fn authenticate_for_settlement(
        &self,
        caller: AgentCredentials,
        permission: Option<Permission>,
        id: Option<SettlementId>,
    ) -> Result<AuthenticatedCaller<Option<Settlement>>> {
        let (now, key_use) = (self.clock.now(), caller.key_use(permission));
        let call = self
            .authenticator
            .begin_call(caller.scope, caller.key, key_use, now)
            .await?;
        let read = self.ledger.read_agent_and_settlement(call.key.agent, id);
        let (agent, settlement) = self.authenticator.run_throttled(&call, read).await?;
        self.authenticator
            .verify_call(call, agent, settlement, self.clock.now())
    }
}

/// Returns the settlement and its purchase, if the settlement exists and the caller's key is valid for its service. The
/// error for a withdrawal is `not_found`, because withdrawals belong to the agent's owner.
pub(crate) fn require_settlement_access(
    caller: &AuthenticatedCaller<Option<Settlement>>,
) -> Result<(&Settlement, &Purchase)> {
    let settlement = caller.read.as_ref().ok_or(ErrorKind::NotFound)?;
    let purchase = settlement.terms.purchase().ok_or(ErrorKind::NotFound)?;
    caller.key_scope()?.check_service(purchase.service)?;
    Ok((settlement, purchase))
}
