//! Keys: a secret is shown once, and an end is an end.

use crate::support::World;
use purser_domain::{AgentId, PresentedKey};
use purser_testkit::sample::OWNER;
use serde_json::{Value, json};
use std::time::Duration;

impl World {
    async fn works(&self, key: &str) -> bool {
        let presented = PresentedKey::from_header(&format!("Bearer {key}")).ok().unwrap();
        let agent = self.ledger.agent(presented.agent).await.unwrap();
        presented.is_valid_for(agent.as_ref(), self.now())
    }

    async fn new_key(&self, agent: &str) -> Value {
        self.edit(OWNER, "POST", &format!("/agents/{agent}/keys"), json!({}))
            .await
            .created()
    }
}

#[tokio::test]
async fn a_secret_is_in_the_answer_that_made_it_and_in_no_other() {
    let world = World::start().await;
    let id = world.agent(OWNER).await;
    let path = format!("/agents/{id}/keys");
    world
        .call(OWNER, "POST", &path, None, None)
        .await
        .refused(428, "version_required");
    let made = world.call(OWNER, "POST", &path, Some("\"1\""), None).await;
    assert_eq!(made.version(), 2);
    let made = made.created();
    let text = made["key"].as_str().unwrap();
    assert!(world.works(text).await);
    let (public, secret) = text.split_once(':').unwrap();
    assert_eq!(
        (&made["public_key"], &made["status"]),
        (&json!(public), &json!("active"))
    );
    let list = world.get(OWNER, &path).await;
    assert_eq!(list.version(), 2);
    let list = list.ok();
    assert_eq!(list["keys"][0]["key_id"], made["key_id"]);
    assert_eq!(list["keys"][0]["last_used_at"], json!(null));
    assert!(!list.to_string().contains(secret.trim_start_matches("gak_sec_")));
    world
        .call(OWNER, "POST", &path, Some("\"1\""), None)
        .await
        .refused(412, "version_conflict");
    assert_eq!(
        world.edit(OWNER, "POST", &path, json!({"name": "x"})).await.problems(),
        ["/name"]
    );
}

#[tokio::test]
async fn a_rotated_key_works_until_its_overlap_ends_and_a_revoked_one_ends_at_once() {
    let world = World::start().await;
    let id = world.agent(OWNER).await;
    let first = world.new_key(&id).await;
    let path = |key: &Value| format!("/agents/{id}/keys/{}", key["key_id"].as_str().unwrap());
    let rotate = format!("{}/rotate", path(&first));
    world
        .edit(OWNER, "POST", &rotate, json!({}))
        .await
        .refused(400, "overlap_seconds_required");
    let rotated = world.edit(OWNER, "POST", &rotate, json!({"overlap_seconds": 60})).await;
    assert_eq!(rotated.version(), 3);
    let second = rotated.created();
    assert_eq!(second["replaced"]["key_id"], first["key_id"]);
    assert_eq!(second["replaced"]["status"], "ending");
    assert_eq!(second["replaced"]["ends_at"], "2026-11-21T01:10:00.000000Z");
    let [old, new] = [&first, &second].map(|key| key["key"].as_str().unwrap().to_owned());
    world.advance(59);
    assert!(world.works(&old).await && world.works(&new).await);
    world.advance(1);
    assert!(!world.works(&old).await && world.works(&new).await);
    // What has ended is over.
    let again = world.edit(OWNER, "POST", &rotate, json!({"overlap_seconds": 0})).await;
    assert_eq!(again.problems(), ["/keyId"]);
    let revoked = world.call(OWNER, "DELETE", &path(&second), Some("\"3\""), None).await;
    assert_eq!(revoked.version(), 4);
    assert_eq!(revoked.ok()["status"], "ended");
    assert!(!world.works(&new).await);
    let revoked = world.call(OWNER, "DELETE", &path(&first), Some("*"), None).await;
    assert_eq!(revoked.version(), 4);
    assert_eq!(revoked.ok()["ends_at"], "2026-11-21T01:10:00.000000Z");
    for key in ["00000000000000ff", "x"] {
        let path = format!("/agents/{id}/keys/{key}");
        world
            .call(OWNER, "DELETE", &path, None, None)
            .await
            .refused(404, "not_found");
        world
            .call(OWNER, "POST", &format!("{path}/rotate"), None, None)
            .await
            .refused(404, "not_found");
    }
    let list = world.get(OWNER, &format!("/agents/{id}/keys")).await.ok();
    let statuses: Vec<&Value> = list["keys"]
        .as_array()
        .unwrap()
        .iter()
        .map(|key| &key["status"])
        .collect();
    assert_eq!(statuses, ["ended", "ended"]);
}

#[tokio::test]
async fn an_agent_has_twenty_working_keys_at_most() {
    let world = World::start().await;
    let id = world.agent(OWNER).await;
    for _ in 0..20 {
        world.new_key(&id).await;
    }
    let path = format!("/agents/{id}/keys");
    assert_eq!(world.edit(OWNER, "POST", &path, json!({})).await.problems(), [""]);
}

#[tokio::test]
async fn the_last_use_of_a_key_is_listed() {
    let world = World::start().await;
    let id = world.agent(OWNER).await;
    let key = world.new_key(&id).await;
    let agent = AgentId::parse(&id).unwrap();
    let record = world.ledger.agent(agent).await.unwrap().unwrap().keys[0].clone();
    world.key_uses.note(agent, record.id, world.now());
    let path = format!("/agents/{id}/keys");
    // It is noted beside whatever happens next.
    for _ in 0..100 {
        let list = world.get(OWNER, &path).await.ok();
        assert_eq!(list["keys"][0]["key_id"], key["key_id"]);
        if list["keys"][0]["last_used_at"] == "2026-11-21T01:09:00.000000Z" {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the use is not listed");
}
