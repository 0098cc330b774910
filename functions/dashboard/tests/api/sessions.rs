//! Tests when sessions end, which actions require a recent sign-in, and who may sign in.

use crate::support::World;
use crate::support::browser::{answer, asked};
use axum::http::Method;
use purser_testkit::authorize::Answer as Told;
use serde_json::{Value, json};
use std::sync::atomic::Ordering;

const SIGN_IN: &str = "/dashboard/sign-in";

/// A session's id from the list cannot be used as the session.
#[tokio::test]
async fn ended_sessions_are_rejected_immediately_by_every_instance() {
    let world = World::start().await;
    let other = world.elsewhere(&[]).await;
    let mut ann = world.browser("ann").await;
    let mut there = other.stranger();
    there.cookies = ann.cookies.clone();
    there.get("/dashboard").await.is(200, "ann");

    let listed = world.get("ann", "/sessions").await.ok();
    assert_eq!(listed["count"], 1);
    let id = listed["sessions"][0]["session_id"].as_str().unwrap();
    // The list contains no value that can be used as a session cookie.
    let (person, secret) = ann.cookies["purser-session"].split_once('.').unwrap();
    assert!(!listed.to_string().contains(secret));
    let mut by_id = world.stranger();
    by_id
        .cookies
        .insert("purser-session".to_owned(), format!("{person}.{id}"));
    assert_eq!(by_id.get("/dashboard").await.leads(), SIGN_IN);

    let end = format!("/sessions/{id}");
    let ended = world.call("ann", "DELETE", &end, None, None).await.ok();
    assert_eq!(ended, json!({"ended": 1}));
    for browser in [&mut ann, &mut there] {
        assert_eq!(browser.get("/dashboard").await.leads(), SIGN_IN);
        assert_eq!(browser.get("/dashboard/approvals/waiting").await.status, 401);
    }
    let again = world.call("ann", "DELETE", &end, None, None).await;
    assert_eq!((again.status, &again.body["error"]), (404, &json!("not_found")));
}

/// A sign-in that started earlier is also rejected.
#[tokio::test]
async fn ending_all_sessions_invalidates_cookies_and_tokens() {
    let world = World::start().await;
    let other = world.elsewhere(&[]).await;
    let mut thief = other.stranger();
    thief.cookies = world.browser("ann").await.cookies;
    let mut ann = world.browser("ann").await;
    let token = world.issuer.token("ann", world.now());
    let mut under_way = world.stranger();
    let question = asked(&under_way.get("/dashboard/sign-in/start").await);
    let bob = world.browser("bob").await.cookies;

    let page = ann.get("/dashboard/sessions").await;
    assert_eq!(page.html.matches("<li class=\"row\"").count(), 2);
    assert_eq!(page.html.matches("this one</span>").count(), 1);
    world.advance(10);
    let out = ann.post("/dashboard/sessions", "/dashboard/sessions/end", &[]).await;
    assert_eq!(out.leads(), "/dashboard/sign-in?notice=all_ended");
    assert!(ann.cookies.is_empty());

    assert_eq!(thief.get("/dashboard").await.leads(), SIGN_IN);
    for world in [&world, &other] {
        let refused = world.call_with(&token, "GET", "/agents", None, None).await;
        assert_eq!(
            (refused.status, &refused.body["error"]),
            (401, &json!("invalid_session"))
        );
    }
    // A sign-in from before the end creates no session, no matter how late it is completed.
    let before = world.now().secs() - 10;
    *world.issuer.claims.lock().unwrap() = json!({"auth_time": before});
    let revived = under_way.get(&answer("ann", &question)).await;
    assert_eq!(revived.leads(), "/dashboard/sign-in?notice=sign_in_again");
    assert!(under_way.cookies.is_empty());
    *world.issuer.claims.lock().unwrap() = json!({});

    // Other users' sessions remain, and the user can sign in again.
    let mut browser = world.stranger();
    browser.cookies = bob;
    browser.get("/dashboard").await.is(200, "bob");
    world.advance(1);
    world.browser("ann").await.get("/dashboard").await.is(200, "ann");
    world.get("ann", "/agents").await.ok();
    assert_eq!(world.get("ann", "/sessions").await.ok()["count"], 1);
}

