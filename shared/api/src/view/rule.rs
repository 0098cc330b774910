//! The JSON of a rule, for the owner and for the agent.

use purser_domain::{
    Amount, AutomaticFreeze, Category, Duration, LimitAction, Rule, RuleKind, RuleWindow, ServiceSlug, Vendor,
};
use serde::Serialize;
use utoipa::ToSchema;

/// A rule that limits the payments of an agent, in addition to the policy of each service.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AgentRule)]
pub struct RuleView {
    #[schema(value_type = uuid::Uuid)]
    rule_id: String,
    /// The rule's version. Each update of the rule increases the version by 1.
    rule_version: u64,
    #[serde(flatten)]
    says: RuleSays,
}

/// A rule's kind and parameters.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum RuleSays {
    /// Blocks payments in these categories.
    CategoryBlock {
        /// Payments to services or operations in these categories are blocked, for example `finance`.
        categories: Vec<&'static str>,
    },
    /// Allows payments only to these services and wallets.
    VendorAllowlist {
        /// The slugs of the allowed services. All wallets of these services are allowed.
        services: Vec<String>,
        /// The addresses of the allowed wallets. An agent may pay each of these wallets for calls of any service.
        wallets: Vec<String>,
    },
    /// Limits the amount within a window.
    BudgetLimit {
        /// The rule applies to payments to these services; absent for all services.
        #[schema(nullable = false)]
        #[serde(skip_serializing_if = "Option::is_none")]
        services: Option<Vec<String>>,
        /// The categories of the services whose payments count; absent for all categories.
        #[schema(nullable = false)]
        #[serde(skip_serializing_if = "Option::is_none")]
        categories: Option<Vec<&'static str>>,
        /// The maximum amount within the window, in micro-units.
        limit_units: u64,
        /// The duration of a rolling window, in seconds; absent if the window has a `period`.
        #[schema(nullable = false)]
        #[serde(skip_serializing_if = "Option::is_none")]
        window_seconds: Option<u64>,
        /// A calendar period (`day`, `week` from Monday, `month`), or `lifetime` if payments always count.
        #[schema(value_type = String, nullable = false, required = false, example = "month")]
        #[serde(skip_serializing_if = "Option::is_none")]
        period: Option<&'static str>,
        /// The IANA time zone of a calendar period.
        #[schema(nullable = false, example = "Europe/Berlin")]
        #[serde(skip_serializing_if = "Option::is_none")]
        time_zone: Option<String>,
        /// `ask` if a payment beyond the limit requires an approval; absent if such a payment is blocked.
        #[schema(value_type = String, nullable = false, required = false, example = "ask")]
        #[serde(skip_serializing_if = "Option::is_none")]
        action: Option<&'static str>,
        /// The amount of the payments that the rule's window counts now, in micro-units. If more than about 20,000
        /// payments have left the window and are not removed yet, the amount is an upper bound.
        used_units: u64,
        /// The remaining amount, in micro-units.
        remaining_units: u64,
    },
    /// Requires an approval for each payment that meets all conditions that are not null. If all are null, every
    /// payment needs an approval.
    ApprovalRequired {
        /// The slugs of the services to which the rule applies; null for all services.
        #[schema(required)]
        services: Option<Vec<String>>,
        /// The categories to which the rule applies; null for all categories.
        #[schema(required)]
        categories: Option<Vec<&'static str>>,
        /// The rule applies to payments above this amount, in micro-units; null for all amounts.
        #[schema(required)]
        above_units: Option<u64>,
    },
    /// Limits the number of payments within a window.
    CountLimit {
        /// The slugs of the services to which the rule applies; null for all services.
        #[schema(required)]
        services: Option<Vec<String>>,
        /// The categories of the services whose payments count; absent for all categories.
        #[schema(nullable = false)]
        #[serde(skip_serializing_if = "Option::is_none")]
        categories: Option<Vec<&'static str>>,
        /// The maximum number of payments within the window.
        count: u32,
        /// The duration of a rolling window, in seconds; absent if the window has a `period`.
        #[schema(nullable = false)]
        #[serde(skip_serializing_if = "Option::is_none")]
        window_seconds: Option<u64>,
        /// A calendar period (`day`, `week` from Monday, `month`), or `lifetime` if payments always count.
        #[schema(value_type = String, nullable = false, required = false, example = "month")]
        #[serde(skip_serializing_if = "Option::is_none")]
        period: Option<&'static str>,
        /// The IANA time zone of a calendar period.
        #[schema(nullable = false, example = "Europe/Berlin")]
        #[serde(skip_serializing_if = "Option::is_none")]
        time_zone: Option<String>,
        /// `ask` if a payment beyond the limit requires an approval; absent if such a payment is blocked.
        #[schema(value_type = String, nullable = false, required = false, example = "ask")]
        #[serde(skip_serializing_if = "Option::is_none")]
        action: Option<&'static str>,
        /// The number of payments in the window at this time.
        used: u64,
        /// The number of additional payments that fit into the window.
        remaining: u64,
    },
    /// Requires a minimum time between two payments.
    MinimumInterval {
        /// The slugs of the services to which the rule applies; null for all services.
        #[schema(required)]
        services: Option<Vec<String>>,
        /// The minimum time between two payments, in seconds.
        interval_seconds: u64,
    },
    /// Blocks a repeated call within a period, or requires an approval for the call.
    DuplicateGuard {
        /// The slugs of the services to which the rule applies; null for all services.
        #[schema(required)]
        services: Option<Vec<String>>,
        /// The duration of the period after the last authorization of the call, in seconds.
        within_seconds: u64,
        /// `block`, or `ask` to require an approval.
        #[schema(value_type = String, example = "block")]
        action: &'static str,
    },
    /// Requires an approval for the first payment to each payee at a service.
    NewPayee {
        /// The slugs of the services to which the rule applies; null for all services.
        #[schema(required)]
        services: Option<Vec<String>>,
    },
    /// Blocks a payment whose price is above the usual price, or requires an approval for the payment.
    PriceAboveUsual {
        /// The slugs of the services to which the rule applies; null for all services.
        #[schema(required)]
        services: Option<Vec<String>>,
        /// The percentage by which a price may exceed the usual price.
        percent: u32,
        /// The source of the usual price: `catalog` (the catalog's price) or `median` (the median of earlier prices).
        #[schema(value_type = String, example = "catalog")]
        over: &'static str,
        /// For `median`, the number of earlier payments of the operation from which the median price is computed. Null
        /// for `catalog`.
        #[schema(required)]
        of: Option<u8>,
        /// `block`, or `ask` to require an approval.
        #[schema(value_type = String, example = "ask")]
        action: &'static str,
    },
    /// Allows payments only during the weekly periods in `periods`.
    Schedule {
        /// The slugs of the services to which the rule applies; null for all services.
        #[schema(required)]
        services: Option<Vec<String>>,
        /// The name of an IANA time zone.
        time_zone: String,
        /// The periods, such as `monday-friday 09:00-17:00`: the days on which a period starts, and the times of the start
        /// and the end. An end before the start is on the next day.
        periods: Vec<String>,
    },
    /// Freezes the agent after an hour with unusually high spending.
    AnomalyBrake {
        /// The agent is frozen if the payments within an hour exceed the busiest hour of a usual day by more than this
        /// factor.
        times: u32,
        /// The minimum sum of the payments within an hour at which the rule freezes the agent, in micro-units.
        at_least_units: u64,
    },
}

