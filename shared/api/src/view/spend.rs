//! The JSON of an agent's used and remaining limits, in the agent's policy and in a preflight.

use purser_domain::{
    Agent, Amount, Category, CountingRule, Duration, KeyId, LimitAction, RuleId, ServiceSlug, Timestamp, Window,
    WindowMeasure, WindowPeriod,
};
use purser_macros::view;

/// The used and remaining parts of the agent's limits, in micro-units, at the time of the response.
#[view]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpendView {
    /// The amount for this service that was authorized in the last 24 hours, without released payments.
    pub spend_today_units: u64,
    /// The remaining part of `max_per_day_units`; 0 if the service was never enabled for the agent.
    pub remaining_today_units: u64,
    /// The agent's budgets that count payments with the caller's key, in the order in which they were added.
    pub budgets: Vec<BudgetView>,
    /// The agent's `count_limit` and `minimum_interval` rules that count payments with the caller's key, in the order in which they were added. Absent without
    /// such rules.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub counts: Vec<CountView>,
}

/// The period of a window: `window_seconds` for a rolling window, otherwise `period`.
#[view(WindowPeriod)]
#[omit_none]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeriodView {
    /// The duration of a rolling window, in seconds; absent if the window has a `period`.
    pub window_seconds: Option<u64>,
    /// A calendar period (`day`, `week` from Monday, `month`), or `lifetime` if payments always count.
    #[schema(example = "month")]
    pub period: Option<&'static str>,
    /// The IANA time zone of a calendar period.
    #[schema(example = "Europe/Berlin")]
    pub time_zone: Option<String>,
}

impl From<WindowPeriod> for PeriodView {
    fn from(period: WindowPeriod) -> Self {
        Self {
            window_seconds: period.duration().map(Duration::secs),
            period: period.name(),
            time_zone: period.time_zone().map(|zone| zone.to_string()),
        }
    }
}

/// A `count_limit` or `minimum_interval` rule, with the used and remaining numbers of payments.
#[view(CountedPayments)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountView {
    /// The rule's ID, as in the list of the agent's rules.
    pub rule_id: RuleId,
    /// `count_limit` or `minimum_interval`.
    #[schema(value_type = String, example = "count_limit")]
    pub kind: &'static str,
    /// The slugs of the services whose payments count; null for all services.
    pub services: Option<Vec<String>>,
    /// The categories of the services whose payments count; absent for all categories.
    #[omit_none]
    pub categories: Option<Vec<&'static str>>,
    /// The maximum number of payments within the window; 1 for a `minimum_interval`.
    pub count: u64,
    /// The period of the window.
    #[serde(flatten)]
    pub window: PeriodView,
    /// `ask` if a payment beyond the limit requires an approval; absent if the payment is blocked.
    #[omit_none]
    #[schema(example = "ask")]
    pub action: Option<&'static str>,
    /// The number of payments in the window now.
    pub used: u64,
    /// The number of additional payments that fit into the window.
    pub remaining: u64,
}

/// A `budget_limit` rule, with the used and remaining amounts.
#[view]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetView {
    /// The rule's ID, as in the list of the agent's rules.
    pub rule_id: RuleId,
    /// The maximum amount within the window, in micro-units.
    pub limit_units: u64,
    /// The period of the window.
    #[serde(flatten)]
    pub window: PeriodView,
    /// The slugs of the services whose payments count; absent for all services.
    #[omit_none]
    pub services: Option<Vec<String>>,
    /// The categories of the services whose payments count; absent for all categories.
    #[omit_none]
    pub categories: Option<Vec<&'static str>>,
    /// `ask` if a payment beyond the limit requires an approval; absent if the payment is blocked.
    #[omit_none]
    #[schema(example = "ask")]
    pub action: Option<&'static str>,
    /// The amount in the window now, in micro-units.
    pub used_units: u64,
    /// The remaining amount, in micro-units.
    pub remaining_units: u64,
}

impl SpendView {
    /// Creates the view at the time `at` for a caller with this key. `windows` must contain all payments that count.
    pub fn from_windows(
        at: Timestamp,
        (agent, key): (&Agent, KeyId),
        max_per_day: Amount,
        day: &Window,
        budgets: &[(RuleId, Window)],
    ) -> Self {
        let names = |categories: &[Category]| categories.iter().map(|category| category.name()).collect();
        let slugs = |services: &[ServiceSlug]| services.iter().map(ToString::to_string).collect();
        let asking = |rule: &CountingRule<'_>| (rule.action() == LimitAction::Ask).then(|| LimitAction::Ask.name());
        let binding = || agent.counting_rules().filter(|rule| rule.rule.kind.applies_to_key(key));
        let budgets_left = binding().filter(|rule| rule.counted == WindowMeasure::Amounts);
        let budgets_left = budgets_left.filter_map(|budget| {
            let window = budget.find_window(budgets)?;
            Some(BudgetView {
                rule_id: budget.rule.id,
                limit_units: budget.limit.units(),
                window: budget.period.into(),
                services: budget.rule.kind.scope().services.map(slugs),
                categories: budget.rule.kind.scope().categories.map(names),
                action: asking(&budget),
                used_units: window.counted_amount_at(at).units(),
                remaining_units: window.remaining_at(budget.limit, at).units(),
            })
        });
        let counts = binding().filter(|rule| rule.counted == WindowMeasure::Payments);
        let counts = counts.filter_map(|counting| {
            let window = counting.find_window(budgets)?;
            let services = counting.rule.kind.scope().services;
            Some(CountView {
                rule_id: counting.rule.id,
                kind: counting.rule.kind.name(),
                services: services.map(slugs),
                categories: counting.rule.kind.scope().categories.map(names),
                count: counting.limit.units(),
                window: counting.period.into(),
                action: asking(&counting),
                used: window.counted_amount_at(at).units(),
                remaining: window.remaining_at(counting.limit, at).units(),
            })
        });
        Self {
            spend_today_units: day.counted_amount_at(at).units(),
            remaining_today_units: day.remaining_at(max_per_day, at).units(),
            budgets: budgets_left.collect(),
            counts: counts.collect(),
        }
    }
}
