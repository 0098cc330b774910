//! An agent's rules, which apply across all services (`docs/spec.md` §2.7, §7 `policy_blocked`).

use crate::{
    Address, Agent, AgentId, Amount, ApprovalException, AutomaticFreeze, Catalog, Category, Fingerprint, KeyId,
    LimitAction, RuleId, RuleKind, Service, ServiceSlug, Timestamp, ValidationError, Window, WindowPeriod, WindowScope,
};

/// A limit on an agent's payments that can apply to several services.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The rule's UUID.
    pub id: RuleId,
    /// The version of the rule, which each update increments. Reservations in the rule's window are conditional on it.
    pub version: u64,
    /// The rule's kind and parameters.
    pub kind: RuleKind,
}

/// The unit in which a window counts payments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WindowMeasure {
    /// The sum of the payments. Each payment adds its amount in micro-USDC to the window.
    Amounts,
    /// The number of payments. Each payment adds one unit to the window.
    Payments,
}

impl WindowMeasure {
    /// Returns the units that a payment of `amount` adds to the window.
    pub const fn payment_units(self, amount: Amount) -> Amount {
        match self {
            Self::Amounts => amount,
            Self::Payments => Amount::ONE,
        }
    }
}

/// The payments to which a rule applies. `None` means no condition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleScope<'a> {
    /// The services that are paid.
    pub services: Option<&'a [ServiceSlug]>,
    /// The categories of the paid services. Only budgets and count limits have this condition.
    pub categories: Option<&'a [Category]>,
    /// The agent's keys that send the requests. Only budgets, count limits and exceptions have this condition.
    pub keys: Option<&'a [KeyId]>,
    /// Whether the rule counts the payments to each payee alone.
    pub per_payee: bool,
}

impl<'a> RuleScope<'a> {
    pub(super) fn for_services(services: Option<&'a [ServiceSlug]>) -> Self {
        Self {
            services,
            ..Self::default()
        }
    }
}

/// A rule that counts payments in its own window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountingRule<'a> {
    /// The rule.
    pub rule: &'a Rule,
    /// The unit in which the rule counts.
    pub counted: WindowMeasure,
    /// The maximum of the window's total, in the unit of `counted`.
    pub limit: Amount,
    /// How long a payment counts in the rule's window.
    pub period: WindowPeriod,
}

impl<'a> CountingRule<'a> {
    /// Returns the rule with the limit and window; `None` if the rule does not count payments.
    pub fn new(rule: &'a Rule) -> Option<Self> {
        let (counted, limit, period) = rule.kind.counted_limit()?;
        Some(Self {
            rule,
            counted,
            limit,
            period,
        })
    }

    /// Returns whether the rule has a window for each payee.
    pub fn is_per_payee(&self) -> bool {
        self.rule.kind.scope().per_payee
    }

    /// Returns the id of the window that counts payments to `payee`: the rule's id, or an id that is derived for the
    /// payee. `None` if the rule has a window for each payee and the payee is unknown.
    pub fn window_id(&self, payee: Option<Address>) -> Option<RuleId> {
        if self.is_per_payee() {
            payee.map(|payee| self.rule.id.for_payee(payee))
        } else {
            Some(self.rule.id)
        }
    }

    /// Returns the scope of the window with the id [`CountingRule::window_id`].
    pub fn window_scope(&self, agent: AgentId, payee: Option<Address>) -> Option<WindowScope> {
        let rule = self.window_id(payee)?;
        Some(WindowScope::Budget { agent, rule })
    }

    /// Returns the rule's window. A rule whose window is missing allows no payment.
    pub fn find_window<'w>(&self, windows: &'w [(RuleId, Window)]) -> Option<&'w Window> {
        let (_, window) = windows.iter().find(|(rule, _)| *rule == self.rule.id)?;
        Some(window)
    }

    /// Returns a fingerprint of the rule's period and scope. After a change of this fingerprint, the stored window may
    /// lack payments.
    pub fn coverage_fingerprint(&self) -> Fingerprint {
        let RuleScope {
            services,
            categories,
            keys,
            per_payee: _,
        } = self.rule.kind.scope();
        // `*` means all services. It is not a valid slug, so this text never equals a list of slugs.
        let services = services.map_or_else(|| "*".to_owned(), |slugs| join(slugs, ServiceSlug::to_string));
        let categories = categories.map(|names| format!(" {}", join(names, |category| category.name().to_owned())));
        let keys = keys.map(|keys| format!(" keys {}", join(keys, KeyId::to_string)));
        let (categories, keys) = (categories.unwrap_or_default(), keys.unwrap_or_default());
        Fingerprint::for_text(&format!("{} {services}{categories}{keys}", self.period))
    }

    /// Returns whether the rule counts payments to this service with this key.
    pub fn applies_to(&self, service: &Service, key: KeyId) -> bool {
        self.rule.kind.applies_to_payment(service, key)
    }

    /// Returns what the rule does with a payment beyond the limit.
    pub fn action(&self) -> LimitAction {
        let window = self.rule.kind.parameters().window();
        window.map_or(LimitAction::Block, |window| window.action)
    }
}

