//! An allowed decision that uses every kind of check.

use crate::world::{NETWORK, World, authorize_body};
use purser_api::AuthorizeRequest;
use purser_domain::{CatalogMatch, EvaluationInputs, Eviction, GivenApproval, Intent, RecentPayments};

/// The input of an allowed decision that uses every kind of check.
#[derive(Clone, Debug)]
pub struct Case {
    /// The agent, the catalog and the windows.
    pub world: World,
    /// The agent's authorize request.
    pub intent: Intent,
}

impl Case {
    /// Returns an allowed request in a catalog of `services` services.
    pub fn allow(services: usize) -> Self {
        let world = World::with_services(services);
        let request = AuthorizeRequest::parse(&authorize_body(&world), NETWORK).unwrap();
        Self {
            world,
            intent: request.intent,
        }
    }

    /// Matches the request with the catalog.
    pub fn purchase(&self) -> CatalogMatch<'_> {
        CatalogMatch::find_in_catalog(&self.intent, &self.world.catalog).unwrap()
    }

    /// Returns the evaluation inputs.
    pub fn facts(&self) -> EvaluationInputs<'_> {
        self.facts_about(self.purchase(), None)
    }

    /// Returns the evaluation inputs with the catalog match `purchase` and an approval.
    pub fn facts_about<'a>(
        &'a self,
        purchase: CatalogMatch<'a>,
        approval: Option<GivenApproval<'a>>,
    ) -> EvaluationInputs<'a> {
        EvaluationInputs {
            agent: &self.world.agent,
            intent: &self.intent,
            key: purser_domain::KeyId(1),
            service: purchase.service,
            operation: purchase.operation,
            payee_from: None,
            network: NETWORK,
            enabled: self.world.enabled.as_ref(),
            day: &self.world.day,
            budgets: &self.world.budgets,
            recent: RecentPayments::NONE,
            frozen_by_operators: None,
            approval,
            balance: Some(self.world.balance),
            at: self.world.at,
            eviction: Eviction::Eager,
        }
    }
}
