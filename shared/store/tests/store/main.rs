//! Tests of the store on an emulated DynamoDB, with concurrency and faults.

#![expect(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test stops where its ground is missing"
)]

mod approvals;
mod backtests;
mod budgets;
mod capacity;
mod catalog;
mod faults;
mod freezes;
mod items;
mod limits;
mod oauth;
mod object;
mod owners;
mod payouts;
mod races;
mod reconciling;
mod settlements;
mod starting_sets;
mod wallet_claims;
mod windows;

use purser_testkit::{
    Emulator, LEDGER,
    authorize::{Answer, Request, authorize},
    invariants, sample,
};

/// Creates a ledger with one agent and a policy for one service.
async fn ledger_with(max_per_day: u64, require_approval_above: u64) -> (Emulator, purser_store::Ledger) {
    let emulator = Emulator::start().await;
    let ledger = emulator.ledger();
    ledger
        .create_agent(&sample::agent(1, Vec::new()), &sample::audit())
        .await
        .unwrap();
    let enabled = sample::enabled(sample::service_id(1), max_per_day, require_approval_above);
    ledger
        .put_policy(sample::agent_id(1), &enabled, &sample::audit())
        .await
        .unwrap();
    (emulator, ledger)
}

/// Returns a request of the first agent to pay the first service.
fn request(amount: u64, key: &str) -> Request {
    Request::new(sample::agent_id(1), sample::service_id(1), amount, key)
}

async fn at_once(ledger: &purser_store::Ledger, requests: Vec<Request>, now: purser_domain::Timestamp) -> Vec<Answer> {
    let mut running = tokio::task::JoinSet::new();
    for request in requests {
        let ledger = ledger.clone();
        running.spawn(async move { authorize(&ledger, &request, now).await.unwrap() });
    }
    running.join_all().await
}

fn count(answers: &[Answer], wanted: impl Fn(&Answer) -> bool) -> usize {
    answers.iter().filter(|answer| wanted(answer)).count()
}

/// Asserts that the stored rows meet every invariant.
async fn assert_sound(emulator: &Emulator) {
    invariants::assert_hold(&emulator.client, LEDGER).await;
}