fn join<T>(items: &[T], text: fn(&T) -> String) -> String {
    items.iter().map(text).collect::<Vec<_>>().join(",")
}

impl RuleKind {
    /// The maximum number of services, wallets, categories or keys in a rule. Every payment reads the agent's record.
    pub const MAX_SELECTED: usize = 50;

    /// Returns the unit, the limit and the period of the rule's window; `None` if the rule does not count payments.
    pub fn counted_limit(&self) -> Option<(WindowMeasure, Amount, WindowPeriod)> {
        self.parameters().counted_limit()
    }

    /// Returns whether the rule depends on the number, calls, payees or prices of earlier payments. Decisions do not
    /// record these completely.
    pub fn depends_on_earlier_payments(&self) -> bool {
        let counts_payments = matches!(self.counted_limit(), Some((WindowMeasure::Payments, ..)));
        counts_payments || self.needs_recent_payments()
    }

    /// Returns whether the rule needs an agent's recent payments to a service.
    pub fn needs_recent_payments(&self) -> bool {
        self.parameters().needs_recent_payments()
    }

    /// Returns the conditions that select the payments to which the rule applies.
    pub fn scope(&self) -> RuleScope<'_> {
        self.parameters().scope()
    }

    /// Returns whether the rule applies to payments to this service. Keys are not compared.
    pub fn applies_to(&self, service: &Service) -> bool {
        self.includes(&service.slug, service.category)
    }

    /// Returns whether the rule applies to a service with this slug and category. Keys are not compared.
    pub fn includes(&self, slug: &ServiceSlug, category: Category) -> bool {
        let scope = self.scope();
        scope.services.is_none_or(|slugs| slugs.contains(slug))
            && scope.categories.is_none_or(|categories| categories.contains(&category))
    }

    /// Returns whether the rule applies to payments with this key.
    pub fn applies_to_key(&self, key: KeyId) -> bool {
        self.scope().keys.is_none_or(|keys| keys.contains(&key))
    }

    /// Returns whether the rule applies to a payment to this service with this key.
    pub fn applies_to_payment(&self, service: &Service, key: KeyId) -> bool {
        self.applies_to(service) && self.applies_to_key(key)
    }

    /// Returns the validation errors of the rule, each with a JSON Pointer.
    pub fn validation_errors(&self, catalog: &Catalog) -> Vec<ValidationError> {
        let scope = self.scope();
        let mut errors = scope.services.map_or_else(Vec::new, |slugs| {
            list_errors("/services", slugs, is_at_least_one, Self::MAX_SELECTED, |slug| {
                unknown_service_error(catalog, slug)
            })
        });
        errors.extend(selection_errors("/categories", scope.categories));
        errors.extend(selection_errors("/keys", scope.keys));
        errors.extend(self.parameters().parameter_errors(catalog));
        errors
    }
}

/// Returns an error if no service of the catalog has this slug. The message does not repeat the slug, because the user
/// may have pasted a key by mistake.
pub(super) fn unknown_service_error(catalog: &Catalog, slug: &ServiceSlug) -> Option<String> {
    let service = catalog.find_by_reference(slug.as_str());
    let is_known = service.is_some_and(|service| service.slug == *slug);
    (!is_known).then(|| "is not the slug of a service in the catalog".to_owned())
}

/// Returns the errors of a list of categories or keys. `None` selects all, and is valid.
pub(super) fn selection_errors<T: PartialEq>(path: &str, selected: Option<&[T]>) -> Vec<ValidationError> {
    selected.map_or_else(Vec::new, |items| {
        list_errors(path, items, is_at_least_one, RuleKind::MAX_SELECTED, |_| None)
    })
}

