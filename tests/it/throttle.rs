//! Tests the throttle of addresses and API keys. `errors.rs` and `people/throttle.rs` test responses and users.

use purser_domain::{SpendPolicy, Timestamp};
use purser_local::Options;
use purser_testkit::Call;
use purser_tests::{Answer, TestAgent, World, as_repeated, body_of};
use reqwest::{Client, Method};
use serde_json::json;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

const ME: &str = "/mcp/agents/me";

/// Returns a client at another loopback address.
fn client_at(last: u8) -> Client {
    let address = IpAddr::from(Ipv4Addr::new(127, 0, 0, last));
    Client::builder().local_address(address).build().unwrap()
}

async fn me(world: &World, client: &Client, key: &str) -> Answer {
    let request = client.get(format!("{}{ME}", world.stack.base_url));
    World::send(request.bearer_auth(key)).await
}

/// Returns a time in a minute in which nothing is counted yet.
fn in_a_new_minute(world: &World, second: u64) -> Timestamp {
    Timestamp::from_secs((world.now().secs() / 60 + 2) * 60 + second).unwrap()
}

/// Takes the database calls since the last call of this function, without reads of the catalog.
fn calls(world: &World) -> Vec<Call> {
    let mut calls = world.proxy.as_ref().unwrap().calls().take();
    calls.retain(|call| call.request["TableName"] != "CatalogTable");
    calls
}

/// Returns the counters of an agent's keys.
async fn counted(world: &World, agent: &TestAgent) -> Vec<String> {
    let scan = world.stack.db.scan().table_name("ThrottleTable").send().await.unwrap();
    let prefix = format!("RL#key {}#", agent.id);
    let of_keys = scan
        .items()
        .iter()
        .filter(|item| item["pk"].as_s().unwrap().starts_with(&prefix));
    of_keys.map(|item| item["n"].as_n().unwrap().clone()).collect()
}

/// Returns whether the call adds to a key's counter.
fn counts_a_key(call: &Call) -> bool {
    let pk = call.request["Key"]["pk"]["S"].as_str();
    pk.is_some_and(|pk| pk.starts_with("RL#key "))
}

/// Returns the same key with a wrong secret.
fn with_a_wrong_secret(key: &str) -> String {
    let (rest, last) = key.split_at(key.len() - 1);
    format!("{rest}{}", if last == "0" { "1" } else { "0" })
}

async fn key_limited(limit: u32) -> World {
    let limit = ("KEY_REQUESTS_PER_MINUTE".to_owned(), limit.to_string());
    World::watched_with(Options {
        environment: [limit].into_iter().collect(),
        ..Options::default()
    })
    .await
}