#[tokio::test]
async fn sessions_end_when_idle_and_at_maximum_age() {
    let world = World::with(&[("SESSION_IDLE_MINUTES", "30"), ("SESSION_HOURS", "2")]).await;
    let mut ann = world.browser("ann").await;
    // The script's polls do not count as use, but each page view does.
    for _ in 0..3 {
        world.advance(20 * 60);
        assert_eq!(ann.get("/dashboard/approvals/waiting").await.status, 200);
        world.advance(9 * 60);
        ann.get("/dashboard").await.is(200, "ann");
    }
    let listed = world.get("ann", "/sessions").await.ok();
    assert_eq!(listed["sessions"][0]["last_seen_at"], json!(world.now().to_string()));
    world.advance(29 * 60);
    assert_eq!(ann.get("/dashboard/approvals/waiting").await.status, 200);
    world.advance(60);
    assert_eq!(ann.get("/dashboard/approvals/waiting").await.status, 401);
    assert_eq!(ann.get("/dashboard").await.leads(), SIGN_IN);

    let mut ann = world.browser("ann").await;
    for _ in 0..4 {
        ann.get("/dashboard").await.is(200, "ann");
        world.advance(29 * 60);
    }
    ann.get("/dashboard").await.is(200, "ann");
    world.advance(4 * 60);
    assert_eq!(ann.get("/dashboard").await.leads(), SIGN_IN);
    let listed = world.get("ann", "/sessions").await.ok();
    assert_eq!((&listed["sessions"], &listed["count"]), (&json!([]), &json!(0)));
}

#[tokio::test]
async fn sessions_end_when_entitlement_settings_change() {
    let world = World::start().await;
    let cookies = world.browser("ann").await.cookies;
    let stricter = world
        .elsewhere(&[("ENTITLEMENT_CLAIM", "groups"), ("ENTITLEMENT_VALUE", "purser")])
        .await;
    let mut there = stricter.stranger();
    there.cookies = cookies;
    assert_eq!(there.get("/dashboard").await.leads(), SIGN_IN);
}

#[tokio::test]
async fn sign_in_requires_the_entitlement_claim_in_the_id_token() {
    let world = World::with(&[("ENTITLEMENT_CLAIM", "groups"), ("ENTITLEMENT_VALUE", "purser")]).await;
    let refused = world.get("ann", "/agents").await;
    let mut body = refused.body;
    for name in ["message", "request_id"] {
        assert!(body.as_object_mut().unwrap().remove(name).unwrap().is_string());
    }
    let expected = json!({"error": "not_entitled", "claim": "groups"});
    assert_eq!((refused.status, body), (403, expected));
    let mut ann = world.stranger();
    let page = ann.sign_in("ann", "/dashboard/sign-in/start").await;
    page.is(403, "not entitled to use Purser");
    assert!(!ann.cookies.contains_key("purser-session"));

    let claims = json!({"groups": ["staff", "purser"]});
    let token = world.issuer.token_with("ann", world.now(), &claims);
    world.call_with(&token, "GET", "/agents", None, None).await.ok();
    *world.issuer.claims.lock().unwrap() = claims;
    world.browser("ann").await.get("/dashboard").await.is(200, "ann");
}

#[tokio::test]
async fn equal_subjects_of_different_issuers_are_different_users() {
    let world = World::start().await;
    let agent = world.agent("ann").await;
    let foreign = crate::support::Issuer::start(std::sync::Arc::default()).await;
    let other = world.elsewhere(&[("OIDC_ISSUER", &foreign.url)]).await;
    let token = foreign.token("ann", world.now());
    let seen = other
        .call_with(&token, "GET", &format!("/agents/{agent}"), None, None)
        .await;
    assert_eq!(seen.status, 404, "{}", seen.body);
    let listed = other.call_with(&token, "GET", "/agents", None, None).await.ok();
    assert_eq!(listed["count"], 0);
    // A deployment with a different identity provider rejects the token.
    let refused = world.call_with(&token, "GET", "/agents", None, None).await;
    assert_eq!(refused.status, 401);
}

