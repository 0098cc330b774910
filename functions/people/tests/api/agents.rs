//! Agents, created and edited while the database loses or delays requests.

use crate::support::World;
use purser_domain::{AgentId, AgentStatus};
use purser_testkit::{ProxyConfig, sample::OWNER};
use serde_json::json;
use std::time::Duration;

#[tokio::test]
async fn a_balance_that_can_not_be_asked_for_is_told_as_unknown() {
    let world = World::start().await;
    let id = world.agent(OWNER).await;
    let wallet = world.get(OWNER, &format!("/agents/{id}/wallet")).await.ok();
    assert_eq!(
        (&wallet["balance_units"], &wallet["balance_reason"]),
        (&json!(null), &json!("rpc_unavailable"))
    );
}

#[tokio::test]
async fn an_agent_whose_creation_breaks_off_never_was() {
    let world = World::start().await;
    world.proxy.stall(2);
    // Both services have been sent, the agent has not.
    tokio::select! {
        answer = world.call(OWNER, "POST", "/agents", None, Some(json!({"name": "buyer"}))) => panic!("{answer:?}"),
        () = world.proxy.stalled(2) => {}
    }
    world.proxy.resume();
    assert_eq!(world.get(OWNER, "/agents").await.ok()["count"], 0);
    world.agent(OWNER).await;
    assert_eq!(world.get(OWNER, "/agents").await.ok()["count"], 1);
}

#[tokio::test]
async fn a_freeze_wins_against_every_other_edit() {
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
    let agent = world.ledger.agent(AgentId::parse(&id).unwrap()).await.unwrap().unwrap();
    assert_eq!(
        (agent.status, agent.version, agent.keys.len()),
        (AgentStatus::Frozen, 8, 2)
    );
}
