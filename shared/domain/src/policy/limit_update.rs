//! Updates of an agent's limits.
//!
//! A saved update, a preview, a shadow policy and a backtest compute the new limits with the functions of this module,
//! so that a preview shows exactly the limits that would be saved.

use crate::{
    Act, Agent, ApprovalId, AuditKind, Catalog, EnabledService, Error, ErrorKind, PolicyChange, PolicyUpdate, Result,
    RuleId, RuleKind, RuleRejection, Service, ServiceId, SpendPolicy, TestedLimits, Timestamp, ValidationError,
};

/// An update of an agent's limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitUpdate {
    /// An update of the agent's rules. The rules are part of the agent's record.
    Rules(RuleUpdate),
    /// An update of the agent's record of one service.
    Service(ServiceId, ServiceUpdate),
}

/// An update of an agent's rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleUpdate {
    /// Adds a rule with a new id. Budgets of ended keys are removed first, so that they don't count against the
    /// maximum.
    Add(RuleId, CheckedRule),
    /// Replaces a rule by another rule of the same kind.
    Replace(RuleId, CheckedRule),
    /// Removes a rule.
    Remove(RuleId),
}

/// An update of an agent's record of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceUpdate {
    /// Enables a service that agents may pay ([`Service::is_open`]). Absent policy fields get their defaults, and the
    /// policy's temporary limit increases end.
    Enable(PolicyUpdate),
    /// Changes an existing record. A change can enable a disabled service only if agents may pay the service.
    Change(PolicyChange),
    /// Removes the temporary limit increase that this approval granted from an existing record.
    EndIncrease(ApprovalId),
}

/// A rule whose services and values are valid for the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedRule(RuleKind);

impl CheckedRule {
    /// Checks a rule. The errors have JSON Pointers into the rule.
    pub fn check(kind: RuleKind, catalog: &Catalog) -> Result<Self, Vec<ValidationError>> {
        let errors = kind.validation_errors(catalog);
        if errors.is_empty() { Ok(Self(kind)) } else { Err(errors) }
    }

    /// Returns the rule.
    pub const fn kind(&self) -> &RuleKind {
        &self.0
    }
}

impl RuleUpdate {
    /// Returns the agent after the update.
    pub fn apply(&self, agent: Agent, now: Timestamp) -> Result<Agent> {
        let updated = match self {
            Self::Add(id, rule) => agent
                .without_budgets_of_ended_keys(now)
                .with_rule(*id, rule.kind().clone()),
            Self::Replace(id, rule) => agent.with_changed_rule(*id, rule.kind().clone()),
            Self::Remove(id) => agent.without_rule(*id),
        };
        Ok(updated?)
    }

    /// Returns the action for the audit log.
    pub fn act(&self) -> Act {
        let (kind, id) = match self {
            Self::Add(id, _) => (AuditKind::RuleAdded, id),
            Self::Replace(id, _) => (AuditKind::RuleReplaced, id),
            Self::Remove(id) => (AuditKind::RuleRemoved, id),
        };
        Act::new(kind).with_object(id)
    }
}

impl PolicyChange {
    /// Returns the record of a service after the change, with the version of `current`. Without a current record, the
    /// service is enabled with the default policy before the change, and the version is 0.
    pub fn apply(&self, service: ServiceId, current: Option<&EnabledService>) -> EnabledService {
        let policy = current.map_or_else(SpendPolicy::spec_defaults, |current| current.policy.clone());
        EnabledService {
            service,
            version: current.map_or(0, |current| current.version),
            enabled: self.enabled.unwrap_or(current.is_none_or(|current| current.enabled)),
            policy: policy.apply(&self.policy),
        }
    }
}

impl ServiceUpdate {
    /// Creates the update that makes the change to the record `current`. Without a record, the update enables the
    /// service, whether or not the change does.
    pub fn for_record(current: Option<&EnabledService>, change: PolicyChange) -> Self {
        match current {
            Some(_) => Self::Change(change),
            None => Self::Enable(change.policy),
        }
    }

    /// Creates the update that enables or disables a service that has a record. The policy is kept.
    pub fn for_status(enabled: bool) -> Self {
        Self::Change(PolicyChange {
            enabled: Some(enabled),
            policy: PolicyUpdate::default(),
        })
    }

    /// Returns the version that the update replaces, or 0 if the update creates the record. The error is `not_found` if
    /// the update requires a record and there is none.
    pub fn replaced_version(&self, current: Option<&EnabledService>) -> Result<u64> {
        match (current, self) {
            (Some(current), _) => Ok(current.version),
            (None, Self::Enable(_)) => Ok(0),
            (None, Self::Change(_) | Self::EndIncrease(_)) => Err(ErrorKind::NotFound.into()),
        }
    }

