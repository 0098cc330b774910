//! An agent's policy for one service (`docs/spec.md` §2.6).

use crate::{
    Amount, DomainPattern, IncreasedCaps, LimitIncrease, OperationSlug, Service, ServiceId, Timestamp, ValidationError,
};

/// The caps, scopes and approval threshold of one agent for one service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpendPolicy {
    /// The maximum amount of a call, in micro-USDC.
    pub max_per_call: Amount,
    /// The cap on the amount authorized within 24 hours.
    pub max_per_day: Amount,
    /// The approval threshold: calls above this amount need an approval.
    pub require_approval_above: Amount,
    /// The operations that the agent may call; `None` for every operation of the service.
    pub enabled_operations: Option<Vec<OperationSlug>>,
    /// The hosts from which the agent's scrape and crawl operations may fetch pages.
    pub allowed_domains: Vec<DomainPattern>,
    /// The temporary limit increases that users granted for this service, at most one for each cap.
    pub raises: Vec<LimitIncrease>,
}

/// The caps that apply at a given time, including an active limit increase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// The maximum amount of a call, in micro-USDC.
    pub per_call: Amount,
    /// The cap on the amount authorized within 24 hours.
    pub per_day: Amount,
}

/// Creates an amount in micro-USDC, for constants.
pub(crate) const fn units(units: u64) -> Amount {
    match Amount::from_units(units) {
        Some(amount) => amount,
        None => Amount::MAX,
    }
}

impl SpendPolicy {
    /// Returns the default policy of `docs/spec.md` §2.6, which applies when a user enables a service.
    pub fn spec_defaults() -> Self {
        Self {
            max_per_call: units(1_000_000),
            max_per_day: units(50_000_000),
            require_approval_above: units(10_000_000),
            enabled_operations: None,
            allowed_domains: vec![DomainPattern::any_domain()],
            raises: Vec::new(),
        }
    }

    /// Returns the permissive policy of the curated catalog (`docs/spec.md` §2.6), whose caps have no practical effect.
    pub fn permissive() -> Self {
        let no_limit = units(10_000_000_000_000);
        Self {
            max_per_call: no_limit,
            max_per_day: no_limit,
            require_approval_above: no_limit,
            ..Self::spec_defaults()
        }
    }

    /// Returns the limits that the dashboard suggests for a service without limits.
    pub fn suggested_limits() -> Self {
        Self {
            max_per_call: units(1_000_000),
            max_per_day: units(10_000_000),
            require_approval_above: units(500_000),
            ..Self::spec_defaults()
        }
    }

    /// Returns whether the caps and the approval threshold are at least as high as in [`SpendPolicy::permissive`].
    pub fn is_permissive(&self) -> bool {
        let no_limit = Self::permissive();
        self.max_per_call >= no_limit.max_per_call
            && self.max_per_day >= no_limit.max_per_day
            && self.require_approval_above >= no_limit.require_approval_above
    }

    /// Returns the limit increases that apply to an agent of this owner at `at`.
    pub fn active_increases(&self, owner: &str, at: Timestamp) -> impl Iterator<Item = &LimitIncrease> {
        let increases = self.raises.iter();
        increases.filter(move |increase| increase.applies_at(owner, at))
    }

    /// Returns the caps at `at`. A limit increase that `owner` granted raises the policy's cap while it is active.
    pub fn caps(&self, owner: &str, at: Timestamp) -> Caps {
        let raised = |cap, increased: fn(IncreasedCaps) -> Option<Amount>| {
            let increases = self.active_increases(owner, at);
            increases
                .filter_map(|increase| increased(increase.caps))
                .fold(cap, Amount::max)
        };
        Caps {
            per_call: raised(self.max_per_call, |caps| caps.max_per_call),
            per_day: raised(self.max_per_day, |caps| caps.max_per_day),
        }
    }

    /// Adds a granted increase. It replaces the increases of the same caps.
    #[must_use]
    pub fn with_increase(mut self, increase: LimitIncrease) -> Self {
        self.end_increases(increase.caps);
        self.raises.push(increase);
        self
    }

    /// Ends the increases of the caps that are set in `ended`.
    fn end_increases(&mut self, ended: IncreasedCaps) {
        for increase in &mut self.raises {
            increase.caps.remove_caps(ended);
        }
        self.raises.retain(|increase| increase.caps != IncreasedCaps::default());
    }

