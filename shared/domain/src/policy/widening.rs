//! Whether an update widens the limits: whether it may allow a request that the old version denied. A widening update
//! requires a recent sign-in.
//!
//! An update that can't be classified counts as widening.

use crate::{
    Agent, AgentKey, ApprovalException, DomainPattern, EnabledService, KeyScope, Rule, SpendPolicy,
    policy::rules::is_selection_subset,
};

impl Agent {
    /// Returns whether this version may allow a request that `before` denied.
    pub fn widens(&self, before: &Self) -> bool {
        let unfrozen = before.is_frozen() && !self.is_frozen();
        // A run's key permits nothing that its opener's key does not permit.
        let opener = |key: &AgentKey| key.opened_by.and_then(|id| before.find_key(id));
        let is_new = |key: &AgentKey| match before.find_key(key.id) {
            Some(old) => old.scope != key.scope,
            None => opener(key).is_none_or(|opener| !key.scope.is_within(&opener.scope)),
        };
        let has_new_key = self.keys.iter().any(is_new);
        let kept = |old: &Rule| {
            let new = self.rules.iter().find(|rule| rule.id == old.id);
            new.is_some_and(|new| new.kind.is_as_strict_as(&old.kind))
        };
        let is_exception = |rule: &&Rule| rule.kind.is_kind::<ApprovalException>();
        // A copy of an exception with a new id is widening, because the copy remains if the exception is removed.
        let is_present = |new: &Rule| {
            let old = before.rules.iter().find(|rule| rule.id == new.id);
            old.is_some_and(|old| new.kind.is_as_strict_as(&old.kind))
        };
        unfrozen
            || has_new_key
            || !before.rules.iter().filter(|rule| !is_exception(rule)).all(kept)
            || !self.rules.iter().filter(is_exception).all(is_present)
    }
}

impl KeyScope {
    /// Returns whether `other` permits everything that this scope permits.
    fn is_within(&self, other: &Self) -> bool {
        let ends_after_other = |end| self.expires_at.is_none_or(|own| end < own);
        self.permissions().iter().all(|may| other.permissions().contains(may))
            && is_selection_subset(self.services.as_deref(), other.services.as_deref())
            && is_selection_subset(self.networks.as_deref(), other.networks.as_deref())
            && !other.expires_at.is_some_and(ends_after_other)
    }
}

impl EnabledService {
    /// Returns whether this version may allow a request that `before` denied. A disabled record's policy is also
    /// compared, because it applies when the service is enabled again.
    pub fn widens(&self, before: Option<&Self>) -> bool {
        before.is_none_or(|before| (self.enabled && !before.enabled) || self.policy.widens(&before.policy))
    }
}

