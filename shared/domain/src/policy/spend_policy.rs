//! An agent's policy for one service (`docs/spec.md` §2.6).

use crate::{Amount, DomainPattern, OperationSlug, Problem, Raise, Service, ServiceId, Timestamp};

/// Caps and scopes for one agent and one service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpendPolicy {
    /// The cap per call.
    pub max_per_call: Amount,
    /// The cap on the amount authorized in the last 24 hours.
    pub max_per_day: Amount,
    /// The amount above which a call needs an approval.
    pub require_approval_above: Amount,
    /// The operations that the agent may call; `None`: every operation of the service.
    pub enabled_operations: Option<Vec<OperationSlug>>,
    /// The hosts that scrape and crawl operations may fetch.
    pub allowed_domains: Vec<DomainPattern>,
    /// Higher caps for a limited time.
    pub raise: Option<Raise>,
}

/// The caps that apply at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// The cap per call.
    pub per_call: Amount,
    /// The cap on the amount authorized in the last 24 hours.
    pub per_day: Amount,
}

/// An amount of micro-units, for constants.
pub(crate) const fn units(units: u64) -> Amount {
    match Amount::from_units(units) {
        Some(amount) => amount,
        None => Amount::MAX,
    }
}

impl SpendPolicy {
    /// The column defaults of `docs/spec.md` §2.6, used when a person enables a service.
    pub fn column_defaults() -> Self {
        Self {
            max_per_call: units(1_000_000),
            max_per_day: units(50_000_000),
            require_approval_above: units(10_000_000),
            enabled_operations: None,
            allowed_domains: vec![DomainPattern::any()],
            raise: None,
        }
    }

    /// The permissive values of the curated catalog (`docs/spec.md` §2.6): in effect no limit, to be narrowed by a
    /// person.
    pub fn permissive() -> Self {
        let no_limit = units(10_000_000_000_000);
        Self {
            max_per_call: no_limit,
            max_per_day: no_limit,
            require_approval_above: no_limit,
            ..Self::column_defaults()
        }
    }

    /// The limits that the dashboard suggests for a service without any: 1 USDC a call, 10 USDC a day, and an approval
    /// above 0.50 USDC.
    pub fn suggested() -> Self {
        Self {
            max_per_call: units(1_000_000),
            max_per_day: units(10_000_000),
            require_approval_above: units(500_000),
            ..Self::column_defaults()
        }
    }

    /// Whether the policy has no effective limit and never requires an approval: every number is at least the
    /// permissive one.
    pub fn is_permissive(&self) -> bool {
        let no_limit = Self::permissive();
        self.max_per_call >= no_limit.max_per_call
            && self.max_per_day >= no_limit.max_per_day
            && self.require_approval_above >= no_limit.require_approval_above
    }

    /// The caps for an agent of this owner at `at`: the policy's, or those of its raise where that applies and they are
    /// higher.
    pub fn caps(&self, owner: &str, at: Timestamp) -> Caps {
        let raise = self.raise.as_ref().filter(|raise| raise.applies(owner, at));
        let raised = |cap: Amount, to: Option<Amount>| to.map_or(cap, |to| cap.max(to));
        Caps {
            per_call: raised(self.max_per_call, raise.and_then(|raise| raise.caps.max_per_call)),
            per_day: raised(self.max_per_day, raise.and_then(|raise| raise.caps.max_per_day)),
        }
    }

