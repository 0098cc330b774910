//! Creates and updates agents while the database loses or delays requests.

use crate::support::World;
use purser_domain::{AgentId, AgentStatus};
use purser_testkit::{ProxyConfig, sample::OWNER};
use serde_json::json;
use std::time::Duration;

#[tokio::test]
async fn an_unavailable_wallet_balance_is_reported_as_unknown() {
    let world = World::start().await;
    let id = world.agent(OWNER).await;
    let wallet = world.get(OWNER, &format!("/agents/{id}/wallet")).await.ok();
    assert_eq!(
        (&wallet["balance_units"], &wallet["balance_reason"]),
        (&json!(null), &json!("rpc_unavailable"))
    );
}

#[tokio::test]
async fn a_freeze_succeeds_despite_concurrent_updates() {
    let world = World::behind(ProxyConfig {
        hold: Some(Duration::from_millis(4)),
        lost_answers: 2,
        ..ProxyConfig::default()
    })
    .await;
    let id = world.agent(OWNER).await;
    let path = format!("/agents/{id}");
    let rename = async |n: u32| {
        world
            .edit(OWNER, "PATCH", &path, json!({"name": format!("n{n}")}))
            .await
    };
    let freeze = async || world.edit(OWNER, "PATCH", &path, json!({"status": "frozen"})).await;
    let keys = format!("{path}/keys");
    let key = async || world.edit(OWNER, "POST", &keys, json!({})).await;
    let answers = tokio::join!(rename(1), rename(2), key(), freeze(), rename(3), key(), rename(4));
    for answer in [answers.0, answers.1, answers.3, answers.4, answers.6] {
        answer.ok();
    }
    answers.2.created();
    answers.5.created();
    let agent = world
        .ledger
        .read_agent_by_id(AgentId::parse(&id).unwrap())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (agent.status, agent.version, agent.keys.len()),
        (AgentStatus::Frozen, 8, 2)
    );
}

#[tokio::test]
async fn agents_with_unattested_wallets_are_not_created() {
    let world = World::with(&[("PAYMENTS_FUNCTION", "liar")]).await;
    let make = async |world: &World| {
        let body = json!({"name": "errands"});
        world.call(OWNER, "POST", "/agents", None, Some(body)).await
    };
    let refused = make(&world).await;
    assert_eq!(
        (refused.status, &refused.body["error"]),
        (500, &json!("internal_error"))
    );
    assert_eq!(world.get(OWNER, "/agents").await.ok()["count"], 0);
    // If `payments` is unreachable, the response is a retryable error.
    let world = world.elsewhere(&[("LAMBDA_ENDPOINT", "http://127.0.0.1:1")]).await;
    let refused = make(&world).await;
    assert_eq!(
        (refused.status, &refused.body["error"]),
        (503, &json!("temporarily_unavailable"))
    );
    assert_eq!(world.get(OWNER, "/agents").await.ok()["count"], 0);
}
