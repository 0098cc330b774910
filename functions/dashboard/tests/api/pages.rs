//! Tests who may see the dashboard's pages, the headers, and the effects of the forms.

use crate::support::World;
use crate::support::browser::{Browser, answer, asked};
use axum::http::{Method, header};
use purser_domain::{
    Address, Agent, AgentId, Day, Duration, FreezeChange, FreezeTarget, OperatorFreeze, OperatorName, OperatorReason,
    OwnershipOffer, UserId, WithdrawalRecord,
};
use purser_store::{TransitionResult, UpdateResult};
use purser_testkit::{
    Fate, Moment,
    authorize::{Answer as Told, Request as Payment, authorize},
    sample::{OWNER, audit, service_id, unusable},
};
use serde_json::{Value, json};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

impl World {
    async fn version(&self, agent: &str) -> String {
        let agent = self.get(OWNER, &format!("/agents/{agent}")).await.ok();
        agent["version"].to_string()
    }

    /// Creates an agent with a payment that needs approval, and returns both ids.
    async fn waiting(&self) -> (String, String) {
        let agent = self.agent(OWNER).await;
        let path = format!("/agents/{agent}/services/lab");
        let policy = json!({"max_per_day_units": 100, "require_approval_above_units": 10});
        self.edit(OWNER, "PATCH", &path, policy).await.ok();
        match self.pay(&agent, 20, "k").await {
            Told::Waits(approval) => (agent, approval.to_string()),
            other => panic!("{other:?}"),
        }
    }
}

fn pages_of(agent: &str) -> Vec<String> {
    let zero = "00000000-0000-0000-0000-000000000000";
    vec![
        "/dashboard".to_owned(),
        "/dashboard/agents".to_owned(),
        "/dashboard/freeze-all".to_owned(),
        "/dashboard/approvals".to_owned(),
        "/dashboard/backtests".to_owned(),
        "/dashboard/decisions".to_owned(),
        "/dashboard/decisions.csv".to_owned(),
        "/dashboard/settlements".to_owned(),
        "/dashboard/settlements.csv".to_owned(),
        "/dashboard/catalog".to_owned(),
        "/dashboard/webhooks".to_owned(),
        "/dashboard/audit-log".to_owned(),
        "/dashboard/audit-log.csv".to_owned(),
        format!("/dashboard/agents/{agent}"),
        format!("/dashboard/agents/{agent}/shadow"),
        format!("/dashboard/receipts/{agent}/{zero}"),
        "/dashboard/nowhere".to_owned(),
    ]
}

#[tokio::test]
async fn pages_send_security_headers_and_are_not_cached() {
    let world = World::start().await;
    let agent = world.agent(OWNER).await;
    let mut paths = pages_of(&agent);
    paths.extend(["/dashboard/sign-in", "/dashboard/approvals/waiting"].map(str::to_owned));
    for browser in [&mut world.stranger(), &mut world.browser(OWNER).await] {
        for path in &paths {
            let seen = browser.get(path).await;
            let csp = seen.headers[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
            for part in [
                "default-src 'none'",
                "script-src 'self'",
                "form-action 'self'",
                "frame-ancestors 'none'",
            ] {
                assert!(csp.contains(part), "{path}: {csp}");
            }
            assert!(!csp.contains("unsafe"), "{csp}");
            assert_eq!(seen.headers[header::CACHE_CONTROL], "no-store", "{path}");
            assert_eq!(seen.headers[header::X_FRAME_OPTIONS], "DENY");
            assert_eq!(seen.headers[header::REFERRER_POLICY], "same-origin");
        }
    }
}

/// Forms for another user's agent return 404 and change nothing.
#[tokio::test]
async fn pages_of_missing_and_foreign_agents_are_identical() {
    let world = World::start().await;
    let agent = world.agent(OWNER).await;
    let mut bob = world.browser("bob").await;
    let theirs = [
        format!("/dashboard/agents/{agent}"),
        format!("/dashboard/receipts/{agent}/00000000-0000-0000-0000-000000000000"),
        format!("/dashboard/decisions?agent_id={agent}"),
        format!("/dashboard/decisions.csv?agent_id={agent}"),
        format!("/dashboard/settlements?agent_id={agent}"),
        format!("/dashboard/settlements.csv?agent_id={agent}"),
        format!("/dashboard/catalog?agent_id={agent}"),
        "/dashboard/agents/x".to_owned(),
        "/dashboard/nowhere".to_owned(),
    ];
    for path in theirs {
        let seen = bob.get(&path).await;
        seen.is(404, "This page does not exist, or you don’t have access to it.");
        assert!(
            seen.html.starts_with("<!DOCTYPE html>") && !seen.html.contains("buyer"),
            "{path}"
        );
    }
    for form in [
        "freeze", "archive", "restore", "labels", "keys", "services", "rules", "rename",
    ] {
        let seen = bob
            .post(
                "/dashboard",
                &format!("/dashboard/agents/{agent}/{form}"),
                &[("version", "1")],
            )
            .await;
        assert_eq!(seen.status, 404, "{form}");
    }
    assert_eq!(world.version(&agent).await, "1");
}

#[tokio::test]
async fn style_and_script_are_public_and_cacheable() {
    let world = World::start().await;
    let mut browser = world.stranger();
    let page = browser.get("/dashboard/sign-in").await;
    for (attribute, kind) in [
        ("href=\"/dashboard/style.css", "text/css"),
        ("src=\"/dashboard/script.js", "text/javascript"),
    ] {
        let (_, rest) = page.html.split_once(attribute).unwrap();
        let path = attribute.split_once('"').unwrap().1.to_owned() + rest.split('"').next().unwrap();
        let seen = browser.get(&path).await;
        assert_eq!(seen.status, 200);
        assert!(seen.headers[header::CONTENT_TYPE].to_str().unwrap().starts_with(kind));
        assert!(
            seen.headers[header::CACHE_CONTROL]
                .to_str()
                .unwrap()
                .contains("immutable")
        );
        let tag = seen.headers[header::ETAG].to_str().unwrap().to_owned();
        let again = browser
            .send(Method::GET, &path, &[("if-none-match", &tag)], String::new())
            .await;
        assert_eq!((again.status, again.html.len()), (304, 0));
    }
}

/// Each response masks the token differently, because responses are compressed.
#[tokio::test]
async fn pages_never_repeat_the_form_token() {
    let world = World::start().await;
    let mut owner = world.browser(OWNER).await;
    let tokens = [
        owner.get("/dashboard/approvals").await.input("form_token"),
        owner.get("/dashboard/approvals").await.input("form_token"),
    ];
    let [one, other] = tokens.each_ref().map(String::as_bytes);
    let common = one
        .windows(6)
        .filter(|part| other.windows(6).any(|other| other == *part));
    assert_eq!(common.count(), 0, "{tokens:?}");
    let accepted = [("accept-encoding", "br")];
    let request = axum::http::Request::get("/dashboard/sign-in").header(accepted[0].0, accepted[0].1);
    let request = request.body(axum::body::Body::empty()).unwrap();
    let answer = tower::ServiceExt::oneshot(world.router.clone(), request).await.unwrap();
    assert_eq!(answer.headers()[header::CONTENT_ENCODING], "br");
    assert_eq!(answer.headers()[header::VARY], "accept-encoding");
}

/// Reloading the page with the key does not create another key.
#[tokio::test]
async fn a_new_key_is_shown_only_once() {
    let world = World::start().await;
    let mut owner = world.browser(OWNER).await;
    let created = owner
        .post(
            "/dashboard",
            "/dashboard/agents",
            &[("name", " Night <shift> "), ("limits", "none")],
        )
        .await;
    let page = created.leads().split('?').next().unwrap().to_owned();
    let agent = page.rsplit('/').next().unwrap().to_owned();
    owner.get(created.leads()).await.is(200, "Night &lt;shift&gt;");

    let keys = format!("{page}/keys");
    let shown = owner.post(&page, &keys, &[("version", "1")]).await;
    shown.is(200, "Copy it now");
    let (_, rest) = shown.html.split_once("gak_sec_").unwrap();
    let secret = rest.get(..64).unwrap();
    assert!(secret.bytes().all(|byte| byte.is_ascii_hexdigit()));

    let reloaded = owner.post(&page, &keys, &[("version", "1")]).await;
    reloaded.is(412, "that key exists and can’t be shown again");
    assert!(!reloaded.html.contains("data-new-key"));
    for path in pages_of(&agent) {
        assert!(!owner.get(&path).await.html.contains(secret), "{path}");
    }
    let listed = world.get(OWNER, &format!("/agents/{agent}/keys")).await.ok();
    assert_eq!(listed["count"], 1);

    let key = listed["keys"][0]["key_id"].as_str().unwrap();
    let rotated = owner
        .post(
            &page,
            &format!("{keys}/{key}/rotate"),
            &[("version", "2"), ("overlap_seconds", "3600")],
        )
        .await;
    rotated.is(200, "Copy it now");
    // A revocation needs no version, so it cannot conflict.
    let revoked = owner.post(&page, &format!("{keys}/{key}/revoke"), &[]).await;
    assert_eq!(revoked.leads(), format!("{page}?notice=key_revoked"));
    let listed = world.get(OWNER, &format!("/agents/{agent}/keys")).await.ok();
    let statuses: Vec<&str> = listed["keys"]
        .as_array()
        .unwrap()
        .iter()
        .map(|key| key["status"].as_str().unwrap())
        .collect();
    assert_eq!(statuses, ["active", "ended"]);
}

/// An invalid form creates no key.
#[tokio::test]
async fn limited_keys_are_created_exactly_as_requested() {
    let world = World::start().await;
    let mut owner = world.browser(OWNER).await;
    let agent = world.agent(OWNER).await;
    let page = format!("/dashboard/agents/{agent}");
    let keys = format!("{page}/keys");
    let version = async || {
        let listed = world.get(OWNER, &format!("/agents/{agent}/keys")).await.ok();
        listed["version"].to_string()
    };
    let before = version().await;
    let limited = ("limited", "yes");
    // A form without a checked box is invalid. It does not allow everything.
    let wrong = [
        ("version", before.as_str()),
        limited,
        ("services", "no-such"),
        ("networks", "10.0.0.1/8 203.0.113.0/24"),
        ("expires_days", "0"),
    ];
    let refused = owner.post(&page, &keys, &wrong).await;
    refused.is(400, "Networks: entry 1 has bits beyond its prefix");
    let boxes = [wrong[0], limited, ("networks", "203.0.113.0/24"), ("expires_days", "0")];
    owner
        .post(&page, &keys, &boxes)
        .await
        .is(400, "May: must have at least one entry");
    let unknown = [
        wrong[0],
        limited,
        ("may", "pay"),
        ("services", "no-such"),
        ("expires_days", "0"),
    ];
    let refused = owner.post(&page, &keys, &unknown).await;
    refused.is(400, "Services: entry 1 is no service of the catalog");
    assert!(refused.html.contains("no-such"), "what was typed is kept");
    assert_eq!(version().await, before);

    let good = [
        wrong[0],
        limited,
        ("may", "pay"),
        ("services", "lab"),
        ("networks", "203.0.113.0/24,\n2001:db8::/32"),
        ("expires_days", "7"),
    ];
    owner.post(&page, &keys, &good).await.is(200, "Copy it now");
    let shown = owner.get(&page).await;
    for text in ["May pay for ", "203.0.113.0/24", "2001:db8::/32", ", until "] {
        assert!(shown.html.contains(text), "{text}");
    }
    let listed = world.get(OWNER, &format!("/agents/{agent}/keys")).await.ok();
    let key = &listed["keys"][0];
    assert_eq!(key["permissions"], json!(["pay"]));
    assert_eq!(key["networks"], json!(["203.0.113.0/24", "2001:db8::/32"]));
    assert!(key["services"][0].is_string() && key["expires_at"].is_string(), "{key}");
}

/// The page reports every validation error and keeps the entered values.
#[tokio::test]
async fn invalid_policy_forms_save_nothing() {
    let world = World::start().await;
    let agent = world.agent(OWNER).await;
    let record = world.get(OWNER, &format!("/agents/{agent}/services/lab")).await.ok();
    let page = format!("/dashboard/agents/{agent}");
    let form = format!("{page}/services/{}", record["service_id"].as_str().unwrap());
    let mut owner = world.browser(OWNER).await;
    owner
        .get(&page)
        .await
        .is(200, "<strong>No limit</strong> on 2 of its services");

    let wrong = [
        ("version", "1"),
        ("max_per_call", "1,5"),
        ("max_per_day", "20"),
        ("require_approval_above", "2"),
        ("require_approval_above_no_limit", "yes"),
        ("operations", "some"),
        ("allowed_domains", "*"),
    ];
    let seen = owner.post(&page, &form, &wrong).await;
    seen.is(400, "Nothing was saved.");
    for text in [
        "“1,5” is not an amount in dollars",
        "enter an amount or check its box, not both",
        "choose at least one",
        "value=\"1,5\"",
    ] {
        assert!(seen.html.contains(text), "{text}");
    }
    let unchanged = world.get(OWNER, &format!("/agents/{agent}/services/lab")).await.ok();
    assert_eq!(unchanged, record);

    let right = [
        ("version", "1"),
        ("max_per_call", "$1.5"),
        ("max_per_day", "20"),
        ("require_approval_above", ""),
        ("require_approval_above_no_limit", "yes"),
        ("operations", "some"),
        ("operation", "lab.current"),
        ("allowed_domains", "example.com"),
    ];
    let saved = owner.post(&page, &form, &right).await;
    assert_eq!(saved.leads(), format!("{page}?notice=policy_saved"));
    let changed = world.get(OWNER, &format!("/agents/{agent}/services/lab")).await.ok();
    let policy = json!({
        "max_per_call_units": 1_500_000, "max_per_day_units": 20_000_000,
        "require_approval_above_units": 10_000_000_000_000_u64,
        "enabled_operations": ["lab.current"], "allowed_domains": ["example.com"],
    });
    assert_eq!((&changed["policy"], &changed["version"]), (&policy, &json!(2)));
    // The form of an outdated page is rejected.
    owner.post(&page, &form, &right).await.is(412, "changed elsewhere");
    let after = world.get(OWNER, &format!("/agents/{agent}/services/lab")).await.ok();
    assert_eq!(after, changed);
}

/// The version page shows the current version.
#[tokio::test]
async fn one_form_limits_all_services_without_limits() {
    let world = World::start().await;
    let agent = world.agent(OWNER).await;
    let page = format!("/dashboard/agents/{agent}");
    let form = format!("{page}/services/limits");
    let mut owner = world.browser(OWNER).await;
    owner.get(&page).await.is(200, "2 services without limits.");
    let fields = [
        ("max_per_call", "1"),
        ("max_per_day", "10"),
        ("require_approval_above", "0.5"),
        ("operations", "all"),
        ("allowed_domains", "*"),
    ];
    let wrong = [("max_per_call", "1,5"), fields[1], fields[2], fields[3], fields[4]];
    owner
        .post(&page, &form, &wrong)
        .await
        .is(400, "is not an amount in dollars");
    let too_long = "x".repeat(201);
    let wrong = [&fields[..], &[("edit_reason", too_long.as_str())]].concat();
    owner.post(&page, &form, &wrong).await.is(400, "Why: must be a text");
    let with_reason = [&fields[..], &[("edit_reason", "first limits")]].concat();
    let saved = owner.post(&page, &form, &with_reason).await;
    assert_eq!(saved.leads(), format!("{page}?notice=policy_saved"));
    owner.get("/dashboard/audit-log").await.is(200, "first limits");
    let seen = owner.get(&page).await;
    assert!(!seen.html.contains("without limits."), "{}", seen.html);
    let record = world.get(OWNER, &format!("/agents/{agent}/services/lab")).await.ok();
    assert_eq!(record["policy"]["max_per_day_units"], 10_000_000);

    let history = format!("{page}/history?service={}", record["service_id"].as_str().unwrap());
    owner.get(&history).await.is(200, "Version 2");
    let compared = format!("{history}&from=2&to=2");
    owner.get(&compared).await.is(200, "They allow the same.");
    owner.get(&format!("{history}&from=9&to=2")).await.is(404, "");
    owner.get(&format!("{page}/history")).await.is(200, "History");
    assert_eq!(world.browser("bob").await.get(&history).await.status, 404);
}

/// The form selects safe limits by default. The API sets no limits by default.
#[tokio::test]
async fn agents_are_created_with_the_chosen_limits() {
    let world = World::start().await;
    let mut owner = world.browser(OWNER).await;
    let checked = "name=\"limits\" value=\"safe\" checked";
    owner.get("/dashboard").await.is(200, checked);
    let form = "/dashboard/agents";
    let unnamed = owner.post("/dashboard", form, &[("name", "a")]).await;
    unnamed.is(400, "choose safe limits, or none");
    let by_page = async |owner: &mut Browser<'_>, limits: &str| {
        let made = owner
            .post("/dashboard", form, &[("name", "a"), ("limits", limits)])
            .await;
        let page = made.leads().split('?').next().unwrap().to_owned();
        page.rsplit('/').next().unwrap().to_owned()
    };
    let by_json = async |body: Value| {
        let made = world.edit(OWNER, "POST", "/agents", body).await.created();
        made["agent_id"].as_str().unwrap().to_owned()
    };
    let no_limit = 10_000_000_000_000_u64;
    let rows = [
        (by_page(&mut owner, "safe").await, 1_000_000, 6),
        (by_page(&mut owner, "none").await, no_limit, 0),
        (by_json(json!({"name": "a", "limits": "safe"})).await, 1_000_000, 6),
        (by_json(json!({"name": "a"})).await, no_limit, 0),
    ];
    for (agent, per_call, rules) in rows {
        let services = world.get(OWNER, &format!("/agents/{agent}/services")).await.ok();
        for service in services["services"].as_array().unwrap() {
            assert_eq!(
                (&service["policy"]["max_per_call_units"], &service["version"]),
                (&json!(per_call), &json!(1))
            );
        }
        let found = world.get(OWNER, &format!("/agents/{agent}/rules")).await.ok();
        assert_eq!(found["count"], rules);
    }

    // A deployment can configure a different default.
    let world = World::with(&[("STARTING_LIMITS", "safe")]).await;
    let made = world
        .edit(OWNER, "POST", "/agents", json!({"name": "a"}))
        .await
        .created();
    let rules = format!("/agents/{}/rules", made["agent_id"].as_str().unwrap());
    assert_eq!(world.get(OWNER, &rules).await.ok()["count"], 6);
}

