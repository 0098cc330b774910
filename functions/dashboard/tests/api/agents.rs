//! Agents: made whole, seen by their owner alone, edited at a version.

use crate::support::World;
use purser_domain::{AgentId, AgentStatus};
use purser_testkit::{ProxyConfig, sample::OWNER};
use serde_json::json;
use std::time::Duration;

#[tokio::test]
async fn a_new_agent_has_a_wallet_of_its_own_and_every_curated_service() {
    let world = World::start().await;
    for index in 0..3 {
        let answer = world
            .call(OWNER, "POST", "/agents", None, Some(json!({"name": " buyer "})))
            .await;
        assert_eq!(answer.version(), 1);
        let agent = answer.created();
        assert_eq!((&agent["name"], &agent["status"]), (&json!("buyer"), &json!("active")));
        assert_eq!(agent["created_at"], "2026-11-21T01:09:00.000000Z");
        let wallet = world.seed.wallet(index).unwrap().address().to_string();
        assert_eq!(agent["wallet_address"], wallet);
        let id = agent["agent_id"].as_str().unwrap();
        assert_eq!(world.get(OWNER, &format!("/agents/{id}")).await.ok(), agent);
        let list = world.get(OWNER, &format!("/agents/{id}/services")).await.ok();
        assert_eq!(list["count"], 2);
        for (service, slug) in list["services"].as_array().unwrap().iter().zip(["lab", "maps"]) {
            assert_eq!((&service["slug"], &service["permissive"]), (&json!(slug), &json!(true)));
            assert_eq!((&service["enabled"], &service["version"]), (&json!(true), &json!(1)));
            assert_eq!(service["remaining_today_units"], 10_000_000_000_000_u64);
        }
        let wallet = world.get(OWNER, &format!("/agents/{id}/wallet")).await.ok();
        assert_eq!(wallet["wallet_address"], agent["wallet_address"]);
        assert_eq!(
            (&wallet["network"], &wallet["token"]),
            (&json!("base-sepolia"), &json!("USDC"))
        );
        // The chain of these tests can't be reached.
        assert_eq!(wallet["balance_units"], json!(null));
        assert_eq!(wallet["balance_reason"], "rpc_unavailable");
    }
    let list = world.get(OWNER, "/agents").await.ok();
    assert_eq!((&list["count"], &list["agents"][0]["version"]), (&json!(3), &json!(1)));
    assert_eq!(
        world.get("bob", "/agents").await.ok(),
        json!({"agents": [], "count": 0})
    );
}

#[tokio::test]
async fn an_agent_whose_creation_breaks_off_never_was() {
    let world = World::start().await;
    world.proxy.stall(2);
    // Both services are on their way, the agent is not.
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
async fn an_agent_of_another_owner_is_not_found_whatever_is_asked() {
    let world = World::start().await;
    let id = world.agent(OWNER).await;
    let unknown = "00000000-0000-4000-8000-000000000000";
    let routes = [
        ("GET", ""),
        ("PATCH", ""),
        ("GET", "/keys"),
        ("POST", "/keys"),
        ("GET", "/services"),
        ("POST", "/services"),
        ("GET", "/services/lab"),
        ("PATCH", "/services/lab"),
        ("DELETE", "/services/lab"),
        ("GET", "/rules"),
        ("POST", "/rules"),
        ("GET", "/wallet"),
    ];
    for (method, rest) in routes {
        for (who, agent) in [("bob", &*id), (OWNER, unknown), (OWNER, "x")] {
            let answer = world
                .call(who, method, &format!("/agents/{agent}{rest}"), None, None)
                .await;
            answer.refused(404, "not_found");
        }
    }
    for list in ["/approvals", "/decisions", "/settlements"] {
        world
            .get("bob", &format!("{list}?agent_id={id}"))
            .await
            .refused(404, "not_found");
        assert_eq!(
            world.get(OWNER, &format!("{list}?agent_id={id}")).await.ok()["count"],
            0
        );
    }
}

#[tokio::test]
async fn an_edit_says_the_version_that_it_saw() {
    let world = World::start().await;
    let id = world.agent(OWNER).await;
    let path = format!("/agents/{id}");
    let edit = async |version: Option<&str>, body| world.call(OWNER, "PATCH", &path, version, Some(body)).await;
    edit(None, json!({"name": "b"})).await.refused(428, "version_required");
    let conflict = edit(Some("\"2\""), json!({"name": "b"}))
        .await
        .refused(412, "version_conflict");
    assert_eq!(conflict["version"], 1);
    let renamed = edit(Some("\"1\""), json!({"name": "b"})).await;
    assert_eq!(renamed.version(), 2);
    assert_eq!(renamed.ok()["name"], "b");
    edit(Some("\"1\""), json!({"name": "c"}))
        .await
        .refused(412, "version_conflict");
    // What changes nothing is no edit.
    assert_eq!(edit(Some("\"2\""), json!({"name": "b"})).await.version(), 2);
    let both = edit(Some("*"), json!({"name": "d", "status": "frozen"})).await;
    assert_eq!(both.version(), 3);
    assert_eq!(
        (&both.body["name"], &both.body["status"]),
        (&json!("d"), &json!("frozen"))
    );
    assert_eq!(
        edit(Some("3"), json!({"status": "thawed", "x": 1})).await.problems(),
        ["/If-Match", "/status", "/x"]
    );
    assert_eq!(world.get(OWNER, &path).await.version(), 3);
    edit(Some("*"), json!({})).await.refused(400, "invalid_request");
    world
        .call(OWNER, "POST", "/agents", None, Some(json!({})))
        .await
        .refused(400, "name_required");
    assert_eq!(world.call(OWNER, "POST", "/agents", None, None).await.problems(), [""]);
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
