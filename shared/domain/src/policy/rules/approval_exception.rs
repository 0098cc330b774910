//! Exceptions from approvals. Other kinds of rules only restrict payments.

use super::{RuleParameters, is_selection_subset, rule_kind, zero_error};
use crate::{
    Address, Agent, Amount, ApprovalRequired, Catalog, CheckName, Duration, EvaluationInputs, KeyId, OperationSlug,
    Rule, RuleId, RuleScope, ServiceSlug, Timestamp, ValidationError,
    policy::{
        boundaries::Boundaries,
        check::{AskingKind, AskingLimit},
    },
};

rule_kind! {
    /// A payment that meets every condition needs no approval for the waived limits. All other limits apply.
    ApprovalException = "approval_exception" {
        /// The services to which the exception applies; `None` for all services.
        services: Option<Vec<ServiceSlug>> = "services",
        /// The operation to which the exception applies; `None` for all operations.
        operation: Option<OperationSlug> = "operation_id",
        /// The agent's keys to which the exception applies; `None` for all keys.
        keys: Option<Vec<KeyId>> = "keys",
        /// The payee.
        payee: Address = "payee",
        /// The maximum amount of a payment, in micro-USDC.
        max_amount: Amount = "max_amount_units",
        /// The time from which the exception has no effect.
        until: Timestamp = "until",
        /// Whether the exception waives the policy's approval threshold.
        waives_threshold: bool = "waives_threshold" or_default,
        /// The rules of the kind `approval_required` that the exception waives. A rule that is added later still applies.
        waived_rules: Vec<RuleId> = "waived_rules" or_default,
    }
}

impl RuleParameters for ApprovalException {
    /// Returns whether `before` already waives each approval that this exception waives.
    fn is_as_strict_as(&self, before: &Self) -> bool {
        before.covers_services(self)
            && is_selection_subset(self.keys.as_deref(), before.keys.as_deref())
            && (before.operation.is_none() || self.operation == before.operation)
            && self.payee == before.payee
            && self.max_amount <= before.max_amount
            && self.until <= before.until
            && (before.waives_threshold || !self.waives_threshold)
            && self.waived_rules.iter().all(|rule| before.waived_rules.contains(rule))
    }

    fn scope(&self) -> RuleScope<'_> {
        RuleScope {
            keys: self.keys.as_deref(),
            ..RuleScope::for_services(self.services.as_deref())
        }
    }

    fn parameter_errors(&self, _: &Catalog) -> Vec<ValidationError> {
        zero_error("/max_amount_units", self.max_amount).into_iter().collect()
    }

    fn add_boundaries(&self, boundaries: &mut Boundaries) {
        boundaries.amounts.extend(self.max_amount.minus(Amount::ONE));
        boundaries.amounts.insert(self.max_amount);
        boundaries.times.push(self.until);
    }
}

impl ApprovalException {
    /// The maximum time from an update to the end of an exception that the update adds: 90 days.
    pub const MAX_DURATION: Duration = Duration::from_secs_u32(90 * 86_400);

    /// Returns whether an exception can waive the limit. Only the policy's approval threshold and rules of
    /// the kind `approval_required` can be waived.
    pub fn can_waive(limit: &AskingLimit) -> bool {
        limit.kind.check_name() == CheckName::Approval
    }

    /// Returns whether the exception waives this limit for the payment. The caller has compared the payment's service
    /// and key with the exception.
    pub(in crate::policy) fn waives(&self, limit: &AskingLimit, inputs: &EvaluationInputs<'_>) -> bool {
        let offer = &inputs.intent.offer;
        let is_operation = |slug: &OperationSlug| inputs.operation.is_some_and(|operation| operation.slug == *slug);
        let is_waived = match (limit.kind, limit.rule) {
            (AskingKind::Threshold, None) => self.waives_threshold,
            (AskingKind::ApprovalRequired, Some(rule)) => self.waived_rules.contains(&rule),
            _ => false,
        };
        is_waived
            && offer.pay_to() == self.payee
            && offer.amount() <= self.max_amount
            && inputs.at < self.until
            && self.operation.as_ref().is_none_or(is_operation)
    }

    /// Returns the validation errors of an exception that is added at `now`, each with a JSON Pointer.
    pub fn validation_errors(&self, now: Timestamp) -> Vec<ValidationError> {
        let errors = [
            (self.max_amount.is_zero(), "/max_amount_units", "must be above zero"),
            (
                self.until <= now || self.until > now.after(Self::MAX_DURATION),
                "/until",
                "must be in the next 90 days",
            ),
            (
                !self.waives_threshold && self.waived_rules.is_empty(),
                "/waived_rules",
                "must name a rule, unless `waives_threshold` is true",
            ),
        ];
        let errors = errors.into_iter().filter(|(is_wrong, ..)| *is_wrong);
        errors
            .map(|(_, path, message)| ValidationError::at_path(path, message))
            .collect()
    }
}

impl Agent {
    /// Returns the validation errors of exceptions that are new or changed since `before`, with JSON Pointers
    /// relative to the exception. An exception may waive only the agent's `approval_required` rules.
    pub fn added_exception_errors(&self, before: &Self, now: Timestamp) -> Vec<ValidationError> {
        let is_present = |new: &Rule| before.rules.iter().any(|old| old.id == new.id && old.kind == new.kind);
        let added = self.rules.iter().filter(|rule| !is_present(rule));
        let exceptions = added.filter_map(|rule| rule.kind.as_kind::<ApprovalException>());
        let is_known = |id: &RuleId| {
            let mut rules = self.rules.iter();
            rules.any(|rule| rule.id == *id && rule.kind.is_kind::<ApprovalRequired>())
        };
        let errors = exceptions.flat_map(|exception| {
            let rules = exception.waived_rules.iter().enumerate();
            let unknown = rules.filter(|(_, id)| !is_known(id)).map(|(index, _)| {
                let message = "is not the id of a rule of the agent of the kind `approval_required`";
                ValidationError::at_path(format!("/waived_rules/{index}"), message)
            });
            let errors = exception.validation_errors(now);
            errors.into_iter().chain(unknown).collect::<Vec<_>>()
        });
        errors.collect()
    }
}