/// An expired sign-in is also rejected.
#[tokio::test]
async fn forged_sign_ins_never_reach_the_issuer() {
    let world = World::start().await;
    let mut browser = world.stranger();
    let question = asked(&browser.get("/dashboard/sign-in/start").await);
    let (name, signed) = browser
        .cookies
        .first_key_value()
        .map(|(name, value)| (name.clone(), value.clone()))
        .unwrap();
    let named = |state: &str| format!("purser-sign-in-{}", state.get(..8).unwrap());
    assert_eq!(name, named(&question["state"]));
    let (text, signature) = signed.rsplit_once('.').unwrap();
    let (_, rest) = text.split_once('.').unwrap();
    let forged_state = "x".repeat(43);
    let mut of_forged = question.clone();
    of_forged.insert("state".to_owned(), forged_state.clone());
    for (cookie, question) in [
        (format!("{forged_state}.{rest}.{signature}"), &of_forged),
        (text.to_owned(), &question),
        (format!("{text}."), &question),
    ] {
        browser.cookies.insert(named(&question["state"]), cookie.clone());
        let seen = browser.get(&answer("ann", question)).await;
        assert_eq!(seen.leads(), "/dashboard/sign-in?notice=sign_in_stale", "{cookie}");
    }
    // The signed cookie has expired.
    browser.cookies.insert(name, signed);
    world.advance(600);
    let seen = browser.get(&answer("ann", &question)).await;
    assert_eq!(seen.leads(), "/dashboard/sign-in?notice=sign_in_stale");
    assert_eq!(world.issuer.redeemed.load(Ordering::SeqCst), 0);
}

/// Above the limit, the response is 429, and the identity provider is not called.
#[tokio::test]
async fn sign_in_attempts_are_limited_per_address() {
    let world = World::with(&[("THROTTLE_PER_MINUTE", "3")]).await;
    let mut statuses = Vec::new();
    for _ in 0..5 {
        let mut browser = world.stranger();
        let mut question = asked(&browser.get("/dashboard/sign-in/start").await);
        question.insert("code_challenge".to_owned(), "wrong".to_owned());
        statuses.push(browser.get(&answer("ann", &question)).await.status);
    }
    assert_eq!(statuses, [303, 303, 303, 429, 429]);
    assert_eq!(world.issuer.redeemed.load(Ordering::SeqCst), 3);
}

/// API actions that require a recent sign-in: the method, the path below the agent's path, and the body.
fn widening() -> Vec<(&'static str, &'static str, Value)> {
    vec![
        ("POST", "/keys", json!({})),
        ("POST", "/keys/{key}/rotate", json!({"overlap_seconds": 0})),
        ("PATCH", "", json!({"status": "active"})),
        ("PATCH", "/services/lab", json!({"max_per_call_units": 200})),
        ("PATCH", "/services/lab", json!({"max_per_day_units": 900})),
        ("PATCH", "/services/lab", json!({"require_approval_above_units": 90})),
        ("PATCH", "/services/lab", json!({"allowed_domains": ["*"]})),
        ("PATCH", "/services/lab", json!({"enabled_operations": null})),
        ("PATCH", "/services/maps", json!({"enabled": true})),
        ("POST", "/services", json!({"service_id": "maps"})),
        (
            "PUT",
            "/rules/{rule}",
            json!({"kind": "budget_limit", "limit_units": 8, "window_seconds": 3_600}),
        ),
        ("DELETE", "/rules/{rule}", json!({})),
    ]
}