pub(crate) const fn is_at_least_one(count: usize) -> bool {
    count > 0
}

pub(crate) fn list_errors<T: PartialEq>(
    path: &str,
    items: &[T],
    has_valid_length: fn(usize) -> bool,
    max_len: usize,
    find_error: impl Fn(&T) -> Option<String>,
) -> Vec<ValidationError> {
    let mut errors = Vec::new();
    if !has_valid_length(items.len()) {
        errors.push(ValidationError::at_path(path, "must have at least one entry"));
    }
    if items.len() > max_len {
        errors.push(ValidationError::at_path(
            path,
            format!("must have at most {max_len} entries"),
        ));
    }
    for (index, item) in items.iter().enumerate() {
        let repeated = items.iter().take(index).any(|earlier| earlier == item);
        let message = if repeated {
            Some("is named twice".to_owned())
        } else {
            find_error(item)
        };
        errors.extend(message.map(|message| ValidationError::at_path(format!("{path}/{index}"), message)));
    }
    errors
}

/// Why an agent's rules were not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleRejection {
    /// The agent has no rule with this id.
    Unknown,
    /// The agent already has [`Agent::MAX_RULES`] rules.
    TooMany,
    /// The agent already has [`Agent::MAX_BUDGETS`] rules that count payments.
    TooManyBudgets,
    /// The agent already has an automatic freeze rule.
    SecondBrake,
    /// The rule names a key that the agent does not have.
    UnknownKey {
        /// The position in the rule's list of keys.
        index: usize,
    },
    /// The update has another kind, or another `per_payee`. Both can't change, because the stored windows depend on them.
    OtherKind,
}

impl Agent {
    /// The maximum number of an agent's rules.
    pub const MAX_RULES: usize = 50;
    /// The maximum number of an agent's rules that count payments. Each adds a window to the transaction of an
    /// authorization.
    pub const MAX_BUDGETS: usize = 10;

