//! The JSON of a rule, for the owner and for the agent.

use purser_domain::{Amount, Rule, RuleId, RuleKind, Timestamp, rule_kind_json};
use purser_macros::view;
use serde_json::Value;
use utoipa::ToSchema;

/// A rule that limits the payments of an agent, in addition to the policy of each service.
#[view(AgentRule)]
#[derive(Debug)]
pub struct RuleView {
    rule_id: RuleId,
    /// The rule's version. Each update of the rule increases the version by 1.
    rule_version: u64,
    #[serde(flatten)]
    #[schema(value_type = RuleSays)]
    terms: Value,
}

/// A rule's kind and parameters.
#[derive(ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[expect(dead_code, reason = "it describes the JSON that `rule_kind_json` returns")]
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
        services: Option<Vec<String>>,
        /// The categories of the services whose payments count; absent for all categories.
        #[schema(nullable = false)]
        categories: Option<Vec<&'static str>>,
        /// The IDs of the agent keys whose payments count; absent for all keys.
        #[schema(nullable = false)]
        keys: Option<Vec<String>>,
        /// True if the payments to each payee count alone, each up to the limit; otherwise absent.
        #[schema(nullable = false)]
        per_payee: Option<bool>,
        /// The maximum amount within the window, in micro-units.
        limit_units: u64,
        /// The duration of a rolling window, in seconds; absent if the window has a `period`.
        #[schema(nullable = false)]
        window_seconds: Option<u64>,
        /// A calendar period (`day`, `week` from Monday, `month`), or `lifetime` if payments always count.
        #[schema(value_type = String, nullable = false, required = false, example = "month")]
        period: Option<&'static str>,
        /// The IANA time zone of a calendar period.
        #[schema(nullable = false, example = "Europe/Berlin")]
        time_zone: Option<String>,
        /// `ask` if a payment beyond the limit requires an approval; absent if such a payment is blocked.
        #[schema(value_type = String, nullable = false, required = false, example = "ask")]
        action: Option<&'static str>,
        /// The amount of the payments that the rule's window counts now, in micro-units; absent with `per_payee`. If more
        /// than about 20,000 payments have left the window and are not removed yet, the amount is an upper bound.
        #[schema(nullable = false)]
        used_units: Option<u64>,
        /// The remaining amount, in micro-units; absent with `per_payee`.
        #[schema(nullable = false)]
        remaining_units: Option<u64>,
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
        categories: Option<Vec<&'static str>>,
        /// The IDs of the agent keys whose payments count; absent for all keys.
        #[schema(nullable = false)]
        keys: Option<Vec<String>>,
        /// The maximum number of payments within the window.
        count: u32,
        /// The duration of a rolling window, in seconds; absent if the window has a `period`.
        #[schema(nullable = false)]
        window_seconds: Option<u64>,
        /// A calendar period (`day`, `week` from Monday, `month`), or `lifetime` if payments always count.
        #[schema(value_type = String, nullable = false, required = false, example = "month")]
        period: Option<&'static str>,
        /// The IANA time zone of a calendar period.
        #[schema(nullable = false, example = "Europe/Berlin")]
        time_zone: Option<String>,
        /// `ask` if a payment beyond the limit requires an approval; absent if such a payment is blocked.
        #[schema(value_type = String, nullable = false, required = false, example = "ask")]
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
    /// Disables a service or freezes the agent after an hour with unusually high spending.
    AnomalyBrake {
        /// The rule is triggered if the payments within an hour exceed the busiest hour of a usual day by more than this
        /// factor.
        times: u32,
        /// The minimum sum of the payments within an hour that triggers the rule, in micro-units.
        at_least_units: u64,
    },
    /// Exempts payments to a payee from the policy's approval threshold, from rules of the kind `approval_required`, or
    /// from both. All other limits apply.
    ApprovalException {
        /// The slugs of the services to which the rule applies; null for all services.
        #[schema(required)]
        services: Option<Vec<String>>,
        /// The operation to which the rule applies; null for all operations.
        #[schema(required)]
        operation_id: Option<String>,
        /// The IDs of the agent keys to which the rule applies; null for all keys.
        #[schema(required)]
        keys: Option<Vec<String>>,
        /// The address of the payee.
        payee: String,
        /// The maximum amount of a payment, in micro-units.
        max_amount_units: u64,
        /// The time from which the rule has no effect.
        #[schema(value_type = String, format = DateTime)]
        until: Timestamp,
        /// Whether the payments are exempt from the policy's threshold `require_approval_above_units`.
        waives_threshold: bool,
        /// The IDs of the rules of the kind `approval_required` from which the payments are exempt.
        waived_rules: Vec<String>,
    },
}

impl RuleView {
    /// Creates the view of a rule. `used` is the amount or the number of payments in the rule's window.
    pub fn new(rule: &Rule, used: Option<Amount>) -> Self {
        let used = used.unwrap_or(Amount::ZERO).units();
        let usage = match &rule.kind {
            RuleKind::BudgetLimit(rule) if rule.window.per_payee => None,
            RuleKind::BudgetLimit(rule) => Some(("used_units", "remaining_units", rule.limit.units())),
            RuleKind::CountLimit(rule) => Some(("used", "remaining", u64::from(rule.count))),
            _ => None,
        };
        let mut terms = rule_kind_json(&rule.kind);
        if let (Some((used_name, remaining_name, limit)), Some(terms)) = (usage, terms.as_object_mut()) {
            terms.insert(used_name.to_owned(), used.into());
            terms.insert(remaining_name.to_owned(), limit.saturating_sub(used).into());
        }
        Self {
            rule_id: rule.id,
            rule_version: rule.version,
            terms,
        }
    }
}
