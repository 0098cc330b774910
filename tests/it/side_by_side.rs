//! Tests early reads, which run before a function knows whether it needs them. They must not affect the decision about
//! another wallet or service.

use purser_domain::SpendPolicy;
use purser_local::Options;
use purser_tests::{World, body_of, fresh_key, measure, operation_entry, payment_entry, service_entry, units};
use reqwest::Method;
use serde_json::Value;

/// The time, in seconds, after which a function checks whether its cached catalog is current.
const DUE: u32 = 6;

#[tokio::test(flavor = "multi_thread")]
async fn prefetched_balances_apply_only_to_their_wallet() {
    let world = World::start().await;
    let agent = world.agent(SpendPolicy::spec_defaults(), vec![]).await;
    let rich = world
        .stack
        .ledger
        .read_agent_by_id(agent.id)
        .await
        .unwrap()
        .unwrap()
        .wallet;
    let allowed = async || world.authorize(&agent, &body_of(world.offer(1))).await;
    allowed().await.ok();
    // No update changes an agent's wallet. If it changed, the old wallet's balance must not be used.
    let other = world.stack.new_wallet(agent.id).await.unwrap();
    world.edit(&agent, |agent| agent.wallet = other).await;
    allowed().await.refused(402, "insufficient_usdc_balance");
    world.edit(&agent, |agent| agent.wallet = rich).await;
    allowed().await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_with_a_wrong_key_secret_trigger_no_balance_reads() {
    let world = World::metered().await;
    let agent = world.agent(SpendPolicy::spec_defaults(), vec![]).await;
    world.authorize(&agent, &body_of(world.offer(1))).await.ok();
    let (public, _) = agent.key.split_once(':').unwrap();
    let stranger = agent.with_key(&format!("{public}:gak_sec_{}", "0".repeat(64)).into());
    let body = body_of(world.offer(1));
    let (measured, refused) = measure(&world, world.authorize(&stranger, &body)).await;
    refused.refused(401, "invalid_agent_key");
    assert_eq!(measured.sequence(), [["BatchGetItem", "Query", "UpdateItem"]]);
}

/// A replayed or rejected call needs no balance, so the next call does not read the balance early.
#[tokio::test(flavor = "multi_thread")]
async fn balances_are_prefetched_after_a_payment() {
    let world = World::metered().await;
    let agent = world.agent(SpendPolicy::spec_defaults(), vec![]).await;
    let body = body_of(world.offer(1));
    let early_in = async |body: &Value| {
        let (measured, _) = measure(&world, world.authorize(&agent, body)).await;
        measured
            .sequence()
            .first()
            .is_some_and(|round| round.contains(&"eth_call"))
    };
    assert!(!early_in(&body).await, "nobody knows the agent");
    assert!(early_in(&body).await, "repeated");
    assert!(!early_in(&body).await, "repeated again");
    assert!(
        !early_in(&body_of(world.offer(1))).await,
        "another payment, after a call that needed no balance"
    );
    let mut unaffordable = body_of(world.offer(2));
    unaffordable["max_payment_units"] = 1.into();
    assert!(early_in(&unaffordable).await, "after a payment");
    assert!(!early_in(&unaffordable).await, "after a refusal");
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_agent_keys_trigger_no_further_balance_reads() {
    let world = World::metered().await;
    let agent = world.agent(SpendPolicy::spec_defaults(), vec![]).await;
    let authorize = async || measure(&world, world.authorize(&agent, &body_of(world.offer(1)))).await;
    authorize().await.1.ok();
    let now = world.now();
    world
        .edit(&agent, |agent| {
            for key in &mut agent.keys {
                key.ends_at = Some(now);
            }
        })
        .await;
    let (measured, refused) = authorize().await;
    refused.refused(401, "invalid_agent_key");
    assert_eq!(
        measured.sequence(),
        [["BatchGetItem", "Query", "UpdateItem", "eth_call"]]
    );
    let (measured, refused) = authorize().await;
    refused.refused(401, "invalid_agent_key");
    assert_eq!(measured.sequence(), [["BatchGetItem", "Query", "UpdateItem"]]);
}

/// The cached catalog still names the first service, whose rows were read early.
#[tokio::test(flavor = "multi_thread")]
async fn urls_moved_to_another_service_use_its_policy() {
    const ADDRESS: &str = "https://moved.example/x";
    let at_once = ("PAYMENT_CHANGE_DELAY_SECONDS".to_owned(), "0".to_owned());
    let world = World::still_with(Options {
        environment: [at_once].into(),
        ..Options::default()
    })
    .await;
    let agent = world.agent(SpendPolicy::spec_defaults(), vec![]).await;
    let pay_to = &world.stack.providers.pay_to;
    let entry = |slug: &str, address: &str| {
        let mut operation = operation_entry("news.read", address);
        operation["payment"] = payment_entry(1, pay_to);
        service_entry(slug, &[operation])
    };
    let (first, _) = world.enter(&entry("first", ADDRESS)).await;
    world.pass(DUE);
    world.enable(&agent, "first", SpendPolicy::spec_defaults()).await;
    let body = || {
        let mut body = body_of(world.offer(1));
        body["service_id"] = Value::Null;
        body["original_request"]["url"] = ADDRESS.into();
        body
    };
    world.authorize(&agent, &body()).await.ok();

    let path = format!("/internal/services/{first}");
    let elsewhere = entry("first", "https://elsewhere.example/x");
    world.operator_edits(Method::PUT, &path, &elsewhere).await.ok();
    world.enter(&entry("second", ADDRESS)).await;
    world.pass(DUE);
    let refused = world
        .authorize(&agent, &body())
        .await
        .refused(403, "service_not_enabled");
    assert_eq!(refused["service_id"], "second");
    world.pass(DUE);
    let mut checked = body();
    checked["replay_key"] = fresh_key().into();
    checked.as_object_mut().unwrap().remove("idempotency_key");
    let answer = world.post(&agent, "/x402/check", &checked).await.ok();
    assert_eq!(answer["reason"], "service_not_enabled");

    // The cap is lower than the payments to the other service, which do not count here.
    let small = SpendPolicy {
        max_per_day: units(1),
        ..SpendPolicy::spec_defaults()
    };
    world.enable(&agent, "second", small).await;
    world.authorize(&agent, &body()).await.ok();
    let full = world
        .authorize(&agent, &body())
        .await
        .refused(402, "daily_spend_limit_exceeded");
    assert_eq!(full["spend_today"], 1, "what was paid to the first is not counted");
}