/// A service that is not curated cannot be enabled.
#[tokio::test]
async fn services_can_be_disabled_and_reenabled() {
    let world = World::start().await;
    let agent = world.agent(OWNER).await;
    let page = format!("/dashboard/agents/{agent}");
    let mut owner = world.browser(OWNER).await;
    let id_of = async |slug: &str| {
        let service = world.get(OWNER, &format!("/agents/{agent}/services/{slug}")).await.ok();
        service["service_id"].as_str().unwrap().to_owned()
    };
    let lab = id_of("lab").await;
    let off = owner
        .post(&page, &format!("{page}/services/{lab}/disable"), &[("version", "1")])
        .await;
    assert_eq!(off.leads(), format!("{page}?notice=service_disabled"));
    owner.get(&page).await.is(200, "1 disabled service");
    let on = owner
        .post(&page, &format!("{page}/services/{lab}/enable"), &[("version", "2")])
        .await;
    assert_eq!(on.leads(), format!("{page}?notice=service_enabled"));

    // `shed` is in the catalog, but not curated.
    let shed = lab.replace("000000000001", "000000000003");
    let fields = [
        ("service_id", shed.as_str()),
        ("max_per_call", "1"),
        ("max_per_day", "1"),
        ("require_approval_above", "1"),
        ("operations", "all"),
        ("allowed_domains", "*"),
    ];
    owner
        .post(&page, &format!("{page}/services"), &fields)
        .await
        .is(404, "no longer offered");
}

#[tokio::test]
async fn pending_payment_changes_are_shown_until_effective() {
    let world = World::start().await;
    let agent = world.agent(OWNER).await;
    let page = format!("/dashboard/agents/{agent}");
    world.browser(OWNER).await.get(&page).await.is(200, "payment changes");
    let service = format!("/agents/{agent}/services/maps");
    let changes = world.get(OWNER, &service).await.ok()["payment_changes"].clone();
    assert_eq!(changes[0]["operation_id"], "maps.current");
    world.advance(86_400);
    assert_eq!(world.get(OWNER, &service).await.ok()["payment_changes"], json!([]));
}

#[tokio::test]
async fn rules_can_be_added_changed_and_removed_by_form() {
    let world = World::start().await;
    let agent = world.agent(OWNER).await;
    let page = format!("/dashboard/agents/{agent}");
    let mut owner = world.browser(OWNER).await;
    let rules = format!("{page}/rules");
    let wrong = [
        ("version", "1"),
        ("kind", "budget_limit"),
        ("limit", "x"),
        ("window", "40"),
        ("window_unit", "days"),
    ];
    let seen = owner.post(&page, &rules, &wrong).await;
    seen.is(400, "“x” is not an amount in dollars");
    assert!(seen.html.contains("Within: enter a whole number from 1 to 31."));

    let budget = [
        ("version", "1"),
        ("kind", "budget_limit"),
        ("limit", "7"),
        ("window", "12"),
        ("window_unit", "hours"),
    ];
    assert_eq!(
        owner.post(&page, &rules, &budget).await.leads(),
        format!("{page}?notice=rule_added")
    );
    let listed = world.get(OWNER, &format!("/agents/{agent}/rules")).await.ok();
    let rule = &listed["rules"][0];
    assert_eq!(
        (&rule["limit_units"], &rule["window_seconds"]),
        (&json!(7_000_000), &json!(43_200))
    );
    let id = rule["rule_id"].as_str().unwrap();
    owner.get(&page).await.is(200, "in any 12 hours");

    let less = [
        ("version", "2"),
        ("kind", "budget_limit"),
        ("limit", "5"),
        ("window", "12"),
        ("window_unit", "hours"),
    ];
    assert_eq!(
        owner.post(&page, &format!("{rules}/{id}"), &less).await.leads(),
        format!("{page}?notice=rule_saved")
    );
    let gone = owner
        .post(&page, &format!("{rules}/{id}/remove"), &[("version", "3")])
        .await;
    assert_eq!(gone.leads(), format!("{page}?notice=rule_removed"));
    let listed = world.get(OWNER, &format!("/agents/{agent}/rules")).await.ok();
    assert_eq!(listed["rules"], json!([]));
}

