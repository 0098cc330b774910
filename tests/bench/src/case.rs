//! An allowed decision that uses every kind of check.

use crate::world::{NETWORK, World, authorize_body};
use purser_api::AuthorizeRequest;
use purser_domain::{CatalogMatch, EvaluationInputs, Eviction, GivenApproval, Intent, RecentPayments};

/// The input of a decision.
#[derive(Clone, Debug)]
pub struct Case {
    /// The state that the decision depends on.
    pub world: World,
    /// The request.
    pub intent: Intent,
}

impl Case {
    /// An allowed call, in a world of `services` services.
    pub fn allow(services: usize) -> Self {
        let world = World::with_services(services);
        let request = AuthorizeRequest::parse(&authorize_body(&world), NETWORK).unwrap();
        Self {
            world,
            intent: request.intent,
        }
    }

    /// The catalog match of the request.
    pub fn purchase(&self) -> CatalogMatch<'_> {
        CatalogMatch::find_in_catalog(&self.intent, &self.world.catalog).unwrap()
    }

    /// The facts of the evaluation.
    pub fn facts(&self) -> EvaluationInputs<'_> {
        self.facts_about(self.purchase(), None)
    }

    /// The facts of the evaluation, for that catalog match and with that approval.
    pub fn facts_about<'a>(
        &'a self,
        purchase: CatalogMatch<'a>,
        approval: Option<GivenApproval<'a>>,
    ) -> EvaluationInputs<'a> {
        EvaluationInputs {
            agent: &self.world.agent,
            intent: &self.intent,
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