    /// Returns the agent's rules that count payments, in the order in which they were added.
    pub fn counting_rules(&self) -> impl Iterator<Item = CountingRule<'_>> {
        self.rules.iter().filter_map(CountingRule::new)
    }

    /// Adds an exception from approvals and removes exceptions that have ended by `at`.
    pub fn with_exception(mut self, id: RuleId, exception: RuleKind, at: Timestamp) -> Result<Self, RuleRejection> {
        self.rules.retain(|rule| {
            rule.kind
                .as_kind()
                .is_none_or(|exception: &ApprovalException| exception.until > at)
        });
        self.with_rule(id, exception)
    }

    /// Adds a rule. Does nothing if the rule's id exists, because an earlier attempt then added the rule.
    pub fn with_rule(mut self, id: RuleId, kind: RuleKind) -> Result<Self, RuleRejection> {
        if self.rules.iter().any(|rule| rule.id == id) {
            return Ok(self);
        }
        if self.rules.len() >= Self::MAX_RULES {
            return Err(RuleRejection::TooMany);
        }
        if kind.counted_limit().is_some() && self.counting_rules().count() >= Self::MAX_BUDGETS {
            return Err(RuleRejection::TooManyBudgets);
        }
        if kind.is_kind::<AutomaticFreeze>() && AutomaticFreeze::find_in_rules(&self.rules).is_some() {
            return Err(RuleRejection::SecondBrake);
        }
        self.check_keys(&kind, &[])?;
        self.rules.push(Rule { id, version: 1, kind });
        Ok(self)
    }

    /// Changes a rule. An update without a change keeps the version.
    pub fn with_changed_rule(mut self, id: RuleId, kind: RuleKind) -> Result<Self, RuleRejection> {
        let rule = self
            .rules
            .iter()
            .find(|rule| rule.id == id)
            .ok_or(RuleRejection::Unknown)?;
        if rule.kind.name() != kind.name() || rule.kind.scope().per_payee != kind.scope().per_payee {
            return Err(RuleRejection::OtherKind);
        }
        self.check_keys(&kind, rule.kind.scope().keys.unwrap_or_default())?;
        let rule = self
            .rules
            .iter_mut()
            .find(|rule| rule.id == id)
            .ok_or(RuleRejection::Unknown)?;
        if rule.kind != kind {
            rule.kind = kind;
            rule.version = rule.version.saturating_add(1);
        }
        Ok(self)
    }

    /// Checks that each key in the rule is a key of the agent or in `previous`, the keys before the change.
    /// The agent's record keeps ended keys only for a time.
    fn check_keys(&self, kind: &RuleKind, previous: &[KeyId]) -> Result<(), RuleRejection> {
        let unknown = self.find_unknown_key(kind, previous);
        unknown.map_or(Ok(()), |index| Err(RuleRejection::UnknownKey { index }))
    }

    /// Returns the position of the rule's first key that is neither the agent's nor in `previous`.
    pub(super) fn find_unknown_key(&self, kind: &RuleKind, previous: &[KeyId]) -> Option<usize> {
        let mut keys = kind.scope().keys.unwrap_or_default().iter();
        keys.position(|key| self.find_key(*key).is_none() && !previous.contains(key))
    }

    /// Removes a rule.
    pub fn without_rule(mut self, id: RuleId) -> Result<Self, RuleRejection> {
        let before = self.rules.len();
        self.rules.retain(|rule| rule.id != id);
        if self.rules.len() == before {
            return Err(RuleRejection::Unknown);
        }
        Ok(self)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{
        AgentId, AgentStatus, ApprovalRequired, BudgetLimit, CategoryBlock, CountLimit, DuplicateGuard, Duration,
        MIN_BUDGET_WINDOW, MinimumInterval, NewKey, NewPayee, PriceAboveUsual, RuleWindow, Schedule, SchedulePeriod,
        Timestamp, UsualPrice, Vendor, VendorAllowlist, Wallet, ZoneName,
    };
    use uuid::Uuid;

    pub(crate) fn agent() -> Agent {
        Agent {
            id: AgentId::from_uuid(Uuid::nil()),
            name: "a".to_owned(),
            owner: "o".to_owned(),
            created_at: Timestamp::EPOCH,
            status: AgentStatus::Active,
            wallet: Wallet {
                key: crate::WalletKey::Seed { index: 0 },
                address: Address::ZERO,
                attestation: crate::WalletAttestation::from_bytes([0; 65]),
            },
            keys: Vec::new(),
            rules: Vec::new(),
            archived: false,
            labels: crate::Labels::default(),
            starting_set: None,
            template: None,
            max_increase_factor: Agent::DEFAULT_INCREASE_FACTOR,
            former_owners: Vec::new(),
            version: 1,
        }
    }

    fn id(n: u128) -> RuleId {
        RuleId::from_uuid(Uuid::from_u128(n))
    }

    fn budget(units: u64) -> RuleKind {
        RuleKind::BudgetLimit(BudgetLimit {
            limit: Amount::from_units(units).unwrap(),
            window: MIN_BUDGET_WINDOW.into(),
        })
    }

    fn block(category: Category) -> RuleKind {
        RuleKind::CategoryBlock(CategoryBlock {
            categories: vec![category],
        })
    }

    #[test]
    fn rules_and_budgets_per_agent_are_limited() {
        let mut agent = agent();
        for n in 0..10 {
            agent = agent.with_rule(id(n), budget(1)).unwrap();
        }
        assert_eq!(
            agent.clone().with_rule(id(99), budget(1)),
            Err(RuleRejection::TooManyBudgets)
        );
        for n in 10..50 {
            agent = agent.with_rule(id(n), block(Category::Ai)).unwrap();
        }
        for kind in [budget(1), block(Category::Ai)] {
            assert_eq!(agent.clone().with_rule(id(99), kind), Err(RuleRejection::TooMany));
        }
    }

    fn problems(kind: &RuleKind) -> Vec<String> {
        let found = kind.validation_errors(&Catalog::new(Vec::new())).into_iter();
        found.map(|error| error.path).collect()
    }

    #[test]
    fn rule_numbers_out_of_range_are_reported_with_their_path() {
        let (secs, longest) = (Duration::from_secs_u32, 31 * 86_400);
        let count = |count, duration| {
            RuleKind::CountLimit(CountLimit {
                count,
                window: secs(duration).into(),
            })
        };
        let interval = |duration| {
            RuleKind::MinimumInterval(MinimumInterval {
                services: None,
                interval: secs(duration),
            })
        };
        let guard = |duration| {
            RuleKind::DuplicateGuard(DuplicateGuard {
                services: None,
                within: secs(duration),
                action: LimitAction::Ask,
            })
        };
        let price = |percent, of| {
            RuleKind::PriceAboveUsual(PriceAboveUsual {
                services: None,
                percent,
                over: UsualPrice::Median(of),
                action: LimitAction::Ask,
            })
        };
        let automatic_freeze = |times, units| {
            RuleKind::AutomaticFreeze(AutomaticFreeze {
                times,
                at_least: Amount::from_units(units).unwrap(),
            })
        };
        let limit = |duration| {
            RuleKind::BudgetLimit(BudgetLimit {
                limit: Amount::ONE,
                window: secs(duration).into(),
            })
        };
        let hours = |days: u32| {
            RuleKind::Schedule(Schedule {
                services: None,
                zone: ZoneName::UTC,
                periods: (0..days)
                    .map(|hour| SchedulePeriod::parse(&format!("monday {hour:02}:00-24:00")).unwrap())
                    .collect(),
            })
        };
        let valid = [
            count(1, 60),
            count(1_000_000, longest),
            interval(1),
            interval(longest),
            guard(1),
            guard(longest),
            price(0, 3),
            price(10_000, 9),
            automatic_freeze(2, 1),
            automatic_freeze(100, 1),
            limit(3_600),
            limit(longest),
            hours(1),
            hours(14),
            RuleKind::NewPayee(NewPayee { services: None }),
        ];
        for kind in valid {
            assert_eq!(problems(&kind), [""; 0], "{kind:?}");
        }
        let wrong = [
            (count(0, 60), "/count"),
            (count(1_000_001, 60), "/count"),
            (count(1, 59), "/window_seconds"),
            (count(1, longest + 1), "/window_seconds"),
            (interval(0), "/interval_seconds"),
            (interval(longest + 1), "/interval_seconds"),
            (guard(0), "/within_seconds"),
            (guard(longest + 1), "/within_seconds"),
            (price(10_001, 3), "/percent"),
            (price(0, 2), "/of"),
            (price(0, 10), "/of"),
            (automatic_freeze(1, 1), "/times"),
            (automatic_freeze(101, 1), "/times"),
            (automatic_freeze(2, 0), "/at_least_units"),
            (limit(3_599), "/window_seconds"),
            (limit(longest + 1), "/window_seconds"),
            (hours(0), "/periods"),
            (hours(15), "/periods"),
        ];
        for (kind, path) in wrong {
            assert_eq!(problems(&kind), [path], "{kind:?}");
        }
    }

    #[test]
    fn unknown_repeated_or_excess_names_in_rules_are_reported() {
        let slug = |name: &str| ServiceSlug::parse(name).unwrap();
        let asks = |services, categories| {
            RuleKind::ApprovalRequired(ApprovalRequired {
                services,
                categories,
                above: None,
            })
        };
        let once = |services| RuleKind::NewPayee(NewPayee { services });
        assert_eq!(problems(&asks(None, None)), [""; 0]);
        assert_eq!(
            problems(&asks(Some(vec![slug("lab"), slug("lab")]), Some(Vec::new()))),
            ["/services/0", "/services/1", "/categories"]
        );
        assert_eq!(problems(&once(Some(vec![slug("lab")]))), ["/services/0"]);
        assert_eq!(problems(&once(Some(Vec::new()))), ["/services"]);
        let many = vec![Category::Ai; RuleKind::MAX_SELECTED + 1];
        assert_eq!(
            problems(&RuleKind::CategoryBlock(CategoryBlock { categories: many }))[0],
            "/categories"
        );
        assert_eq!(
            problems(&RuleKind::VendorAllowlist(VendorAllowlist { vendors: Vec::new() })),
            [""]
        );
        let vendors = vec![Vendor::Service(slug("lab")), Vendor::Wallet(Address::ZERO)];
        assert_eq!(
            problems(&RuleKind::VendorAllowlist(VendorAllowlist { vendors })),
            ["/services/0"]
        );
    }

    #[test]
    fn an_agent_has_at_most_one_automatic_freeze_rule() {
        let automatic_freeze = |times| {
            RuleKind::AutomaticFreeze(AutomaticFreeze {
                times,
                at_least: Amount::ONE,
            })
        };
        let agent = agent().with_rule(id(1), automatic_freeze(2)).unwrap();
        // A repeated request with the same id adds no second rule.
        assert_eq!(agent.clone().with_rule(id(1), automatic_freeze(2)), Ok(agent.clone()));
        assert_eq!(
            agent.clone().with_rule(id(2), automatic_freeze(3)),
            Err(RuleRejection::SecondBrake)
        );
        assert!(
            agent
                .without_rule(id(1))
                .unwrap()
                .with_rule(id(2), automatic_freeze(3))
                .is_ok()
        );
    }

    #[test]
    fn a_budget_names_only_keys_of_the_agent() {
        let mut agent = agent();
        agent.keys = [1, 2]
            .map(|n| NewKey::from_random(agent.id, [n; 40], Timestamp::EPOCH).record)
            .into();
        let key = |n: u8| KeyId(u64::from_be_bytes([n; 8]));
        let of_keys = |keys: &[u8]| {
            RuleKind::BudgetLimit(BudgetLimit {
                limit: Amount::ONE,
                window: RuleWindow {
                    keys: Some(keys.iter().copied().map(key).collect()),
                    ..MIN_BUDGET_WINDOW.into()
                },
            })
        };
        let rejected = |index| Err(RuleRejection::UnknownKey { index });
        assert_eq!(agent.clone().with_rule(id(1), of_keys(&[1, 3])), rejected(1));
        let mut agent = agent.with_rule(id(1), of_keys(&[1, 2])).unwrap();
        assert_eq!(agent.clone().with_changed_rule(id(1), of_keys(&[3, 1])), rejected(0));
        agent.keys.remove(0);
        let changed = agent.with_changed_rule(id(1), of_keys(&[1])).unwrap();
        assert_eq!(changed.rules[0].version, 2);
        assert_eq!(changed.clone().with_changed_rule(id(1), of_keys(&[1])), Ok(changed));
        assert_eq!(problems(&of_keys(&[])), ["/keys"]);
        assert_eq!(problems(&of_keys(&[1, 1])), ["/keys/1"]);
    }

    #[test]
    fn rule_updates_increment_the_agent_version() {
        let agent = agent()
            .with_rule(id(1), budget(1))
            .and_then(|agent| agent.with_rule(id(2), block(Category::Ai)))
            .unwrap();
        assert_eq!(agent.clone().with_changed_rule(id(1), budget(1)), Ok(agent.clone()));
        let changed = agent.clone().with_changed_rule(id(1), budget(2)).unwrap();
        let expected = Rule {
            id: id(1),
            version: 2,
            kind: budget(2),
        };
        assert_eq!(changed.rules[0], expected);
        assert_eq!(changed.rules[1], agent.rules[1]);
        let refused = |n, kind| agent.clone().with_changed_rule(id(n), kind).err();
        assert_eq!(refused(1, block(Category::Ai)), Some(RuleRejection::OtherKind));
        let each_payee = |limit| {
            RuleKind::BudgetLimit(BudgetLimit {
                limit: Amount::from_units(limit).unwrap(),
                window: RuleWindow {
                    per_payee: true,
                    ..MIN_BUDGET_WINDOW.into()
                },
            })
        };
        assert_eq!(refused(1, each_payee(1)), Some(RuleRejection::OtherKind));
        assert!(budget(1).is_as_strict_as(&each_payee(1)) && !each_payee(1).is_as_strict_as(&budget(1)));
        assert_eq!(refused(3, budget(1)), Some(RuleRejection::Unknown));
        let left = agent.clone().without_rule(id(1)).unwrap().rules;
        assert_eq!(left, agent.rules[1..]);
        assert_eq!(agent.clone().without_rule(id(3)).err(), Some(RuleRejection::Unknown));
    }

    #[test]
    fn each_kind_of_usual_price_is_parsed_from_its_name() {
        for (usual, name, prices) in [
            (UsualPrice::Catalog, "catalog", None),
            (UsualPrice::Median(5), "median", Some(5)),
        ] {
            assert_eq!((usual.name(), usual.price_count()), (name, prices));
            assert_eq!(UsualPrice::from_name(name, prices), Some(usual));
        }
        for (name, prices) in [("catalog", Some(5)), ("median", None), ("other", None)] {
            assert_eq!(UsualPrice::from_name(name, prices), None, "{name}");
        }
    }
}
