//! Tests that only the browser that started a sign-in can finish it, and that it leads only to Purser's pages.

use crate::support::World;
use crate::support::browser::{self, Browser, ORIGIN, answer};
use axum::http::Method;
use std::collections::BTreeMap;

/// Starts a sign-in. Returns the parameters that are sent to the identity provider.
async fn asked(browser: &mut Browser<'_>, next: &str) -> BTreeMap<String, String> {
    browser::asked(&browser.get(&format!("/dashboard/sign-in/start?next={next}")).await)
}

#[tokio::test]
async fn sign_in_returns_to_the_requested_page() {
    let world = World::start().await;
    let mut browser = world.stranger();
    let first = browser.get("/dashboard/decisions?result=block").await;
    assert_eq!(
        first.leads(),
        "/dashboard/sign-in?next=%2Fdashboard%2Fdecisions%3Fresult%3Dblock"
    );
    let page = browser.get(first.leads()).await;
    page.is(
        200,
        "href=\"/dashboard/sign-in/start?next=%2Fdashboard%2Fdecisions%3Fresult%3Dblock\"",
    );

    let question = asked(&mut browser, "%2Fdashboard%2Fdecisions%3Fresult%3Dblock").await;
    let expected = [
        ("response_type", "code"),
        ("client_id", "dashboard"),
        ("redirect_uri", "http://127.0.0.1:3000/dashboard/callback"),
        ("code_challenge_method", "S256"),
    ];
    for (name, value) in expected {
        assert_eq!(question[name], value);
    }
    let back = browser.get(&answer("ann", &question)).await;
    assert_eq!(back.leads(), "/dashboard/decisions?result=block");
    assert_eq!(browser.cookies.keys().collect::<Vec<_>>(), ["purser-session"]);
    browser
        .get("/dashboard/decisions?result=block")
        .await
        .is(200, "Signed in as");
}

#[tokio::test]
async fn sign_in_responses_are_bound_to_the_browser() {
    let world = World::start().await;
    let mut attacker = world.stranger();
    let theirs = asked(&mut attacker, "").await;

    // The victim opens the attacker's callback URL, with no pending sign-in or with another pending sign-in.
    let mut victim = world.stranger();
    assert_eq!(
        victim.get(&answer("eve", &theirs)).await.leads(),
        "/dashboard/sign-in?notice=sign_in_stale"
    );
    let ours = asked(&mut victim, "").await;
    assert_eq!(
        victim.get(&answer("eve", &theirs)).await.leads(),
        "/dashboard/sign-in?notice=sign_in_stale"
    );

    // The attacker's code with the victim's state matches neither the PKCE verifier nor the nonce.
    let ours = if victim.cookies.is_empty() {
        asked(&mut victim, "").await
    } else {
        ours
    };
    let mixed = BTreeMap::from([
        ("state".to_owned(), ours["state"].clone()),
        ("nonce".to_owned(), theirs["nonce"].clone()),
        ("code_challenge".to_owned(), theirs["code_challenge"].clone()),
    ]);
    assert_eq!(
        victim.get(&answer("eve", &mixed)).await.leads(),
        "/dashboard/sign-in?notice=sign_in_failed"
    );

    let ours = asked(&mut victim, "").await;
    let other_nonce = BTreeMap::from([
        ("state".to_owned(), ours["state"].clone()),
        ("nonce".to_owned(), "x".to_owned()),
        ("code_challenge".to_owned(), ours["code_challenge"].clone()),
    ]);
    assert_eq!(
        victim.get(&answer("eve", &other_nonce)).await.leads(),
        "/dashboard/sign-in?notice=sign_in_failed"
    );

    let ours = asked(&mut victim, "").await;
    let refused = format!("/dashboard/callback?error=access_denied&state={}", ours["state"]);
    assert_eq!(
        victim.get(&refused).await.leads(),
        "/dashboard/sign-in?notice=sign_in_failed"
    );
    assert!(victim.cookies.is_empty());
    assert_eq!(victim.get("/dashboard").await.leads(), "/dashboard/sign-in");
}

/// The sign-ins can finish in any order, even after a callback that belongs to neither.
#[tokio::test]
async fn two_browser_tabs_can_sign_in_concurrently() {
    let world = World::start().await;
    for order in [[0, 1], [1, 0]] {
        let mut browser = world.stranger();
        let pages = ["/dashboard/decisions", "/dashboard/approvals"];
        let questions = [asked(&mut browser, pages[0]).await, asked(&mut browser, pages[1]).await];
        let foreign = format!("/dashboard/callback?code=x&state={}", "s".repeat(43));
        browser.get(&foreign).await;
        assert_eq!(browser.cookies.len(), 2);
        for tab in order {
            let back = browser.get(&answer("ann", &questions[tab])).await;
            assert_eq!(back.leads(), pages[tab]);
            browser.get(pages[tab]).await.is(200, "Signed in as");
        }
        assert_eq!(browser.cookies.keys().collect::<Vec<_>>(), ["purser-session"]);
    }
}

