//! Makes AWS calls that no other test makes, because `infra/sam/calls.py` compares the roles with the recorded calls.

use purser_domain::{Agent, BudgetLimit, DefaultServices, Duration, RuleId, RuleKind, UserId, WindowScope};
use purser_local::DEMO_OWNER;
use purser_tests::{World, body_of, dollars, judged_policy, units};
use reqwest::Method;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn owner_budgets_are_charged_and_shown() {
    let world = World::start().await;
    let (owner, demo) = (world.person(&DEMO_OWNER), world.demo());
    let rules = format!("/agents/{}/rules", demo.id);
    let budget = json!({"kind": "budget_limit", "limit_units": dollars(5), "window_seconds": 3_600});
    let made = world.person_edits(&owner, Method::POST, &rules, &budget).await;
    assert_eq!(made.status, 201, "{}", made.body);
    world.authorize(&demo, &body_of(world.offer(2_000))).await.ok();
    let listed = world.person_gets(&owner, &rules).await.ok();
    assert_eq!(listed["rules"][0]["used_units"], 2_000, "{listed}");
}

/// The payment has left the budget's window, but not the daily window.
#[tokio::test(flavor = "multi_thread")]
async fn requested_evictions_of_budget_windows_are_carried_out() {
    let world = World::still().await;
    let agent = world.agent(judged_policy(), vec![]).await;
    let rule = RuleId::from_uuid(uuid::Uuid::new_v4());
    let kind = RuleKind::BudgetLimit(BudgetLimit {
        limit: units(dollars(5)),
        window: Duration::from_secs_u32(3_600).into(),
    });
    let add = |record: &mut Agent| *record = record.clone().with_rule(rule, kind).unwrap();
    world.edit(&agent, add).await;
    world.authorize(&agent, &body_of(world.offer(2_000))).await.ok();
    let scope = WindowScope::Budget { agent: agent.id, rule };
    let gone = WindowScope::Budget {
        agent: agent.id,
        rule: RuleId::from_uuid(uuid::Uuid::nil()),
    };
    world.pass(3_600);
    for scope in [scope, gone] {
        world.stack.ledger.request_eviction(scope, world.now()).await.unwrap();
    }
    world
        .stack
        .reconcile
        .reconcile_all(std::time::Duration::from_mins(1))
        .await
        .unwrap();
    assert_eq!(world.footprint().await.entries, 1);
    assert!(world.stack.ledger.read_eviction_requests().await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn default_services_written_by_other_instances_are_read() {
    let world = World::start().await;
    let agent = world.poor_agent(vec![]).await;
    let set = DefaultServices::new([world.service("lab-search").await.id]);
    let set = world.stack.ledger.store_default_services(&set).await.unwrap();
    let begin = |record: &mut Agent| {
        record.owner = UserId::derive(world.stack.issuer.url(), DEMO_OWNER.sub).to_string();
        record.starting_set = Some(set);
    };
    world.edit(&agent, begin).await;
    let owner = world.person(&DEMO_OWNER);
    let listed = world.person_gets(&owner, &agent.path("/services")).await.ok();
    assert_eq!(listed["count"], 1);
    assert_eq!(listed["services"][0]["slug"], "lab-search");
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_probe_runs_record_each_service_once() {
    let world = World::start().await;
    let budget = std::time::Duration::from_mins(1);
    let runs = tokio::join!(
        world.stack.probe.run_probes(budget),
        world.stack.probe.run_probes(budget)
    );
    let (one, other) = (runs.0.unwrap(), runs.1.unwrap());
    let services = world.stack.catalog.read_probed_services().await.unwrap();
    let records = services.iter().filter(|(_, record)| record.version > 0);
    assert_eq!(one.services + other.services, records.count(), "{one:?} {other:?}");
    assert!(services.iter().all(|(_, record)| record.version <= 1));
}