/// Updates that only restrict an agent never require a recent sign-in.
#[tokio::test]
async fn json_updates_that_widen_limits_require_a_recent_sign_in() {
    let world = World::start().await;
    let agent = world.agent("ann").await;
    let path = |below: &str| format!("/agents/{agent}{below}");
    let edit = async |method: &str, below: &str, body| world.edit("ann", method, &path(below), body).await;
    let key = edit("POST", "/keys", json!({})).await.created();
    let limits = json!({
        "max_per_call_units": 100, "max_per_day_units": 500, "require_approval_above_units": 50,
        "allowed_domains": ["example.com"], "enabled_operations": ["lab.current"],
    });
    edit("PATCH", "/services/lab", limits).await.ok();
    edit("PATCH", "/services/maps", json!({"enabled": false})).await.ok();
    let rule = json!({"kind": "budget_limit", "limit_units": 7, "window_seconds": 3_600});
    let rule = edit("POST", "/rules", rule).await.created();
    edit("PATCH", "", json!({"status": "frozen"})).await.ok();
    let named = |below: &str| {
        let below = below.replace("{key}", key["key_id"].as_str().unwrap());
        path(&below.replace("{rule}", rule["rule_id"].as_str().unwrap()))
    };

    // The token is new, but the sign-in was more than ten minutes ago.
    world.advance(700);
    let before = world.now().secs() - 600;
    let old = world
        .issuer
        .token_with("ann", world.now(), &json!({"auth_time": before}));
    let version = world.get("ann", &path("")).await.ok()["version"].clone();
    for (method, below, body) in widening() {
        let refused = world
            .call_with(&old, method, &named(below), Some("*"), Some(body))
            .await;
        let mut told = refused.body;
        for name in ["message", "request_id"] {
            assert!(told.as_object_mut().unwrap().remove(name).unwrap().is_string());
        }
        let expected = json!({"error": "recent_sign_in_required", "max_age_seconds": 600});
        assert_eq!((refused.status, told), (403, expected), "{method} {below}");
    }
    assert_eq!(world.get("ann", &path("")).await.ok()["version"], version);

    for (method, below, body) in [
        ("PATCH", "", json!({"name": "other"})),
        ("PATCH", "", json!({"status": "frozen"})),
        (
            "PATCH",
            "/services/lab",
            json!({"max_per_call_units": 99, "allowed_domains": ["www.example.com"]}),
        ),
        ("DELETE", "/services/lab", json!({})),
        (
            "PUT",
            "/rules/{rule}",
            json!({"kind": "budget_limit", "limit_units": 6, "window_seconds": 7_200}),
        ),
        (
            "POST",
            "/rules",
            json!({"kind": "category_block", "categories": ["finance"]}),
        ),
        ("DELETE", "/keys/{key}", json!({})),
    ] {
        let done = world
            .call_with(&old, method, &named(below), Some("*"), Some(body))
            .await;
        assert!(matches!(done.status, 200 | 201), "{method} {below}: {}", done.body);
    }

    // Just before ten minutes have passed, all of these actions are allowed.
    let fresh = world
        .issuer
        .token_with("ann", world.now(), &json!({"auth_time": before + 1}));
    for (method, below, body) in widening().into_iter().filter(|(_, below, _)| !below.contains("{key}")) {
        let done = world
            .call_with(&fresh, method, &named(below), Some("*"), Some(body))
            .await;
        assert!(matches!(done.status, 200 | 201), "{method} {below}: {}", done.body);
    }
}

/// A new sign-in returns to the page and replaces the old session.
#[tokio::test]
async fn forms_that_widen_limits_redirect_to_a_new_sign_in() {
    let world = World::start().await;
    let agent = world.agent("ann").await;
    let page = format!("/dashboard/agents/{agent}");
    let keys = format!("{page}/keys");
    let mut ann = world.browser("ann").await;
    let first = ann.cookies.clone();
    world.advance(600);
    let refused = ann.post(&page, &keys, &[("version", "1")]).await;
    let next = page.replace('/', "%2F");
    assert_eq!(
        refused.leads(),
        format!("/dashboard/sign-in?next={next}&notice=sign_in_again")
    );
    let start = format!("/dashboard/sign-in/start?next={next}&again=yes");
    ann.get(refused.leads()).await.is(200, &start.replace('&', "&amp;"));

    // Some identity providers ignore `max_age`, and return an old `auth_time` or none.
    for claims in [json!({"auth_time": world.now().secs() - 600}), json!({})] {
        *world.issuer.claims.lock().unwrap() = claims;
        let question = asked(&ann.get(&start).await);
        assert_eq!((&*question["prompt"], &*question["max_age"]), ("login", "600"));
        let not_asked = ann.get(&answer("ann", &question)).await;
        assert_eq!(
            not_asked.leads(),
            format!("/dashboard/sign-in?next={next}&notice=sign_in_not_again")
        );
        ann.post(&page, &keys, &[("version", "1")]).await.leads();
    }

    *world.issuer.claims.lock().unwrap() = json!({"auth_time": world.now().secs()});
    assert_eq!(ann.sign_in("ann", &start).await.leads(), page);
    ann.post(&page, &keys, &[("version", "1")]).await.is(200, "Copy it now");
    // The old cookie is no longer valid.
    let mut old = world.stranger();
    old.cookies = first;
    assert_eq!(old.get("/dashboard").await.leads(), SIGN_IN);
    assert_eq!(world.get("ann", "/sessions").await.ok()["count"], 1);
}

