//! An agent's rules, which apply across all services (`docs/spec.md` §2.7, §7 `policy_blocked`).

use crate::{
    Address, Agent, AgentId, Amount, ApprovalException, AutomaticFreeze, Catalog, Category, Duration, Fingerprint,
    KeyId, MAX_FREEZE_MULTIPLE, MAX_RECENT_PRICES, MIN_FREEZE_MULTIPLE, RuleId, Schedule, Service, ServiceSlug,
    Timestamp, ValidationError, Window, WindowPeriod, WindowScope, catalog::service::named,
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

/// The kind of a rule, with the kind's parameters. An update can't change the kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleKind {
    /// Payments in these categories are blocked.
    CategoryBlock {
        /// The blocked categories, which are compared with the operation's and the service's category.
        categories: Vec<Category>,
    },
    /// Only payments to these vendors are allowed. An empty list allows no payment.
    VendorAllowlist {
        /// The allowed services and wallets.
        vendors: Vec<Vendor>,
    },
    /// The agent may pay at most `limit` within a window.
    BudgetLimit {
        /// The maximum sum of the payments in the window, in micro-USDC.
        limit: Amount,
        /// The window. A rolling window has a duration of [`MIN_BUDGET_WINDOW`] to [`MAX_BUDGET_WINDOW`].
        window: RuleWindow,
    },
    /// A payment that meets every set condition needs an approval.
    ApprovalRequired {
        /// The payment is to one of these services.
        services: Option<Vec<ServiceSlug>>,
        /// The payment is in one of these categories.
        categories: Option<Vec<Category>>,
        /// The payment is above this amount, in micro-USDC.
        above: Option<Amount>,
    },
    /// The agent may make at most `count` payments within a window.
    CountLimit {
        /// The maximum number of payments: 1 to [`MAX_COUNT`].
        count: u32,
        /// The window. A rolling window has a duration of [`MIN_COUNT_WINDOW`] to [`MAX_BUDGET_WINDOW`].
        window: RuleWindow,
    },
    /// The agent may not pay within `interval` after the previous payment.
    MinimumInterval {
        /// The services to which the rule applies; `None` for all services.
        services: Option<Vec<ServiceSlug>>,
        /// The minimum time between two authorizations: [`MIN_INTERVAL`] to [`MAX_BUDGET_WINDOW`].
        interval: Duration,
    },
    /// A call with the same [`crate::CallDigest`] as a recent call is denied or needs an approval.
    DuplicateGuard {
        /// The services to which the rule applies; `None` for all services.
        services: Option<Vec<ServiceSlug>>,
        /// A call is repeated if the same call was authorized less than this long ago: [`MIN_INTERVAL`] to
        /// [`MAX_BUDGET_WINDOW`].
        within: Duration,
        /// What the rule does with a repeated call.
        action: LimitAction,
    },
    /// A payment needs an approval if the agent has not paid the payee at this service before.
    NewPayee {
        /// The services to which the rule applies; `None` for all services.
        services: Option<Vec<ServiceSlug>>,
    },
    /// A price more than `percent` percent above the operation's usual price is denied or needs an approval.
    PriceAboveUsual {
        /// The services to which the rule applies; `None` for all services.
        services: Option<Vec<ServiceSlug>>,
        /// The percentage by which a price may exceed the usual price: 0 to [`MAX_PERCENT`].
        percent: u32,
        /// The source of the usual price.
        over: UsualPrice,
        /// What the rule does with a higher price.
        action: LimitAction,
    },
    /// Payments are allowed only at the times of `schedule`.
    Schedule {
        /// The services to which the rule applies; `None` for all services.
        services: Option<Vec<ServiceSlug>>,
        /// The times at which payments are allowed.
        schedule: Schedule,
    },
    /// The agent is frozen after an unusually busy hour. The rule does not affect decisions about payments.
    AnomalyBrake(AutomaticFreeze),
    /// A payment that meets every condition needs no approval for the waived limits.
    ApprovalException(ApprovalException),
}

