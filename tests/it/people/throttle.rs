//! Tests the throttle of users, who are counted by identity and not by address.

use super::{Household, KIM, LEE, NOTHING};
use crate::access::{Route, routes};
use purser_domain::Timestamp;
use purser_local::Options;
use purser_tests::{Answer, World, fresh_key};
use reqwest::{Method, Response};
use serde_json::json;

/// The limit per minute, which exceeds the number of calls that create the demo agent.
const LIMIT: u32 = 20;
/// The number of calls that the test makes in different ways.
const ASKED: u32 = 5;

#[tokio::test(flavor = "multi_thread")]
async fn throttling_affects_only_the_requesting_user() {
    let world = World::still_with(Options {
        throttle_per_minute: LIMIT,
        ..Options::default()
    })
    .await;
    let home = Household::in_world(world).await;
    let (world, kim, agent) = (&home.world, &home.kim, &home.agent);
    let lee = world.person(&LEE);
    let cookie = world.browser_session(&KIM).await;
    let minute = world.now().secs() / 60 * 60;
    let second = |second: u64| Timestamp::from_secs(minute + second).unwrap();
    let get = async |person| world.person_gets(person, "/agents").await;
    let page = async |method: Method, path: &str| -> Response {
        let request = world.http.request(method, format!("{}{path}", world.stack.base_url));
        let request = request
            .header("cookie", &cookie)
            .header("sec-fetch-site", "same-origin");
        request.send().await.unwrap()
    };
    let limited = |answer: Answer, seconds: u64| {
        assert_eq!(answer.headers["retry-after"], seconds.to_string());
        assert_eq!(answer.refused(429, "too_many_requests")["retry_after"], seconds);
    };

    // All calls with a session count, also rejected ones.
    world.set_clock(second(60));
    for _ in ASKED..LIMIT {
        get(kim).await.ok();
    }
    get(kim).await.ok();
    world.person_gets(kim, "/agents/x").await.refused(404, "not_found");
    assert_eq!(page(Method::GET, "/dashboard").await.status(), 200);
    assert_eq!(page(Method::GET, "/dashboard/approvals/waiting").await.status(), 200);
    for _ in 0..=LIMIT {
        world
            .call(Method::GET, "/agents", Some("a.b.c"), None)
            .await
            .refused(401, "invalid_session");
    }
    let again = world.person(&KIM);
    world
        .person_gets(&again, &format!("/approvals/{}", fresh_key()))
        .await
        .refused(404, "not_found");
    world.set_clock(second(83));
    let before = world.rows().await;
    limited(get(kim).await, 37);
    limited(get(&again).await, 37);

    // The throttle comes before all other checks. `flood.rs` of `people` tests the end of sessions.
    let names = [("{agentId}", agent.id.to_string()), ("{id}", fresh_key())];
    let opened = routes();
    let opened = opened
        .iter()
        .filter(|route| route.takes_both || route.scheme.as_deref() == Some("session"));
    let ends = |route: &&Route| route.method == Method::DELETE && route.path.starts_with("/sessions");
    for route in opened.filter(|route| !ends(route)) {
        let path = names
            .iter()
            .fold(route.path.clone(), |path, (name, value)| path.replace(name, value));
        let path = path.replace(['{', '}'], "");
        limited(
            world.person_edits(kim, route.method.clone(), &path, &json!({})).await,
            37,
        );
    }
    for (method, path) in [
        (Method::GET, "/dashboard".to_owned()),
        (Method::GET, "/dashboard/decisions".to_owned()),
        (Method::GET, "/dashboard/approvals/waiting".to_owned()),
        (Method::POST, format!("/dashboard/agents/{}/unfreeze", agent.id)),
    ] {
        let answer = page(method, &path).await;
        assert_eq!(
            (answer.status().as_u16(), &answer.headers()["retry-after"]),
            (429, &"37".parse().unwrap())
        );
        assert!(answer.text().await.unwrap().contains("Wait a minute"), "{path}");
    }
    assert_eq!(world.rows().await.changes_since(&before), NOTHING);
    for asset in ["style.css", "script.js"] {
        assert_eq!(page(Method::GET, &format!("/dashboard/{asset}")).await.status(), 200);
    }

    // Another user at the same address is not affected, nor is the user's agent.
    get(&lee).await.ok();
    world.get(agent, "/mcp/agents/me").await.ok();
    world
        .get(agent, &format!("/approvals/{}", fresh_key()))
        .await
        .refused(404, "not_found");

    world.set_clock(second(120));
    get(kim).await.ok();
}
