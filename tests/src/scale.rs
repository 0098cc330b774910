//! Measures a payment's writes per partition, because the busiest partition limits the throughput.

use crate::{TestAgent, World, body_of, measure};
use purser_testkit::{Call, Units};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Returns the write units of a payment by kind of partition, from authorize to the receipt. The world must be metered.
pub async fn writes_of_a_payment(world: &World, agent: &TestAgent) -> BTreeMap<String, u64> {
    let mut calls = Vec::new();
    for counted in [false, true] {
        let (authorizing, answer) = measure(world, world.authorize(agent, &body_of(world.offer(1)))).await;
        let authorized = answer.ok();
        let hash = world.settle(&authorized).await;
        let settlement = authorized["settlement_id"].as_str().expect("an id");
        let proof = json!({"payment_response_header": "e30=", "tx_hash": hash});
        let (completing, answer) = measure(world, world.complete(agent, settlement, &proof)).await;
        answer.ok();
        if counted {
            calls = [authorizing.rounds, completing.rounds].concat().concat();
        }
    }
    let mut writes = BTreeMap::new();
    for (partition, units) in calls.iter().flat_map(written) {
        *writes.entry(partition).or_default() += units;
    }
    let all: u64 = writes.values().sum();
    assert_eq!(all * 10, Units::sum(&calls).write, "{writes:?}");
    writes
}

/// Returns the partitions that a call writes to, with the write units of each. Items must be smaller than 1 KB.
fn written(call: &Call) -> Vec<(String, u64)> {
    let request = &call.request;
    match call.operation.as_str() {
        "PutItem" | "UpdateItem" | "DeleteItem" => of_item(request, 1),
        "TransactWriteItems" => {
            let actions = request["TransactItems"].as_array().into_iter().flatten();
            let actions = actions.flat_map(|action| action.as_object().into_iter().flatten());
            // A transactional write costs twice as much ("Amazon DynamoDB Transactions: How it works", capacity
            // management).
            actions.flat_map(|(_, action)| of_item(action, 2)).collect()
        }
        _ => Vec::new(),
    }
}

fn of_item(write: &Value, units: u64) -> Vec<(String, u64)> {
    let key = [&write["Item"], &write["Key"]].into_iter().find(|key| key.is_object());
    let pk = key.and_then(|key| key["pk"]["S"].as_str()).expect("a key");
    let kind = pk.split('#').next().unwrap_or_default();
    let removes_hold = write["UpdateExpression"]
        .as_str()
        .is_some_and(|update| update.contains("REMOVE hp"));
    let mut written = vec![(kind.to_owned(), units)];
    if removes_hold || !write["Item"]["hp"].is_null() {
        written.push(("index hold".to_owned(), 1));
    }
    written
}