/// The window of a budget or a count limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleWindow {
    /// The services whose payments count. `None` means all services.
    pub services: Option<Vec<ServiceSlug>>,
    /// The services' categories at the time of the payment; `None` for all categories.
    pub categories: Option<Vec<Category>>,
    /// The agent's keys whose payments count, also after a key is revoked or expires; `None` for all keys.
    pub keys: Option<Vec<KeyId>>,
    /// Whether the payments to each payee count alone, each up to the limit. An update can't change this.
    pub per_payee: bool,
    /// How long an authorized payment counts toward the limit.
    pub period: WindowPeriod,
    /// What the rule does with a payment beyond the limit. Approved payments also count, so the used part may exceed
    /// the limit.
    pub action: LimitAction,
}

/// Creates a rolling window that counts the payments to all services, and blocks payments beyond the limit.
impl From<Duration> for RuleWindow {
    fn from(duration: Duration) -> Self {
        Self {
            services: None,
            categories: None,
            keys: None,
            per_payee: false,
            period: WindowPeriod::Rolling(duration),
            action: LimitAction::Block,
        }
    }
}

named! {
    /// The action of a rule for a payment beyond the limit.
    LimitAction {
        /// The payment is denied.
        Block = "block",
        /// The payment needs an approval.
        Ask = "ask",
    }
}

/// The price with which a `price_above_usual` rule compares the price of a payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsualPrice {
    /// The operation's price in the catalog.
    Catalog,
    /// The median of this number of the operation's last paid prices: [`MIN_MEDIAN_PRICES`] to [`MAX_RECENT_PRICES`].
    /// With fewer prices, the rule has no effect.
    Median(u8),
}

impl UsualPrice {
    /// The name of [`UsualPrice::Catalog`] in the API and in storage.
    pub const CATALOG: &str = "catalog";
    /// The name of [`UsualPrice::Median`] in the API and in storage.
    pub const MEDIAN: &str = "median";

    /// Returns the name in the API and in storage.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Catalog => Self::CATALOG,
            Self::Median(_) => Self::MEDIAN,
        }
    }

    /// Returns the number of prices in a median; `None` for the catalog's price.
    pub const fn price_count(self) -> Option<u8> {
        match self {
            Self::Catalog => None,
            Self::Median(prices) => Some(prices),
        }
    }

    /// Parses the usual price from a name and, for a median, the number of prices.
    pub fn from_name(name: &str, prices: Option<u8>) -> Option<Self> {
        match (name, prices) {
            (Self::CATALOG, None) => Some(Self::Catalog),
            (Self::MEDIAN, Some(prices)) => Some(Self::Median(prices)),
            _ => None,
        }
    }
}

/// The minimum number of prices in a median.
pub const MIN_MEDIAN_PRICES: u8 = 3;

/// The maximum percentage above the usual price.
pub const MAX_PERCENT: u32 = 10_000;

/// The maximum number of payments of a count limit.
pub const MAX_COUNT: u32 = 1_000_000;

/// The minimum window of a count limit: one minute.
pub const MIN_COUNT_WINDOW: Duration = Duration::from_secs_u32(60);

/// The minimum interval between two payments, and the minimum duration of a duplicate guard: one second.
pub const MIN_INTERVAL: Duration = Duration::from_secs_u32(1);

/// The minimum window of a budget: one hour.
pub const MIN_BUDGET_WINDOW: Duration = Duration::from_secs_u32(3_600);

/// The maximum window of a rule: 31 days.
pub const MAX_BUDGET_WINDOW: Duration = Duration::from_secs_u32(31 * 86_400);

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
    pub const fn action(&self) -> LimitAction {
        match &self.rule.kind {
            RuleKind::BudgetLimit { window, .. } | RuleKind::CountLimit { window, .. } => window.action,
            _ => LimitAction::Block,
        }
    }
}

fn join<T>(items: &[T], text: fn(&T) -> String) -> String {
    items.iter().map(text).collect::<Vec<_>>().join(",")
}

/// An element of a vendor allowlist: a service, or a single wallet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Vendor {
    /// A service. Any wallet of the service may be paid.
    Service(ServiceSlug),
    /// A wallet. The wallet may be paid for the calls of any service.
    Wallet(Address),
}

impl Vendor {
    /// Returns the service's slug; `None` for a wallet.
    pub const fn service_slug(&self) -> Option<&ServiceSlug> {
        match self {
            Self::Service(slug) => Some(slug),
            Self::Wallet(_) => None,
        }
    }