    /// The policy with the edit's values. Other caps end the raise, so that the caps that a person writes are those that
    /// apply.
    #[must_use]
    pub fn edited(self, edit: &PolicyEdit) -> Self {
        let keeps = |edit: Option<Amount>, cap: Amount| edit.is_none_or(|edit| edit == cap);
        let keeps_caps = keeps(edit.max_per_call, self.max_per_call) && keeps(edit.max_per_day, self.max_per_day);
        Self {
            raise: self.raise.filter(|_| keeps_caps),
            max_per_call: edit.max_per_call.unwrap_or(self.max_per_call),
            max_per_day: edit.max_per_day.unwrap_or(self.max_per_day),
            require_approval_above: edit.require_approval_above.unwrap_or(self.require_approval_above),
            enabled_operations: match &edit.enabled_operations {
                None => self.enabled_operations,
                Some(OperationScope::All) => None,
                Some(OperationScope::Only(slugs)) => Some(slugs.clone()),
            },
            allowed_domains: edit.allowed_domains.clone().unwrap_or(self.allowed_domains),
        }
    }

    /// Whether an operation of the service is in scope.
    pub fn allows_operation(&self, operation: &OperationSlug) -> bool {
        self.enabled_operations
            .as_ref()
            .is_none_or(|enabled| enabled.contains(operation))
    }

    /// Whether every target is allowed, so that a call need not name its target.
    pub fn allows_any_domain(&self) -> bool {
        self.allowed_domains.iter().any(DomainPattern::is_any)
    }
}

/// An agent's record for one service: the policy, and its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnabledService {
    /// The service.
    pub service: ServiceId,
    /// The number of edits. Every reservation is conditional on the version that its decision used.
    pub version: u64,
    /// Whether the service is enabled. A disabled record keeps its policy, and every call is refused.
    pub enabled: bool,
    /// The caps and scopes.
    pub policy: SpendPolicy,
}

impl EnabledService {
    /// The first record of a service that an agent has since its creation.
    pub fn pre_enabled(service: ServiceId) -> Self {
        Self {
            service,
            version: 1,
            enabled: true,
            policy: SpendPolicy::permissive(),
        }
    }
}

/// New values for some of a policy's fields. The other fields are unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyEdit {
    /// The cap per call.
    pub max_per_call: Option<Amount>,
    /// The cap per rolling 24 hours.
    pub max_per_day: Option<Amount>,
    /// The amount above which a call needs an approval.
    pub require_approval_above: Option<Amount>,
    /// The operations that the agent may call.
    pub enabled_operations: Option<OperationScope>,
    /// The hosts that scrape and crawl operations may fetch.
    pub allowed_domains: Option<Vec<DomainPattern>>,
}

/// The operations of a service that a policy allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperationScope {
    /// Every operation, including future ones.
    All,
    /// Only these operations.
    Only(Vec<OperationSlug>),
}

impl PolicyEdit {
    /// The maximum number of entries in `allowed_domains`: the policy is read with every payment.
    pub const MOST_DOMAINS: usize = 100;

