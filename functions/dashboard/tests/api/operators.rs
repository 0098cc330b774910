//! Tests who may see the operators' pages, and that these pages can be read-only.

use crate::support::World;
use crate::support::browser::Browser;
use axum::http::Method;
use purser_domain::{AgentId, FreezeChange, FreezeTarget, OperatorFreeze, OperatorName, OperatorReason, UserId};
use purser_testkit::sample::{audit, service_id};
use serde_json::json;
use uuid::Uuid;

const PAGES: [&str; 4] = [
    "/dashboard/operator/catalog",
    "/dashboard/operator/changes",
    "/dashboard/operator/freezes",
    "/dashboard/operator/agents",
];
const SETTINGS: [(&str, &str); 2] = [("OPERATOR_CLAIM", "groups"), ("OPERATOR_VALUE", "operators")];

/// Returns a browser that signed in with these claims.
async fn with_claims<'a>(world: &'a World, who: &str, claims: serde_json::Value) -> Browser<'a> {
    *world.issuer.claims.lock().unwrap() = claims;
    let browser = world.browser(who).await;
    *world.issuer.claims.lock().unwrap() = json!({});
    browser
}

/// The claim must be configured, and the user must have had it at the sign-in.
#[tokio::test]
async fn operator_pages_require_the_operator_claim_in_the_id_token() {
    let world = World::with(&SETTINGS).await;
    let groups = json!({"groups": ["staff", "operators"]});
    let mut operator = with_claims(&world, "ada", groups.clone()).await;
    let mut ann = world.browser("ann").await;
    let mut other = with_claims(&world, "bob", json!({"groups": ["staff"]})).await;
    for path in PAGES {
        operator.get(path).await.is(200, "Read-only.");
        for browser in [&mut ann, &mut other] {
            let seen = browser.get(path).await;
            seen.is(404, "This page does not exist, or you don’t have access to it.");
        }
        let stranger = world.stranger().get(path).await;
        assert!(stranger.leads().starts_with("/dashboard/sign-in?next="), "{path}");
    }
    operator.get("/dashboard").await.is(200, ">Operators</a>");
    assert!(!ann.get("/dashboard").await.html.contains("operator"));
    assert_eq!(operator.get("/dashboard/operator").await.leads(), PAGES[0]);

    // A claim without the configuration has no effect. A session from before the configuration has no effect either.
    let plain = World::start().await;
    let mut claims_it = with_claims(&plain, "ada", groups).await;
    assert_eq!(claims_it.get(PAGES[0]).await.status, 404);
    let named = plain.elsewhere(&SETTINGS).await;
    let mut there = named.stranger();
    there.cookies = claims_it.cookies.clone();
    assert!(there.get(PAGES[0]).await.leads().starts_with("/dashboard/sign-in"));
    let log = world.get("ada", "/audit-log").await.ok();
    assert_eq!(log["entries"][0]["after"]["is_operator"], true, "{log}");
}

