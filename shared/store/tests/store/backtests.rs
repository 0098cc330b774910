//! Tests backtests in the background: stored rows read back equal, and each agent is added once.

use purser_domain::{
    AgentId, AgentStatus, AgentTested, Amount, BacktestId, BacktestResult, BacktestRun, BudgetLimit, Category,
    CategoryBlock, ChangedDecisionExample, ChangedDecisionKind, ChangedDecisions, DecisionResult, DomainPattern,
    Duration, OperationScope, OperationSlug, PolicyChange, PolicyUpdate, RuleKind, ServiceId, TestedLimits,
    TransactionId, UserId,
};
use purser_store::UsageTable;
use purser_testkit::{Emulator, USAGE, sample};
use std::collections::BTreeMap;
use uuid::Uuid;

fn agent(number: u128) -> AgentId {
    AgentId::from_uuid(Uuid::from_u128(number))
}

fn service(number: u128) -> ServiceId {
    ServiceId::from_uuid(Uuid::from_u128(number))
}

fn units(units: u64) -> Option<Amount> {
    Amount::from_units(units)
}

/// A backtest of two agents, with every kind of change.
fn run() -> BacktestRun {
    let at = sample::start();
    let domains = vec![DomainPattern::parse("*.example.com").unwrap()];
    let slugs = vec![OperationSlug::parse("lab.current").unwrap()];
    let change = |enabled_operations| PolicyChange {
        enabled: None,
        policy: PolicyUpdate {
            enabled_operations,
            ..PolicyUpdate::default()
        },
    };
    let whole = PolicyChange {
        enabled: Some(false),
        policy: PolicyUpdate {
            max_per_call: units(1),
            max_per_day: units(2),
            require_approval_above: units(3),
            enabled_operations: Some(OperationScope::Only(slugs)),
            allowed_domains: Some(domains),
        },
    };
    let changes = [whole, change(Some(OperationScope::All)), change(None)];
    BacktestRun {
        id: BacktestId::new_at(at, [7; 8]),
        owner: UserId::parse(&"5e".repeat(32)).unwrap(),
        version: 1,
        created_at: at,
        from: at.before(Duration::DAY),
        to: at,
        terms: TestedLimits {
            rules: Some(vec![
                RuleKind::BudgetLimit(BudgetLimit {
                    limit: Amount::MAX,
                    window: Duration::DAY.into(),
                }),
                RuleKind::CategoryBlock(CategoryBlock {
                    categories: vec![Category::Data],
                }),
            ]),
            status: Some(AgentStatus::Frozen),
            policies: (1..).map(service).zip(changes).collect(),
        },
        agents: vec![agent(1), agent(2)],
        estimated: 9,
        done: 0,
        left_out: 0,
        partial: 0,
        result: BacktestResult::default(),
    }
}

fn tested() -> AgentTested {
    let mut result = BacktestResult {
        decisions: 3,
        untested: 1,
        authorized: 5,
        ..BacktestResult::default()
    };
    let kind = ChangedDecisionKind {
        recorded: DecisionResult::Allow,
        tested: DecisionResult::Escalate,
        reason: "approval_required".to_owned(),
    };
    let example = ChangedDecisionExample {
        agent: agent(1),
        transaction: TransactionId::new_at(sample::start(), [1; 8]),
        at: sample::start(),
        service: service(1),
        amount: Amount::MAX,
    };
    let flips = ChangedDecisions {
        count: 2,
        amount: 4,
        example,
    };
    result.if_declined.counts = BTreeMap::from([((DecisionResult::Allow, DecisionResult::Escalate), 2)]);
    result.if_declined.flips = BTreeMap::from([(kind, flips)]);
    result.if_declined.saved = 4;
    result.if_approved.added = u64::MAX;
    AgentTested::Tested {
        result,
        is_partial: true,
    }
}

#[tokio::test]
async fn each_agent_is_added_to_a_backtest_once() {
    let emulator = Emulator::start().await;
    let usage = UsageTable::new(emulator.client.clone(), USAGE);
    let run = run();
    usage.put_backtest(&run, &sample::audit()).await.unwrap();
    let stored = async || usage.read_backtest(&run.owner, run.id).await.unwrap();
    assert_eq!(stored().await.as_ref(), Some(&run));
    let mut waiting = usage.read_waiting_backtests(9).await.unwrap();
    assert_eq!(waiting.len(), 1);
    let waiting = waiting.remove(0).unwrap();
    assert_eq!((waiting.id, &waiting.owner), (run.id, &run.owner));

    let next = run.clone().with_tested_agent(&tested());
    assert!(usage.try_replace_backtest(&next).await.unwrap());
    // The stored state has changed, as if another run of the schedule had tested the same agent.
    assert!(!usage.try_replace_backtest(&next).await.unwrap());
    assert_eq!(stored().await.as_ref(), Some(&next));
    assert_eq!(next.next_agent(), Some(agent(2)));
    let done = next.with_tested_agent(&AgentTested::LeftOut);
    assert!(usage.try_replace_backtest(&done).await.unwrap());
    assert_eq!((done.next_agent(), done.left_out, done.partial), (None, 1, 1));
    assert_eq!(usage.read_backtests(&run.owner, 9).await.unwrap(), [done]);
    usage.end_backtest(run.id).await.unwrap();
    assert!(usage.read_waiting_backtests(9).await.unwrap().is_empty());
}
