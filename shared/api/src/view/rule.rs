//! A rule of an agent, in JSON: for its owner and for the agent itself.

use purser_domain::{Amount, AnomalyBrake, Category, Rule, RuleKind, ServiceSlug, Vendor};
use serde::Serialize;
use utoipa::ToSchema;

/// A rule of an agent.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AgentRule)]
pub struct RuleView {
    #[schema(value_type = uuid::Uuid)]
    rule_id: String,
    /// The number of edits of this rule.
    rule_version: u64,
    #[serde(flatten)]
    says: RuleSays,
}

/// The terms of a rule.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum RuleSays {
    /// Payments in these categories are blocked.
    CategoryBlock {
        /// The blocked categories.
        categories: Vec<&'static str>,
    },
    /// Only these vendors are paid.
    VendorAllowlist {
        /// The slugs of allowed services. Every wallet of these services is allowed.
        services: Vec<String>,
        /// The addresses of allowed wallets, for every service.
        wallets: Vec<String>,
    },
    /// The most that may be spent within every window of this length, over all services.
    BudgetLimit {
        /// The budget, in micro-units.
        limit_units: u64,
        /// The length of the window, in seconds.
        window_seconds: u64,
        /// The amount used at this time. It is an upper bound while more than about 20,000 payments that left the
        /// window are not removed yet.
        used_units: u64,
        /// The remaining amount.
        remaining_units: u64,
    },
    /// A person must approve each payment that meets all conditions that are not null. If all are null, a person must
    /// approve every payment.
    ApprovalRequired {
        /// Payments to these services.
        #[schema(required)]
        services: Option<Vec<String>>,
        /// Payments in these categories.
        #[schema(required)]
        categories: Option<Vec<&'static str>>,
        /// Payments above this amount.
        #[schema(required)]
        above_units: Option<u64>,
    },
    /// The most payments that may be made within every window of this length.
    CountLimit {
        /// Payments to these services; null for all services.
        #[schema(required)]
        services: Option<Vec<String>>,
        /// The maximum number of payments.
        count: u32,
        /// The length of the window, in seconds.
        window_seconds: u64,
        /// The number of payments that count at this time.
        used: u64,
        /// The number of further payments.
        remaining: u64,
    },
    /// The shortest time between two payments.
    MinimumInterval {
        /// Payments to these services; null for all services.
        #[schema(required)]
        services: Option<Vec<String>>,
        /// The interval, in seconds.
        interval_seconds: u64,
    },
    /// The same call is not paid again within a time.
    DuplicateGuard {
        /// Payments to these services; null for all services.
        #[schema(required)]
        services: Option<Vec<String>>,
        /// The time from the last authorization of the call, in seconds.
        within_seconds: u64,
        /// `block` or `ask`.
        #[schema(value_type = String, example = "block")]
        action: &'static str,
    },
    /// A person must approve the first payment to each payee at a service.
    NewPayee {
        /// Payments to these services; null for all services.
        #[schema(required)]
        services: Option<Vec<String>>,
    },
    /// A price further above the usual one is refused, or a person must approve it.
    PriceAboveUsual {
        /// Payments to these services; null for all services.
        #[schema(required)]
        services: Option<Vec<String>>,
        /// The percentage by which a price may exceed the usual one.
        percent: u32,
        /// The usual price: `catalog` or `median`.
        #[schema(value_type = String, example = "catalog")]
        over: &'static str,
        /// The number of an operation's last paid prices whose median is the usual one; null for `catalog`.
        #[schema(required)]
        of: Option<u8>,
        /// `block` or `ask`.
        #[schema(value_type = String, example = "ask")]
        action: &'static str,
    },
    /// The times at which payments are allowed.
    Schedule {
        /// Payments to these services; null for all services.
        #[schema(required)]
        services: Option<Vec<String>>,
        /// The name of an IANA time zone.
        time_zone: String,
        /// The days on which a period starts.
        days: Vec<&'static str>,
        /// The start of the period.
        from: String,
        /// The end of the period, on the next day if it is before the start.
        to: String,
    },
    /// The agent is frozen after an unusually busy hour.
    AnomalyBrake {
        /// The multiple of the busiest hour of the two weeks before that an hour must exceed.
        times: u32,
        /// The least sum of such an hour, in micro-units.
        at_least_units: u64,
    },
}

impl RuleView {
    /// The rule, with the amount or the number of payments that it counts now.
    pub fn new(rule: &Rule, used: Option<Amount>) -> Self {
        let used = used.unwrap_or(Amount::ZERO);
        let slugs = |services: &[ServiceSlug]| services.iter().map(ToString::to_string).collect();
        let names = |categories: &[Category]| categories.iter().map(|category| category.name()).collect();
        let says = match &rule.kind {
            RuleKind::CategoryBlock { categories } => RuleSays::CategoryBlock {
                categories: names(categories),
            },
            RuleKind::VendorAllowlist { vendors } => RuleSays::VendorAllowlist {
                services: vendors
                    .iter()
                    .filter_map(Vendor::service)
                    .map(ToString::to_string)
                    .collect(),
                wallets: vendors
                    .iter()
                    .filter_map(Vendor::wallet)
                    .map(|wallet| wallet.to_string())
                    .collect(),
            },
            RuleKind::BudgetLimit { limit, window } => RuleSays::BudgetLimit {
                limit_units: limit.units(),
                window_seconds: window.secs(),
                used_units: used.units(),
                remaining_units: limit.above(used).units(),
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
            RuleKind::CountLimit {
                services,
                count,
                window,
            } => RuleSays::CountLimit {
                services: services.as_deref().map(slugs),
                count: *count,
                window_seconds: window.secs(),
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
                of: over.prices(),
                action: action.name(),
            },
            RuleKind::Schedule { services, schedule } => RuleSays::Schedule {
                services: services.as_deref().map(slugs),
                time_zone: schedule.zone.to_string(),
                days: schedule.days.iter().map(|day| day.name()).collect(),
                from: schedule.from.to_string(),
                to: schedule.to.to_string(),
            },
            RuleKind::AnomalyBrake(AnomalyBrake { times, at_least }) => RuleSays::AnomalyBrake {
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