/// Calls until the key is rejected. Returns the number of accepted calls, and the rejection.
async fn until_refused(ask: impl AsyncFn() -> Answer) -> (usize, Answer) {
    for answered in 0..1_000 {
        let answer = ask().await;
        if answer.status == 429 {
            return (answered, answer);
        }
        answer.ok();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("the key is never refused");
}

/// Confirmed and expired payments also count.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_with_too_many_authorized_payments_is_throttled() {
    const MAX: usize = 4;
    let limit = ("MAX_HOLDS_PER_AGENT".to_owned(), MAX.to_string());
    let world = World::still_with(Options {
        environment: [limit].into(),
        ..Options::default()
    })
    .await;
    let [agent, other] = [(); 2].map(|()| world.agent(SpendPolicy::permissive(), vec![]));
    let (agent, other) = tokio::join!(agent, other);
    // The window is 900 seconds, the maximum lifetime of an authorization, and began 17 seconds ago.
    let began = (world.now().secs() / 900 + 1) * 900;
    world.set_clock(Timestamp::from_secs(began + 17).unwrap());
    let first = body_of(world.offer(1));
    let paid = world.authorize(&agent, &first).await.ok();

    let (answered, refused) = until_refused(async || world.authorize(&agent, &body_of(world.offer(1))).await).await;
    assert!(answered + 1 >= MAX, "{answered}");
    let told = refused.refused(429, "too_many_requests");
    assert_eq!(told["retry_after"], 900 - 17);
    assert_eq!(told["message"], "too many requests; wait 883 s");
    let rows = world.rows().await;
    let again = world.authorize(&agent, &body_of(world.offer(1))).await;
    again.refused(429, "too_many_requests");
    assert!(world.rows().await.changes_since(&rows).is_empty());

    let again = world.authorize(&agent, &first).await.ok();
    assert_eq!(as_repeated(&again), as_repeated(&paid));
    let mut dear = body_of(world.offer(1_000));
    dear["max_payment_units"] = 1.into();
    world.authorize(&agent, &dear).await.refused(402, "amount_exceeds_max");
    world.authorize(&other, &body_of(world.offer(1))).await.ok();
    world.set_clock(Timestamp::from_secs(began + 900).unwrap());
    world.authorize(&agent, &body_of(world.offer(1))).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_throttled_key_does_not_affect_others() {
    const LIMIT: u32 = 6;
    let world = key_limited(LIMIT).await;
    let [agent, other] = [(); 2].map(|()| world.agent(SpendPolicy::permissive(), vec![]));
    let (agent, other) = tokio::join!(agent, other);
    let now = in_a_new_minute(&world, 17);
    world.set_clock(now);

    let [first, second, third] = [2, 3, 4].map(client_at);
    for _ in 0..LIMIT / 2 {
        me(&world, &first, &agent.key).await.ok();
        me(&world, &second, &agent.key).await.ok();
    }
    let (_, answer) = until_refused(async || me(&world, &third, &agent.key).await).await;
    assert_eq!(answer.headers["retry-after"], "43");
    assert_eq!(answer.refused(429, "too_many_requests")["retry_after"], 43);

    // The function now rejects the key without a database call, from any address.
    world.proxy.as_ref().unwrap().quiet().await;
    calls(&world);
    for client in [&first, &second, &third, &world.http] {
        for path in [ME, "/mcp/agents/x/services", "/agents/x/services/y/policy"] {
            let request = client
                .get(format!("{}{path}", world.stack.base_url))
                .bearer_auth(&agent.key);
            World::send(request).await.refused(429, "too_many_requests");
        }
    }
    // The last write of the count may still be in flight, so this write is ignored.
    let mut calls = calls(&world);
    calls.retain(|call| !counts_a_key(call));
    assert!(calls.is_empty(), "{calls:#?}");

    // Another function learns of the limit with its next counted call.
    let body = body_of(world.offer(1));
    let check = async || world.check(&agent, &body).await;
    let (answered, _) = until_refused(check).await;
    assert!(answered >= 1, "it has to ask first");
    let rows = world.rows().await;
    let refused = world.authorize(&agent, &body).await;
    refused.refused(429, "too_many_requests");
    assert!(world.rows().await.changes_since(&rows).is_empty());

    // A caller with a wrong secret does not learn that the key is throttled.
    let wrong = with_a_wrong_secret(&agent.key);
    me(&world, &first, &wrong).await.refused(401, "invalid_agent_key");
    for client in [&first, &second, &third] {
        me(&world, client, &other.key).await.ok();
    }
    world.authorize(&other, &body_of(world.offer(1))).await.ok();
    world.call(Method::GET, "/services", None, None).await.ok();

    world.set_clock(in_a_new_minute(&world, 0));
    me(&world, &first, &agent.key).await.ok();
    check().await.ok();
}

/// A key's count is written once per fiftieth of the limit.
#[tokio::test(flavor = "multi_thread")]
async fn verified_calls_of_an_agent_key_are_counted_in_chunks_and_others_are_not() {
    const LIMIT: u32 = 600;
    const CHUNK: usize = 12;
    let world = key_limited(LIMIT).await;
    let agent = world.agent(SpendPolicy::permissive(), vec![]).await;
    world.set_clock(in_a_new_minute(&world, 0));
    let wrong = with_a_wrong_secret(&agent.key);
    for _ in 0..2 * CHUNK {
        me(&world, &world.http, &wrong).await.refused(401, "invalid_agent_key");
    }
    for _ in 1..CHUNK {
        me(&world, &world.http, &agent.key).await.ok();
    }
    world.proxy.as_ref().unwrap().quiet().await;
    assert_eq!(counted(&world, &agent).await.len(), 0, "in memory alone");
    calls(&world);
    for _ in 0..=CHUNK {
        me(&world, &world.http, &agent.key).await.ok();
    }
    let proxy = world.proxy.as_ref().unwrap();
    // Each call reads the agent and counts for the address. The key's count is written twice.
    proxy.calls().reach(2 * (CHUNK + 1) + 2).await;
    proxy.quiet().await;
    assert_eq!(calls(&world).iter().filter(|call| counts_a_key(call)).count(), 2);
    assert_eq!(counted(&world, &agent).await, ["24"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_key_is_rejected_without_the_throttle_table() {
    let environment = [("KEY_REQUESTS_PER_MINUTE", "1"), ("THROTTLE_TABLE", "Missing")];
    let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let world = World::watched_with(Options {
        environment: environment.into_iter().collect(),
        ..Options::default()
    })
    .await;
    let agent = world.agent(SpendPolicy::permissive(), vec![]).await;
    for _ in 0..5 {
        me(&world, &world.http, &agent.key).await.ok();
        world.proxy.as_ref().unwrap().quiet().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_throttle_rejections_use_no_database_calls() {
    const LIMIT: u32 = 20;
    let world = World::watched_with(Options {
        throttle_per_minute: LIMIT,
        ..Options::default()
    })
    .await;
    let agent = world.agent(SpendPolicy::permissive(), vec![]).await;
    let person = world.person(&purser_local::DEMO_OWNER);
    world.set_clock(in_a_new_minute(&world, 30));
    let get = async || world.get(&agent, ME).await;
    let list = async || world.person_gets(&person, "/agents").await;
    let body = json!({});
    for _ in 0..LIMIT {
        get().await.ok();
        list().await.ok();
    }
    // The first rejection of each function comes from the counter.
    get().await.refused(429, "too_many_requests");
    list().await.refused(429, "too_many_requests");
    world.proxy.as_ref().unwrap().quiet().await;
    calls(&world);
    let refused = |answer: Answer| {
        assert_eq!(answer.headers["retry-after"], "30");
        assert_eq!(answer.refused(429, "too_many_requests")["retry_after"], 30);
    };
    for _ in 0..3 {
        refused(get().await);
        refused(world.call(Method::GET, ME, None, None).await);
        refused(
            world
                .call(Method::GET, "/mcp/agents/x/services", Some("a:b"), None)
                .await,
        );
        refused(list().await);
        refused(world.person_edits(&person, Method::POST, "/agents", &body).await);
    }
    assert_eq!(calls(&world).len(), 0);

    // Another address with the same key is not affected.
    me(&world, &client_at(9), &agent.key).await.ok();
    world.set_clock(in_a_new_minute(&world, 0));
    get().await.ok();
    list().await.ok();
}
