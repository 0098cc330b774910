//! Tests faults of processes, the database, nodes and providers: every payment is made once, no cap is exceeded, and
//! retries succeed.
//!
//! The functions run in separate processes with Lambda's runtime API (`Process`).

mod concurrent_kills;
mod database;
mod kills;
mod node;
mod providers;
mod reconcile_kills;
mod steps;

use purser_domain::SpendPolicy;
use purser_local::NETWORK;
use purser_tests::{Answer, Process, Program, Request, TestAgent, World, dollars, units};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// Starts the function `payments`. `environment` overrides the stack's variables.
async fn payments(world: &World, environment: &[(&'static str, &'static str)]) -> Process {
    process(world, "payments", environment).await
}

async fn process(world: &World, function: &'static str, environment: &[(&'static str, &'static str)]) -> Process {
    let seconds = if function == "reconcile" { 60 } else { 15 };
    let program = Program {
        path: env!("CARGO_BIN_EXE_function").into(),
        function,
        time: Duration::from_secs(seconds),
        environment: environment.to_vec(),
    };
    Process::for_program(world, program).await
}

/// Returns a policy that requires an approval above twenty dollars.
fn policy(max_per_day: u64) -> SpendPolicy {
    SpendPolicy {
        max_per_call: units(dollars(100)),
        max_per_day: units(max_per_day),
        require_approval_above: units(dollars(20)),
        ..SpendPolicy::spec_defaults()
    }
}

fn authorizing(agent: &TestAgent, body: &Value) -> Request {
    Request::post(&agent.key, "/x402/authorize", body)
}

fn completing(agent: &TestAgent, authorized: &Value, hash: &str) -> Request {
    let settlement = authorized["settlement_id"].as_str().unwrap();
    let proof = json!({"payment_response_header": {"success": true, "transaction": hash}});
    Request::post(&agent.key, &format!("/x402/settlements/{settlement}/complete"), &proof)
}

/// Asserts that the receipt is confirmed by this transaction, and returns it.
#[track_caller]
fn confirmed(answer: Answer, hash: &str) -> Value {
    let row = answer.ok();
    assert_eq!(
        [&row["receipt_status"], &row["confirmed_via"], &row["tx_hash"]],
        [&json!("confirmed"), &json!("onchain"), &json!(hash)]
    );
    row
}

/// Returns the nonces that the agent's wallet has used on the chain.
async fn nonces_used(world: &World, agent: &TestAgent) -> Vec<String> {
    let logs = authorizations_used(world, agent).await;
    logs.iter()
        .map(|log| log["topics"][2].as_str().unwrap().to_owned())
        .collect()
}

/// Returns the `AuthorizationUsed` events of the agent's wallet on the chain.
async fn authorizations_used(world: &World, agent: &TestAgent) -> Vec<Value> {
    let wallet = agent.wallet.trim_start_matches("0x").to_lowercase();
    let filter = json!([{
        "fromBlock": "0x0",
        "address": NETWORK.token().address,
        "topics": [purser_domain::AUTHORIZATION_USED, format!("0x{wallet:0>64}")],
    }]);
    let logs = world.stack.chain.call("eth_getLogs", filter).await.unwrap();
    logs.as_array().unwrap().clone()
}

/// Asserts that the agent made exactly `payments` payments of `price`, in the ledger and on the chain. Also checks the
/// invariants of `docs/data-model.md`.
async fn made_once(world: &World, agent: &TestAgent, payments: usize, price: u64) {
    let after = world.footprint().await;
    let total = price * u64::try_from(payments).unwrap();
    assert_eq!(
        (after.settlements, after.entries, after.total),
        (payments, payments, total)
    );
    let nonces = nonces_used(world, agent).await;
    let different: BTreeSet<&String> = nonces.iter().collect();
    assert_eq!(
        (nonces.len(), different.len()),
        (payments, payments),
        "a nonce each, and that alone"
    );
    let receipts = world.get(agent, &agent.path("/settlements?limit=100")).await.ok();
    let receipts = receipts["settlements"].as_array().unwrap().iter();
    let confirmed = receipts.filter(|receipt| receipt["receipt_status"] == "confirmed");
    assert_eq!(confirmed.count(), payments, "one receipt each");
    purser_testkit::invariants::assert_hold(&world.stack.db, "LedgerTable").await;
}