/// A small approval or a rejection does not require a recent sign-in.
#[tokio::test]
async fn large_approvals_require_a_recent_sign_in() {
    let world = World::with(&[("RECENT_SIGN_IN_ABOVE_UNITS", "20")]).await;
    let agent = world.agent("ann").await;
    let policy = json!({"max_per_day_units": 100, "require_approval_above_units": 10});
    let lab = format!("/agents/{agent}/services/lab");
    world.edit("ann", "PATCH", &lab, policy).await.ok();
    let mut asked = Vec::new();
    for (amount, key) in [(20, "a"), (21, "b"), (21, "c")] {
        match world.pay(&agent, amount, key).await {
            Told::Waits(approval) => asked.push(format!("/agents/{agent}/approvals/{approval}")),
            other => panic!("{other:?}"),
        }
    }
    let old = world.issuer.token("ann", world.now());
    let mut ann = world.browser("ann").await;
    world.advance(600);
    let decide = async |token: &str, path: &str| world.call_with(token, "POST", path, None, Some(json!({}))).await;
    let refused = decide(&old, &format!("{}/approve", asked[1])).await;
    assert_eq!(
        (refused.status, &refused.body["error"]),
        (403, &json!("recent_sign_in_required"))
    );
    let queue = "/dashboard/approvals";
    let form = format!("/dashboard{}/approve", asked[1]);
    assert_eq!(
        ann.post(queue, &form, &[]).await.leads(),
        "/dashboard/sign-in?next=%2Fdashboard%2Fapprovals&notice=sign_in_again"
    );
    decide(&old, &format!("{}/approve", asked[0])).await.ok();
    decide(&old, &format!("{}/reject", asked[2])).await.ok();
    let fresh = world.issuer.token("ann", world.now());
    decide(&fresh, &format!("{}/approve", asked[1])).await.ok();
}

#[tokio::test]
async fn an_access_token_is_not_accepted_as_a_session() {
    let world = World::start().await;
    for claims in [
        json!({"token_use": "access"}),
        json!({"scope": "openid"}),
        json!({"aud": null, "client_id": "dashboard"}),
    ] {
        let token = world.issuer.token_with("ann", world.now(), &claims);
        let refused = world.call_with(&token, "GET", "/agents", None, None).await;
        assert_eq!(
            (refused.status, &refused.body["error"]),
            (401, &json!("invalid_session"))
        );
    }
}

/// The user agent is truncated to 200 characters, and another user cannot end the session.
#[tokio::test]
async fn sessions_are_listed_and_ended_by_form() {
    let world = World::start().await;
    let mut here = world.browser("ann").await;
    let mut phone = world.stranger();
    let question = asked(&phone.get("/dashboard/sign-in/start").await);
    let long = format!("Phone <b>{}", "x".repeat(500));
    let headers = [("user-agent", long.as_str())];
    phone
        .send(Method::GET, &answer("ann", &question), &headers, String::new())
        .await;
    let page = here.get("/dashboard/sessions").await;
    page.is(200, "Phone &lt;b&gt;x");
    let listed = world.get("ann", "/sessions").await.ok();
    let phones = listed["sessions"].as_array().unwrap().iter();
    let phones: Vec<&Value> = phones.filter(|session| session["user_agent"].is_string()).collect();
    assert_eq!(phones[0]["user_agent"].as_str().unwrap().len(), 200);
    let id = phones[0]["session_id"].as_str().unwrap();

    // For another user the session does not exist.
    let end = format!("/dashboard/sessions/{id}/end");
    let mut bob = world.browser("bob").await;
    assert_eq!(bob.post("/dashboard/sessions", &end, &[]).await.status, 404);
    phone.get("/dashboard").await.is(200, "ann");
    let ended = here.post("/dashboard/sessions", &end, &[]).await;
    assert_eq!(ended.leads(), "/dashboard/sessions?notice=session_ended");
    assert_eq!(phone.get("/dashboard").await.leads(), SIGN_IN);
    here.get(ended.leads()).await.is(200, "That session has ended.");
    assert_eq!(here.get(&end).await.leads(), "/dashboard/sessions");
}
