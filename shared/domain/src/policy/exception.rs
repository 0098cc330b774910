//! Exceptions from approvals: rules of the kind `approval_exception`. Other kinds only restrict payments.

use super::check::{AskingKind, AskingLimit};
use crate::{
    Address, Agent, Amount, CheckName, Duration, EvaluationInputs, KeyId, OperationSlug, Rule, RuleId, RuleKind,
    ServiceSlug, Timestamp, ValidationError,
};

/// A payment that meets every condition needs no approval for the waived limits. All other limits apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalException {
    /// The services to which the exception applies; `None` for all services.
    pub services: Option<Vec<ServiceSlug>>,
    /// The operation to which the exception applies; `None` for all operations.
    pub operation: Option<OperationSlug>,
    /// The agent's keys to which the exception applies; `None` for all keys.
    pub keys: Option<Vec<KeyId>>,
    /// The payee.
    pub payee: Address,
    /// The maximum amount of a payment, in micro-USDC.
    pub max_amount: Amount,
    /// The time from which the exception has no effect.
    pub until: Timestamp,
    /// Whether the exception waives the policy's approval threshold.
    pub waives_threshold: bool,
    /// The rules of the kind `approval_required` that the exception waives. A rule that is added later still applies.
    pub waived_rules: Vec<RuleId>,
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
    pub(super) fn waives(&self, limit: &AskingLimit, inputs: &EvaluationInputs<'_>) -> bool {
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
        let exceptions = added.filter_map(|rule| match &rule.kind {
            RuleKind::ApprovalException(exception) => Some(exception),
            _ => None,
        });
        let is_known = |id: &RuleId| {
            let mut rules = self.rules.iter();
            rules.any(|rule| rule.id == *id && matches!(rule.kind, RuleKind::ApprovalRequired { .. }))
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