#[tokio::test]
async fn operator_pages_show_catalog_pending_changes_and_freezes() {
    let world = World::with(&SETTINGS).await;
    let mut operator = with_claims(&world, "ada", json!({"groups": "operators"})).await;
    let seen = operator.get(PAGES[0]).await;
    for text in [
        "LAB",
        "MAPS",
        "SHED",
        "not curated",
        "change waits",
        "no call can be paid",
    ] {
        seen.is(200, text);
    }
    let payee = purser_testkit::sample::operation()
        .payment
        .unwrap()
        .pay_to
        .to_checksum(None);
    for (query, expected) in [
        ("q=shed", ["SHED"].as_slice()),
        ("q=MAPS.example", &["MAPS"]),
        (&*format!("q={}", payee.to_lowercase()), &["MAPS"]),
        ("trust_status=disabled", &[]),
        ("trust_status=x&page=x", &["LAB", "MAPS", "SHED"]),
    ] {
        let seen = operator.get(&format!("{}?{query}", PAGES[0])).await;
        let shown: Vec<&str> = ["LAB", "MAPS", "SHED"]
            .into_iter()
            .filter(|name| seen.html.contains(&format!(">{name}</a>")))
            .collect();
        assert_eq!((seen.status, shown.as_slice()), (200, expected), "{query}");
    }
    let seen = operator.get(PAGES[1]).await;
    for text in ["maps.current", "no payment", &payee, "ada</td>"] {
        seen.is(200, text);
    }
    world.advance(86_400);
    operator = with_claims(&world, "ada", json!({"groups": "operators"})).await;
    operator.get(PAGES[1]).await.is(200, "No change waits.");

    operator.get(PAGES[2]).await.is(200, "No operator has frozen anything.");
    let (agent, owner) = (AgentId::from_uuid(Uuid::from_u128(7)), UserId::derive("x", "y"));
    for target in [
        FreezeTarget::Agent(agent),
        FreezeTarget::Owner(owner.clone()),
        FreezeTarget::Deployment,
    ] {
        let freeze = OperatorFreeze {
            reason: OperatorReason::parse(&format!("<{}>", target.scope_name())).unwrap(),
            target,
            by: OperatorName::parse("grace").unwrap(),
            at: world.now(),
            end_asked_by: None,
        };
        let begun = FreezeChange::begin_freeze(None, freeze).unwrap();
        world.ledger.change_freeze(&begun, &audit()).await.unwrap();
        world.advance(1);
    }
    let seen = operator.get(PAGES[2]).await;
    let (agent, owner) = (agent.to_string(), owner.to_string());
    let places = ["all payments", &owner, &agent].map(|text| seen.html.find(text).unwrap_or_else(|| panic!("{text}")));
    assert!(places.is_sorted(), "{places:?}");
    for text in ["&lt;deployment&gt;", "&lt;owner&gt;", "&lt;agent&gt;", "grace</td>"] {
        seen.is(200, text);
    }
}

/// A stolen session cannot change anything on these pages.
#[tokio::test]
async fn operator_pages_are_read_only() {
    let world = World::with(&SETTINGS).await;
    let mut operator = with_claims(&world, "ada", json!({"groups": "operators"})).await;
    for path in PAGES {
        let seen = operator.get(path).await;
        let actions = seen.html.split("action=\"").skip(1);
        let actions: Vec<&str> = actions.map(|rest| rest.split('"').next().unwrap()).collect();
        let searches = actions.iter().filter(|action| **action == path).count();
        assert!(searches <= 1, "{path}");
        assert!(
            actions
                .iter()
                .all(|action| [path, "/dashboard/sign-out", "/dashboard/search"].contains(action)),
            "{path}: {actions:?}"
        );
        let posted = operator.send(Method::POST, path, &[], String::new()).await;
        assert!([403, 404, 405].contains(&posted.status), "{path}: {}", posted.status);
    }
    let service = format!("/dashboard/operator/services/{}", service_id(2));
    let seen = operator.get(&service).await;
    seen.is(200, "Read-only.");
    assert!(!seen.html.contains("details class=\"pop\""));
    let operation = format!("{service}/operations/{}", Uuid::from_u128(2));
    let agent = format!("/dashboard/operator/agents/{}", Uuid::from_u128(7));
    let confirmed = [
        ("version", "1"),
        ("confirmed", "yes"),
        ("scope", "deployment"),
        ("reason", "r"),
    ];
    for path in [
        format!("{service}/probe"),
        format!("{operation}/accept"),
        format!("{operation}/withdraw"),
        format!("{operation}/pin"),
        "/dashboard/operator/freezes".to_owned(),
        "/dashboard/operator/freezes/end".to_owned(),
        format!("{agent}/offer"),
        format!("{agent}/withdraw-offer"),
        format!("{agent}/reconcile"),
    ] {
        let posted = operator.post("/dashboard", &path, &confirmed).await;
        posted.is(404, "This page does not exist");
    }
    assert!(world.ledger.list_operator_freezes().await.unwrap().is_empty());
}
