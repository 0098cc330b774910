//! Concurrent calls.

use crate::{Answer, TestAgent, World};
use serde_json::Value;
use std::future::Future;

/// Runs calls concurrently and returns their answers in order.
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

/// A call of authorize that can be sent from another task.
pub fn authorizing(world: &World, agent: &TestAgent, body: Value) -> impl Future<Output = Answer> + Send + use<> {
    let request = world
        .http
        .post(format!("{}/x402/authorize", world.stack.base_url))
        .bearer_auth(&agent.key)
        .json(&body);
    World::send(request)
}
