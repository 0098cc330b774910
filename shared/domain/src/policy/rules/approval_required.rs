use super::{RuleParameters, is_selection_subset, rule_kind};
use crate::{
    Amount, CallInputs, Catalog, Category, EvaluationInputs, Rule, RuleScope, ServiceSlug, ValidationError,
    policy::{boundaries::Boundaries, check::AskingKind, rule::selection_errors},
};

rule_kind! {
    /// A payment that meets every set condition needs an approval.
    ApprovalRequired = "approval_required" {
        /// The payment is to one of these services.
        services: Option<Vec<ServiceSlug>> = "services",
        /// The payment is in one of these categories.
        categories: Option<Vec<Category>> = "categories",
        /// The payment is above this amount, in micro-USDC.
        above: Option<Amount> = "above_units",
    }
}

impl ApprovalRequired {
    /// Returns the amount above which payments need an approval.
    pub(in crate::policy) fn threshold(&self) -> Amount {
        self.above.unwrap_or(Amount::ZERO)
    }
}

impl RuleParameters for ApprovalRequired {
    fn is_as_strict_as(&self, before: &Self) -> bool {
        self.covers_services(before)
            && is_selection_subset(before.categories.as_deref(), self.categories.as_deref())
            && self.above <= before.above
    }

    fn scope(&self) -> RuleScope<'_> {
        RuleScope::for_services(self.services.as_deref())
    }

    fn parameter_errors(&self, _: &Catalog) -> Vec<ValidationError> {
        selection_errors("/categories", self.categories.as_deref())
    }

    fn exceeded_threshold(&self, _: &Rule, inputs: &EvaluationInputs<'_>) -> Option<(AskingKind, Amount)> {
        let is_listed = |listed: &Vec<Category>| {
            let mut categories = CallInputs::from(inputs).categories();
            categories.any(|category| listed.contains(&category))
        };
        let is_exceeded =
            inputs.intent.offer.amount() > self.threshold() && self.categories.as_ref().is_none_or(is_listed);
        is_exceeded.then_some((AskingKind::ApprovalRequired, self.threshold()))
    }

    fn add_boundaries(&self, boundaries: &mut Boundaries) {
        boundaries.amounts.insert(self.threshold());
    }
}