#[tokio::test]
async fn a_freeze_needs_no_version_and_is_shown_on_the_page() {
    let world = World::start().await;
    let agent = world.agent(OWNER).await;
    let page = format!("/dashboard/agents/{agent}");
    let mut owner = world.browser(OWNER).await;
    let renamed = owner
        .post(
            &page,
            &format!("{page}/rename"),
            &[("name", "Buyer 2"), ("version", "1")],
        )
        .await;
    assert_eq!(renamed.leads(), format!("{page}?notice=agent_renamed"));
    owner
        .post(
            &page,
            &format!("{page}/rename"),
            &[("name", "Buyer 3"), ("version", "1")],
        )
        .await
        .is(412, "value=\"Buyer 3\"");
    owner
        .post(&page, &format!("{page}/rename"), &[("name", " "), ("version", "2")])
        .await
        .is(400, "Name: must be a text");
    let frozen = owner.post(&page, &format!("{page}/freeze"), &[]).await;
    owner
        .get(frozen.leads())
        .await
        .is(200, "Every payment of this agent is refused");
    assert_eq!(
        owner.post(&page, &format!("{page}/unfreeze"), &[]).await.leads(),
        format!("{page}?notice=agent_unfrozen")
    );
}

async fn watched(browser: &mut Browser<'_>, tag: &str) -> (u16, String, String) {
    let seen = browser
        .send(
            Method::GET,
            "/dashboard/approvals/waiting",
            &[("if-none-match", tag)],
            String::new(),
        )
        .await;
    let tag = seen
        .headers
        .get(header::ETAG)
        .map(|tag| tag.to_str().unwrap().to_owned());
    (seen.status, tag.unwrap_or_default(), seen.html)
}

/// A poll returns the list only if the list has changed.
#[tokio::test]
async fn pending_approvals_appear_and_are_decided_once() {
    let world = World::start().await;
    let mut owner = world.browser(OWNER).await;
    let (status, tag, html) = watched(&mut owner, "").await;
    assert!(status == 200 && html.contains("data-waiting=\"0\""), "{html}");
    assert_eq!(watched(&mut owner, &tag).await.0, 304);
    // The page contains the entity tag of the list.
    let page = owner.get("/dashboard/approvals").await;
    let (_, shown) = page.html.split_once("data-tag=\"").unwrap();
    let shown = shown.split_once("\">").unwrap().0.replace("&quot;", "\"");
    assert_eq!(shown, tag);

    let (agent, approval) = world.waiting().await;
    let (status, tag, html) = watched(&mut owner, &tag).await;
    assert_eq!(status, 200);
    let count = owner.get("/dashboard/approvals/waiting?only=count").await;
    count.is(200, "<ul data-waiting=\"1\"></ul>");
    assert!(count.html.len() < 40, "{}", count.html);
    // The script updates relative times, so time alone does not change the list.
    world.advance(300);
    assert_eq!(watched(&mut owner, &tag).await.0, 304);
    for text in [
        "data-waiting=\"1\"",
        &format!("data-approval=\"{approval}\""),
        "$0.00002",
        "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC",
        "20 units",
        "$0.00001",
    ] {
        assert!(html.contains(text), "no {text} in {html}");
    }
    let (_, _, others) = watched(&mut world.browser("bob").await, "").await;
    assert!(others.contains("data-waiting=\"0\""));

    let queue = "/dashboard/approvals";
    let path = format!("/dashboard/agents/{agent}/approvals/{approval}");
    let fields = [("approval_id", approval.as_str()), ("note", &"x".repeat(501))];
    let seen = owner.post(queue, &format!("{path}/approve"), &fields).await;
    seen.is(400, "Note: must be a text of at most 500 characters");
    assert!(seen.html.contains(&"x".repeat(501)), "what was typed is kept");

    let done = owner
        .post(queue, &format!("{path}/approve"), &[("note", "fine by me")])
        .await;
    assert_eq!(done.leads(), "/dashboard/approvals?notice=approved");
    owner.get(done.leads()).await.is(200, "fine by me");
    let late = owner.post(queue, &format!("{path}/reject"), &[]).await;
    late.is(409, "That payment was already approved.");
    let approval = world
        .get(OWNER, &format!("/agents/{agent}/approvals/{approval}"))
        .await
        .ok();
    assert_eq!(
        (&approval["status"], &approval["note"]),
        (&json!("approved"), &json!("fine by me"))
    );
}

#[tokio::test]
async fn pending_approvals_are_paged_and_filtered_by_agent() {
    let world = World::start().await;
    let mut agents = Vec::new();
    for _ in 0..2 {
        let (agent, _) = world.waiting().await;
        agents.push(agent);
    }
    for n in 0..19 {
        for agent in &agents {
            world.advance(1);
            assert!(matches!(
                world.pay(agent, 30, &format!("more {n}")).await,
                Told::Waits(_)
            ));
        }
    }
    let mut owner = world.browser(OWNER).await;
    let ids = |html: &str| -> Vec<String> {
        let parts = html.split("data-approval=\"").skip(1);
        parts.map(|part| part.split('"').next().unwrap().to_owned()).collect()
    };
    let link = |html: &str, text: &str| -> Option<String> {
        let (before, _) = html.split_once(&format!(">{text}</a>"))?;
        let address = before.rsplit_once("href=\"")?.1.split('"').next()?;
        Some(address.replace("&amp;", "&"))
    };
    let first = owner.get("/dashboard/approvals").await;
    let count = "data-waiting=\"40\"";
    assert!(first.status == 200 && first.html.contains(count));
    let next = link(&first.html, "Older pending approvals").unwrap();
    let second = owner.get(&next).await;
    assert!(second.html.contains(count), "whatever is shown, all are counted");
    let (first, second) = (ids(&first.html), (ids(&second.html), second.html));
    assert_eq!((first.len(), second.0.len()), (25, 15));
    let all: std::collections::BTreeSet<&String> = first.iter().chain(&second.0).collect();
    assert_eq!(all.len(), 40, "each is there once");
    assert_eq!(link(&second.1, "Older pending approvals"), None);
    assert_eq!(link(&second.1, "Newest").unwrap(), "/dashboard/approvals");
    // The user is on the second page, so the script polls the second page.
    let live = second
        .1
        .split("data-live=\"")
        .nth(1)
        .unwrap()
        .split('"')
        .next()
        .unwrap();
    assert_eq!(ids(&owner.get(live).await.html), second.0);

    // After a decision on the second page, the user stays on that page.
    let approval = &second.0[0];
    let action = format!("/dashboard/agents/{}/approvals/{approval}/approve", agents[0]);
    let action = [
        action,
        format!("/dashboard/agents/{}/approvals/{approval}/approve", agents[1]),
    ]
    .into_iter()
    .find(|action| second.1.contains(action.as_str()))
    .unwrap();
    let query = next.split_once('?').unwrap().1;
    let done = owner.post(&next, &format!("{action}?{query}"), &[]).await;
    assert_eq!(done.leads(), format!("{next}&notice=approved"));
    let after = owner.get(done.leads()).await;
    assert_eq!(ids(&after.html).len(), 14);

    let mut narrowed = 0;
    for agent in &agents {
        let seen = owner.get(&format!("/dashboard/approvals?agent_id={agent}")).await;
        assert!(seen.html.contains("data-waiting=\"39\""));
        let shown = ids(&seen.html).len();
        assert_eq!(
            seen.html
                .matches(&format!("/dashboard/agents/{agent}/approvals/"))
                .count(),
            2 * shown
        );
        narrowed += shown;
    }
    assert_eq!(narrowed, 39);
    for query in ["?agent_id=x", "?older=x", "?before=x"] {
        let seen = owner.get(&format!("/dashboard/approvals{query}")).await;
        seen.is(400, "are invalid, so everything is shown");
    }
    let others = format!("/dashboard/approvals?agent_id={}", agents[0]);
    assert_eq!(world.browser("bob").await.get(&others).await.status, 404);
    let others = format!("/dashboard/approvals/waiting?agent_id={}", agents[0]);
    assert!(
        world
            .browser("bob")
            .await
            .get(&others)
            .await
            .html
            .contains("data-waiting=\"0\"")
    );
}

impl World {
    /// Creates pending approvals of one agent for these amounts.
    async fn asked_for(&self, agent: &str, amounts: &[u64]) -> Vec<String> {
        let mut approvals = Vec::new();
        for amount in amounts {
            self.advance(1);
            match self
                .pay(agent, *amount, &format!("for {amount} at {}", self.now()))
                .await
            {
                Told::Waits(approval) => approvals.push(approval.to_string()),
                other => panic!("{other:?}"),
            }
        }
        approvals
    }

    /// Returns an agent with a key, and an approval for a payment of 20 with this key.
    async fn waiting_with_key(&self) -> (String, String) {
        let (agent, _) = self.waiting().await;
        let path = format!("/agents/{agent}/keys");
        self.edit(OWNER, "POST", &path, json!({})).await.created();
        let approval = self.asked_for(&agent, &[20]).await.remove(0);
        (agent, approval)
    }

    async fn status_of(&self, agent: &str, approval: &str) -> String {
        let approval = self
            .get(OWNER, &format!("/agents/{agent}/approvals/{approval}"))
            .await
            .ok();
        approval["status"].as_str().unwrap().to_owned()
    }
}

fn bulk(decision: &str, approvals: &[&str]) -> String {
    let ids: Vec<String> = approvals.iter().map(|id| format!("&approval={id}")).collect();
    format!("/dashboard/approvals/bulk?decision={decision}{}", ids.concat())
}

