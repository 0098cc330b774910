//! Authenticates agents, and reads the inputs of the decision about a payment in the same round trip to DynamoDB.

use crate::Payments;
use purser_api::AgentCredentials;
use purser_domain::{
    CatalogMatch, ErrorKind, Permission, ProviderCall, Purchase, Result, ServiceId, Settlement, SettlementId,
};
use purser_store::{AuthenticatedCaller, CatalogVersion, DecisionInputs, DecisionKeys, Reader};
use std::sync::Arc;

pub(crate) fn find_called_service<'a>(
    call: impl Into<ProviderCall<'a>>,
    catalog_version: &'a CatalogVersion,
) -> Option<ServiceId> {
    let catalog_match = CatalogMatch::find_in_catalog(call, &catalog_version.catalog).ok()?;
    Some(catalog_match.service.id)
}

impl Payments {
    /// Authenticates the agent for a call that needs this permission. Returns the agent with the decision inputs.
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

    /// Authenticates the agent like [`Self::authenticate`], and checks concurrently that the cached catalog is current.
    /// If the caller is not authenticated, the reads do not reveal whether the agent exists.
    pub(crate) async fn authenticate_for_decision(
        &self,
        caller: AgentCredentials,
        call: Option<ProviderCall<'_>>,
        keys: DecisionKeys,
    ) -> Result<(Arc<CatalogVersion>, AuthenticatedCaller<DecisionInputs>)> {
        let service_in = |catalog_version: &CatalogVersion| find_called_service(call?, catalog_version);
        let guess = self.catalog.find_cached_of_any_age();
        let guess = guess.as_deref().and_then(service_in);
        let ask = DecisionKeys {
            service: guess,
            freezes: call.is_some(),
            ..keys
        };
        // The futures are boxed, because `join!` copies them and futures of the AWS SDK have several kilobytes.
        let (catalog_version, caller) = tokio::join!(
            Box::pin(self.catalog.current(self.clock.now())),
            Box::pin(self.authenticate(caller, Permission::Pay, &ask))
        );
        let (catalog_version, mut caller) = (catalog_version?, caller?);
        let service = service_in(&catalog_version);
        if service != guess {
            // The inputs were read for another service (`guess`, from the cached catalog), so the call's limits are missing.
            self.reread_decision_inputs(&mut caller, &DecisionKeys { service, ..ask })
                .await?;
        }
        Ok((catalog_version, caller))
    }

    /// Reads the decision inputs of the calling agent again, and checks that the agent's current record accepts the
    /// agent key.
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

    /// Authenticates the calling agent and reads the settlement with this id. The field `read` of the result is `None`
    /// if the agent has no settlement with this id.
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

/// Returns the settlement that the caller requested, and the settlement's purchase. Returns `not_found` for a
/// withdrawal, because only the agent's owner may see a withdrawal.
pub(crate) fn require_settlement_access(
    caller: &AuthenticatedCaller<Option<Settlement>>,
) -> Result<(&Settlement, &Purchase)> {
    let settlement = caller.read.as_ref().ok_or(ErrorKind::NotFound)?;
    let purchase = settlement.terms.purchase().ok_or(ErrorKind::NotFound)?;
    caller.key_scope()?.check_service(purchase.service)?;
    Ok((settlement, purchase))
}