    /// Applies an update. A change of a cap ends the cap's temporary increase, so that the user's new cap applies.
    #[must_use]
    pub fn apply(mut self, update: &PolicyUpdate) -> Self {
        self.end_increases(IncreasedCaps {
            max_per_call: update.max_per_call.filter(|cap| *cap != self.max_per_call),
            max_per_day: update.max_per_day.filter(|cap| *cap != self.max_per_day),
        });
        Self {
            raises: self.raises,
            max_per_call: update.max_per_call.unwrap_or(self.max_per_call),
            max_per_day: update.max_per_day.unwrap_or(self.max_per_day),
            require_approval_above: update.require_approval_above.unwrap_or(self.require_approval_above),
            enabled_operations: match &update.enabled_operations {
                None => self.enabled_operations,
                Some(OperationScope::All) => None,
                Some(OperationScope::Only(slugs)) => Some(slugs.clone()),
            },
            allowed_domains: update.allowed_domains.clone().unwrap_or(self.allowed_domains),
        }
    }

    /// Returns whether the policy allows the operation. A policy without a list allows every operation.
    pub fn allows_operation(&self, operation: &OperationSlug) -> bool {
        self.enabled_operations
            .as_ref()
            .is_none_or(|enabled| enabled.contains(operation))
    }

    /// Returns whether every target is allowed. A call then needs no target.
    pub fn allows_any_domain(&self) -> bool {
        self.allowed_domains.iter().any(DomainPattern::is_any)
    }
}

/// An agent's record for one service, with the policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnabledService {
    /// The service to which the record applies.
    pub service: ServiceId,
    /// The version, which each update increments. Reservations are conditional on the evaluated version.
    pub version: u64,
    /// Whether the service is enabled. Calls to a disabled service are denied, and the policy is kept.
    pub enabled: bool,
    /// The limits for the service.
    pub policy: SpendPolicy,
}

impl EnabledService {
    /// Returns the first record of a service that was enabled when the agent was created.
    pub fn pre_enabled(service: ServiceId) -> Self {
        Self {
            service,
            version: 1,
            enabled: true,
            policy: SpendPolicy::permissive(),
        }
    }
}

/// New values for some fields of a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyUpdate {
    /// The maximum amount of a call, in micro-USDC.
    pub max_per_call: Option<Amount>,
    /// The cap on the amount authorized within 24 hours.
    pub max_per_day: Option<Amount>,
    /// The approval threshold: calls above this amount need an approval.
    pub require_approval_above: Option<Amount>,
    /// The operations that the agent may call.
    pub enabled_operations: Option<OperationScope>,
    /// The hosts from which the agent's scrape and crawl operations may fetch pages.
    pub allowed_domains: Option<Vec<DomainPattern>>,
}

/// Creates the update that sets every field of a policy.
impl From<SpendPolicy> for PolicyUpdate {
    fn from(policy: SpendPolicy) -> Self {
        Self {
            max_per_call: Some(policy.max_per_call),
            max_per_day: Some(policy.max_per_day),
            require_approval_above: Some(policy.require_approval_above),
            enabled_operations: Some(
                policy
                    .enabled_operations
                    .map_or(OperationScope::All, OperationScope::Only),
            ),
            allowed_domains: Some(policy.allowed_domains),
        }
    }
}

/// The operations of a service that a policy allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperationScope {
    /// Every operation, including future operations.
    All,
    /// Only these operations.
    Only(Vec<OperationSlug>),
}

/// Removes and returns the operations that the service does not list. An old list of operations could otherwise be
/// rejected, or could allow more than before.
pub(super) fn remove_unlisted_operations(
    operations: &mut Vec<OperationSlug>,
    service: Option<&Service>,
) -> Vec<OperationSlug> {
    let is_unlisted = |slug: &OperationSlug| service.is_none_or(|service| service.find_operation(slug).is_none());
    let (unlisted, listed) = std::mem::take(operations).into_iter().partition(is_unlisted);
    *operations = listed;
    unlisted
}

impl PolicyUpdate {
    /// Removes and returns the operations that the service does not list.
    pub fn take_unlisted_operations(&mut self, service: Option<&Service>) -> Vec<OperationSlug> {
        match &mut self.enabled_operations {
            Some(OperationScope::Only(operations)) => remove_unlisted_operations(operations, service),
            Some(OperationScope::All) | None => Vec::new(),
        }
    }