impl RuleView {
    /// Creates the view of a rule. `used` is the amount or the number of payments in the rule's window.
    pub fn new(rule: &Rule, used: Option<Amount>) -> Self {
        let used = used.unwrap_or(Amount::ZERO);
        let slugs = |services: &[ServiceSlug]| services.iter().map(ToString::to_string).collect();
        let names = |categories: &[Category]| categories.iter().map(|category| category.name()).collect();
        let asking = |window: &RuleWindow| (window.action == LimitAction::Ask).then(|| window.action.name());
        let says = match &rule.kind {
            RuleKind::CategoryBlock { categories } => RuleSays::CategoryBlock {
                categories: names(categories),
            },
            RuleKind::VendorAllowlist { vendors } => RuleSays::VendorAllowlist {
                services: vendors
                    .iter()
                    .filter_map(Vendor::service_slug)
                    .map(ToString::to_string)
                    .collect(),
                wallets: vendors
                    .iter()
                    .filter_map(Vendor::wallet_address)
                    .map(|wallet| wallet.to_string())
                    .collect(),
            },
            RuleKind::BudgetLimit { limit, window } => RuleSays::BudgetLimit {
                services: window.services.as_deref().map(slugs),
                categories: window.categories.as_deref().map(names),
                limit_units: limit.units(),
                window_seconds: window.period.duration().map(Duration::secs),
                period: window.period.name(),
                time_zone: window.period.time_zone().map(|zone| zone.to_string()),
                action: asking(window),
                used_units: used.units(),
                remaining_units: limit.saturating_minus(used).units(),
            },
            RuleKind::ApprovalRequired {
                services,
                categories,
                above,
            } => RuleSays::ApprovalRequired {
                services: services.as_deref().map(slugs),
                categories: categories.as_deref().map(names),
                above_units: above.map(Amount::units),
            },
            RuleKind::CountLimit { count, window } => RuleSays::CountLimit {
                services: window.services.as_deref().map(slugs),
                categories: window.categories.as_deref().map(names),
                count: *count,
                window_seconds: window.period.duration().map(Duration::secs),
                period: window.period.name(),
                time_zone: window.period.time_zone().map(|zone| zone.to_string()),
                action: asking(window),
                used: used.units(),
                remaining: u64::from(*count).saturating_sub(used.units()),
            },
            RuleKind::MinimumInterval { services, interval } => RuleSays::MinimumInterval {
                services: services.as_deref().map(slugs),
                interval_seconds: interval.secs(),
            },
            RuleKind::DuplicateGuard {
                services,
                within,
                action,
            } => RuleSays::DuplicateGuard {
                services: services.as_deref().map(slugs),
                within_seconds: within.secs(),
                action: action.name(),
            },
            RuleKind::NewPayee { services } => RuleSays::NewPayee {
                services: services.as_deref().map(slugs),
            },
            RuleKind::PriceAboveUsual {
                services,
                percent,
                over,
                action,
            } => RuleSays::PriceAboveUsual {
                services: services.as_deref().map(slugs),
                percent: *percent,
                over: over.name(),
                of: over.price_count(),
                action: action.name(),
            },
            RuleKind::Schedule { services, schedule } => RuleSays::Schedule {
                services: services.as_deref().map(slugs),
                time_zone: schedule.zone.to_string(),
                periods: schedule.periods.iter().map(ToString::to_string).collect(),
            },
            RuleKind::AnomalyBrake(AutomaticFreeze { times, at_least }) => RuleSays::AnomalyBrake {
                times: *times,
                at_least_units: at_least.units(),
            },
        };
        Self {
            rule_id: rule.id.to_string(),
            rule_version: rule.version,
            says,
        }
    }
}
