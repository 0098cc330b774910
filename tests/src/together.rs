//! Runs calls concurrently.

use crate::{Answer, TestAgent, World};
use serde_json::{Value, json};
use std::future::Future;

/// Runs calls concurrently. Returns the results in the order of the calls.
pub async fn together<F>(calls: Vec<F>) -> Vec<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    let tasks: Vec<_> = calls.into_iter().map(tokio::spawn).collect();
    let mut answers = Vec::with_capacity(tasks.len());
    for task in tasks {
        answers.push(task.await.expect("a call"));
    }
    answers
}

/// Runs `count` calls at a time. Returns the results in the order of the calls.
pub async fn few_at_once<F>(count: usize, calls: impl IntoIterator<Item = F>) -> Vec<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    let (mut calls, mut answers) = (calls.into_iter().peekable(), Vec::new());
    while calls.peek().is_some() {
        answers.extend(together(calls.by_ref().take(count).collect()).await);
    }
    answers
}

/// Returns a future that calls complete for a payment and a transaction hash.
pub fn completing(
    world: &World,
    agent: &TestAgent,
    authorized: &Value,
    hash: &str,
) -> impl Future<Output = Answer> + Send + use<> {
    let settlement = authorized["settlement_id"].as_str().expect("an id");
    let request = world
        .http
        .post(format!(
            "{}/x402/settlements/{settlement}/complete",
            world.stack.base_url
        ))
        .bearer_auth(&agent.key)
        .json(&json!({"payment_response_header": "e30=", "tx_hash": hash}));
    World::send(request)
}

/// Returns a future that calls authorize.
pub fn authorizing(world: &World, agent: &TestAgent, body: Value) -> impl Future<Output = Answer> + Send + use<> {
    let request = world
        .http
        .post(format!("{}/x402/authorize", world.stack.base_url))
        .bearer_auth(&agent.key)
        .json(&body);
    World::send(request)
}
