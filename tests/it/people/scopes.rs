//! Tests the scopes of API keys, which limit permissions, services, networks and lifetime.

use super::{Household, NOTHING};
use purser_domain::{Duration, Timestamp};
use purser_tests::{Answer, TestAgent, World, as_repeated, body_of, dollars, paths, unpaid};
use reqwest::{Client, Method};
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr};

/// Creates an API key with this scope.
async fn limited(home: &Household, scope: Value) -> TestAgent {
    let made = home.edit(Method::POST, "/keys", scope).await.created();
    home.agent.with_key(&made["key"])
}

/// The routes that accept an agent key, each with a valid body and the needed permission.
struct Routes(Vec<(Method, String, Value, Option<&'static str>)>);

impl Routes {
    /// The routes for a payment and an approval at `lab-search`.
    async fn new(home: &Household) -> Self {
        let (world, agent) = (&home.world, &home.agent);
        home.set_policy(json!({"require_approval_above_units": dollars(5)}))
            .await;
        let paid = world.authorize(agent, &body_of(world.offer(1))).await.ok();
        let asked = world.authorize(agent, &body_of(world.offer(dollars(6)))).await;
        let asked = asked.refused(402, "approval_required");
        let settlement = format!("/x402/settlements/{}", paid["settlement_id"].as_str().unwrap());
        let mut check = body_of(world.offer(1));
        check["replay_key"] = check.as_object_mut().unwrap().remove("idempotency_key").unwrap();
        let proof = json!({"payment_response_header": "e30=", "tx_hash": world.settle(&paid).await});
        let (get, post) = (Method::GET, Method::POST);
        Self(vec![
            (
                post.clone(),
                "/x402/check/unpaid".to_owned(),
                unpaid(&check),
                Some("pay"),
            ),
            (post.clone(), "/x402/check".to_owned(), check, Some("pay")),
            (
                post.clone(),
                "/x402/authorize".to_owned(),
                body_of(world.offer(1)),
                Some("pay"),
            ),
            (post, format!("{settlement}/complete"), proof, Some("pay")),
            (get.clone(), agent.path("/settlements"), Value::Null, Some("read")),
            (
                get.clone(),
                agent.path("/services/lab-search/policy"),
                Value::Null,
                Some("read"),
            ),
            (
                get.clone(),
                format!("/mcp/agents/{}/services", agent.id),
                Value::Null,
                Some("read"),
            ),
            (get.clone(), settlement, Value::Null, None),
            (
                get.clone(),
                format!("/approvals/{}", asked["approval_id"].as_str().unwrap()),
                Value::Null,
                None,
            ),
            (
                Method::POST,
                agent.path("/runs"),
                json!({
                    "limit_units": 1, "services": ["lab-search"],
                    "expires_at": world.now().after(Duration::DAY).to_string(),
                }),
                Some("pay"),
            ),
            (get, "/mcp/agents/me".to_owned(), Value::Null, None),
        ])
    }
}

async fn call(world: &World, client: &Client, key: &str, method: &Method, path: &str, body: &Value) -> Answer {
    let request = client.request(method.clone(), format!("{}{path}", world.stack.base_url));
    let request = request.bearer_auth(key);
    World::send(if body.is_null() { request } else { request.json(body) }).await
}

/// Returns a client at another loopback address.
fn client_at(last: u8) -> Client {
    let address = IpAddr::from(Ipv4Addr::new(127, 0, 0, last));
    Client::builder().local_address(address).build().unwrap()
}

#[track_caller]
fn assert_lacks(answer: Answer, missing: &str, about: &str) {
    let mut body = answer.refused(403, "key_not_allowed");
    let members = body.as_object_mut().unwrap();
    for name in ["error", "request_id", "message"] {
        assert!(members.remove(name).is_some(), "{about}: {name}");
    }
    assert_eq!(body, json!({"missing": missing}), "{about}");
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_keys_are_limited_to_their_scope() {
    let home = Household::in_world(World::start().await).await;
    let world = &home.world;
    let Routes(routes) = Routes::new(&home).await;
    let here = "127.0.0.1/32";
    let read = limited(&home, json!({"permissions": ["read"]})).await;
    let pay = limited(&home, json!({"permissions": ["pay"]})).await;
    let elsewhere = limited(
        &home,
        json!({"networks": ["198.51.100.0/24", "::/0"], "permissions": ["read"]}),
    )
    .await;
    let other = limited(&home, json!({"services": ["lab-weather"]})).await;
    let all = json!({"permissions": ["read", "pay"], "services": ["lab-search"], "networks": [here]});
    let all = limited(&home, all).await;
    let lists = [
        home.agent.path("/settlements"),
        format!("/mcp/agents/{}/services", home.agent.id),
    ];

    let (before, decisions) = (world.rows().await, world.rows_of("DecisionsTable").await);
    for (method, path, body, needs) in &routes {
        let about = format!("{method} {path}");
        for (key, has) in [(&read, "read"), (&pay, "pay")] {
            if needs.is_some_and(|needs| needs != has) {
                let answer = call(world, &world.http, &key.key, method, path, body).await;
                assert_lacks(answer, needs.unwrap(), &about);
            }
        }
        // The network is checked first, then the permission, and then the body.
        let wrong = if body.is_null() { Value::Null } else { json!([]) };
        let answer = call(world, &world.http, &elsewhere.key, method, path, &wrong).await;
        assert_lacks(answer, "network", &about);
        let answer = call(world, &client_at(2), &all.key, method, path, body).await;
        assert_lacks(answer, "network", &about);
        if *needs == Some("pay") {
            let answer = call(world, &world.http, &read.key, method, path, &wrong).await;
            assert_lacks(answer, "pay", &about);
        }
        if !lists.contains(path) && path != "/mcp/agents/me" {
            let answer = call(world, &world.http, &other.key, method, path, body).await;
            assert_lacks(answer, "service", &about);
        }
        // A caller with a wrong secret does not learn the key's scope.
        let mut forged = elsewhere.key.clone();
        forged.replace_range(forged.len() - 4.., "zzzz");
        let answer = call(world, &world.http, &forged, method, path, body).await;
        answer.refused(401, "invalid_agent_key");
    }
    assert_eq!(world.rows().await.changes_since(&before), NOTHING);
    assert_eq!(world.rows_of("DecisionsTable").await.changes_since(&decisions), NOTHING);

    let listed = async |key: &TestAgent| {
        let [receipts, services] = [
            world.get(key, &lists[0]).await.ok(),
            world.get(key, &lists[1]).await.ok(),
        ];
        (
            receipts["count"].clone(),
            services["services"][0]["slug"].clone(),
            services["count"].clone(),
        )
    };
    assert_eq!(listed(&other).await, (json!(0), json!("lab-weather"), json!(1)));
    assert_eq!(listed(&all).await, (json!(1), json!("lab-search"), json!(1)));
    for (method, path, body, needs) in &routes {
        for (key, has) in [(&read, "read"), (&pay, "pay"), (&all, "")] {
            if has.is_empty() || needs.is_none_or(|needs| needs == has) {
                let answer = call(world, &world.http, &key.key, method, path, body).await;
                assert!([200, 201].contains(&answer.status), "{method} {path}: {}", answer.body);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replays_require_a_key_that_may_pay() {
    let home = Household::in_world(World::still().await).await;
    let (world, agent) = (&home.world, &home.agent);
    home.set_policy(json!({"require_approval_above_units": dollars(5)}))
        .await;
    let (paid, asked) = (body_of(world.offer(1)), body_of(world.offer(dollars(6))));
    let first = world.authorize(agent, &paid).await.ok();
    let question = world.authorize(agent, &asked).await.refused(402, "approval_required");
    let read = limited(&home, json!({"permissions": ["read"]})).await;
    let other = limited(&home, json!({"services": ["lab-weather"]})).await;
    let same = limited(&home, json!({"permissions": ["pay"], "services": ["lab-search"]})).await;
    let mut carrying = asked.clone();
    carrying["approval_id"] = question["approval_id"].clone();

    let (before, decisions) = (world.rows().await, world.decisions(agent).await);
    for body in [&paid, &asked, &carrying] {
        assert_lacks(world.authorize(&read, body).await, "pay", "a replay");
        assert_lacks(world.authorize(&other, body).await, "service", "a replay");
    }
    assert_eq!(world.rows().await.changes_since(&before), NOTHING);
    assert_eq!(world.decisions(agent).await, decisions);
    let again = world.authorize(&same, &paid).await.ok();
    assert_eq!(as_repeated(&again), as_repeated(&first));
    let again = world.authorize(&same, &asked).await.refused(402, "approval_required");
    assert_eq!(again["approval_id"], question["approval_id"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn rotated_agent_keys_keep_their_scope_and_expiry() {
    let home = Household::in_world(World::still().await).await;
    let world = &home.world;
    let expiry = world.now().after(Duration::from_secs_u32(3_600));
    let scope = json!({
        "permissions": ["pay"], "services": ["lab-weather"], "networks": ["127.0.0.0/8"], "expires_at": expiry.to_string(),
    });
    let told = json!({
        "permissions": ["pay"],
        "services": [world.service("lab-weather").await.id.to_string()],
        "networks": ["127.0.0.0/8"],
        "expires_at": expiry.to_string(),
    });
    let scope_of = |key: &Value| {
        let names = ["permissions", "services", "networks", "expires_at"];
        names.iter().map(|name| (*name, key[name].clone())).collect::<Value>()
    };
    let old = home.edit(Method::POST, "/keys", scope).await.created();
    assert_eq!(scope_of(&old), told);
    let old = home.agent.with_key(&old["key"]);
    let below = format!("/keys/{}/rotate", old.key_id());
    // A rotation does not extend the lifetime of the old key.
    let rotated = home.edit(Method::POST, &below, json!({"overlap_seconds": 7_200})).await;
    let rotated = rotated.created();
    assert_eq!(
        (scope_of(&rotated), scope_of(&rotated["replaced"])),
        (told.clone(), told.clone())
    );
    assert_eq!(rotated["replaced"]["ends_at"], expiry.to_string());
    let new = home.agent.with_key(&rotated["key"]);
    let keys = home.read("/keys").await;
    assert_eq!(
        (scope_of(&keys["keys"][0]), scope_of(&keys["keys"][1])),
        (told.clone(), told)
    );

    let services = format!("/mcp/agents/{}/services", home.agent.id);
    assert_lacks(world.get(&new, &services).await, "read", "rotated");
    let authorized = world.authorize(&new, &body_of(world.offer(1))).await;
    assert_lacks(authorized, "service", "rotated");

    let me = async |key: &TestAgent| world.get(key, "/mcp/agents/me").await;
    world.set_clock(Timestamp::from_micros(expiry.micros() - 1).unwrap());
    for key in [&old, &new] {
        me(key).await.ok();
    }
    world.set_clock(expiry);
    for key in [&old, &new] {
        me(key).await.refused(401, "invalid_agent_key");
    }
    assert_eq!(home.read("/keys").await["keys"][0]["status"], "ended");
    let below = format!("/keys/{}/rotate", new.key_id());
    let late = home.edit(Method::POST, &below, json!({"overlap_seconds": 60})).await;
    assert_eq!(paths(late, "an expired key"), ["/keyId"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_key_scopes_create_no_key() {
    let home = Household::in_world(World::still().await).await;
    let before = home.world.rows().await;
    let wrong = json!({
        "permissions": ["pay", "write"],
        "services": ["lab-search", "no-such"],
        "networks": ["203.0.113.7/24", "::ffff:203.0.113.0/120", "203.0.113.0"],
        "expires_at": home.world.now().to_string(),
        "name": "spare",
    });
    let told = home
        .edit(Method::POST, "/keys", wrong)
        .await
        .refused(400, "invalid_request");
    let bits = "has bits beyond its prefix: the block is `203.0.113.0/24`, the address alone `203.0.113.7/32`";
    let form = "must be a CIDR block such as `203.0.113.0/24` or `2001:db8::/32`; one address is `203.0.113.7/32`";
    let details = json!([
        {"path": "/expires_at", "message": "must be in the future"},
        {"path": "/name", "message": "is not a field of this request"},
        {"path": "/networks/0", "message": bits},
        {"path": "/networks/1", "message": "must be written as a block of IPv4"},
        {"path": "/networks/2", "message": form},
        {"path": "/permissions/1", "message": "must be one of: read, pay"},
        {"path": "/services/1", "message": "is no service of the catalog"},
    ]);
    assert_eq!(told["details"], details);
    assert_eq!(home.world.rows().await.changes_since(&before), NOTHING);
}

#[tokio::test(flavor = "multi_thread")]
async fn settlements_and_decisions_record_their_key() {
    let home = Household::in_world(World::still().await).await;
    let (world, first) = (&home.world, &home.agent);
    let second = limited(&home, json!({"permissions": ["pay"]})).await;
    for key in [first, &second] {
        let paid = world.authorize(key, &body_of(world.offer(1))).await.ok();
        let mut dear = body_of(world.offer(2));
        dear["max_payment_units"] = json!(1);
        let refused = world.authorize(key, &dear).await.refused(402, "amount_exceeds_max");
        let settlement = format!("/settlements/{}", paid["settlement_id"].as_str().unwrap());
        assert_eq!(home.read(&settlement).await["key_id"], key.key_id());
        for decided in [&paid, &refused] {
            let decision = format!("/decisions/{}", decided["transaction_id"].as_str().unwrap());
            assert_eq!(home.read(&decision).await["key_id"], key.key_id());
        }
    }
}