/// Each approval is decided separately, with its own audit row.
#[tokio::test]
async fn selected_approvals_are_decided_together() {
    let world = World::start().await;
    let (agent, first) = world.waiting().await;
    let (other, second) = world.waiting().await;
    let more = world.asked_for(&agent, &[30, 40]).await;
    let theirs = world.agent("bob").await;
    let path = format!("/agents/{theirs}/services/lab");
    let policy = json!({"require_approval_above_units": 10});
    world.edit("bob", "PATCH", &path, policy).await.ok();
    let Told::Waits(foreign) = world.pay(&theirs, 20, "k").await else {
        panic!("not asked")
    };
    let foreign = foreign.to_string();
    world
        .edit(
            OWNER,
            "POST",
            &format!("/agents/{agent}/approvals/{}/reject", more[1]),
            json!({}),
        )
        .await
        .ok();

    let mut owner = world.browser(OWNER).await;
    owner
        .get("/dashboard/approvals")
        .await
        .is(200, &format!("value=\"{first}\" form=\"selected-approvals\""));
    let selected = bulk("approve", &[&first, &second, &more[0], &more[1], &foreign]);
    let seen = owner.get(&selected).await;
    for text in [
        "Approve 3 payments of $0.00007",
        "1 approval not found",
        ">rejected</span>",
        "<td class=\"num\" data-label=\"Payments\">2</td>",
        "(50 units)",
        "(20 units)",
    ] {
        seen.is(200, text);
    }
    // The form contains only pending approvals.
    assert_eq!(seen.html.matches("name=\"approval\"").count(), 3);
    let fields: Vec<(&str, &str)> = [&first, &second, &more[0], &more[1], &foreign]
        .into_iter()
        .map(|id| ("approval", id.as_str()))
        .chain([("decision", "approve"), ("note", "all fine")])
        .collect();
    let too_much = "x".repeat(501);
    let wrong: Vec<(&str, &str)> = fields[..6]
        .iter()
        .copied()
        .chain([("note", too_much.as_str())])
        .collect();
    owner
        .post(&selected, "/dashboard/approvals/bulk", &wrong)
        .await
        .is(400, "Note: must be a text");
    assert_eq!(world.status_of(&agent, &first).await, "pending");
    let done = owner.post(&selected, "/dashboard/approvals/bulk", &fields).await;
    for text in ["3 of 5 payments approved", "no change: rejected before", "not found"] {
        done.is(200, text);
    }
    assert_eq!(done.html.matches(">approved</span>").count(), 3);
    for (agent, approval, status) in [
        (&agent, &first, "approved"),
        (&other, &second, "approved"),
        (&agent, &more[0], "approved"),
        (&agent, &more[1], "rejected"),
    ] {
        assert_eq!(world.status_of(agent, approval).await, status);
    }
    let log = world.get(OWNER, "/audit-log?kind=approval_approved").await.ok();
    let entries = log["entries"].as_array().unwrap();
    assert_eq!(
        entries.iter().filter(|entry| entry["error"].is_null()).count(),
        3,
        "{log}"
    );
    let bobs = world
        .get("bob", &format!("/agents/{theirs}/approvals/{foreign}"))
        .await
        .ok();
    assert_eq!(bobs["status"], "pending");

    for nothing in [
        "/dashboard/approvals/bulk".to_owned(),
        bulk("approve", &[]),
        bulk("pay", &[&first]),
    ] {
        let led = owner.get(&nothing).await;
        assert_eq!(led.leads(), "/dashboard/approvals?notice=nothing_selected", "{nothing}");
    }
}

#[tokio::test]
async fn approving_a_large_sum_requires_a_recent_sign_in() {
    let world = World::with(&[("RECENT_SIGN_IN_ABOVE_UNITS", "45")]).await;
    let (agent, first) = world.waiting().await;
    let second = world.asked_for(&agent, &[30]).await.remove(0);
    let mut owner = world.browser(OWNER).await;
    world.advance(1_200);
    let selected = bulk("approve", &[&first, &second]);
    owner
        .get(&selected)
        .await
        .is(200, "so approving requires a recent sign-in");
    let fields = [
        ("approval", first.as_str()),
        ("approval", &second),
        ("decision", "approve"),
    ];
    let led = owner.post(&selected, "/dashboard/approvals/bulk", &fields).await;
    assert!(led.leads().contains("notice=sign_in_again"), "{}", led.leads());
    assert!(
        led.leads().contains(&first),
        "the sign-in leads back to the selection: {}",
        led.leads()
    );
    let old = json!({"auth_time": world.now().secs() - 1_200});
    let old = world.issuer.token_with(OWNER, world.now(), &old);
    let body = |decision: &str| Some(json!({"decision": decision, "approval_ids": [first, second]}));
    let refused = world
        .call_with(&old, "POST", "/approvals/bulk", None, body("approve"))
        .await;
    assert_eq!(
        (refused.status, &refused.body["error"]),
        (403, &json!("recent_sign_in_required"))
    );
    assert_eq!(world.status_of(&agent, &first).await, "pending");
    let done = world
        .call_with(&old, "POST", "/approvals/bulk", None, body("reject"))
        .await;
    assert_eq!(done.status, 200);
    let outcome = |id: &str| json!({"approval_id": id, "outcome": "decided", "status": "rejected"});
    assert_eq!(
        done.body,
        json!({"decided": 2, "outcomes": [outcome(&first), outcome(&second)]})
    );
    world.advance(1);
    let again = world
        .call_with(&old, "POST", "/approvals/bulk", None, body("reject"))
        .await;
    assert_eq!(
        (&again.body["decided"], &again.body["outcomes"][0]["outcome"]),
        (&json!(0), &json!("not_pending"))
    );
}

#[tokio::test]
async fn the_approval_page_shows_balance_and_payee_history() {
    let world = World::start().await;
    let (agent, approval) = world.waiting().await;
    let page = format!("/dashboard/approvals/{agent}/{approval}");
    let mut owner = world.browser(OWNER).await;
    let seen = owner.get(&page).await;
    seen.is(200, "First payment to this payee by this agent");
    seen.is(200, "Wallet’s balance");
    seen.is(200, "Asked for approval</span>");
    assert!(matches!(world.pay(&agent, 5, "paid before").await, Told::Allowed(_)));
    assert!(matches!(world.pay(&agent, 200, "too much").await, Told::Full { .. }));
    let service = service_id(1);
    let seen = owner.get(&page).await;
    for text in [
        "Paid once",
        "Allowed</span>",
        "Blocked</span>",
        &format!("href=\"/dashboard/agents/{agent}#service-{service}\">See the limit</a>"),
    ] {
        seen.is(200, text);
    }
}

/// The form first updates the policy or the rule, then decides the approval.
#[tokio::test]
async fn an_approval_can_raise_the_limit_that_required_it() {
    let world = World::start().await;
    let (agent, approval) = world.waiting().await;
    let page = |approval: &str| format!("/dashboard/approvals/{agent}/{approval}");
    let form = |approval: &str| format!("/dashboard/agents/{agent}/approvals/{approval}/approve-and-raise");
    let mut owner = world.browser(OWNER).await;
    let seen = owner.get(&page(&approval)).await;
    seen.is(200, "Approve and raise to ");
    let version = seen.input("version");
    // The limit changes after the page was loaded, so the form is rejected.
    let path = format!("/agents/{agent}/services/lab");
    world
        .edit(OWNER, "PATCH", &path, json!({"require_approval_above_units": 11}))
        .await
        .ok();
    let conflict = owner
        .post(&page(&approval), &form(&approval), &[("version", &version)])
        .await;
    conflict.is(412, "so nothing was approved");
    assert_eq!(world.status_of(&agent, &approval).await, "pending");
    let version = conflict.input("version");
    let done = owner
        .post(
            &page(&approval),
            &form(&approval),
            &[("version", &version), ("note", "more"), ("edit_reason", "a larger job")],
        )
        .await;
    assert_eq!(done.leads(), format!("{}?notice=approved_and_raised", page(&approval)));
    let log = world.get(OWNER, "/audit-log?kind=policy_edited").await.ok();
    // The clock stands still, so the order of the audit rows is undefined.
    let mut entries = log["entries"].as_array().unwrap().iter();
    assert!(entries.any(|entry| entry["edit_reason"] == "a larger job"), "{log}");
    let record = world.get(OWNER, &path).await.ok();
    assert_eq!(record["policy"]["require_approval_above_units"], 20);
    assert_eq!(world.status_of(&agent, &approval).await, "approved");
    let late = owner
        .post(&page(&approval), &form(&approval), &[("version", "9")])
        .await;
    late.is(409, "already approved");

    // The sign-in is too old to raise the limit of a rule.
    let rule = json!({"kind": "approval_required", "services": ["lab"], "above_units": 4});
    world
        .edit(OWNER, "POST", &format!("/agents/{agent}/rules"), rule)
        .await
        .created();
    let approval = world.asked_for(&agent, &[19]).await.remove(0);
    let version = owner.get(&page(&approval)).await.input("version");
    world.advance(1_200);
    let led = owner
        .post(&page(&approval), &form(&approval), &[("version", &version)])
        .await;
    assert!(led.leads().contains("notice=sign_in_again"), "{}", led.leads());
    let mut owner = world.browser(OWNER).await;
    let done = owner
        .post(&page(&approval), &form(&approval), &[("version", &version)])
        .await;
    assert!(done.leads().ends_with("approved_and_raised"), "{}", done.leads());
    let rules = world.get(OWNER, &format!("/agents/{agent}/rules")).await.ok();
    assert_eq!(rules["rules"][0]["above_units"], 19, "{rules}");
    assert!(matches!(
        world.pay(&agent, 19, "now without asking").await,
        Told::Allowed(_)
    ));
}

