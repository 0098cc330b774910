//! The JSON of an agent's used and remaining limits, in the agent's policy and in a preflight.

use purser_domain::{Agent, Amount, RuleId, Timestamp, Window, WindowMeasure};
use serde::Serialize;
use utoipa::ToSchema;

/// The used and remaining parts of the agent's limits, in micro-units, at the time of the response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Spend)]
pub struct SpendView {
    /// The amount for this service that was authorized in the last 24 hours, without released payments.
    pub spend_today_units: u64,
    /// The remaining part of `max_per_day_units`; 0 if the service was never enabled for the agent.
    pub remaining_today_units: u64,
    /// The agent's budgets in the order in which they were added. Each budget counts payments to all services.
    pub budgets: Vec<BudgetView>,
    /// The agent's `count_limit` and `minimum_interval` rules, in the order in which they were added. Absent without
    /// such rules.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub counts: Vec<CountView>,
}

/// A `count_limit` or `minimum_interval` rule, with the used and remaining numbers of payments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = CountedPayments)]
pub struct CountView {
    /// The ID of the rule.
    #[schema(value_type = Uuid)]
    pub rule_id: String,
    /// `count_limit` or `minimum_interval`.
    #[schema(value_type = String, example = "count_limit")]
    pub kind: &'static str,
    /// The slugs of the services whose payments count; null for all services.
    #[schema(required)]
    pub services: Option<Vec<String>>,
    /// The maximum number of payments within the window; 1 for a `minimum_interval`.
    pub count: u64,
    /// The duration of the window, in seconds.
    pub window_seconds: u64,
    /// The number of payments in the window at the time of the response.
    pub used: u64,
    /// The number of additional payments that fit into the window.
    pub remaining: u64,
}

/// A `budget_limit` rule, with the used and remaining amounts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Budget)]
pub struct BudgetView {
    /// The ID of the rule.
    #[schema(value_type = Uuid)]
    pub rule_id: String,
    /// The maximum amount within the window, in micro-units.
    pub limit_units: u64,
    /// The duration of the window, in seconds.
    pub window_seconds: u64,
    /// The amount of the payments in the window, in micro-units.
    pub used_units: u64,
    /// The remaining amount, in micro-units.
    pub remaining_units: u64,
}

impl SpendView {
    /// Creates the view at `at`. `windows` must contain all payments that count at `at`.
    pub fn from_windows(
        at: Timestamp,
        agent: &Agent,
        max_per_day: Amount,
        day: &Window,
        budgets: &[(RuleId, Window)],
    ) -> Self {
        let budgets_left = agent.budget_rules().filter_map(|budget| {
            let window = budget.find_window(budgets)?;
            Some(BudgetView {
                rule_id: budget.rule.id.to_string(),
                limit_units: budget.limit.units(),
                window_seconds: budget.length.secs(),
                used_units: window.spent_at(at).units(),
                remaining_units: window.remaining_at(budget.limit, at).units(),
            })
        });
        let counts = agent
            .counting_rules()
            .filter(|rule| rule.counted == WindowMeasure::Payments);
        let counts = counts.filter_map(|counting| {
            let window = counting.find_window(budgets)?;
            let services = counting.rule.kind.service_slugs();
            Some(CountView {
                rule_id: counting.rule.id.to_string(),
                kind: counting.rule.kind.name(),
                services: services.map(|slugs| slugs.iter().map(ToString::to_string).collect()),
                count: counting.limit.units(),
                window_seconds: counting.length.secs(),
                used: window.spent_at(at).units(),
                remaining: window.remaining_at(counting.limit, at).units(),
            })
        });
        Self {
            spend_today_units: day.spent_at(at).units(),
            remaining_today_units: day.remaining_at(max_per_day, at).units(),
            budgets: budgets_left.collect(),
            counts: counts.collect(),
        }
    }
}
