//! AWS calls that no other test makes, for the check that roles allow what is called and nothing else
//! (`infra/sam/calls.py`); each is also a test of its own.

use purser_local::DEMO_OWNER;
use purser_tests::{World, body_of, dollars};
use reqwest::Method;
use serde_json::json;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_that_a_person_sets_is_charged_and_shown() {
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

#[tokio::test(flavor = "multi_thread")]
async fn two_runs_of_the_probe_at_once_record_each_service_once() {
    let world = World::start().await;
    let budget = Duration::from_mins(1);
    let runs = tokio::join!(world.stack.probe.run(budget), world.stack.probe.run(budget));
    let (one, other) = (runs.0.unwrap(), runs.1.unwrap());
    let services = world.stack.catalog.load_probed().await.unwrap();
    let records = services.iter().filter(|(_, record)| record.version > 0);
    assert_eq!(one.services + other.services, records.count(), "{one:?} {other:?}");
    assert!(services.iter().all(|(_, record)| record.version <= 1));
}