/// The approval and the exception, a rule, are one write.
#[tokio::test]
async fn an_approval_can_except_further_payments_from_approvals() {
    let world = World::start().await;
    let (agent, approval) = world.waiting_with_key().await;
    let page = |approval: &str| format!("/dashboard/approvals/{agent}/{approval}");
    let form = |approval: &str| format!("/dashboard/agents/{agent}/approvals/{approval}/approve-always");
    let mut owner = world.browser(OWNER).await;
    let seen = owner.get(&page(&approval)).await;
    seen.is(200, "then need no approval for these reasons, up to this amount each:");
    let version = seen.version_for("approve-always");
    for (amount, days, problem) in [
        ("0.000021", "30", "at most the approved amount"),
        ("", "30", "Up to: enter an amount"),
        ("0.00002", "91", "Days: enter a whole number from 1 to 90"),
    ] {
        let fields = [("version", &*version), ("max_amount", amount), ("days", days)];
        let seen = owner.post(&page(&approval), &form(&approval), &fields).await;
        seen.is(400, problem);
    }
    // Another update after the page was loaded: the rules on the page may no longer be the rules that apply.
    let label = json!({"labels": {"team": "x"}});
    world
        .edit(OWNER, "PATCH", &format!("/agents/{agent}"), label)
        .await
        .ok();
    let fields = |version| [("version", version), ("max_amount", "0.00002"), ("days", "90")];
    let conflict = owner.post(&page(&approval), &form(&approval), &fields(&version)).await;
    conflict.is(412, "so nothing was approved");
    assert_eq!(world.status_of(&agent, &approval).await, "pending");
    let version = conflict.version_for("approve-always");
    // The clock stands still, so the repetition has the same bounds and finds the stored exception.
    for _ in 0..2 {
        let done = owner.post(&page(&approval), &form(&approval), &fields(&version)).await;
        assert_eq!(done.leads(), format!("{}?notice=approved_always", page(&approval)));
    }
    world.advance(1);
    let late = owner.post(&page(&approval), &form(&approval), &fields(&version)).await;
    late.is(409, "already approved");
    assert_eq!(world.status_of(&agent, &approval).await, "approved");
    let path = format!("/agents/{agent}/rules");
    let rules = world.get(OWNER, &path).await.ok();
    let rule = &rules["rules"][0];
    assert_eq!(rule["kind"], "approval_exception", "{rules}");
    assert_eq!(
        (&rule["max_amount_units"], &rule["services"]),
        (&json!(20), &json!(["lab"]))
    );
    assert_eq!(
        (&rule["operation_id"], &rule["waives_threshold"]),
        (&json!("lab.pay"), &json!(true))
    );
    assert_eq!(
        (rule["keys"].as_array().unwrap().len(), &rule["waived_rules"]),
        (1, &json!([]))
    );
    assert_eq!(rules["count"], 1);
    owner
        .get(&format!("/dashboard/agents/{agent}"))
        .await
        .is(200, "Needs no approval of payments of at most ");
    assert!(matches!(
        world.pay(&agent, 20, "without asking").await,
        Told::Allowed(_)
    ));
    assert!(matches!(world.pay(&agent, 21, "above").await, Told::Waits(_)));
    assert!(matches!(world.pay(&agent, 20, "again").await, Told::Allowed(_)));
    assert!(matches!(
        world.pay(&agent, 61, "beyond the day").await,
        Told::Full { .. }
    ));
    // The exception does not waive a rule that is added later, and is for one key.
    let later = json!({"kind": "approval_required", "above_units": 15});
    let later = world.edit(OWNER, "POST", &path, later).await.created();
    assert!(matches!(world.pay(&agent, 20, "a later rule").await, Told::Waits(_)));
    let later = format!("{path}/{}", later["rule_id"].as_str().unwrap());
    world.edit(OWNER, "DELETE", &later, json!({})).await.ok();
    assert!(matches!(world.pay(&agent, 20, "a third").await, Told::Allowed(_)));
    let keys = format!("/agents/{agent}/keys");
    world.edit(OWNER, "POST", &keys, json!({})).await.created();
    assert!(matches!(world.pay(&agent, 20, "another key").await, Told::Waits(_)));

    let log = world.get(OWNER, "/audit-log?kind=approval_approved").await.ok();
    // The rejected acts of the same second have no order among the rows.
    let mut entries = log["entries"].as_array().unwrap().iter();
    let entry = entries.find(|entry| entry["error"].is_null()).unwrap();
    assert_eq!(entry["object_id"], json!(approval), "{log}");
    let added = entry["after"].to_string();
    assert!(
        added.contains("approval_exception") && added.contains("approved"),
        "{log}"
    );

    let id = rule["rule_id"].as_str().unwrap();
    world
        .edit(OWNER, "DELETE", &format!("{path}/{id}"), json!({}))
        .await
        .ok();
    assert!(matches!(
        world.pay(&agent, 20, "after the removal").await,
        Told::Waits(_)
    ));
}

/// The database stores the approval and the exception, the response is lost, and another request updates the agent before
/// the transaction is sent again.
#[tokio::test]
async fn approving_with_an_exception_succeeds_after_a_lost_database_response() {
    let world = World::start().await;
    let (agent, approval) = world.waiting_with_key().await;
    let [stored, updated] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let (is_stored, is_updated) = (Arc::clone(&stored), Arc::clone(&updated));
    world.proxy.follow(move |step| {
        let is_lost = step.call.starts_with("TransactWriteItems")
            && match step.moment {
                Moment::CarriedOut => !is_stored.swap(true, Ordering::SeqCst),
                Moment::Arrived => is_stored.load(Ordering::SeqCst) && !is_updated.load(Ordering::SeqCst),
            };
        if is_lost { Fate::HangUp } else { Fate::PassOn }
    });
    let rename = async {
        while !stored.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
        let agent = world.ledger.read_agent_by_id(AgentId::parse(&agent).unwrap()).await;
        let agent = agent.unwrap().unwrap();
        let renamed = Agent {
            version: agent.version + 1,
            name: "renamed".to_owned(),
            ..agent
        };
        assert_eq!(
            world.ledger.put_agent(&renamed, &audit()).await.unwrap(),
            UpdateResult::Stored
        );
        updated.store(true, Ordering::SeqCst);
    };
    let until = world.now().after(Duration::DAY).to_string();
    let always = json!({"always": {"max_amount_units": 20, "until": until}});
    let path = format!("/agents/{agent}/approvals/{approval}/approve");
    let (approved, ()) = tokio::join!(world.edit(OWNER, "POST", &path, always), rename);
    let approved = approved.ok();
    world.proxy.behave();
    assert_eq!(approved["status"], "approved");
    let rules = world.get(OWNER, &format!("/agents/{agent}/rules")).await.ok();
    assert_eq!(rules["rules"][0]["kind"], "approval_exception", "{rules}");
}

/// A sign-in that is too old, bounds that are too wide, and approvals for other reasons add no exception.
#[tokio::test]
async fn an_approval_exception_requires_a_recent_sign_in_and_a_matching_approval() {
    let world = World::start().await;
    let (agent, approval) = world.waiting_with_key().await;
    let approve = |approval: &str| format!("/agents/{agent}/approvals/{approval}/approve");
    let always = |amount: u64, days: u32| {
        let until = world.now().after(Duration::from_secs_u32(86_400 * days));
        json!({"always": {"max_amount_units": amount, "until": until.to_string()}})
    };
    let post = async |approval: &str, body: Value| world.edit(OWNER, "POST", &approve(approval), body).await;
    for (body, pointer) in [
        (always(21, 1), "/always/max_amount_units"),
        (always(0, 1), "/always/max_amount_units"),
        (always(20, 91), "/always/until"),
        (always(20, 0), "/always/until"),
    ] {
        let rejected = post(&approval, body.clone()).await;
        assert_eq!(rejected.status, 400, "{body}");
        assert!(rejected.body.to_string().contains(pointer), "{}", rejected.body);
    }
    let mut both = always(20, 1);
    both["max_per_call_units"] = json!(1);
    assert_eq!(post(&approval, both).await.status, 400);
    assert_eq!(world.status_of(&agent, &approval).await, "pending");
    let always_once = always(20, 90);
    let approved = post(&approval, always_once.clone()).await.ok();
    assert_eq!(approved["status"], "approved");
    // A repetition after a lost response adds nothing, also after another update. Other bounds are another request.
    let none = json!({"kind": "category_block", "categories": ["ai"]});
    let rules = format!("/agents/{agent}/rules");
    world.edit(OWNER, "POST", &rules, none).await.created();
    assert_eq!(post(&approval, always_once).await.ok(), approved);
    assert_eq!(world.get(OWNER, &rules).await.ok()["count"], 2);
    assert_eq!(
        post(&approval, always(19, 90)).await.body["error"],
        "approval_not_pending"
    );
    let none = json!({"kind": "new_payee"});
    world
        .edit(OWNER, "POST", &format!("/agents/{agent}/rules"), none)
        .await
        .created();
    let Told::Waits(other) = world.pay(&agent, 20, "to a new payee").await else {
        panic!("the payee is known");
    };
    let rejected = post(&other.to_string(), always(20, 90)).await.body;
    assert!(
        rejected.to_string().contains("neither the approval threshold"),
        "{rejected}"
    );
    let old = json!({"auth_time": world.now().secs() - 1_200});
    let old = world.issuer.token_with(OWNER, world.now(), &old);
    let approval = world.asked_for(&agent, &[21]).await.remove(0);
    // The second exception is covered by the first.
    for body in [always(21, 1), always(20, 1)] {
        let stale = world
            .call_with(&old, "POST", &approve(&approval), None, Some(body))
            .await;
        assert_eq!(stale.body["error"], "recent_sign_in_required");
        assert_eq!(world.status_of(&agent, &approval).await, "pending");
    }
    // A copy would outlive the removal of the first exception.
    let path = format!("/agents/{agent}/rules");
    let listed = world.get(OWNER, &path).await.ok();
    let rules = listed["rules"].as_array().unwrap();
    let present = rules.iter().find(|rule| rule["kind"] == "approval_exception").unwrap();
    let mut copy = json!({"kind": "approval_exception", "max_amount_units": 1});
    for name in [
        "services",
        "operation_id",
        "keys",
        "payee",
        "until",
        "waives_threshold",
        "waived_rules",
    ] {
        copy[name] = present[name].clone();
    }
    let stale = world
        .call_with(&old, "POST", &path, Some("*"), Some(copy.clone()))
        .await;
    assert_eq!(stale.body["error"], "recent_sign_in_required");
    // Each way to add an exception has the same bounds.
    let wrong = |name: &str, value: Value| {
        let mut body = copy.clone();
        body[name] = value;
        body
    };
    let until = |days: u32| {
        json!(
            world
                .now()
                .after(Duration::from_secs_u32(86_400 * days + 1))
                .to_string()
        )
    };
    let id = present["rule_id"].as_str().unwrap();
    for (body, pointer) in [
        (wrong("until", until(90)), "/until"),
        (wrong("until", json!(world.now().to_string())), "/until"),
        (wrong("max_amount_units", json!(0)), "/max_amount_units"),
        (wrong("waives_threshold", json!(false)), "/waived_rules"),
        (wrong("waived_rules", json!([id])), "/waived_rules/0"),
        (wrong("keys", json!(["00000000000000ff"])), "/keys/0"),
    ] {
        let replaced = format!("{path}/{id}");
        for (method, path) in [
            ("POST", &path),
            ("POST", &format!("{path}?preview=true")),
            ("PUT", &replaced),
        ] {
            let rejected = world.edit(OWNER, method, path, body.clone()).await;
            let details = rejected.body["details"].to_string();
            assert!(
                rejected.status == 400 && details.contains(pointer),
                "{method} {path} {body}: {details}"
            );
        }
        let shadow = world
            .edit(
                OWNER,
                "PUT",
                &format!("/agents/{agent}/shadow"),
                json!({"rules": [body]}),
            )
            .await;
        assert_eq!(shadow.status, 400);
    }
    // An exception is for one agent, so a template has none.
    let template = world
        .call(
            OWNER,
            "PUT",
            "/policy-templates/x",
            None,
            Some(json!({"rules": [copy]})),
        )
        .await;
    assert_eq!(
        (template.status, &template.body["details"][0]["path"]),
        (400, &json!("/rules/0/kind"))
    );
}

