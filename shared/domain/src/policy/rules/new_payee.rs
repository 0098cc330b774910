use super::{RuleParameters, rule_kind};
use crate::{
    Amount, Check, CheckName, EvaluationInputs, PayeePrefix, Rule, RuleScope, ServiceSlug,
    policy::{
        boundaries::Boundaries,
        check::{AskingKind, FirstFailure},
        limits,
    },
};

rule_kind! {
    /// A payment needs an approval if the agent has not paid the payee at this service before.
    NewPayee = "new_payee" {
        /// The services to which the rule applies; `None` for all services.
        services: Option<Vec<ServiceSlug>> = "services",
    }
}

impl RuleParameters for NewPayee {
    fn is_as_strict_as(&self, before: &Self) -> bool {
        self.covers_services(before)
    }

    fn scope(&self) -> RuleScope<'_> {
        RuleScope::for_services(self.services.as_deref())
    }

    fn needs_recent_payments(&self) -> bool {
        true
    }

    fn exceeded_threshold(&self, _: &Rule, inputs: &EvaluationInputs<'_>) -> Option<(AskingKind, Amount)> {
        (!is_known_payee(inputs)).then_some((AskingKind::NewPayee, Amount::ZERO))
    }

    fn add_boundaries(&self, boundaries: &mut Boundaries) {
        boundaries.compares_payees = true;
    }
}

/// Checks that the payee was paid before, if a rule requires an approval for new payees.
pub(in crate::policy) fn check_payee(failure: &mut FirstFailure, inputs: &EvaluationInputs<'_>) -> Option<Check> {
    limits::applicable_rules_of_kind::<NewPayee>(inputs).next()?;
    if is_known_payee(inputs) {
        return Some(Check::passed(CheckName::Payee));
    }
    Some(failure.record_approval_requirement(CheckName::Payee, inputs, limits::limits_requiring_approval(inputs)))
}

fn is_known_payee(inputs: &EvaluationInputs<'_>) -> bool {
    inputs
        .recent
        .has_paid(PayeePrefix::from_address(inputs.intent.offer.pay_to()))
}