    /// The maximum number of hosts in `allowed_domains`, limited because every payment reads the policy.
    pub const MAX_DOMAINS: usize = 100;

    /// Returns the validation errors for the service. Without a service, every operation in the update is an error.
    pub fn validation_errors(&self, service: Option<&Service>) -> Vec<ValidationError> {
        let mut errors = Vec::new();
        if let Some(OperationScope::Only(slugs)) = &self.enabled_operations {
            for (index, slug) in slugs.iter().enumerate() {
                let path = format!("/enabled_operations/{index}");
                if slugs.iter().take(index).any(|earlier| earlier == slug) {
                    errors.push(ValidationError::at_path(path, "is named twice"));
                } else if service.is_none_or(|service| service.find_operation(slug).is_none()) {
                    errors.push(ValidationError::at_path(
                        path,
                        format!("`{slug}` is not an operation of this service"),
                    ));
                }
            }
        }
        if self
            .allowed_domains
            .as_ref()
            .is_some_and(|domains| domains.len() > Self::MAX_DOMAINS)
        {
            let message = format!("must have at most {} entries", Self::MAX_DOMAINS);
            errors.push(ValidationError::at_path("/allowed_domains", message));
        }
        errors
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AgentId, ApprovalId, Fingerprint};
    use uuid::Uuid;

    #[test]
    fn a_policy_update_keeps_omitted_fields() {
        let slugs = vec![OperationSlug::parse("lab.current").unwrap()];
        let before = SpendPolicy {
            enabled_operations: Some(slugs.clone()),
            ..SpendPolicy::spec_defaults()
        };
        assert_eq!(before.clone().apply(&PolicyUpdate::default()), before);
        let all = PolicyUpdate {
            enabled_operations: Some(OperationScope::All),
            ..PolicyUpdate::default()
        };
        assert_eq!(before.clone().apply(&all), SpendPolicy::spec_defaults());
        let edit = PolicyUpdate {
            max_per_call: Some(units(1)),
            max_per_day: Some(units(2)),
            require_approval_above: Some(units(3)),
            enabled_operations: Some(OperationScope::Only(slugs.clone())),
            allowed_domains: Some(Vec::new()),
        };
        let expected = SpendPolicy {
            max_per_call: units(1),
            max_per_day: units(2),
            require_approval_above: units(3),
            enabled_operations: Some(slugs),
            allowed_domains: Vec::new(),
            raises: Vec::new(),
        };
        assert_eq!(before.apply(&edit), expected);
    }

    #[test]
    fn a_limit_increase_never_lowers_a_cap_and_ends_on_time() {
        assert_eq!(LimitIncrease::MAX_DURATION.secs(), 7 * 86_400);
        let at = |micros| Timestamp::from_micros(micros).unwrap();
        let caps = |call, day| IncreasedCaps {
            max_per_call: Some(units(call)),
            max_per_day: Some(units(day)),
        };
        let raise = LimitIncrease {
            caps: caps(50, 500),
            from: at(10),
            until: at(20),
            by: "ann".to_owned(),
            approval: ApprovalId::derive(AgentId::from_uuid(Uuid::nil()), &Fingerprint::for_text("x"), 0),
        };
        let policy = SpendPolicy {
            max_per_call: units(5),
            max_per_day: units(1_000),
            raises: vec![raise.clone()],
            ..SpendPolicy::spec_defaults()
        };
        let rows = [
            ("ann", 9, 5),
            ("ann", 10, 50),
            ("ann", 19, 50),
            ("ann", 20, 5),
            ("bob", 15, 5),
        ];
        for (owner, now, per_call) in rows {
            let expected = Caps {
                per_call: units(per_call),
                per_day: units(1_000),
            };
            assert_eq!(policy.caps(owner, at(now)), expected, "{owner} {now}");
        }
        let day_cap = PolicyUpdate {
            max_per_day: Some(units(999)),
            ..PolicyUpdate::default()
        };
        let call_cap = PolicyUpdate {
            max_per_call: Some(units(4)),
            ..PolicyUpdate::default()
        };
        let with = |max_per_call, max_per_day| LimitIncrease {
            caps: IncreasedCaps {
                max_per_call,
                max_per_day,
            },
            ..raise.clone()
        };
        let after_day = policy.clone().apply(&day_cap);
        assert_eq!(after_day.raises, [with(Some(units(50)), None)]);
        assert_eq!(policy.clone().apply(&call_cap).raises, [with(None, Some(units(500)))]);
        assert_eq!(after_day.apply(&call_cap).raises, []);
        let same_cap = PolicyUpdate {
            max_per_day: Some(units(1_000)),
            allowed_domains: Some(Vec::new()),
            ..PolicyUpdate::default()
        };
        assert_eq!(policy.clone().apply(&same_cap).raises, policy.raises);
    }