#[tokio::test]
async fn an_unused_approval_can_be_withdrawn() {
    let world = World::start().await;
    let (agent, approval) = world.waiting().await;
    let page = format!("/dashboard/approvals/{agent}/{approval}");
    let form = format!("/dashboard/agents/{agent}/approvals/{approval}/withdraw");
    let api = format!("/agents/{agent}/approvals/{approval}");
    let mut owner = world.browser(OWNER).await;
    owner.post(&page, &form, &[]).await.is(409, "Please try again.");
    world
        .edit(OWNER, "POST", &format!("{api}/approve"), json!({"note": "fine"}))
        .await
        .ok();
    owner.get("/dashboard/approvals").await.is(200, "Withdraw<span");
    owner.get(&page).await.is(200, "Withdraw approval");
    assert_eq!(
        world
            .call("bob", "POST", &format!("{api}/withdraw"), None, None)
            .await
            .status,
        404
    );
    let done = owner.post(&page, &form, &[]).await;
    assert_eq!(done.leads(), format!("{page}?notice=approval_withdrawn"));
    let seen = owner.get(done.leads()).await;
    seen.is(200, ">rejected</span>");
    assert!(!seen.html.contains("fine"), "{}", seen.html);
    world.advance(1);
    let again = world.call(OWNER, "POST", &format!("{api}/withdraw"), None, None).await;
    assert_eq!(
        (again.status, &again.body["error"]),
        (409, &json!("approval_not_pending"))
    );
    let log = world.get(OWNER, "/audit-log?kind=approval_withdrawn").await.ok();
    let entries = log["entries"].as_array().unwrap();
    let done = entries.iter().find(|entry| entry["error"].is_null()).unwrap();
    assert_eq!(
        (&done["before"], &done["after"]),
        (&json!({"status": "approved"}), &json!({"status": "rejected"}))
    );
}

#[tokio::test]
async fn decided_approvals_are_listed_page_by_page() {
    let world = World::start().await;
    let (agent, first) = world.waiting().await;
    let mut approvals = vec![first];
    for n in 0..29 {
        world.advance(1);
        for approval in &approvals {
            let path = format!("/agents/{agent}/approvals/{approval}/reject");
            world.call(OWNER, "POST", &path, None, None).await;
        }
        match world.pay(&agent, 30, &format!("more {n}")).await {
            Told::Waits(approval) => approvals = vec![approval.to_string()],
            other => panic!("{other:?}"),
        }
    }
    let mut owner = world.browser(OWNER).await;
    let mut page = owner.get("/dashboard/approvals").await.html;
    let rejected = |html: &str| html.matches(">rejected</span>").count();
    for _ in 0..2 {
        assert_eq!(rejected(&page), 10);
        let (before, _) = page.split_once(">Older</a>").unwrap();
        let older = before.rsplit_once("href=\"").unwrap().1.split('"').next().unwrap();
        page = owner.get(older).await.html;
    }
    assert_eq!(rejected(&page), 9);
    assert!(page.contains(">Newest</a>") && !page.contains(">Older</a>"));
}

#[tokio::test]
async fn expired_approval_requests_cannot_be_approved() {
    let world = World::start().await;
    let (agent, approval) = world.waiting().await;
    world.advance(24 * 3_600);
    let mut owner = world.browser(OWNER).await;
    let path = format!("/dashboard/agents/{agent}/approvals/{approval}/approve");
    owner
        .post("/dashboard/approvals", &path, &[])
        .await
        .is(409, "That request has expired.");
}

/// With an invalid filter, no rows are shown.
#[tokio::test]
async fn decision_pages_apply_filters_and_report_invalid_filters() {
    let world = World::start().await;
    let (agent, _) = world.waiting().await;
    world.pay(&agent, 5, "small").await;
    world.pay(&agent, 9_999, "large").await;
    let mut owner = world.browser(OWNER).await;
    let rows = async |browser: &mut Browser<'_>, query: &str| {
        let seen = browser.get(&format!("/dashboard/decisions{query}")).await;
        assert_eq!(seen.status, 200, "{query}");
        seen.html.matches("data-label=\"Outcome\"").count()
    };
    assert_eq!(rows(&mut owner, "").await, 3);
    assert_eq!(rows(&mut owner, "?agent_id=&result=&service_id=").await, 3);
    for result in ["allow", "block", "escalate"] {
        assert_eq!(
            rows(&mut owner, &format!("?agent_id={agent}&result={result}")).await,
            1,
            "{result}"
        );
    }
    assert_eq!(
        rows(&mut owner, "?service_id=00000000-0000-0000-0000-000000000000").await,
        0
    );
    for (query, problem) in [
        ("?agent_id=x", "Agent: must be a UUID."),
        ("?service_id=x", "Service: is not one of the listed values."),
        (
            "?cursor=x",
            "The address of this page: is invalid; start from the first page.",
        ),
        ("?from=2026-11-21&to=2026-11-20", "To: must be after from."),
    ] {
        // The page keeps the valid filters, and shows no row.
        let seen = owner.get(&format!("/dashboard/decisions{query}&result=block")).await;
        seen.is(400, problem);
        seen.is(400, "Nothing is shown until the filters are corrected.");
        assert_eq!(seen.html.matches("data-label=\"Outcome\"").count(), 0, "{query}");
    }
    owner
        .get("/dashboard/decisions?result=block&from=x")
        .await
        .is(400, "<option value=\"block\" selected>");
}

/// The export neutralizes formulas and contains no rows of another user.
#[tokio::test]
async fn the_audit_log_is_shown_and_exported() {
    let world = World::start().await;
    let mut ann = world.stranger();
    let question = asked(&ann.get("/dashboard/sign-in/start").await);
    let agent = [("user-agent", "=HYPERLINK(\"https://evil.example\")")];
    let back = ann
        .send(Method::GET, &answer("ann", &question), &agent, String::new())
        .await;
    assert_eq!(back.leads(), "/dashboard");
    world.advance(1);
    let fields = [("name", "Night <shift>"), ("limits", "none")];
    ann.post("/dashboard", "/dashboard/agents", &fields).await.leads();

    let page = ann.get("/dashboard/audit-log").await;
    page.is(200, "Create an agent");
    page.is(200, "Night &lt;shift&gt;");
    assert_eq!(page.html.matches("<li class=\"row\">").count(), 2);
    let filtered = ann
        .get("/dashboard/audit-log?agent_id=&kind=session_started&from=&to=")
        .await;
    assert_eq!(filtered.html.matches("<li class=\"row\">").count(), 1);
    let refused = ann.get("/dashboard/audit-log?refused=true").await;
    refused.is(200, "No entry matches these filters.");
    ann.get("/dashboard/audit-log?kind=x").await.is(400, "Act: must be");

    let file = ann.get("/dashboard/audit-log.csv").await;
    assert_eq!(file.headers["content-type"], "text/csv; charset=utf-8");
    let lines: Vec<&str> = file.html.split_terminator("\r\n").collect();
    assert_eq!(lines.len(), 3, "{}", file.html);
    assert!(lines[0].starts_with("\u{feff}at,kind,result,"));
    assert!(lines[1].contains(",agent_created,done,"), "{}", lines[1]);
    assert!(
        lines[2].contains(",\"'=HYPERLINK(\"\"https://evil.example\"\")\","),
        "{}",
        lines[2]
    );

    let mut bob = world.browser("bob").await;
    let theirs = bob.get("/dashboard/audit-log").await;
    assert_eq!(theirs.html.matches("<li class=\"row\">").count(), 1);
    assert!(!theirs.html.contains("Night"));
    assert!(!bob.get("/dashboard/audit-log.csv").await.html.contains("Night"));
}

#[tokio::test]
async fn ownership_transfers_are_accepted_only_after_a_recent_sign_in() {
    let world = World::start().await;
    let (agent, approval) = world.waiting().await;
    let rules = format!("/agents/{agent}/rules");
    let until = world.now().after(Duration::from_secs_u32(30 * 86_400)).to_string();
    let exception = json!({
        "kind": "approval_exception", "payee": "0xa1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1",
        "max_amount_units": 5, "until": until, "waives_threshold": true,
    });
    world.edit(OWNER, "POST", &rules, exception).await.created();
    let sessions = world.get("ann", "/sessions").await.ok();
    let to = sessions["person"].as_str().unwrap();
    let mut ann = world.browser("ann").await;
    ann.get("/dashboard/sessions").await.is(200, to);
    let offer = OwnershipOffer {
        agent: AgentId::parse(&agent).unwrap(),
        to: UserId::parse(to).unwrap(),
        reason: OperatorReason::parse("Owen <has> left").unwrap(),
        by: OperatorName::parse("op").unwrap(),
        at: world.now(),
        ends_at: world.now().after(OwnershipOffer::VALIDITY),
    };
    world.ledger.store_ownership_offer(&offer, &audit()).await.unwrap();
    ann.get("/dashboard").await.is(200, "Owen &lt;has&gt; left");

    world.advance(600);
    let accept = format!("/dashboard/handovers/{agent}/accept");
    let led = ann.post("/dashboard", &accept, &[]).await;
    assert!(led.leads().ends_with("notice=sign_in_again"), "{}", led.leads());
    let old = json!({"auth_time": world.now().secs() - 600});
    let old = world.issuer.token_with("ann", world.now(), &old);
    let path = format!("/handovers/{agent}/accept");
    let refused = world.call_with(&old, "POST", &path, None, None).await;
    assert_eq!(
        (refused.status, &refused.body["error"]),
        (403, &json!("recent_sign_in_required"))
    );
    world.get(OWNER, &format!("/agents/{agent}")).await.ok();

    let mut ann = world.browser("ann").await;
    let done = ann.post("/dashboard", &accept, &[]).await;
    assert_eq!(done.leads(), format!("/dashboard/agents/{agent}?notice=agent_accepted"));
    ann.get(done.leads()).await.is(200, "Its existing keys still work");
    ann.get("/dashboard/approvals").await.is(200, &approval);
    // The former owner's exception from approvals has ended.
    assert_eq!(world.get("ann", &rules).await.ok()["count"], 0);
    let mut owner = world.browser(OWNER).await;
    assert_eq!(owner.get(&format!("/dashboard/agents/{agent}")).await.status, 404);
    assert!(!owner.get("/dashboard/approvals").await.html.contains(&approval));
}

