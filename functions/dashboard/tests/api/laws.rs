//! Invariants of every page that a test's browser receives.

use crate::support::World;
use purser_testkit::authorize::Answer as Told;
use purser_testkit::sample::{OWNER, service_id};
use serde_json::json;
use std::collections::BTreeSet;

/// A name with markup for every context in which a page could fail to escape text.
pub(crate) const HOSTILE: &str = "\"><script>alert('1')</script>&amp;</textarea>";

#[track_caller]
pub(crate) fn hold(html: &str, path: &str) {
    // Text never becomes markup, and the page uses nothing that the content security policy forbids.
    for forbidden in [
        "<script>alert",
        "&amp;</textarea>",
        " style=",
        "<style",
        " onclick=",
        " onsubmit=",
        "javascript:",
    ] {
        assert!(!html.contains(forbidden), "{path}: {forbidden}");
    }
    assert!(html.matches("<script").count() <= 1, "{path}");

    // Every form that changes something contains the CSRF token.
    for form in html.split("<form").skip(1) {
        let (head, rest) = form.split_once('>').unwrap();
        let method = if rest.starts_with("<input type=\"hidden\" name=\"form_token\"") {
            "method=\"post\""
        } else {
            "method=\"get\""
        };
        assert!(head.contains(method), "{path}: {head}");
    }

    // Every HTML id is unique, and every reference to an id has a target.
    let values = |begin: &str| -> Vec<String> {
        let parts = html.split(begin).skip(1);
        parts.map(|part| part.split('"').next().unwrap().to_owned()).collect()
    };
    let all = values(" id=\"");
    let ids: BTreeSet<&String> = all.iter().collect();
    assert_eq!(ids.len(), all.len(), "{path}");
    for attribute in [" for=\"", " aria-labelledby=\"", " aria-describedby=\"", "href=\"#"] {
        for value in values(attribute) {
            assert!(ids.contains(&value), "{path}: {attribute}{value}");
        }
    }
}

#[tokio::test]
async fn dashboard_pages_escape_hostile_names() {
    let world = World::start().await;
    let agent = world.agent(OWNER).await;
    let path = format!("/agents/{agent}");
    let edit = async |method: &str, below: &str, body| world.edit(OWNER, method, &format!("{path}{below}"), body).await;
    edit("PATCH", "", json!({"name": HOSTILE, "labels": {"team": HOSTILE}}))
        .await
        .ok();
    let limits = json!({"max_per_call_units": 100, "max_per_day_units": 200, "require_approval_above_units": 10});
    edit("PATCH", "/services/lab", limits).await.ok();
    edit("PATCH", "/services/maps", json!({"enabled": false})).await.ok();
    edit("POST", "/keys", json!({})).await.created();
    let mut paid = None;
    for (n, amount) in [20, 30, 40, 5, 500].into_iter().enumerate() {
        world.advance(1);
        match world.pay(&agent, amount, &format!("{HOSTILE} {n}")).await {
            Told::Waits(approval) if n < 2 => {
                let verdict = if n == 0 { "approve" } else { "reject" };
                let below = format!("/approvals/{approval}/{verdict}");
                edit("POST", &below, json!({"note": HOSTILE})).await.ok();
            }
            Told::Allowed(settlement) => paid = Some(settlement),
            Told::Waits(_) | Told::Blocked => {}
            other => panic!("{other:?}"),
        }
    }
    let scope = json!({"enabled_operations": ["lab.current"], "allowed_domains": ["example.com", "*.example.org"]});
    edit("PATCH", "/services/lab", scope).await.ok();
    let wallet = "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC";
    for rule in [
        json!({"kind": "budget_limit", "limit_units": 7, "window_seconds": 604_800}),
        json!({"kind": "category_block", "categories": ["finance", "security"]}),
        json!({"kind": "vendor_allowlist", "services": ["lab"], "wallets": [wallet]}),
        json!({"kind": "approval_required", "services": ["lab"], "above_units": 5}),
    ] {
        edit("POST", "/rules", rule).await.created();
    }

    let mut owner = world.browser(OWNER).await;
    let agent_page = format!("/dashboard/agents/{agent}");
    let escaped = "&quot;&gt;&lt;script&gt;alert";
    for (page, text) in [
        ("/dashboard", escaped),
        ("/dashboard/agents", escaped),
        (&*format!("/dashboard/agents?label=team&q={agent}"), escaped),
        ("/dashboard/approvals", escaped),
        ("/dashboard/approvals/waiting", escaped),
        (&*format!("/dashboard/approvals?agent_id={agent}"), escaped),
        ("/dashboard/decisions", escaped),
        (&*format!("/dashboard/decisions?agent_id={agent}&result=block"), escaped),
        ("/dashboard/settlements", escaped),
        (
            &*format!("/dashboard/settlements?agent_id={agent}&status=authorized"),
            escaped,
        ),
        (&*format!("/dashboard/catalog?agent_id={agent}"), escaped),
        (&*format!("/dashboard/receipts/{agent}/{}", paid.unwrap()), escaped),
        (&*agent_page, escaped),
        ("/dashboard/nowhere", "This page does not exist"),
    ] {
        let seen = owner.get(page).await;
        assert!(seen.html.contains(text), "{page}: {}", seen.html);
    }
    // The page shows the rejected value, which must be escaped too.
    let policy = format!("{agent_page}/services/{}", service_id(1));
    let typed = [
        ("version", "2"),
        ("max_per_call", HOSTILE),
        ("operations", "some"),
        ("allowed_domains", "*"),
    ];
    owner.post(&agent_page, &policy, &typed).await.is(400, escaped);
    let typed = [("version", "1"), ("kind", "vendor_allowlist"), ("vendors", HOSTILE)];
    owner
        .post(&agent_page, &format!("{agent_page}/rules"), &typed)
        .await
        .is(400, escaped);
}