    /// Returns the wallet's address; `None` for a service.
    pub const fn wallet_address(&self) -> Option<Address> {
        match self {
            Self::Service(_) => None,
            Self::Wallet(address) => Some(*address),
        }
    }
}

impl RuleKind {
    /// The maximum number of services, wallets, categories or keys in a rule. Every payment reads the agent's record.
    pub const MAX_SELECTED: usize = 50;

    /// The name of [`RuleKind::CategoryBlock`] in the API and in storage.
    pub const CATEGORY_BLOCK: &str = "category_block";
    /// The name of [`RuleKind::VendorAllowlist`] in the API and in storage.
    pub const VENDOR_ALLOWLIST: &str = "vendor_allowlist";
    /// The name of [`RuleKind::BudgetLimit`] in the API and in storage.
    pub const BUDGET_LIMIT: &str = "budget_limit";
    /// The name of [`RuleKind::ApprovalRequired`] in the API and in storage.
    pub const APPROVAL_REQUIRED: &str = "approval_required";
    /// The name of [`RuleKind::CountLimit`] in the API and in storage.
    pub const COUNT_LIMIT: &str = "count_limit";
    /// The name of [`RuleKind::MinimumInterval`] in the API and in storage.
    pub const MINIMUM_INTERVAL: &str = "minimum_interval";
    /// The name of [`RuleKind::DuplicateGuard`] in the API and in storage.
    pub const DUPLICATE_GUARD: &str = "duplicate_guard";
    /// The name of [`RuleKind::NewPayee`] in the API and in storage.
    pub const NEW_PAYEE: &str = "new_payee";
    /// The name of [`RuleKind::PriceAboveUsual`] in the API and in storage.
    pub const PRICE_ABOVE_USUAL: &str = "price_above_usual";
    /// The name of [`RuleKind::Schedule`] in the API and in storage.
    pub const SCHEDULE: &str = "schedule";
    /// The name of [`RuleKind::AnomalyBrake`] in the API and in storage.
    pub const ANOMALY_BRAKE: &str = "anomaly_brake";
    /// The name of [`RuleKind::ApprovalException`] in the API and in storage.
    pub const APPROVAL_EXCEPTION: &str = "approval_exception";