    #[test]
    fn a_new_limit_increase_replaces_only_the_increases_of_its_caps() {
        let at = |micros| Timestamp::from_micros(micros).unwrap();
        let increase = |call: Option<u64>, day: Option<u64>, until| LimitIncrease {
            caps: IncreasedCaps {
                max_per_call: call.map(units),
                max_per_day: day.map(units),
            },
            from: at(10),
            until: at(until),
            by: "ann".to_owned(),
            approval: ApprovalId::derive(AgentId::from_uuid(Uuid::nil()), &Fingerprint::for_text("x"), 0),
        };
        let policy = SpendPolicy {
            max_per_call: units(5),
            max_per_day: units(100),
            ..SpendPolicy::spec_defaults()
        };
        let caps = |policy: &SpendPolicy, now| {
            let Caps { per_call, per_day } = policy.caps("ann", at(now));
            (per_call.units(), per_day.units())
        };
        let both = policy.with_increase(increase(Some(50), Some(500), 20));
        // The new increase ends earlier and is lower, and still replaces the former increase of the cap.
        let mixed = both.with_increase(increase(None, Some(400), 15));
        assert_eq!(
            mixed.raises,
            [increase(Some(50), None, 20), increase(None, Some(400), 15)]
        );
        assert_eq!(
            [10, 14, 15, 19, 20].map(|now| caps(&mixed, now)),
            [(50, 400), (50, 400), (50, 100), (50, 100), (5, 100)]
        );
        let replaced = mixed.with_increase(increase(Some(60), Some(600), 30));
        assert_eq!(replaced.raises, [increase(Some(60), Some(600), 30)]);
    }

    #[test]
    fn policies_with_any_limit_are_not_permissive() {
        assert!(SpendPolicy::permissive().is_permissive());
        let edit = |edit: PolicyUpdate| SpendPolicy::permissive().apply(&edit).is_permissive();
        let below = Some(units(9_999_999_999_999));
        assert!(edit(PolicyUpdate {
            max_per_call: Some(Amount::MAX),
            ..PolicyUpdate::default()
        }));
        assert!(!edit(PolicyUpdate {
            max_per_call: below,
            ..PolicyUpdate::default()
        }));
        assert!(!edit(PolicyUpdate {
            max_per_day: below,
            ..PolicyUpdate::default()
        }));
        assert!(!edit(PolicyUpdate {
            require_approval_above: below,
            ..PolicyUpdate::default()
        }));
    }

    #[test]
    fn policy_update_errors_are_reported_with_their_path() {
        let slugs = |texts: &[&str]| texts.iter().map(|text| OperationSlug::parse(text).unwrap()).collect();
        let paths = |edit: PolicyUpdate| -> Vec<String> {
            edit.validation_errors(None)
                .into_iter()
                .map(|problem| problem.path)
                .collect()
        };
        let operations = PolicyUpdate {
            enabled_operations: Some(OperationScope::Only(slugs(&["a.b", "c.d", "a.b"]))),
            ..PolicyUpdate::default()
        };
        let unknown = |index: usize, slug| {
            let message = format!("`{slug}` is not an operation of this service");
            ValidationError::at_path(format!("/enabled_operations/{index}"), message)
        };
        let twice = ValidationError::at_path("/enabled_operations/2", "is named twice");
        assert_eq!(
            operations.validation_errors(None),
            [unknown(0, "a.b"), unknown(1, "c.d"), twice]
        );
        let domains = |count| PolicyUpdate {
            allowed_domains: Some(vec![DomainPattern::any_domain(); count]),
            ..PolicyUpdate::default()
        };
        assert_eq!(paths(domains(PolicyUpdate::MAX_DOMAINS)), [""; 0]);
        assert_eq!(paths(domains(PolicyUpdate::MAX_DOMAINS + 1)), ["/allowed_domains"]);
    }
}