impl SpendPolicy {
    fn widens(&self, before: &Self) -> bool {
        let more_operations = match (&before.enabled_operations, &self.enabled_operations) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(before), Some(now)) => !now.iter().all(|slug| before.contains(slug)),
        };
        let covered = |now: &DomainPattern| before.allowed_domains.iter().any(|before| before.covers(now));
        let raises = self.raises.iter().any(|increase| {
            let mut before = before.raises.iter();
            !before.any(|before| increase.is_at_most(before))
        });
        raises
            || self.max_per_call > before.max_per_call
            || self.max_per_day > before.max_per_day
            || self.require_approval_above > before.require_approval_above
            || more_operations
            || !self.allowed_domains.iter().all(covered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Address, AgentId, AgentStatus, Amount, ApprovalId, ApprovalRequired, BudgetLimit, CalendarPeriod, Category,
        CategoryBlock, CountLimit, DuplicateGuard, Duration, Fingerprint, IncreasedCaps, KeyCredential, KeyId,
        LimitAction, LimitIncrease, MinimumInterval, NewPayee, OperationSlug, Permission, PriceAboveUsual, Rule,
        RuleId, RuleKind, RuleWindow, Schedule, SecretDigest, ServiceId, ServiceSlug, SourceNetwork, Timestamp,
        UsualPrice, Vendor, VendorAllowlist, Wallet, WindowPeriod, ZoneName,
    };
    use uuid::Uuid;

    fn units(units: u64) -> Amount {
        Amount::from_units(units).unwrap()
    }

    fn key(id: u64, ends_at: Option<Timestamp>) -> AgentKey {
        AgentKey {
            id: KeyId(id),
            credential: KeyCredential::Secret(SecretDigest::from_secret("secret")),
            created_at: Timestamp::EPOCH,
            ends_at,
            scope: KeyScope::default(),
            opened_by: None,
        }
    }

    fn agent(status: AgentStatus, keys: Vec<AgentKey>, rules: Vec<RuleKind>) -> Agent {
        let rules = rules.into_iter().zip(1_u128..).map(|(kind, id)| Rule {
            id: RuleId::from_uuid(Uuid::from_u128(id)),
            version: 1,
            kind,
        });
        Agent {
            id: AgentId::from_uuid(Uuid::from_u128(1)),
            name: "buyer".to_owned(),
            owner: "owner".to_owned(),
            created_at: Timestamp::EPOCH,
            status,
            wallet: Wallet {
                key: crate::WalletKey::Seed { index: 0 },
                address: Address::ZERO,
                attestation: crate::WalletAttestation::from_bytes([0; 65]),
            },
            keys,
            rules: rules.collect(),
            archived: false,
            labels: crate::Labels::default(),
            starting_set: None,
            template: None,
            max_increase_factor: Agent::DEFAULT_INCREASE_FACTOR,
            former_owners: Vec::new(),
            version: 1,
        }
    }

    #[test]
    fn a_new_key_or_the_end_of_a_freeze_widens_the_limits_of_an_agent() {
        let (active, frozen) = (AgentStatus::Active, AgentStatus::Frozen);
        let plain = agent(active, vec![key(1, None)], vec![]);
        let ended = agent(active, vec![key(1, Some(Timestamp::EPOCH))], vec![]);
        let rows = [
            (plain.clone(), plain.clone(), false),
            (plain.clone(), agent(frozen, vec![key(1, None)], vec![]), false),
            (agent(frozen, vec![key(1, None)], vec![]), plain.clone(), true),
            (plain.clone(), ended, false),
            (plain.clone(), agent(active, vec![], vec![]), false),
            (
                plain.clone(),
                agent(active, vec![key(1, None), key(2, None)], vec![]),
                true,
            ),
            (
                plain.clone(),
                Agent {
                    name: "other".to_owned(),
                    ..plain
                },
                false,
            ),
        ];
        for (before, now, widens) in rows {
            assert_eq!(now.widens(&before), widens, "{now:?}");
        }
    }

    #[test]
    fn a_runs_key_widens_an_agent_only_beyond_its_openers_scope() {
        let secs = |secs| Timestamp::from_secs(secs).unwrap();
        let [one, two] = [1, 2].map(|id| ServiceId::from_uuid(Uuid::from_u128(id)));
        let network = |text| SourceNetwork::parse(text).unwrap();
        let narrow = KeyScope {
            permissions: Some(vec![Permission::Pay]),
            services: Some(vec![one]),
            networks: Some(vec![network("10.0.0.0/8")]),
            expires_at: Some(secs(9)),
        };
        let all = KeyScope::default();
        let with = |change: fn(&mut KeyScope)| {
            let mut scope = narrow.clone();
            change(&mut scope);
            scope
        };
        let rows = [
            (&all, all.clone(), false),
            (&all, narrow.clone(), false),
            (&narrow, narrow.clone(), false),
            (&narrow, all.clone(), true),
            (&narrow, with(|scope| scope.permissions = None), true),
            (&narrow, with(|scope| scope.services = None), true),
            (&narrow, with(|scope| scope.networks = None), true),
            (&narrow, with(|scope| scope.expires_at = None), true),
            (
                &narrow,
                with(|scope| scope.permissions = Some(Permission::ALL.to_vec())),
                true,
            ),
            (
                &narrow,
                KeyScope {
                    services: Some(vec![one, two]),
                    ..narrow.clone()
                },
                true,
            ),
            (
                &narrow,
                KeyScope {
                    networks: Some(vec![network("10.0.0.0/7")]),
                    ..narrow.clone()
                },
                true,
            ),
            (
                &narrow,
                KeyScope {
                    expires_at: Some(secs(10)),
                    ..narrow.clone()
                },
                true,
            ),
            (
                &narrow,
                KeyScope {
                    expires_at: Some(secs(8)),
                    ..narrow.clone()
                },
                false,
            ),
        ];
        for (opener, scope, widens) in rows {
            let opener = AgentKey {
                scope: opener.clone(),
                ..key(1, None)
            };
            let run = |opened_by| AgentKey {
                scope: scope.clone(),
                opened_by,
                ..key(2, None)
            };
            let before = agent(AgentStatus::Active, vec![opener.clone()], vec![]);
            let now = |opened_by| agent(AgentStatus::Active, vec![opener.clone(), run(opened_by)], vec![]);
            assert_eq!(now(Some(KeyId(1))).widens(&before), widens, "{scope:?}");
            assert!(now(Some(KeyId(3))).widens(&before) && now(None).widens(&before));
        }
    }

    #[test]
    fn weaker_or_removed_rules_widen_the_limits_of_an_agent() {
        let blocks = |categories: &[Category]| {
            RuleKind::CategoryBlock(CategoryBlock {
                categories: categories.to_vec(),
            })
        };
        let lists = |slugs: &[&str]| {
            RuleKind::VendorAllowlist(VendorAllowlist {
                vendors: slugs
                    .iter()
                    .map(|slug| Vendor::Service(ServiceSlug::parse(slug).unwrap()))
                    .collect(),
            })
        };
        let budget = |limit, hours: u32| {
            RuleKind::BudgetLimit(BudgetLimit {
                limit: units(limit),
                window: Duration::from_secs_u32(hours * 3_600).into(),
            })
        };
        let asks = |slugs: Option<&[&str]>, above: Option<u64>| {
            RuleKind::ApprovalRequired(ApprovalRequired {
                services: slugs.map(|slugs| slugs.iter().map(|slug| ServiceSlug::parse(slug).unwrap()).collect()),
                categories: None,
                above: above.map(units),
            })
        };
        let scope = |slugs: &[&str]| slugs.iter().map(|slug| ServiceSlug::parse(slug).unwrap()).collect();
        let count = |count, hours: u32, services: Option<&[&str]>| {
            RuleKind::CountLimit(CountLimit {
                count,
                window: RuleWindow {
                    services: services.map(scope),
                    ..Duration::from_secs_u32(hours * 3_600).into()
                },
            })
        };
        let windowed = |limit, period, services: Option<&[&str]>, action| {
            RuleKind::BudgetLimit(BudgetLimit {
                limit: units(limit),
                window: RuleWindow {
                    services: services.map(scope),
                    categories: None,
                    keys: None,
                    per_payee: false,
                    period,
                    action,
                },
            })
        };
        let hours = |hours: u32| WindowPeriod::Rolling(Duration::from_secs_u32(hours * 3_600));
        let day = |zone| WindowPeriod::Calendar(CalendarPeriod::Day, ZoneName::parse(zone).unwrap());
        let month = |zone| WindowPeriod::Calendar(CalendarPeriod::Month, ZoneName::parse(zone).unwrap());
        let interval = |secs| {
            RuleKind::MinimumInterval(MinimumInterval {
                services: None,
                interval: Duration::from_secs_u32(secs),
            })
        };
        let guard = |secs, action| {
            RuleKind::DuplicateGuard(DuplicateGuard {
                services: None,
                within: Duration::from_secs_u32(secs),
                action,
            })
        };
        let payee = |services: Option<&[&str]>| {
            RuleKind::NewPayee(NewPayee {
                services: services.map(scope),
            })
        };
        let price = |percent, over, action| {
            RuleKind::PriceAboveUsual(PriceAboveUsual {
                services: None,
                percent,
                over,
                action,
            })
        };
        let schedule = |from, to| {
            RuleKind::Schedule(Schedule {
                services: None,
                zone: ZoneName::UTC,
                periods: vec![crate::SchedulePeriod::parse(&format!("monday-sunday {from}-{to}")).unwrap()],
            })
        };
        let brake = |times, at_least| {
            RuleKind::AutomaticFreeze(crate::AutomaticFreeze {
                times,
                at_least: units(at_least),
            })
        };
        let (block, ask) = (LimitAction::Block, LimitAction::Ask);
        let (listed, median) = (UsualPrice::Catalog, UsualPrice::Median(3));
        let (search, data) = (Category::Search, Category::Data);
        let rows = [
            (brake(3, 5), brake(2, 4), false),
            (brake(3, 5), brake(4, 5), true),
            (brake(3, 5), brake(3, 6), true),
            (blocks(&[search]), blocks(&[search, data]), false),
            (blocks(&[search, data]), blocks(&[data]), true),
            (lists(&["a", "b"]), lists(&["b"]), false),
            (lists(&["a"]), lists(&["a", "b"]), true),
            (budget(5, 1), budget(4, 2), false),
            (budget(5, 1), budget(6, 1), true),
            (budget(5, 2), budget(5, 1), true),
            (
                windowed(5, day("UTC"), None, block),
                windowed(5, day("UTC"), None, block),
                false,
            ),
            (
                windowed(5, day("UTC"), None, block),
                windowed(5, month("UTC"), None, block),
                false,
            ),
            (
                windowed(5, day("UTC"), None, block),
                windowed(5, month("Asia/Tokyo"), None, block),
                true,
            ),
            (
                windowed(5, month("UTC"), None, block),
                windowed(5, day("UTC"), None, block),
                true,
            ),
            (
                windowed(5, month("UTC"), None, block),
                windowed(5, WindowPeriod::Lifetime, None, block),
                false,
            ),
            (
                windowed(5, WindowPeriod::Lifetime, None, block),
                windowed(5, month("UTC"), None, block),
                true,
            ),
            (windowed(5, day("UTC"), None, block), budget(5, 48), false),
            (windowed(5, day("UTC"), None, block), budget(5, 24), true),
            (budget(5, 24), windowed(5, month("UTC"), None, block), true),
            (budget(5, 1), windowed(5, hours(1), Some(&["a"]), block), true),
            (windowed(5, hours(1), Some(&["a"]), block), budget(5, 1), false),
            (budget(5, 1), windowed(5, hours(1), None, ask), true),
            (windowed(5, hours(1), None, ask), budget(5, 1), false),
            (asks(None, Some(5)), asks(None, Some(4)), false),
            (asks(None, Some(5)), asks(None, None), false),
            (asks(None, Some(5)), asks(None, Some(6)), true),
            (asks(None, None), asks(None, Some(0)), true),
            (asks(Some(&["a"]), None), asks(None, None), false),
            (asks(Some(&["a"]), None), asks(Some(&["a", "b"]), None), false),
            (asks(Some(&["a", "b"]), None), asks(Some(&["b"]), None), true),
            (asks(None, None), asks(Some(&["b"]), None), true),
            (count(5, 1, Some(&["a"])), count(4, 2, None), false),
            (count(5, 1, None), count(6, 1, None), true),
            (count(5, 2, None), count(5, 1, None), true),
            (count(5, 1, None), count(5, 1, Some(&["a"])), true),
            (interval(5), interval(6), false),
            (interval(5), interval(4), true),
            (guard(5, ask), guard(6, block), false),
            (guard(5, block), guard(5, ask), true),
            (guard(5, block), guard(4, block), true),
            (payee(Some(&["a"])), payee(Some(&["a", "b"])), false),
            (payee(None), payee(Some(&["a"])), true),
            (price(20, listed, ask), price(10, listed, block), false),
            (price(20, listed, ask), price(21, listed, ask), true),
            (price(20, listed, block), price(20, listed, ask), true),
            (price(20, listed, ask), price(20, median, ask), true),
            (price(20, median, ask), price(20, UsualPrice::Median(4), ask), true),
            (schedule("08:00", "18:00"), schedule("09:00", "17:00"), false),
            (schedule("08:00", "18:00"), schedule("18:00", "08:00"), true),
            (schedule("08:00", "18:00"), schedule("08:00", "18:01"), true),
        ];
        for (before, now, widens) in rows {
            let of = |kind: &RuleKind| agent(AgentStatus::Active, vec![], vec![kind.clone()]);
            assert_eq!(of(&now).widens(&of(&before)), widens, "{before:?} {now:?}");
            let none = agent(AgentStatus::Active, vec![], vec![]);
            assert!(none.widens(&of(&before)) && !of(&before).widens(&none));
        }
    }

    #[test]
    fn new_or_wider_approval_exceptions_widen_the_limits_of_an_agent() {
        let excepted = |services: Option<&[&str]>, payee: u8, max_amount, until| ApprovalException {
            services: services.map(|slugs| slugs.iter().map(|slug| ServiceSlug::parse(slug).unwrap()).collect()),
            operation: Some(OperationSlug::parse("a.b").unwrap()),
            keys: Some(vec![KeyId(1)]),
            payee: Address::repeat_byte(payee),
            max_amount: units(max_amount),
            until: Timestamp::from_secs(until).unwrap(),
            waives_threshold: false,
            waived_rules: vec![RuleId::from_uuid(Uuid::from_u128(1))],
        };
        let exception = |services: Option<&[&str]>, payee, max_amount, until| {
            RuleKind::ApprovalException(excepted(services, payee, max_amount, until))
        };
        let other = |change: fn(&mut ApprovalException)| {
            let mut exception = excepted(Some(&["a"]), 1, 5, 9);
            change(&mut exception);
            RuleKind::ApprovalException(exception)
        };
        let with = |rules| agent(AgentStatus::Active, vec![], rules);
        let before = || exception(Some(&["a"]), 1, 5, 9);
        let (none, one) = (with(vec![]), with(vec![before()]));
        assert!(one.widens(&none) && !none.widens(&one));
        let rows = [
            (before(), false),
            (exception(Some(&["a"]), 1, 4, 8), false),
            (exception(Some(&["a", "b"]), 1, 5, 9), true),
            (exception(None, 1, 5, 9), true),
            (exception(Some(&["a"]), 2, 5, 9), true),
            (exception(Some(&["a"]), 1, 6, 9), true),
            (exception(Some(&["a"]), 1, 5, 10), true),
            (other(|now| now.operation = None), true),
            (other(|now| now.keys = None), true),
            (other(|now| now.keys = Some(vec![KeyId(2)])), true),
            (other(|now| now.waives_threshold = true), true),
            (
                other(|now| now.waived_rules.push(RuleId::from_uuid(Uuid::from_u128(2)))),
                true,
            ),
            (other(|now| now.waived_rules.clear()), false),
        ];
        for (now, widens) in rows {
            assert_eq!(with(vec![now.clone()]).widens(&one), widens, "{now:?}");
            assert!(with(vec![before(), now.clone()]).widens(&one), "{now:?}");
        }
    }

    #[test]
    fn each_less_strict_field_of_a_policy_widens_the_limits() {
        type Edit = fn(&mut SpendPolicy);
        let slugs = |slugs: &[&str]| slugs.iter().map(|slug| OperationSlug::parse(slug).unwrap()).collect();
        let domains = |texts: &[&str]| texts.iter().map(|text| DomainPattern::parse(text).unwrap()).collect();
        let before = SpendPolicy {
            enabled_operations: Some(slugs(&["lab.current", "lab.history"])),
            allowed_domains: domains(&["example.com", "*.example.org"]),
            raises: vec![LimitIncrease {
                caps: IncreasedCaps {
                    max_per_call: Some(units(2_000_000)),
                    max_per_day: None,
                },
                from: Timestamp::EPOCH,
                until: Timestamp::EPOCH.after(Duration::DAY),
                by: "owner".to_owned(),
                approval: ApprovalId::derive(AgentId::from_uuid(Uuid::nil()), &Fingerprint::for_text("x"), 0),
            }],
            ..SpendPolicy::spec_defaults()
        };
        let record = |enabled, policy: &SpendPolicy| EnabledService {
            service: ServiceId::from_uuid(Uuid::from_u128(1)),
            version: 1,
            enabled,
            policy: policy.clone(),
        };
        let edits: [(Edit, bool); 17] = [
            (|_| {}, false),
            (|policy| policy.raises.clear(), false),
            (
                |policy| {
                    policy
                        .raises
                        .iter_mut()
                        .for_each(|raise| raise.until = Timestamp::EPOCH);
                },
                false,
            ),
            (
                |policy| policy.raises.iter_mut().for_each(|raise| raise.until = Timestamp::MAX),
                true,
            ),
            (|policy| policy.max_per_call = units(1), false),
            (|policy| policy.max_per_call = Amount::MAX, true),
            (|policy| policy.max_per_day = units(1), false),
            (|policy| policy.max_per_day = Amount::MAX, true),
            (|policy| policy.require_approval_above = units(1), false),
            (|policy| policy.require_approval_above = Amount::MAX, true),
            (
                |policy| policy.enabled_operations.iter_mut().for_each(|slugs| slugs.truncate(1)),
                false,
            ),
            (|policy| policy.enabled_operations = None, true),
            (
                |policy| policy.enabled_operations = Some(vec![OperationSlug::parse("lab.other").unwrap()]),
                true,
            ),
            (|policy| policy.allowed_domains.clear(), false),
            (
                |policy| policy.allowed_domains = vec![DomainPattern::parse("*.www.example.com").unwrap()],
                false,
            ),
            (
                |policy| policy.allowed_domains = vec![DomainPattern::parse("badexample.com").unwrap()],
                true,
            ),
            (
                |policy| policy.allowed_domains = vec![DomainPattern::any_domain()],
                true,
            ),
        ];
        for (index, (edit, widens)) in edits.into_iter().enumerate() {
            let mut policy = before.clone();
            edit(&mut policy);
            for enabled in [true, false] {
                let (was, is) = (record(enabled, &before), record(enabled, &policy));
                assert_eq!(is.widens(Some(&was)), widens, "{index}");
            }
        }
        assert!(record(true, &before).widens(Some(&record(false, &before))));
        assert!(!record(false, &before).widens(Some(&record(true, &before))));
        assert!(record(true, &before).widens(None));
    }
}