/// The newest sign-ins are kept, and cookies that Purser did not set are removed.
#[tokio::test]
async fn pending_sign_ins_per_browser_are_limited() {
    let world = World::start().await;
    let mut browser = world.stranger();
    browser
        .cookies
        .insert("purser-sign-in-forged_1".to_owned(), "x".to_owned());
    browser
        .cookies
        .insert("purser-sign-in-too long".to_owned(), "x".to_owned());
    let first = asked(&mut browser, "").await;
    assert!(!browser.cookies.contains_key("purser-sign-in-forged_1"));
    let mut last = first.clone();
    for _ in 0..40 {
        world.advance(1);
        last = asked(&mut browser, "").await;
    }
    let bytes: usize = browser.cookies.values().map(String::len).sum();
    assert!((3_000..=4_001).contains(&bytes), "{bytes}");
    assert_eq!(
        browser.get(&answer("ann", &first)).await.leads(),
        "/dashboard/sign-in?notice=sign_in_stale"
    );
    assert_eq!(browser.get(&answer("ann", &last)).await.leads(), "/dashboard");
    // A sign-in with the longest destination leaves no space for another sign-in.
    let mut browser = world.stranger();
    let long = format!("/dashboard/decisions%3Fq={}", "a".repeat(2_300));
    for _ in 0..3 {
        world.advance(1);
        last = asked(&mut browser, &long).await;
    }
    assert_eq!(browser.cookies.len(), 1);
    assert!(
        browser
            .get(&answer("ann", &last))
            .await
            .leads()
            .starts_with("/dashboard/decisions?q=aaa")
    );
}

/// The link leads to the page with the button, so no user is signed in without a click.
#[tokio::test]
async fn links_from_other_sites_start_no_sign_in() {
    let world = World::start().await;
    let mut browser = world.stranger();
    for (site, query, leads) in [
        ("cross-site", "", "/dashboard/sign-in"),
        (
            "same-site",
            "?next=%2Fdashboard%2Fapprovals",
            "/dashboard/sign-in?next=%2Fdashboard%2Fapprovals",
        ),
        ("cross-site", "?again=yes", "/dashboard/sign-in?notice=sign_in_again"),
    ] {
        let path = format!("/dashboard/sign-in/start{query}");
        let seen = browser
            .send(Method::GET, &path, &[("sec-fetch-site", site)], String::new())
            .await;
        assert_eq!(seen.leads(), leads);
        assert!(browser.cookies.is_empty());
    }
    // The sign-in starts if the user clicks the button, or types the URL into the address bar.
    for site in ["same-origin", "none"] {
        let headers = [("sec-fetch-site", site)];
        let seen = browser
            .send(Method::GET, "/dashboard/sign-in/start", &headers, String::new())
            .await;
        assert!(seen.leads().contains("/authorize?"), "{site}");
    }
}

#[tokio::test]
async fn a_sign_in_response_can_be_used_only_once() {
    let world = World::start().await;
    let mut browser = world.stranger();
    let question = asked(&mut browser, "").await;
    assert_eq!(browser.get(&answer("ann", &question)).await.leads(), "/dashboard");
    let again = browser.get(&answer("ann", &question)).await;
    assert_eq!(again.leads(), "/dashboard/sign-in?notice=sign_in_stale");
}

#[tokio::test]
async fn signing_out_ends_the_session() {
    let world = World::start().await;
    let mut ann = world.browser("ann").await;
    ann.get("/dashboard").await.is(200, "ann");
    let copy = ann.cookies.clone();
    let out = ann.post("/dashboard", "/dashboard/sign-out", &[]).await;
    assert_eq!(out.leads(), "/dashboard/sign-in?notice=signed_out");
    assert!(ann.cookies.is_empty());
    ann.get(out.leads()).await.is(200, "You have signed out.");

    // A copy of the cookie is now invalid.
    ann.cookies = copy;
    assert_eq!(ann.get("/dashboard").await.leads(), "/dashboard/sign-in");
}

#[tokio::test]
async fn an_invalid_session_cookie_is_treated_as_absent() {
    let world = World::start().await;
    let token = world.browser("ann").await.cookies["purser-session"].clone();
    let mut browser = world.stranger();
    let twice = format!("{token}; purser-session={token}");
    browser.cookies.insert("purser-session".to_owned(), twice);
    assert_eq!(browser.get("/dashboard").await.leads(), "/dashboard/sign-in");
    // Over plain HTTP, the cookie's name has no prefix. An ID token in a header opens no page.
    let bearer = format!("Bearer {token}");
    let seen = world
        .stranger()
        .send(Method::GET, "/dashboard", &[("authorization", &bearer)], String::new())
        .await;
    assert_eq!(seen.leads(), "/dashboard/sign-in");
}

#[tokio::test]
async fn a_form_from_another_site_has_no_effect() {
    let world = World::start().await;
    let agent = world.agent("ann").await;
    let page = format!("/dashboard/agents/{agent}");
    let freeze = format!("{page}/freeze");
    let mut ann = world.browser("ann").await;
    let token = ann.get(&page).await.input("form_token");
    world.advance(1);
    let other_session = world.browser("ann").await.get(&page).await.input("form_token");
    assert_ne!(token, other_session);

    let with = |token: &str| format!("form_token={token}");
    let ours = [("origin", ORIGIN), ("sec-fetch-site", "same-origin")];
    let rows: [(&[(&str, &str)], String); 7] = [
        (&[], with(&token)),
        (&[("origin", "https://evil.example")], with(&token)),
        (&[("origin", ORIGIN), ("sec-fetch-site", "cross-site")], with(&token)),
        (&[("origin", "null")], with(&token)),
        (&ours, String::new()),
        (&ours, with("x")),
        (&ours, with(&other_session)),
    ];
    for (headers, body) in rows {
        let seen = ann.send(Method::POST, &freeze, headers, body.clone()).await;
        seen.is(403, "Nothing was changed");
        assert_eq!(
            world.get("ann", &format!("/agents/{agent}")).await.ok()["status"],
            "active",
            "{headers:?} {body}"
        );
    }
    let seen = ann.send(Method::POST, &freeze, &ours, with(&token)).await;
    assert_eq!(seen.leads(), format!("{page}?notice=agent_frozen"));
    // Without a session, a form token cannot be checked.
    assert_eq!(
        world
            .stranger()
            .send(Method::POST, &freeze, &ours, with(&token))
            .await
            .leads(),
        "/dashboard/sign-in"
    );
}