#[tokio::test]
async fn operator_freezes_are_shown_with_their_reason() {
    let world = World::start().await;
    let agent = world.agent(OWNER).await;
    let id = world.get(OWNER, "/sessions").await.ok()["person"].clone();
    let page = format!("/dashboard/agents/{agent}");
    let mut owner = world.browser(OWNER).await;
    let targets = [
        (
            FreezeTarget::Agent(AgentId::parse(&agent).unwrap()),
            "An operator has frozen this agent.",
        ),
        (
            FreezeTarget::Owner(UserId::parse(id.as_str().unwrap()).unwrap()),
            "An operator has frozen all your agents.",
        ),
        (FreezeTarget::Deployment, "An operator has frozen all payments."),
    ];
    let mut freezes = Vec::new();
    for (n, (target, words)) in targets.into_iter().enumerate() {
        let freeze = OperatorFreeze {
            target,
            reason: OperatorReason::parse(&format!("number <{n}>")).unwrap(),
            by: OperatorName::parse("op").unwrap(),
            at: world.now(),
            end_asked_by: None,
        };
        let begun = FreezeChange::begin_freeze(None, freeze.clone()).unwrap();
        world.ledger.change_freeze(&begun, &audit()).await.unwrap();
        freezes.push(freeze);
        for path in ["/dashboard", &page] {
            let seen = owner.get(path).await;
            seen.is(200, words);
            seen.is(200, &format!("number &lt;{n}&gt;"));
        }
        assert_eq!(world.pay(&agent, 1, &n.to_string()).await, Told::Blocked);
    }
    for freeze in freezes.into_iter().skip(1) {
        let (target, by) = (freeze.target.clone(), freeze.by.clone());
        let ended = FreezeChange::end_freeze(target, Some(freeze), &by, false).unwrap();
        world.ledger.change_freeze(&ended, &audit()).await.unwrap();
    }
    owner.get(&page).await.is(200, "An operator has frozen this agent.");
}

#[tokio::test]
async fn approval_pages_of_frozen_agents_promise_no_payment() {
    let world = World::start().await;
    let mut owner = world.browser(OWNER).await;
    let (agent, approval) = world.waiting().await;
    let page = format!("/dashboard/agents/{agent}");
    owner.post(&page, &format!("{page}/freeze"), &[]).await;
    owner
        .get(&page)
        .await
        .is(200, "Once the freeze ends, the agent can spend");
    let approve = format!("{page}/approvals/{approval}/approve");
    let done = owner.post("/dashboard/approvals", &approve, &[]).await;
    owner
        .get(done.leads())
        .await
        .is(200, "nothing is paid until the freeze ends");
}

/// The page also explains invalid input, an operator freeze and unavailable withdrawals.
#[tokio::test]
async fn withdrawal_addresses_become_usable_after_their_delay() {
    let world = World::with(&[("FACILITATOR_URL", "https://facilitator.example")]).await;
    let agent = world.agent(OWNER).await;
    let person = world.get(OWNER, "/sessions").await.ok()["person"].clone();
    let person = UserId::parse(person.as_str().unwrap()).unwrap();
    let id = AgentId::parse(&agent).unwrap();
    let page = format!("/dashboard/agents/{agent}");
    let (name, pay) = (format!("{page}/payout-address"), format!("{page}/payouts"));
    let mut owner = world.browser(OWNER).await;
    owner.get(&page).await.is(200, "No payout address is set.");
    for typed in ["0x12", "0x90f79bf6EB2c4f870365E785982E1f101E93b906"] {
        let seen = owner.post(&page, &name, &[("address", typed)]).await;
        seen.is(400, "Address: ");
        seen.is(400, &format!("value=\"{typed}\""));
    }

    let to = Address::repeat_byte(0x90);
    let record = WithdrawalRecord::default();
    let record = record.with_address(to, &person, world.now(), Duration::DAY).unwrap();
    world.ledger.put_withdrawal_record(id, &record, &audit()).await.unwrap();
    let seen = owner.get(&page).await;
    seen.is(200, "not yet");
    seen.is(200, &to.to_checksum(None));
    let asks = "I have compared the address";
    assert!(!seen.html.contains(asks), "{}", seen.html);

    world.advance(86_400);
    let mut owner = world.browser(OWNER).await;
    let seen = owner.get(&page).await;
    seen.is(200, &format!("{asks}: {}", to.to_checksum(None)));
    let key = seen.input("idempotency_key");
    let (amount, confirmed, key) = (("amount", "1"), ("confirmed", "yes"), ("idempotency_key", key.as_str()));
    let rows = [
        (vec![amount, key], "Compare the address and check the box."),
        (vec![("amount", "0"), confirmed, key], "Amount: enter more than zero."),
        (vec![("amount", "much"), confirmed, key], "is not an amount in dollars"),
        (vec![amount, ("amount_no_limit", "on"), confirmed, key], "not both"),
        (vec![amount, confirmed], "The form is incomplete"),
    ];
    for (fields, words) in rows {
        owner.post(&page, &pay, &fields).await.is(400, words);
    }
    // The sign-in is too old for a withdrawal.
    world.advance(900);
    let seen = owner.post(&page, &pay, &[amount, confirmed, key]).await;
    assert!(
        seen.status == 303 || seen.status == 403,
        "{} {}",
        seen.status,
        seen.html
    );

    let freeze = OperatorFreeze {
        target: FreezeTarget::Deployment,
        reason: OperatorReason::parse("stolen").unwrap(),
        by: OperatorName::parse("op").unwrap(),
        at: world.now(),
        end_asked_by: None,
    };
    let begun = FreezeChange::begin_freeze(None, freeze.clone()).unwrap();
    world.ledger.change_freeze(&begun, &audit()).await.unwrap();
    let seen = owner.get(&page).await;
    seen.is(200, "Payouts are stopped while an operator’s freeze is in force.");
    assert!(!seen.html.contains(asks), "{}", seen.html);
    let (target, by) = (freeze.target.clone(), freeze.by.clone());
    let ended = FreezeChange::end_freeze(target, Some(freeze), &by, false).unwrap();
    world.ledger.change_freeze(&ended, &audit()).await.unwrap();

    // An address that a previous owner set is invalid.
    let other = UserId::parse(&"5e".repeat(32)).unwrap();
    let theirs = record.with_address(to, &other, world.now(), Duration::DAY).unwrap();
    world.ledger.put_withdrawal_record(id, &theirs, &audit()).await.unwrap();
    owner.get(&page).await.is(200, "No payout address is set.");

    let world = world.elsewhere(&[("FACILITATOR_URL", "")]).await;
    let seen = world.browser(OWNER).await.get(&page).await;
    seen.is(200, "Payouts are not available");
}

/// Returns the texts that the page contains.
fn has<'a>(html: &str, texts: &[&'a str]) -> Vec<&'a str> {
    texts.iter().copied().filter(|text| html.contains(text)).collect()
}

#[tokio::test]
async fn decision_lists_show_all_agents_or_one_agent() {
    let world = World::start().await;
    for n in 0..30 {
        let agent = world.agent(OWNER).await;
        let name = json!({"name": format!("Agent <{n:02}>")});
        world.edit(OWNER, "PATCH", &format!("/agents/{agent}"), name).await.ok();
        world.advance(10);
    }
    let (asking, _) = world.waiting().await;
    let freeze = json!({"name": "Zoe", "status": "frozen"});
    world
        .edit(OWNER, "PATCH", &format!("/agents/{asking}"), freeze)
        .await
        .ok();
    // A pending approval is shown until it expires.
    world.advance(86_300);

    let mut owner = world.browser(OWNER).await;
    for query in ["", "?result=escalate", &format!("?agent_id={asking}")] {
        let seen = owner.get(&format!("/dashboard/decisions{query}")).await;
        seen.is(200, &format!("href=\"/dashboard/agents/{asking}\""));
    }
    let seen = owner.get("/dashboard/decisions?agent=nobody").await;
    seen.is(200, "No entry matches these filters.");
    owner.get("/dashboard/audit-log").await.is(200, "· Zoe");
    for path in ["/dashboard/approvals", "/dashboard/approvals/waiting"] {
        let seen = owner.get(path).await;
        seen.is(200, "data-waiting=\"1\"");
        seen.is(200, "Zoe</a>");
    }
    owner
        .get(&format!("/dashboard/approvals?agent_id={asking}"))
        .await
        .is(200, "value=\"Zoe\"");
    // A full name selects the agent. A part of several names lists the agents, except archived agents.
    let archived = json!({"name": "Zoe the elder", "archived": true});
    let old = world.agent(OWNER).await;
    world
        .edit(OWNER, "PATCH", &format!("/agents/{old}"), archived)
        .await
        .ok();
    for (path, shown) in [
        ("approvals", "data-approval="),
        ("audit-log", "· Zoe"),
        ("catalog", "Enabled for: "),
    ] {
        let path = format!("/dashboard/{path}");
        owner.get(&format!("{path}?agent=zo")).await.is(200, shown);
        let asked = owner.get(&format!("{path}?agent=agent")).await;
        asked.is(200, "Which agent?");
        asked.is(200, "Agent &lt;29&gt;</a>");
        assert!(!asked.html.contains("elder"));
        let seen = owner.get(&format!("{path}?agent=nobody")).await;
        seen.is(200, "None of your newest agents matches");
        // A name that the user enters overrides the agent in the link.
        let other = format!("{path}?agent_id={asking}&agent=Agent+%3C03%3E");
        owner.get(&other).await.is(200, "value=\"Agent &lt;03&gt;\"");
    }
    owner
        .get("/dashboard/catalog")
        .await
        .is(200, "Choose an agent to see what it may buy.");
}

#[tokio::test]
async fn settlement_pages_filter_by_agent_state_and_day() {
    let world = World::start().await;
    let agent = world.agent(OWNER).await;
    let other = world.agent(OWNER).await;
    let mut ids = Vec::new();
    for (agent, key) in [(&agent, "a"), (&agent, "b"), (&other, "c")] {
        let Told::Allowed(settlement) = world.pay(agent, 5, key).await else {
            panic!("not allowed")
        };
        ids.push((
            settlement.to_string(),
            world.now().to_string().chars().take(10).collect::<String>(),
        ));
        world.advance(86_400);
    }
    let mut owner = world.browser(OWNER).await;
    let links: Vec<&str> = ids.iter().map(|(id, _)| id.as_str()).collect();
    let [first, second, third] = [0, 1, 2].map(|n| links[n]);
    let day = &ids[1].1;
    for (query, shown) in [
        (String::new(), vec![first, second, third]),
        (format!("agent_id={agent}"), vec![first, second]),
        (format!("agent_id={other}&from=&to="), vec![third]),
        ("status=authorized".to_owned(), vec![first, second, third]),
        ("status=confirmed".to_owned(), vec![]),
        (format!("from={day}"), vec![second, third]),
        (format!("to={day}"), vec![first, second]),
        (format!("from={day}&to={day}"), vec![second]),
    ] {
        let seen = owner.get(&format!("/dashboard/settlements?{query}")).await;
        assert_eq!((seen.status, has(&seen.html, &links)), (200, shown), "{query}");
    }
    for (wrong, problem) in [
        ("status=paid", "State: must be one of"),
        ("from=yesterday", "From: must be a date (YYYY-MM-DD, UTC)"),
        ("agent_id=x", "Agent: must be a UUID."),
        ("cursor=x", "start from the first page"),
    ] {
        let seen = owner.get(&format!("/dashboard/settlements?{wrong}")).await;
        seen.is(400, problem);
        assert!(has(&seen.html, &links).is_empty(), "{wrong}");
    }
    for n in 0..26 {
        world.pay(&agent, 1, &format!("more {n}")).await;
    }
    let seen = owner
        .get(&format!("/dashboard/settlements?agent_id={agent}&status=authorized"))
        .await;
    let (_, older) = seen.html.rsplit_once("class=\"button\" href=\"").unwrap();
    let older = older.split('"').next().unwrap().replace("&amp;", "&");
    assert!(
        older.contains("status=authorized") && older.contains("cursor="),
        "{older}"
    );
    assert_eq!(has(&owner.get(&older).await.html, &links), [first, second]);
}