    /// Returns the record after the update, with the next version. `listed` is the service in the catalog. The error is
    /// `not_found` without a required record, `service_not_found` if the update enables a service that agents may not
    /// pay, or the policy's validation errors.
    pub fn apply(
        &self,
        service: ServiceId,
        current: Option<&EnabledService>,
        listed: Option<&Service>,
    ) -> Result<EnabledService> {
        let version = self.replaced_version(current)?.saturating_add(1);
        let (change, kept) = (self.change(), current.filter(|_| !matches!(self, Self::Enable(_))));
        let mut record = EnabledService {
            version,
            ..change.apply(service, kept)
        };
        if record.enabled && !kept.is_some_and(|kept| kept.enabled) && !listed.is_some_and(Service::is_open) {
            return Err(ErrorKind::ServiceNotFound.into());
        }
        let errors = change.policy.validation_errors(listed);
        if !errors.is_empty() {
            return Err(Error::invalid(errors));
        }
        if let Self::EndIncrease(approval) = self {
            record.policy.raises.retain(|increase| increase.approval != *approval);
        }
        Ok(record)
    }

    /// Returns the action for the audit log.
    pub fn act(&self, service: ServiceId) -> Act {
        let kind = match self.change().enabled {
            Some(true) => AuditKind::ServiceEnabled,
            Some(false) => AuditKind::ServiceDisabled,
            None => AuditKind::PolicyEdited,
        };
        Act::new(kind).about_service(service)
    }

    fn change(&self) -> PolicyChange {
        match self {
            Self::Enable(update) => PolicyChange {
                enabled: Some(true),
                policy: SpendPolicy::spec_defaults().apply(update).into(),
            },
            Self::Change(change) => change.clone(),
            Self::EndIncrease(_) => PolicyChange::default(),
        }
    }
}

impl LimitUpdate {
    /// Returns the version of the record that the update replaces: the agent's record or the service's record.
    pub fn replaced_version(&self, agent: &Agent, policies: &[EnabledService]) -> Result<u64> {
        match self {
            Self::Rules(_) => Ok(agent.version),
            Self::Service(service, update) => update.replaced_version(find_policy(policies, *service)),
        }
    }

    /// Returns the agent and the policies after the update.
    pub fn apply(
        &self,
        agent: &Agent,
        policies: &[EnabledService],
        catalog: &Catalog,
        now: Timestamp,
    ) -> Result<(Agent, Vec<EnabledService>)> {
        match self {
            Self::Rules(update) => Ok((update.apply(agent.clone(), now)?, policies.to_vec())),
            Self::Service(service, update) => {
                let (current, listed) = (find_policy(policies, *service), catalog.find_by_id(*service));
                let others = policies.iter().filter(|policy| policy.service != *service).cloned();
                let updated = update.apply(*service, current, listed)?;
                Ok((agent.clone(), others.chain([updated]).collect()))
            }
        }
    }

    /// Returns the limits after the update, for a shadow policy or a backtest.
    pub fn tested_limits(&self, agent: &Agent, now: Timestamp) -> Result<TestedLimits> {
        let mut limits = TestedLimits::default();
        match self {
            Self::Rules(update) => {
                let rules = update.apply(agent.clone(), now)?.rules.into_iter();
                limits.rules = Some(rules.map(|rule| rule.kind).collect());
            }
            Self::Service(service, update) => {
                limits.policies.insert(*service, update.change());
            }
        }
        Ok(limits)
    }
}

fn find_policy(policies: &[EnabledService], service: ServiceId) -> Option<&EnabledService> {
    policies.iter().find(|policy| policy.service == service)
}

