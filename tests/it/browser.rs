//! The dashboard in a real browser: Debian's Chromium, driven by `tests/browser/story.mjs`, which writes screenshots of
//! every page to `target/browser`.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::get;
use axum::{Json, Router};
use purser_api::Env;
use purser_local::{DEMO_OWNER, DEMO_STRANGER, MailService, Options, Streaming};
use purser_testkit::serve;
use purser_tests::{World, operation_entry, payment_entry, service_entry};
use reqwest::Method;
use serde_json::{Map, Value, json};
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::process::Command;

/// Debian's path; the variable `CHROMIUM` overrides it.
const CHROMIUM: &str = "/usr/bin/chromium";

/// Much longer than the script takes.
const PATIENCE: Duration = Duration::from_secs(300);

/// A webhook endpoint that records every call and lists the calls as they arrived, for the script to verify.
async fn program() -> String {
    type Calls = Arc<Mutex<Vec<Value>>>;
    let taken = async |State(calls): State<Calls>, headers: HeaderMap, body: String| {
        let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let signed = ["webhook-id", "webhook-timestamp", "webhook-signature"];
        let headers: Map<String, Value> = signed
            .map(|name| (name.to_owned(), json!(header(name))))
            .into_iter()
            .collect();
        calls.lock().unwrap().push(json!({"headers": headers, "body": body}));
    };
    let told = async |State(calls): State<Calls>| Json(calls.lock().unwrap().clone());
    serve(
        Router::new()
            .route("/", get(told).post(taken))
            .with_state(Calls::default()),
    )
    .await
}

/// Creates operators' acts to read: a pending change, and a freeze of another person's agent.
async fn with_operators_acts(world: &World) {
    let paid_to = |pay_to: &str| {
        let mut operation = operation_entry("news.read", "https://newcomer.example/news");
        operation["id"] = json!("00000000-0000-4000-8000-000000000001");
        operation["payment"] = payment_entry(1_000, pay_to);
        service_entry("newcomer", &[operation])
    };
    let (id, _) = world.enter(&paid_to(&world.stack.providers.pay_to)).await;
    let path = format!("/internal/services/{id}");
    let another = paid_to("0x70997970C51812dc3A010C7d01b50e0d17dc79C8");
    world.operator_edits(Method::PUT, &path, &another).await.ok();
    let agent = world.agent_of(&world.person(&DEMO_STRANGER), "A stranger’s").await;
    let path = format!("/internal/freezes/agents/{}", agent.id);
    let freeze = json!({"reason": "reported stolen"});
    world.operator_edits(Method::PUT, &path, &freeze).await.ok();
}

/// The test covers everything from sign-in to the revocation of the key.
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_manages_an_agent_in_a_browser() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let env = Env::process();
    let chromium = env.get("CHROMIUM").unwrap_or(CHROMIUM);
    let driver = root.join("tests/browser/node_modules/playwright-core");
    let verifier = root.join("infra/local/webhooks/node_modules/standardwebhooks");
    if !Path::new(chromium).exists() || !driver.exists() || !verifier.exists() {
        println!("skipped: there is no {chromium}, playwright-core or standardwebhooks; `make setup` installs them");
        return;
    }
    let program = program().await;
    let allowed = program.trim_start_matches("http://").to_owned();
    let world = World::with(Options {
        environment: [("WEBHOOK_ALLOWED_HOSTS".to_owned(), allowed)].into(),
        streams: Streaming::On,
        mail: MailService::Inbox(0),
        ..Options::default()
    })
    .await;
    tokio::spawn(world.stack.telling());
    with_operators_acts(&world).await;
    let story = json!({
        "base_url": world.stack.base_url,
        "dashboard_url": format!("{}/dashboard", world.stack.base_url),
        "program_url": program,
        "provider_url": world.stack.providers.provider_url,
        "inbox_url": world.stack.mail.inbox_url,
        "email": DEMO_OWNER.email,
        "name": DEMO_OWNER.name,
    });
    let telling = Command::new("node")
        .arg(root.join("tests/browser/story.mjs"))
        .env("STORY", story.to_string())
        .env("CHROMIUM", chromium)
        .env("SHOTS", root.join("target/browser"))
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .status();
    let told = tokio::time::timeout(PATIENCE, telling)
        .await
        .expect("in time")
        .expect("node runs");
    assert!(
        told.success(),
        "the story broke off; target/browser/failure.png shows where"
    );
}
