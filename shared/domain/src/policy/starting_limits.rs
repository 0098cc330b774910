//! Presets of a new agent's limits.

use crate::{
    Amount, BudgetLimit, CountLimit, DuplicateGuard, Duration, LimitAction, NewPayee, PriceAboveUsual, RuleKind,
    StartingCaps, UsualPrice, catalog::service::named, policy::spend_policy::units,
};

named! {
    /// A named choice of limits for a new agent.
    StartingLimits {
        /// No limits: every default service has the permissive policy (`docs/spec.md` §2.6).
        Unlimited = "none",
        /// The safe limits of `docs/policies/safe.yaml`.
        Safe = "safe",
    }
}

impl RuleKind {
    /// Returns whether the agent's rule `rule` replaces this preset rule: a rule of the same kind and, for budgets, the
    /// same window.
    pub fn is_replaced_by(&self, rule: &Self) -> bool {
        match (self, rule) {
            (Self::BudgetLimit(preset), Self::BudgetLimit(own)) => {
                preset.window.period == own.window.period && self.scope() == rule.scope()
            }
            _ => self.name() == rule.name(),
        }
    }
}

impl StartingLimits {
    /// Returns the caps for each default service; `None` for the permissive policy.
    pub const fn to_caps(self) -> Option<StartingCaps> {
        match self {
            Self::Unlimited => None,
            Self::Safe => Some(StartingCaps {
                max_per_call: units(1_000_000),
                max_per_day: units(10_000_000),
                require_approval_above: units(2_000_000),
            }),
        }
    }

    /// Returns the rules of the new agent.
    pub fn to_rules(self) -> Vec<RuleKind> {
        const HOUR: Duration = Duration::from_secs_u32(3_600);
        const MONTH: Duration = Duration::from_secs_u32(30 * 86_400);
        let budget = |limit: Amount, window: Duration| {
            RuleKind::BudgetLimit(BudgetLimit {
                limit,
                window: window.into(),
            })
        };
        match self {
            Self::Unlimited => Vec::new(),
            Self::Safe => vec![
                budget(units(20_000_000), Duration::DAY),
                budget(units(200_000_000), MONTH),
                RuleKind::CountLimit(CountLimit {
                    count: 200,
                    window: HOUR.into(),
                }),
                RuleKind::DuplicateGuard(DuplicateGuard {
                    services: None,
                    within: Duration::from_secs_u32(600),
                    action: LimitAction::Ask,
                }),
                RuleKind::NewPayee(NewPayee { services: None }),
                RuleKind::PriceAboveUsual(PriceAboveUsual {
                    services: None,
                    percent: 50,
                    over: UsualPrice::Catalog,
                    action: LimitAction::Ask,
                }),
            ],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_rules_replace_starting_rules_of_the_same_kind() {
        let budget = |units_of, window: Duration| {
            RuleKind::BudgetLimit(BudgetLimit {
                limit: units(units_of),
                window: window.into(),
            })
        };
        let (hour, day) = (Duration::from_secs_u32(3_600), Duration::DAY);
        let count = |count| {
            RuleKind::CountLimit(CountLimit {
                count,
                window: hour.into(),
            })
        };
        let rows = [
            (budget(1, day), budget(2, day), true),
            (budget(1, day), budget(1, hour), false),
            (count(1), count(2), true),
            (count(1), budget(1, hour), false),
            (RuleKind::NewPayee(NewPayee { services: None }), count(1), false),
        ];
        for (rule, own, is_replaced) in rows {
            assert_eq!(rule.is_replaced_by(&own), is_replaced, "{rule:?} {own:?}");
        }
    }

    #[test]
    fn the_safe_starting_budgets_cover_one_day_and_thirty_days() {
        let budgets = StartingLimits::Safe
            .to_rules()
            .into_iter()
            .filter_map(|rule| match rule {
                RuleKind::BudgetLimit(BudgetLimit { limit, window }) => {
                    Some((limit.units(), window.period.max_duration().secs()))
                }
                _ => None,
            });
        assert!(budgets.eq([(20_000_000, 86_400), (200_000_000, 2_592_000)]));
        assert_eq!(StartingLimits::Unlimited.to_rules(), []);
    }
}