    /// The values that are invalid for the service. Without a service (it left the catalog), no operation can be named.
    pub fn problems(&self, service: Option<&Service>) -> Vec<Problem> {
        let mut problems = Vec::new();
        if let Some(OperationScope::Only(slugs)) = &self.enabled_operations {
            for (index, slug) in slugs.iter().enumerate() {
                let path = format!("/enabled_operations/{index}");
                if slugs.iter().take(index).any(|earlier| earlier == slug) {
                    problems.push(Problem::at(path, "is named twice"));
                } else if service.is_none_or(|service| service.operation(slug).is_none()) {
                    problems.push(Problem::at(
                        path,
                        format!("`{slug}` is not an operation of this service"),
                    ));
                }
            }
        }
        if self
            .allowed_domains
            .as_ref()
            .is_some_and(|domains| domains.len() > Self::MOST_DOMAINS)
        {
            let message = format!("must have at most {} entries", Self::MOST_DOMAINS);
            problems.push(Problem::at("/allowed_domains", message));
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AgentId, ApprovalId, Fingerprint, RaisedCaps};
    use uuid::Uuid;

    #[test]
    fn an_edit_leaves_what_it_does_not_name() {
        let slugs = vec![OperationSlug::parse("lab.current").unwrap()];
        let before = SpendPolicy {
            enabled_operations: Some(slugs.clone()),
            ..SpendPolicy::column_defaults()
        };
        assert_eq!(before.clone().edited(&PolicyEdit::default()), before);
        let all = PolicyEdit {
            enabled_operations: Some(OperationScope::All),
            ..PolicyEdit::default()
        };
        assert_eq!(before.clone().edited(&all), SpendPolicy::column_defaults());
        let edit = PolicyEdit {
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
            raise: None,
        };
        assert_eq!(before.edited(&edit), expected);
    }

    #[test]
    fn a_raise_applies_until_its_end_to_its_persons_agents_and_never_lowers_a_cap() {
        assert_eq!(Raise::LONGEST.secs(), 7 * 86_400);
        let at = |micros| Timestamp::from_micros(micros).unwrap();
        let caps = |call, day| RaisedCaps {
            max_per_call: Some(units(call)),
            max_per_day: Some(units(day)),
        };
        let raise = Raise {
            caps: caps(50, 500),
            from: at(10),
            until: at(20),
            by: "ann".to_owned(),
            approval: ApprovalId::of(AgentId::from_uuid(Uuid::nil()), &Fingerprint::of_text("x"), 0),
        };
        let policy = SpendPolicy {
            max_per_call: units(5),
            max_per_day: units(1_000),
            raise: Some(raise),
            ..SpendPolicy::column_defaults()
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
        let other_cap = PolicyEdit {
            max_per_day: Some(units(999)),
            ..PolicyEdit::default()
        };
        assert_eq!(policy.clone().edited(&other_cap).raise, None);
        let same_cap = PolicyEdit {
            max_per_day: Some(units(1_000)),
            allowed_domains: Some(Vec::new()),
            ..PolicyEdit::default()
        };
        assert_eq!(policy.clone().edited(&same_cap).raise, policy.raise);
    }

    #[test]
    fn policies_with_any_limit_are_not_permissive() {
        assert!(SpendPolicy::permissive().is_permissive());
        let edit = |edit: PolicyEdit| SpendPolicy::permissive().edited(&edit).is_permissive();
        let below = Some(units(9_999_999_999_999));
        assert!(edit(PolicyEdit {
            max_per_call: Some(Amount::MAX),
            ..PolicyEdit::default()
        }));
        assert!(!edit(PolicyEdit {
            max_per_call: below,
            ..PolicyEdit::default()
        }));
        assert!(!edit(PolicyEdit {
            max_per_day: below,
            ..PolicyEdit::default()
        }));
        assert!(!edit(PolicyEdit {
            require_approval_above: below,
            ..PolicyEdit::default()
        }));
    }

    #[test]
    fn problems_of_an_edit_are_reported_where_they_are() {
        let slugs = |texts: &[&str]| texts.iter().map(|text| OperationSlug::parse(text).unwrap()).collect();
        let paths =
            |edit: PolicyEdit| -> Vec<String> { edit.problems(None).into_iter().map(|problem| problem.path).collect() };
        let operations = PolicyEdit {
            enabled_operations: Some(OperationScope::Only(slugs(&["a.b", "c.d", "a.b"]))),
            ..PolicyEdit::default()
        };
        let unknown = |index: usize, slug| {
            let message = format!("`{slug}` is not an operation of this service");
            Problem::at(format!("/enabled_operations/{index}"), message)
        };
        let twice = Problem::at("/enabled_operations/2", "is named twice");
        assert_eq!(operations.problems(None), [unknown(0, "a.b"), unknown(1, "c.d"), twice]);
        let domains = |count| PolicyEdit {
            allowed_domains: Some(vec![DomainPattern::any(); count]),
            ..PolicyEdit::default()
        };
        assert_eq!(paths(domains(PolicyEdit::MOST_DOMAINS)), [""; 0]);
        assert_eq!(paths(domains(PolicyEdit::MOST_DOMAINS + 1)), ["/allowed_domains"]);
    }
}
