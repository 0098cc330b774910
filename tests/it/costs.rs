//! The cost of each operation through the real functions, never more than its written budget. Counted, not timed; `make
//! bench` prints the figures.

use purser_domain::{Duration, SpendPolicy, Timestamp};
use purser_tests::{
    LONG_DENIAL, Measured, World, body_of, dollars, every_operation, first_of_history, judged_policy, measure,
};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn every_operation_stays_within_its_budget() {
    let world = World::metered().await;
    let agent = world.agent(judged_policy(), vec![]).await;
    let costs = every_operation(&world, &agent).await;
    let excess: Vec<String> = costs.iter().filter_map(|cost| cost.excess()).collect();
    assert!(excess.is_empty(), "{excess:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_history_and_many_services_cost_nothing() {
    let world = World::metered().await;
    let agent = world.agent(judged_policy(), vec![]).await;
    world.authorize(&agent, &body_of(world.offer(1))).await.ok();
    world.add_settlements(&agent, 1_200).await;
    world.add_services(&agent, "lab-search", 99).await;
    let mut costs = every_operation(&world, &agent).await;
    // All but this one, which searches for the instant at which the call fits.
    let denial = costs.iter_mut().find(|cost| cost.name == "daily denial").unwrap();
    denial.budget = LONG_DENIAL;
    let excess: Vec<String> = costs.iter().filter_map(|cost| cost.excess()).collect();
    assert!(excess.is_empty(), "{excess:#?}");

    // The call fits when more than a thousand have left the window; `retry_at` is when the 1,008 that were read have.
    let denied = world.authorize(&agent, &body_of(world.offer(dollars(90)))).await;
    let denied = denied.refused(402, "daily_spend_limit_exceeded");
    let last_seen = first_of_history(world.now()).micros() + 1_007;
    let left = Timestamp::from_micros(last_seen).unwrap().after(Duration::DAY);
    assert_eq!(denied["retry_at"], left.to_string());
}

/// One of many payments costs the same as the first one.
#[tokio::test(flavor = "multi_thread")]
async fn an_authorization_costs_the_same_after_many() {
    let world = World::metered().await;
    let agent = world.agent(SpendPolicy::column_defaults(), vec![]).await;
    let mut costs = std::collections::BTreeSet::new();
    for n in 0..60 {
        let (measured, answer) = measure(&world, world.authorize(&agent, &body_of(world.offer(1)))).await;
        answer.ok();
        if n > 0 {
            costs.insert((measured.units, measured.rounds.len()));
        }
    }
    assert_eq!(costs.len(), 1, "{costs:?}");
}

/// An invented hash costs as little as possible: one node call, and the final block only if our clock is past the
/// payment's time. A hash that has confirmed another payment costs no node call.
#[tokio::test(flavor = "multi_thread")]
async fn a_hash_that_is_no_proof_costs_the_node_next_to_nothing() {
    let world = World::metered().await;
    let agent = world.agent(SpendPolicy::column_defaults(), vec![]).await;
    let paid = world.authorize(&agent, &body_of(world.offer(1))).await.ok();
    let unpaid = world.authorize(&agent, &body_of(world.offer(2))).await.ok();
    let settlement = unpaid["settlement_id"].as_str().unwrap();
    let proof = |hash: &str| json!({"payment_response_header": "e30=", "tx_hash": hash});
    let unknown = proof(&format!("0x{}", "ab".repeat(32)));
    let (reads, look) = (
        vec!["BatchGetItem", "UpdateItem"],
        vec!["eth_blockNumber", "eth_getTransactionReceipt"],
    );

    let (measured, answer) = measure(&world, world.complete(&agent, settlement, &unknown)).await;
    answer.refused(503, "onchain_settlement_not_verified");
    assert_eq!(measured.sequence(), [reads.clone(), look.clone()]);

    let hash = world.settle(&paid).await;
    let own = paid["settlement_id"].as_str().unwrap();
    world.complete(&agent, own, &proof(&hash)).await.ok();
    let (measured, answer) = measure(&world, world.complete(&agent, settlement, &proof(&hash))).await;
    answer.refused(409, "settlement_transaction_already_used");
    assert_eq!(measured.sequence(), std::slice::from_ref(&reads));

    // Only the node's calls: the use of the key is written again, at any time.
    let nodes = |measured: &Measured| {
        let calls = measured.rounds.iter().flatten().map(|call| call.operation.clone());
        let mut calls: Vec<String> = calls.filter(|name| name.starts_with("eth_")).collect();
        calls[..2].sort_unstable();
        calls
    };
    world.pass(3_600);
    let (measured, answer) = measure(&world, world.complete(&agent, settlement, &unknown)).await;
    answer.refused(503, "onchain_settlement_not_verified");
    let mut asked = [look, vec!["eth_blockNumber", "eth_getBlockByNumber"]].concat();
    assert_eq!(nodes(&measured), asked);
    world.stack.chain.advance(3_600).await.unwrap();
    let (measured, answer) = measure(&world, world.complete(&agent, settlement, &unknown)).await;
    answer.refused(422, "onchain_settlement_not_verified");
    asked.push("eth_getTransactionReceipt");
    assert_eq!(nodes(&measured), asked);
}

/// The check for a newer catalog delays no request: it runs concurrently with the reads that use the copy.
#[tokio::test(flavor = "multi_thread")]
async fn confirming_the_catalog_takes_no_round_trip_of_its_own() {
    let world = World::metered().await;
    let agent = world.agent(judged_policy(), vec![]).await;
    world.authorize(&agent, &body_of(world.offer(1))).await.ok();
    world.pass(6);
    let (measured, answer) = measure(&world, world.authorize(&agent, &body_of(world.offer(1)))).await;
    answer.ok();
    let reads = vec!["BatchGetItem", "GetItem", "Query", "UpdateItem", "eth_call"];
    assert_eq!(measured.sequence(), [reads, vec!["TransactWriteItems"]]);
}