    /// Returns the kind's name in the API and in storage.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::CategoryBlock { .. } => Self::CATEGORY_BLOCK,
            Self::VendorAllowlist { .. } => Self::VENDOR_ALLOWLIST,
            Self::BudgetLimit { .. } => Self::BUDGET_LIMIT,
            Self::ApprovalRequired { .. } => Self::APPROVAL_REQUIRED,
            Self::CountLimit { .. } => Self::COUNT_LIMIT,
            Self::MinimumInterval { .. } => Self::MINIMUM_INTERVAL,
            Self::DuplicateGuard { .. } => Self::DUPLICATE_GUARD,
            Self::NewPayee { .. } => Self::NEW_PAYEE,
            Self::PriceAboveUsual { .. } => Self::PRICE_ABOVE_USUAL,
            Self::Schedule { .. } => Self::SCHEDULE,
            Self::AnomalyBrake(_) => Self::ANOMALY_BRAKE,
            Self::ApprovalException(_) => Self::APPROVAL_EXCEPTION,
        }
    }

    /// Returns the unit, the limit and the period of the rule's window; `None` if the rule does not count payments.
    pub fn counted_limit(&self) -> Option<(WindowMeasure, Amount, WindowPeriod)> {
        match self {
            Self::BudgetLimit { limit, window } => Some((WindowMeasure::Amounts, *limit, window.period)),
            Self::CountLimit { count, window } => {
                let limit = Amount::from_units((*count).into()).unwrap_or(Amount::ZERO);
                Some((WindowMeasure::Payments, limit, window.period))
            }
            Self::MinimumInterval { interval, .. } => {
                Some((WindowMeasure::Payments, Amount::ONE, WindowPeriod::Rolling(*interval)))
            }
            Self::CategoryBlock { .. }
            | Self::VendorAllowlist { .. }
            | Self::ApprovalRequired { .. }
            | Self::DuplicateGuard { .. }
            | Self::NewPayee { .. }
            | Self::PriceAboveUsual { .. }
            | Self::Schedule { .. }
            | Self::AnomalyBrake(_)
            | Self::ApprovalException(_) => None,
        }
    }

    /// Returns whether the rule depends on the number, calls, payees or prices of earlier payments. Decisions do not
    /// record these completely.
    pub const fn depends_on_earlier_payments(&self) -> bool {
        match self {
            Self::CountLimit { .. }
            | Self::MinimumInterval { .. }
            | Self::DuplicateGuard { .. }
            | Self::NewPayee { .. }
            | Self::PriceAboveUsual {
                over: UsualPrice::Median(_),
                ..
            } => true,
            Self::CategoryBlock { .. }
            | Self::VendorAllowlist { .. }
            | Self::BudgetLimit { .. }
            | Self::ApprovalRequired { .. }
            | Self::PriceAboveUsual {
                over: UsualPrice::Catalog,
                ..
            }
            | Self::Schedule { .. }
            | Self::AnomalyBrake(_)
            | Self::ApprovalException(_) => false,
        }
    }

    /// Returns whether the rule needs an agent's recent payments to a service.
    pub const fn needs_recent_payments(&self) -> bool {
        self.depends_on_earlier_payments() && !matches!(self, Self::CountLimit { .. } | Self::MinimumInterval { .. })
    }

    /// Returns the services to which the rule applies; `None` for all services.
    pub fn service_slugs(&self) -> Option<&[ServiceSlug]> {
        match self {
            Self::CategoryBlock { .. } | Self::VendorAllowlist { .. } | Self::AnomalyBrake(_) => None,
            Self::BudgetLimit { window, .. } | Self::CountLimit { window, .. } => window.services.as_deref(),
            Self::ApprovalRequired { services, .. }
            | Self::MinimumInterval { services, .. }
            | Self::DuplicateGuard { services, .. }
            | Self::NewPayee { services }
            | Self::PriceAboveUsual { services, .. }
            | Self::Schedule { services, .. }
            | Self::ApprovalException(ApprovalException { services, .. }) => services.as_deref(),
        }
    }

    /// Returns the conditions that select the payments to which the rule applies.
    pub fn scope(&self) -> RuleScope<'_> {
        let window = match self {
            Self::BudgetLimit { window, .. } | Self::CountLimit { window, .. } => Some(window),
            _ => None,
        };
        RuleScope {
            services: self.service_slugs(),
            categories: window.and_then(|window| window.categories.as_deref()),
            keys: match self {
                Self::ApprovalException(exception) => exception.keys.as_deref(),
                _ => window.and_then(|window| window.keys.as_deref()),
            },
            per_payee: window.is_some_and(|window| window.per_payee),
        }
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

    /// Checks that a duration is between `min_duration` and [`MAX_BUDGET_WINDOW`]. The error states the range.
    pub fn check_duration(duration: Duration, min_duration: Duration) -> Result<(), String> {
        if (min_duration..=MAX_BUDGET_WINDOW).contains(&duration) {
            return Ok(());
        }
        let (least, max) = (min_duration.secs(), MAX_BUDGET_WINDOW.secs());
        Err(format!("must be a whole number of seconds from {least} to {max}"))
    }

    /// Returns the validation errors of the rule, each with a JSON Pointer.
    pub fn validation_errors(&self, catalog: &Catalog) -> Vec<ValidationError> {
        let unknown = |slug: &ServiceSlug| {
            let known = catalog
                .find_by_reference(slug.as_str())
                .is_some_and(|service| service.slug == *slug);
            // The message does not repeat the slug, because the user may have pasted a key by mistake.
            (!known).then(|| "is not the slug of a service in the catalog".to_owned())
        };
        let scope_errors = |scope: RuleScope<'_>| {
            let max = Self::MAX_SELECTED;
            let services = scope
                .services
                .map(|slugs| list_errors("/services", slugs, is_at_least_one, max, unknown));
            let categories = scope
                .categories
                .map(|names| list_errors("/categories", names, is_at_least_one, max, |_| None));
            let keys = scope
                .keys
                .map(|keys| list_errors("/keys", keys, is_at_least_one, max, |_| None));
            let errors = services.into_iter().chain(categories).chain(keys);
            errors.flatten().collect::<Vec<ValidationError>>()
        };
        match self {
            Self::CategoryBlock { categories } => {
                list_errors("/categories", categories, is_at_least_one, Self::MAX_SELECTED, |_| None)
            }
            Self::VendorAllowlist { vendors } => {
                let services: Vec<_> = vendors.iter().filter_map(Vendor::service_slug).collect();
                let wallets: Vec<_> = vendors.iter().filter_map(Vendor::wallet_address).collect();
                let mut errors = list_errors(
                    "/services",
                    &services,
                    may_have_any_length,
                    Self::MAX_SELECTED,
                    |slug| unknown(slug),
                );
                errors.extend(list_errors(
                    "/wallets",
                    &wallets,
                    may_have_any_length,
                    Self::MAX_SELECTED,
                    |_| None,
                ));
                if vendors.is_empty() {
                    errors.push(ValidationError::at_path("", "must name a service or a wallet at least"));
                }
                errors
            }
            Self::ApprovalRequired { categories, .. } => scope_errors(RuleScope {
                categories: categories.as_deref(),
                ..self.scope()
            }),
            Self::BudgetLimit { .. }
            | Self::CountLimit { .. }
            | Self::MinimumInterval { .. }
            | Self::DuplicateGuard { .. }
            | Self::NewPayee { .. }
            | Self::PriceAboveUsual { .. }
            | Self::Schedule { .. }
            | Self::AnomalyBrake(_)
            | Self::ApprovalException(_) => {
                let mut errors = self.numeric_field_errors();
                errors.extend(scope_errors(self.scope()));
                errors
            }
        }
    }

    fn numeric_field_errors(&self) -> Vec<ValidationError> {
        let range = |path, number: u64, least: u64, max: u64| {
            let wrong = !(least..=max).contains(&number);
            wrong.then(|| ValidationError::at_path(path, format!("must be a whole number from {least} to {max}")))
        };
        let duration = |path, duration, least| {
            let wrong = Self::check_duration(duration, least).err();
            wrong.map(|message| ValidationError::at_path(path, message))
        };
        let positive = |path, amount: Amount| {
            let wrong = amount.is_zero();
            wrong.then(|| ValidationError::at_path(path, "must not be zero"))
        };
        let rolling = |window: &RuleWindow, least| duration("/window_seconds", window.period.duration()?, least);
        let errors = match self {
            Self::BudgetLimit { window, .. } => [rolling(window, MIN_BUDGET_WINDOW), None],
            Self::CountLimit { count, window } => [
                range("/count", (*count).into(), 1, MAX_COUNT.into()),
                rolling(window, MIN_COUNT_WINDOW),
            ],
            Self::MinimumInterval { interval, .. } => [duration("/interval_seconds", *interval, MIN_INTERVAL), None],
            Self::DuplicateGuard { within, .. } => [duration("/within_seconds", *within, MIN_INTERVAL), None],
            Self::PriceAboveUsual { percent, over, .. } => {
                let max = u64::try_from(MAX_RECENT_PRICES).unwrap_or(u64::MAX);
                let of = match over {
                    UsualPrice::Catalog => None,
                    UsualPrice::Median(count) => range("/of", (*count).into(), MIN_MEDIAN_PRICES.into(), max),
                };
                [range("/percent", (*percent).into(), 0, MAX_PERCENT.into()), of]
            }
            Self::Schedule { schedule, .. } => {
                return list_errors(
                    "/periods",
                    &schedule.periods,
                    is_at_least_one,
                    Schedule::MAX_PERIODS,
                    |_| None,
                );
            }
            Self::AnomalyBrake(automatic_freeze) => {
                let none = positive("/at_least_units", automatic_freeze.at_least);
                let (least, max) = (MIN_FREEZE_MULTIPLE.into(), MAX_FREEZE_MULTIPLE.into());
                [range("/times", automatic_freeze.times.into(), least, max), none]
            }
            Self::CategoryBlock { .. }
            | Self::VendorAllowlist { .. }
            | Self::ApprovalRequired { .. }
            | Self::NewPayee { .. } => [None, None],
            Self::ApprovalException(exception) => [positive("/max_amount_units", exception.max_amount), None],
        };
        errors.into_iter().flatten().collect()
    }
}