/// Exports list the newest rows first.
#[tokio::test]
async fn csv_exports_apply_the_page_filters_and_escape_formulas() {
    let world = World::start().await;
    let mut agents = [world.agent(OWNER).await, world.agent(OWNER).await];
    agents.sort();
    let [agent, other] = [&agents[0], &agents[1]];
    let edit = async |agent: &str, below: &str, body| {
        let path = format!("/agents/{agent}{below}");
        world.edit(OWNER, "PATCH", &path, body).await.ok();
    };
    edit(agent, "", json!({"name": "=SUM(A1),\"x\""})).await;
    edit(other, "/services/lab", json!({"max_per_call_units": 1_234_567})).await;
    let mut ids = Vec::new();
    // The agent has more rows than one database read returns.
    for n in 0..103 {
        world.advance(1);
        let Told::Allowed(id) = world.pay(agent, 1_000_000 + n, &format!("key {n}")).await else {
            panic!("not allowed")
        };
        ids.push(id.to_string());
    }
    world.advance(86_400);
    let Told::Allowed(last) = world.pay(other, 20, "last").await else {
        panic!("not allowed")
    };
    world.advance(1);
    assert!(matches!(world.pay(other, 2_000_000, "much").await, Told::Blocked));
    let last = last.to_string();
    let mut owner = world.browser(OWNER).await;
    let mut file = async |path: String| {
        let seen = owner.get(&path).await;
        assert_eq!(
            (seen.status, &seen.headers["content-type"]),
            (200, &"text/csv; charset=utf-8".parse().unwrap())
        );
        assert!(seen.html.starts_with("\u{feff}decided_at,"), "{}", seen.html);
        let lines: Vec<String> = seen.html.split_terminator("\r\n").skip(1).map(str::to_owned).collect();
        for line in &lines {
            let shape: String = line
                .chars()
                .take(20)
                .map(|c| if c.is_ascii_digit() { '0' } else { c })
                .collect();
            assert_eq!(shape, "0000-00-00 00:00:00,", "{line}");
        }
        lines
    };
    let newest: Vec<String> = std::iter::once(&last).chain(ids.iter().rev()).cloned().collect();
    let named = |lines: &[String]| -> Vec<String> {
        let id = |line: &String| newest.iter().find(|id| line.contains(*id)).unwrap().clone();
        lines.iter().map(id).collect()
    };

    let lines = file("/dashboard/settlements.csv".to_owned()).await;
    assert_eq!(named(&lines), newest);
    let cells = format!(",{agent},\"'=SUM(A1),\"\"x\"\"\",,{},LAB,", service_id(1));
    assert!(lines[1].contains(&cells), "{}", lines[1]);
    assert!(
        lines[1].contains(",base-sepolia,USDC,1.000102,1000102,0x"),
        "{}",
        lines[1]
    );
    let day = world.now().to_string().chars().take(10).collect::<String>();
    let simple = |id: &str| id.replace('-', "");
    for (query, expected) in [
        (format!("agent_id={other}&status=&from=&to="), vec![last.clone()]),
        ("status=confirmed".to_owned(), vec![]),
        (format!("from={day}"), vec![last.clone()]),
        // A file with a cursor contains the rows after the cursor.
        (format!("cursor={}", simple(&last)), newest[1..].to_vec()),
        (format!("cursor={}", simple(&ids[2])), newest[102..].to_vec()),
    ] {
        let lines = file(format!("/dashboard/settlements.csv?{query}")).await;
        assert_eq!(named(&lines), expected, "{query}");
    }

    let lines = file("/dashboard/decisions.csv".to_owned()).await;
    assert_eq!(lines.len(), 105);
    let refused = file("/dashboard/decisions.csv?result=block".to_owned()).await;
    assert_eq!(refused, lines[..1]);
    let cells = ",block,amount_exceeds_per_call_limit,amount_exceeds_per_call_limit,";
    assert!(refused[0].contains(cells), "{}", refused[0]);
    assert!(refused[0].contains(",LAB,lab.pay,,,2,2000000,0x"), "{}", refused[0]);
    assert!(lines[1].contains(&format!(",{last},authorized,")), "{}", lines[1]);
    assert_eq!(
        file(format!(
            "/dashboard/decisions.csv?to={day}&agent_id={other}&result=allow"
        ))
        .await,
        lines[1..2]
    );

    // The download links keep the page's filters, and another user's files are empty.
    for (path, wrong) in [("settlements", "status=paid"), ("decisions", "result=paid")] {
        let page = owner.get(&format!("/dashboard/{path}?agent_id={other}&to={day}")).await;
        page.is(200, &format!("href=\"/dashboard/{path}.csv?agent_id={other}&amp;to="));
        for (query, problem) in [
            (wrong, "must be one of"),
            ("cursor=x", "start from the first page."),
            ("from=x", "From: must be a date"),
        ] {
            let refused = owner.get(&format!("/dashboard/{path}.csv?{query}")).await;
            refused.is(400, problem);
        }
        let mut bob = world.browser("bob").await;
        let theirs = bob.get(&format!("/dashboard/{path}.csv")).await;
        assert_eq!((theirs.status, theirs.html.lines().count()), (200, 1));
        let theirs = bob
            .get(&format!("/dashboard/{path}.csv?cursor={}", simple(agent)))
            .await;
        assert_eq!((theirs.status, theirs.html.lines().count()), (200, 1));
    }
}

#[tokio::test]
async fn the_catalog_shows_what_an_agent_may_buy() {
    let world = World::start().await;
    let agent = world.agent(OWNER).await;
    let path = format!("/agents/{agent}/services/lab");
    let mut owner = world.browser(OWNER).await;
    let named = |html: &str| {
        html.matches(&format!(
            "Enabled for: <a class=\"name\" href=\"/dashboard/agents/{agent}\""
        ))
        .count()
    };
    let page = format!("/dashboard/catalog?agent_id={agent}");
    let all = named(&owner.get(&page).await.html);
    assert!(all > 1);
    world.edit(OWNER, "PATCH", &path, json!({"enabled": false})).await.ok();
    let seen = owner.get(&page).await;
    assert_eq!(named(&seen.html), all - 1);
    let seen = owner.get(&format!("{page}&q=LAB")).await;
    seen.is(200, "Not enabled for ");
    owner
        .get("/dashboard/catalog?q=nothing+like+it")
        .await
        .is(200, "No service fits.");
}

/// If the spending is unavailable, the rest of the page is still shown.
#[tokio::test]
async fn the_overview_shows_thirty_days_of_spending() {
    let world = World::start().await;
    let (first, second) = (world.agent(OWNER).await, world.agent(OWNER).await);
    let name = json!({"name": "Big spender"});
    world
        .edit(OWNER, "PATCH", &format!("/agents/{second}"), name)
        .await
        .ok();
    let stranger = world.agent("bob").await;
    // The first agent may pay three dollars per call, and needs approval above two dollars.
    let policy = json!({"max_per_call_units": 3_000_000, "require_approval_above_units": 2_000_000});
    let path = format!("/agents/{first}/services/lab");
    world.edit(OWNER, "PATCH", &path, policy).await.ok();
    let pay = async |agent: &str, service: u128, days_ago: u32, units: u64| {
        let key = format!("{service} {days_ago} {units}");
        let payment = Payment::new(AgentId::parse(agent).unwrap(), service_id(service), units, key);
        let at = Day::containing(world.now()).days_earlier(days_ago).start_time();
        authorize(&world.ledger, &payment, at).await.unwrap()
    };
    assert_eq!(pay(&first, 1, 3, 3_000_001).await, Told::Blocked);
    assert!(matches!(pay(&first, 1, 3, 2_000_001).await, Told::Waits(_)));
    pay(&first, 1, 0, 1_500_000).await;
    let Told::Allowed(released) = pay(&first, 1, 0, 500_000).await else {
        panic!("not allowed")
    };
    let settlement = world
        .ledger
        .read_settlement_by_id(AgentId::parse(&first).unwrap(), released)
        .await;
    let settlement = settlement.unwrap().unwrap();
    let moved = world.ledger.release_hold(&settlement, &unusable(&settlement)).await;
    assert!(matches!(moved.unwrap(), TransitionResult::Done(_)));
    // Payments before the shown period and payments of another owner are not counted.
    pay(&second, 2, 30, 40_000_000).await;
    pay(&second, 2, 29, 7_000_000).await;
    pay(&stranger, 1, 0, 80_000_000).await;
    // Without payments, no chart is shown.
    world
        .browser("bob")
        .await
        .get("/dashboard")
        .await
        .is(200, "class=\"chart\"");
    let nobody = world.agent("eve").await;
    let seen = world.browser("eve").await.get("/dashboard").await;
    seen.is(200, "Nothing was paid in this period.");
    seen.is(
        200,
        &format!("such as that of <a class=\"name\" href=\"/dashboard/agents/{nobody}\""),
    );
    assert!(
        !seen.html.contains("class=\"chart\"") && !seen.html.contains("By agent"),
        "{}",
        seen.html
    );

    let mut owner = world.browser(OWNER).await;
    let seen = owner.get("/dashboard").await;
    let (today, month) = (
        Day::containing(world.now()),
        Day::containing(world.now()).days_earlier(29),
    );
    let label = format!("Settled or pending from {month} to {today}: $8.50; most on {month}: $7.00");
    seen.is(200, &format!("aria-label=\"{label}\""));
    seen.is(200, &format!("<title>{today}: $1.50</title>"));
    let (_, section) = seen.html.split_once("id=\"spending-title\"").unwrap();
    let (section, _) = section.split_once("id=\"spend-title\"").unwrap();
    for number in [
        "data-label=\"Payments\">3</td>",
        "data-label=\"Blocked\">1</td>",
        "data-label=\"Asked for approval\">1</td>",
    ] {
        assert!(section.contains(number), "{number}: {section}");
    }
    let order = |texts: [&str; 2]| texts.map(|text| section.find(text).unwrap_or_else(|| panic!("{text}: {section}")));
    let [before, after] = order(["MAPS", "LAB"]);
    assert!(before < after, "{section}");
    // Without the usage data, everything else is still shown.
    let world = world.elsewhere(&[("USAGE_TABLE", "NoSuchTable")]).await;
    let seen = world.browser(OWNER).await.get("/dashboard").await;
    seen.is(200, "can’t be shown at the moment");
    seen.is(200, "Big spender</a>");
}
