//! Tests the creation, listing, rotation and revocation of API keys.

use super::{Household, NOTHING, members};
use purser_domain::{Agent, Duration, Timestamp};
use purser_tests::{TestAgent, World, key_id_of, paths};
use reqwest::Method;
use serde_json::{Value, json};

/// Returns whether the key works. If not, asserts that the response is that for an unknown key.
async fn works(world: &World, agent: &TestAgent) -> bool {
    let answer = world.get(agent, "/mcp/agents/me").await;
    if answer.status != 200 {
        answer.refused(401, "invalid_agent_key");
        return false;
    }
    true
}

/// Returns the key's item in the list.
async fn listed(home: &Household, key: &TestAgent) -> Value {
    let keys = home.read("/keys").await;
    let keys = keys["keys"].as_array().unwrap();
    keys.iter()
        .find(|listed| listed["key_id"] == key.key_id())
        .unwrap()
        .clone()
}

async fn rotate(home: &Household, key: &TestAgent, overlap: u32) -> (TestAgent, Value) {
    let below = format!("/keys/{}/rotate", key.key_id());
    let rotated = home
        .edit(Method::POST, &below, json!({"overlap_seconds": overlap}))
        .await
        .created();
    (key.with_key(&rotated["key"]), rotated)
}

#[tokio::test(flavor = "multi_thread")]
async fn key_secrets_appear_only_in_the_creation_response() {
    let home = Household::in_world(World::still().await).await;
    let (world, first) = (&home.world, &home.agent);
    let request = world.persons_edit(&home.kim, Method::POST, &first.path("/keys"), "\"2\"");
    let made = World::send(request).await;
    assert_eq!(
        (made.etag(), &made.headers["cache-control"]),
        ("\"3\"", &"no-store".parse().unwrap())
    );
    let made = made.created();
    let key = made["key"].as_str().unwrap().to_owned();
    let (public, secret) = key.split_once(':').unwrap();
    assert_eq!(
        public,
        format!("gak_pub_{}{}", first.id.uuid().simple(), key_id_of(&key))
    );
    assert!(
        secret.starts_with("gak_sec_") && secret.len() == 8 + 64,
        "{}",
        secret.len()
    );
    let expected = json!({
        "agent_id": first.id.to_string(),
        "version": 3,
        "key": key,
        "key_id": key_id_of(&key),
        "public_key": public,
        "status": "active",
        "created_at": world.now().to_string(),
        "ends_at": null,
        "permissions": ["read", "pay"],
        "services": null,
        "networks": null,
        "expires_at": null,
        "client_name": null,
        "redirect_host": null,
        "opened_by": null,
    });
    assert_eq!(made, expected);

    let second = first.with_key(&made["key"]);
    assert!(works(world, &second).await && works(world, first).await);
    let (third, _) = rotate(&home, &second, 60).await;
    let secrets: Vec<&str> = [first, &second, &third]
        .map(|agent| agent.key.split_once(':').unwrap().1)
        .into();
    assert!(secrets[0] != secrets[1] && secrets[1] != secrets[2]);
    for below in ["", "/keys", "/services", "/rules", "/wallet"] {
        let told = home.read(below).await.to_string();
        assert!(!told.contains("gak_sec_"), "{below}: {told}");
    }
    let keys = home.read("/keys").await;
    let ids: Vec<&str> = keys["keys"]
        .as_array()
        .unwrap()
        .iter()
        .map(|key| key["key_id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, [third.key_id(), second.key_id(), first.key_id()], "newest first");
    assert_eq!(
        members(&keys["keys"][0]),
        [
            "client_name",
            "created_at",
            "ends_at",
            "expires_at",
            "key_id",
            "last_used_at",
            "networks",
            "opened_by",
            "permissions",
            "public_key",
            "redirect_host",
            "services",
            "status"
        ]
    );
}

/// A rejected call does not count as a use.
#[tokio::test(flavor = "multi_thread")]
async fn the_last_use_of_a_key_is_recorded_per_minute() {
    let home = Household::in_world(World::still().await).await;
    let (world, agent) = (&home.world, &home.agent);
    let unused = home.edit(Method::POST, "/keys", json!({})).await.created();
    let unused = agent.with_key(&unused["key"]);
    assert_eq!(listed(&home, agent).await["last_used_at"], Value::Null);
    let shows = async |at: Timestamp| {
        // The use is recorded in the background.
        for _ in 0..100 {
            if listed(&home, agent).await["last_used_at"] == at.to_string() {
                return true;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        false
    };
    let first = world.now();
    assert!(works(world, agent).await);
    assert!(shows(first).await, "{}", listed(&home, agent).await);
    world.pass(59);
    assert!(works(world, agent).await);
    world.pass(1);
    let second = world.now();
    assert!(works(world, agent).await);
    assert!(shows(second).await, "{}", listed(&home, agent).await);
    let mut forged = unused.clone();
    forged.key.replace_range(forged.key.len() - 4.., "0000");
    world
        .get(&forged, "/mcp/agents/me")
        .await
        .refused(401, "invalid_agent_key");
    assert_eq!(listed(&home, &unused).await["last_used_at"], Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn rotated_agent_keys_work_until_their_overlap_ends() {
    let home = Household::in_world(World::still().await).await;
    let (world, old) = (&home.world, &home.agent);
    let end = world.now().after(Duration::from_secs_u32(3_600));
    let (new, rotated) = rotate(&home, old, 3_600).await;
    let replaced = json!({
        "key_id": old.key_id(),
        "public_key": old.key.split_once(':').unwrap().0,
        "status": "ending",
        "created_at": world.now().to_string(),
        "ends_at": end.to_string(),
        "permissions": ["read", "pay"],
        "services": null,
        "networks": null,
        "expires_at": null,
        "client_name": null,
        "redirect_host": null,
        "opened_by": null,
    });
    assert_eq!(rotated["replaced"], replaced);
    assert_eq!(
        (&rotated["status"], &rotated["ends_at"]),
        (&json!("active"), &Value::Null)
    );
    assert!(works(world, old).await && works(world, &new).await);

    world.set_clock(Timestamp::from_micros(end.micros() - 1).unwrap());
    assert!(works(world, old).await && works(world, &new).await);
    assert_eq!(listed(&home, old).await["status"], "ending");
    world.set_clock(end);
    assert!(!works(world, old).await && works(world, &new).await);
    assert_eq!(listed(&home, old).await["status"], "ended");
    world
        .authorize(old, &purser_tests::body_of(world.offer(1)))
        .await
        .refused(401, "invalid_agent_key");

    let before = world.rows().await;
    let below = format!("/keys/{}", old.key_id());
    let rotating = home
        .edit(Method::POST, &format!("{below}/rotate"), json!({"overlap_seconds": 60}))
        .await;
    assert_eq!(paths(rotating, "an ended key"), ["/keyId"]);
    let revoked = home.edit(Method::DELETE, &below, json!({})).await.ok();
    assert_eq!(
        (&revoked["status"], &revoked["ends_at"]),
        (&json!("ended"), &json!(end.to_string()))
    );
    assert_eq!(world.rows().await.changes_since(&before), NOTHING);
    assert!(!works(world, old).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_has_at_most_twenty_working_keys() {
    let home = Household::in_world(World::still().await).await;
    let (world, first) = (&home.world, &home.agent);
    for _ in 1..Agent::MAX_KEYS {
        home.edit(Method::POST, "/keys", json!({})).await.created();
    }
    let before = world.rows().await;
    let create = async || home.edit(Method::POST, "/keys", json!({})).await;
    assert_eq!(paths(create().await, "one too many"), [""]);
    // During the overlap, the agent would have more keys than allowed.
    let rotate_below = format!("/keys/{}/rotate", first.key_id());
    let overlap = json!({"overlap_seconds": 1});
    let overlapping = home.edit(Method::POST, &rotate_below, overlap).await;
    assert_eq!(paths(overlapping, "one too many"), [""]);
    assert_eq!(world.rows().await.changes_since(&before), NOTHING);
    let (second, _) = rotate(&home, first, 0).await;
    assert!(works(world, &second).await && !works(world, first).await);
    let revoke = format!("/keys/{}", second.key_id());
    home.edit(Method::DELETE, &revoke, json!({})).await.ok();
    assert!(!works(world, &second).await, "at once");
    create().await.created();
    assert_eq!(
        home.read("/keys").await["count"],
        Agent::MAX_KEYS + 2,
        "the ended ones are shown"
    );
}