pub(crate) const fn is_at_least_one(count: usize) -> bool {
    count > 0
}

const fn may_have_any_length(_: usize) -> bool {
    true
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
        self.rules
            .retain(|rule| !matches!(&rule.kind, RuleKind::ApprovalException(exception) if exception.until <= at));
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
        if matches!(kind, RuleKind::AnomalyBrake(_)) && AutomaticFreeze::find_in_rules(&self.rules).is_some() {
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
    use crate::{AgentId, AgentStatus, NewKey, SchedulePeriod, Timestamp, Wallet, ZoneName};
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
        RuleKind::BudgetLimit {
            limit: Amount::from_units(units).unwrap(),
            window: MIN_BUDGET_WINDOW.into(),
        }
    }

    fn block(category: Category) -> RuleKind {
        RuleKind::CategoryBlock {
            categories: vec![category],
        }
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
        let count = |count, duration| RuleKind::CountLimit {
            count,
            window: secs(duration).into(),
        };
        let interval = |duration| RuleKind::MinimumInterval {
            services: None,
            interval: secs(duration),
        };
        let guard = |duration| RuleKind::DuplicateGuard {
            services: None,
            within: secs(duration),
            action: LimitAction::Ask,
        };
        let price = |percent, of| RuleKind::PriceAboveUsual {
            services: None,
            percent,
            over: UsualPrice::Median(of),
            action: LimitAction::Ask,
        };
        let automatic_freeze = |times, units| {
            RuleKind::AnomalyBrake(AutomaticFreeze {
                times,
                at_least: Amount::from_units(units).unwrap(),
            })
        };
        let limit = |duration| RuleKind::BudgetLimit {
            limit: Amount::ONE,
            window: secs(duration).into(),
        };
        let hours = |days: u32| RuleKind::Schedule {
            services: None,
            schedule: Schedule {
                zone: ZoneName::UTC,
                periods: (0..days)
                    .map(|hour| SchedulePeriod::parse(&format!("monday {hour:02}:00-24:00")).unwrap())
                    .collect(),
            },
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
            RuleKind::NewPayee { services: None },
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
        let asks = |services, categories| RuleKind::ApprovalRequired {
            services,
            categories,
            above: None,
        };
        let once = |services| RuleKind::NewPayee { services };
        assert_eq!(problems(&asks(None, None)), [""; 0]);
        assert_eq!(
            problems(&asks(Some(vec![slug("lab"), slug("lab")]), Some(Vec::new()))),
            ["/services/0", "/services/1", "/categories"]
        );
        assert_eq!(problems(&once(Some(vec![slug("lab")]))), ["/services/0"]);
        assert_eq!(problems(&once(Some(Vec::new()))), ["/services"]);
        let many = vec![Category::Ai; RuleKind::MAX_SELECTED + 1];
        assert_eq!(
            problems(&RuleKind::CategoryBlock { categories: many })[0],
            "/categories"
        );
        assert_eq!(problems(&RuleKind::VendorAllowlist { vendors: Vec::new() }), [""]);
        let vendors = vec![Vendor::Service(slug("lab")), Vendor::Wallet(Address::ZERO)];
        assert_eq!(problems(&RuleKind::VendorAllowlist { vendors }), ["/services/0"]);
    }

    #[test]
    fn an_agent_has_at_most_one_automatic_freeze_rule() {
        let automatic_freeze = |times| {
            RuleKind::AnomalyBrake(AutomaticFreeze {
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
        let of_keys = |keys: &[u8]| RuleKind::BudgetLimit {
            limit: Amount::ONE,
            window: RuleWindow {
                keys: Some(keys.iter().copied().map(key).collect()),
                ..MIN_BUDGET_WINDOW.into()
            },
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
        let each_payee = |limit| RuleKind::BudgetLimit {
            limit: Amount::from_units(limit).unwrap(),
            window: RuleWindow {
                per_payee: true,
                ..MIN_BUDGET_WINDOW.into()
            },
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
