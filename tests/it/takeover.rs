//! Tests that other functions reject rows of a compromised function and raise an alarm.

use purser_domain::{Service, WalletKey};
use purser_local::{DEMO_OWNER, Options, Streaming};
use purser_testkit::sample;
use purser_tests::{
    Answer, Log, OfferedTerms, TestAgent, World, body_of, fresh_key, offer_v2, operation_entry, payment_entry,
    service_entry,
};
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const STRANGER: &str = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8";
const URL: &str = "https://newcomer.example/news";
/// The time, in seconds, after which every function has loaded a changed catalog.
const SEEN_AFTER: u32 = 6;
const DAY: u32 = 86_400;

async fn start() -> World {
    World::still_with(Options {
        streams: Streaming::On,
        ..Options::default()
    })
    .await
}

/// Returns the number of log lines of `events` by kind of change.
fn changes_seen(log: &Log) -> BTreeMap<String, usize> {
    let mut seen = BTreeMap::new();
    for line in log.text().lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        if line["message"] == "change.seen" {
            assert_eq!(line["ChangesSeen"], 1, "{line}");
            *seen.entry(line["Change"].as_str().unwrap().to_owned()).or_default() += 1;
        }
    }
    seen
}

async fn pays(world: &World, agent: &TestAgent, pay_to: &str) -> Answer {
    let mut body = body_of(offer_v2(&OfferedTerms {
        units: 1_000,
        pay_to: pay_to.to_owned(),
        timeout: 60,
    }));
    body.as_object_mut().unwrap().remove("service_id");
    body["original_request"] = json!({"method": "GET", "url": URL});
    world.authorize(agent, &body).await
}

#[tokio::test(flavor = "multi_thread")]
async fn unaccepted_payees_are_rejected_and_raise_an_alarm() {
    let log = Log::start("warn,purser=info");
    let world = start().await;
    let payee = world.stack.providers.pay_to.clone();
    let mut operation = operation_entry("news.read", URL);
    operation["payment"] = payment_entry(1_000, &payee);
    let id = fresh_key();
    let path = format!("/internal/services/{id}");
    let request = world.operators_request(Method::PUT, &path);
    World::send(request.json(&service_entry("newcomer", &[operation])))
        .await
        .created();
    world.stack.publish_changes().await;
    world.pass(SEEN_AFTER);
    let agent = world.agent_of(&world.person(&DEMO_OWNER), "reader").await;
    pays(&world, &agent, &payee).await.ok();
    assert_eq!(changes_seen(&log).get("payee"), None, "nobody paid it before");

    // A compromised function writes as if the delay were over, without an audit entry.
    let mut service: Service = world.service("newcomer").await;
    service.version += 1;
    let payment = service.operations[0].payment.as_mut().unwrap();
    payment.pay_to = STRANGER.parse().unwrap();
    world
        .stack
        .catalog
        .put_service(&service, &sample::audit())
        .await
        .unwrap();
    world.stack.catalog.store_catalog_object().await.unwrap();
    world.pass(SEEN_AFTER);
    pays(&world, &agent, STRANGER)
        .await
        .refused(503, "temporarily_unavailable");
    let seen = world.now();
    assert_eq!(world.stack.publish_changes().await, 0);
    assert_eq!(changes_seen(&log)["payee"], 1);
    let refused = pays(&world, &agent, STRANGER).await.refused(403, "policy_blocked");
    assert_eq!(refused["decision"]["reason"], "catalog_payee:pay_to_not_yet_accepted");
    let from = seen.after(sample::secs(DAY));
    assert_eq!(refused["decision"]["retry_at"], from.to_string());
    world.set_clock(from);
    pays(&world, &agent, STRANGER).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn suspicious_row_changes_raise_alarms() {
    let log = Log::start("warn,purser=info");
    let world = start().await;
    let owner = world.person(&DEMO_OWNER);
    let agent = world.agent_of(&owner, "reader").await;
    world.stack.publish_changes().await;
    let before = changes_seen(&log);
    let own = world
        .stack
        .ledger
        .read_agent_by_id(agent.id)
        .await
        .unwrap()
        .unwrap()
        .owner;
    let other = world.poor_agent(vec![]).await;
    let other = world.stack.ledger.read_agent_by_id(other.id).await.unwrap().unwrap();
    world
        .edit(&agent, |record| {
            record.keys[0].credential = other.keys[0].credential.clone()
        })
        .await;
    world
        .edit(&agent, |record| record.keys.push(other.keys[0].clone()))
        .await;
    world
        .edit(&agent, |record| record.wallet.key = WalletKey::Seed { index: 77 })
        .await;
    world.edit(&agent, |record| record.owner = "somebody".to_owned()).await;
    world.edit(&agent, |record| record.owner = own).await;
    let address = json!({"address": "0x90F79bf6EB2c4f870365E785982E1f101E93b906"});
    let path = agent.path("/payout-address");
    world.person_edits(&owner, Method::PUT, &path, &address).await.ok();
    world.person_edits(&owner, Method::DELETE, &path, &json!({})).await.ok();
    let freeze = format!("/internal/freezes/agents/{}", agent.id);
    world
        .operator_edits(Method::PUT, &freeze, &json!({"reason": "a look"}))
        .await
        .ok();
    world.stack.publish_changes().await;
    let seen = changes_seen(&log);
    let added = |change: &str| seen.get(change).unwrap_or(&0) - before.get(change).unwrap_or(&0);
    let changes = ["key", "wallet", "owner", "payout_address"].map(added);
    assert_eq!(changes, [2, 1, 2, 1]);
    // The five rows are the record of the freeze and its four copies.
    assert_eq!(added("freeze"), 5);
}