/// Creates the error of a rejected rule update: `not_found` or a validation error.
impl From<RuleRejection> for Error {
    fn from(rejection: RuleRejection) -> Self {
        let error = match rejection {
            RuleRejection::Unknown => return ErrorKind::NotFound.into(),
            RuleRejection::TooMany => {
                let message = format!("an agent has at most {} rules; remove one first", Agent::MAX_RULES);
                ValidationError::at_path("", message)
            }
            RuleRejection::TooManyBudgets => {
                let message = format!(
                    "an agent has at most {} budgets, count limits and minimum intervals together; remove one first",
                    Agent::MAX_BUDGETS
                );
                ValidationError::at_path("", message)
            }
            RuleRejection::SecondBrake => {
                ValidationError::at_path("/kind", "an agent has at most one anomaly brake; edit or remove it")
            }
            RuleRejection::UnknownKey { index } => {
                ValidationError::at_path(format!("/keys/{index}"), "is not the id of a key of the agent")
            }
            RuleRejection::OtherKind => ValidationError::at_path(
                "/kind",
                "must be the rule's own, and `per_payee` too; remove the rule and add another",
            ),
        };
        Self::invalid(vec![error])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{IncreasedCaps, LimitIncrease, OperationScope, policy::spend_policy::units};
    use uuid::Uuid;

    fn service() -> ServiceId {
        ServiceId::from_uuid(Uuid::from_u128(1))
    }

    fn record(enabled: bool) -> EnabledService {
        let increase = LimitIncrease {
            caps: IncreasedCaps {
                max_per_call: Some(units(50)),
                max_per_day: None,
            },
            from: Timestamp::EPOCH,
            until: Timestamp::EPOCH,
            by: "ann".to_owned(),
            approval: ApprovalId::derive(
                crate::AgentId::from_uuid(Uuid::nil()),
                &crate::Fingerprint::for_text("x"),
                0,
            ),
        };
        EnabledService {
            service: service(),
            version: 7,
            enabled,
            policy: SpendPolicy {
                max_per_call: units(5),
                ..SpendPolicy::permissive()
            }
            .with_increase(increase),
        }
    }

    fn change(enabled: Option<bool>) -> PolicyChange {
        PolicyChange {
            enabled,
            policy: PolicyUpdate {
                max_per_day: Some(units(9)),
                ..PolicyUpdate::default()
            },
        }
    }

    #[test]
    fn a_change_keeps_the_fields_that_it_omits() {
        let current = record(true);
        let updated = ServiceUpdate::Change(change(None))
            .apply(service(), Some(&current), None)
            .unwrap();
        let policy = SpendPolicy {
            max_per_day: units(9),
            ..current.policy.clone()
        };
        assert_eq!(
            updated,
            EnabledService {
                version: 8,
                policy,
                ..current
            }
        );
    }

    #[test]
    fn only_an_increases_own_end_removes_it() {
        let current = record(false);
        let approval = current.policy.raises[0].approval;
        let other = ApprovalId::derive(
            crate::AgentId::from_uuid(Uuid::nil()),
            &crate::Fingerprint::for_text("x"),
            1,
        );
        for (approval, remaining) in [(approval, 0), (other, 1)] {
            let update = ServiceUpdate::EndIncrease(approval);
            let updated = update.apply(service(), Some(&current), None).unwrap();
            assert_eq!((updated.policy.raises.len(), updated.enabled), (remaining, false));
            assert_eq!(update.act(service()).kind, AuditKind::PolicyEdited);
        }
    }

    #[test]
    fn updates_that_enable_a_service_require_an_open_service_and_others_require_a_record() {
        let (enabled, disabled) = (record(true), record(false));
        let rows = [
            (
                ServiceUpdate::Enable(PolicyUpdate::default()),
                None,
                "service_not_found",
            ),
            (
                ServiceUpdate::Enable(PolicyUpdate::default()),
                Some(&enabled),
                "service_not_found",
            ),
            (
                ServiceUpdate::Change(change(Some(true))),
                Some(&disabled),
                "service_not_found",
            ),
            (ServiceUpdate::Change(change(Some(true))), None, "not_found"),
        ];
        for (update, current, slug) in rows {
            let error = update.apply(service(), current, None).unwrap_err();
            assert_eq!(error.kind().slug(), slug, "{update:?}");
        }
        let kept = ServiceUpdate::Change(change(Some(true))).apply(service(), Some(&enabled), None);
        assert!(kept.unwrap().enabled);
    }

    #[test]
    fn tests_of_an_enabled_service_set_every_field_of_the_policy() {
        let update = LimitUpdate::Service(service(), ServiceUpdate::Enable(change(None).policy));
        let agent = crate::policy::rule::tests::agent();
        let limits = update.tested_limits(&agent, Timestamp::EPOCH).unwrap();
        let tested = &limits.policies[&service()];
        assert_eq!(tested.enabled, Some(true));
        assert_eq!(tested.policy.max_per_day, Some(units(9)));
        assert_eq!(tested.policy.enabled_operations, Some(OperationScope::All));
        let expected = SpendPolicy::spec_defaults().apply(&change(None).policy);
        assert_eq!(SpendPolicy::permissive().apply(&tested.policy), expected);
    }
}
