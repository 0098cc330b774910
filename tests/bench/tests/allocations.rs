//! Checks that an allowed payment allocates no memory for the catalog match, the decision, and the amounts to reserve.

use purser_bench::Case;
use purser_domain::{
    Agent, Amount, ApprovalId, AskingKind, AskingLimit, BudgetLimit, Decision, DomainPattern, Duration,
    EvaluationInputs, Eviction, GivenApproval, Rule, RuleId, RuleKind, Window, WindowPeriod, WindowScope, evaluate,
};
use uuid::Uuid;

/// Returns the number of memory allocations of a decision that allows the payment.
fn allocations(facts: &EvaluationInputs<'_>) -> u64 {
    let mut charged = 0;
    let counted = allocation_counter::measure(|| {
        let Decision::Allow(grant) = evaluate(facts) else {
            return;
        };
        charged = grant.charges().filter(|charge| charge.is_within_cap()).count();
    });
    assert_eq!(
        charged,
        1 + facts.budgets.len(),
        "it is an allow, with every budget charged"
    );
    counted.count_total
}

#[test]
fn an_allow_decision_allocates_no_memory() {
    let case = Case::allow(100);
    let eager = case.facts();
    let kinds: std::collections::BTreeSet<&str> = case.world.agent.rules.iter().map(|rule| rule.kind.name()).collect();
    assert_eq!(kinds.len(), 4, "rules of every kind are in play");
    assert!(!eager.day.expired_payments(eager.at).is_empty(), "and entries to evict");
    assert!(
        eager.operation.unwrap().fetches_target(eager.service.category)
            && !case.world.enabled.iter().any(|e| e.policy.allows_any_domain())
    );
    let needed = EvaluationInputs {
        eviction: Eviction::Needed,
        ..eager
    };
    let unknown_balance = EvaluationInputs { balance: None, ..eager };
    let unknown_operation = EvaluationInputs {
        operation: None,
        ..eager
    };
    for facts in [eager, needed, unknown_balance] {
        assert_eq!(allocations(&facts), 0);
    }
    // Proves that the counter works, because a denial allocates memory for its context.
    assert!(allocation_counter::measure(|| drop(evaluate(&unknown_operation))).count_total > 0);
}

#[test]
fn worst_case_decisions_allocate_no_memory() {
    let mut case = Case::allow(1);
    let agent = case.world.agent.clone();
    let budget = |n: u128| {
        let id = RuleId::from_uuid(Uuid::from_u128(n));
        let limit = Amount::MAX;
        let kind = RuleKind::BudgetLimit(BudgetLimit {
            limit,
            window: Duration::DAY.into(),
        });
        let scope = WindowScope::Budget {
            agent: agent.id,
            rule: id,
        };
        let window = Window {
            scope,
            period: WindowPeriod::DAY,
            ..case.world.day.clone()
        };
        (Rule { id, version: 1, kind }, (id, window))
    };
    let (rules, budgets): (Vec<_>, Vec<_>) = (100..).take(Agent::MAX_BUDGETS).map(budget).unzip();
    let others = agent.rules.iter().filter(|rule| rule.kind.name() != "budget_limit");
    case.world.agent.rules = others
        .cloned()
        .cycle()
        .take(Agent::MAX_RULES - rules.len())
        .chain(rules)
        .collect();
    case.world.budgets = budgets;
    let policy = &mut case.world.enabled.as_mut().unwrap().policy;
    policy.allowed_domains = vec![DomainPattern::parse("w*w.d*c*s.example.com").unwrap()];
    policy.require_approval_above = Amount::ZERO;
    let asking = [AskingLimit {
        rule: None,
        above: Amount::ZERO,
        kind: AskingKind::Threshold,
    }];
    let approval = GivenApproval {
        id: ApprovalId::derive(case.world.agent.id, &case.intent.fingerprint, 0),
        asking: &asking,
    };
    assert_eq!(allocations(&case.facts_about(case.purchase(), Some(approval))), 0);
}

#[test]
fn finding_the_purchased_operation_allocates_no_memory() {
    let mut case = Case::allow(100);
    let found = |case: &Case| allocation_counter::measure(|| assert!(case.purchase().operation.is_some())).count_total;
    assert_eq!(found(&case), 0, "by name");
    (case.intent.service, case.intent.operation) = (None, None);
    assert_eq!(found(&case), 0, "by address");
}
