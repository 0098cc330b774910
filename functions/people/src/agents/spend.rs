//! An agent's services, rules and spending, for the overview.

use crate::agents::owned::Owned;
use crate::rules::operations::RuleUsage;
use crate::services::operations::GovernedService;
use crate::ui::money::is_no_limit;
use purser_domain::{Amount, OperatorFreeze, RuleKind};

#[derive(Debug)]
pub(crate) struct AgentSpend {
    pub(crate) agent: Owned,
    /// The operator's freeze of the agent, if it is frozen by one.
    pub(crate) freeze: Option<OperatorFreeze>,
    /// Every service that was ever enabled.
    pub(crate) services: Vec<GovernedService>,
    pub(crate) rules: Vec<RuleUsage>,
}

/// The amount used and the limit of the cap that is closest to being reached: a service's daily cap, or a budget over
/// all services.
pub(crate) fn nearest(spend: &AgentSpend) -> Option<(Amount, Amount)> {
    let services = spend.services.iter().filter(|service| service.record.enabled);
    let services = services.map(|service| (service.spent_today.amount, service.record.policy.max_per_day));
    let budgets = spend
        .rules
        .iter()
        .filter_map(|rule| match (&rule.rule.kind, rule.used) {
            (RuleKind::BudgetLimit { limit, .. }, Some(used)) => Some((used.amount, *limit)),
            _ => None,
        });
    let capped = services.chain(budgets).filter(|(_, cap)| !is_no_limit(*cap));
    capped.max_by(|(used, cap), (other_used, other_cap)| {
        // Compares used / cap without a division.
        let product = |a: &Amount, b: &Amount| u128::from(a.units()).saturating_mul(u128::from(b.units()));
        product(used, other_cap).cmp(&product(other_used, cap))
    })
}
