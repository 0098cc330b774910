//! Tests the dashboard in Chromium with the scripts in `tests/browser`, which write screenshots to `target/browser`.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::get;
use axum::{Json, Router};
use purser_api::Env;
use purser_local::{DEMO_OWNER, DEMO_STRANGER, FleetSize, MailService, Options, StackFile, Streaming, fill_fleet};
use purser_testkit::serve;
use purser_tests::{World, operation_entry, payment_entry, service_entry};
use reqwest::Method;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::process::Command;

/// The path of Chromium in Debian. The environment variable `CHROMIUM` overrides it.
const CHROMIUM: &str = "/usr/bin/chromium";

/// The timeout of a script.
const PATIENCE: Duration = Duration::from_secs(300);

/// Starts a webhook receiver that lists the recorded calls, for the scripts.
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

/// Creates a pending catalog change and a freeze of another user's agent, which the operators' pages show.
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

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns the path of Chromium, if everything that the scripts need is installed.
fn chromium() -> Option<String> {
    let env = Env::from_process();
    let chromium = env.get("CHROMIUM").unwrap_or(CHROMIUM);
    let needed = [
        "tests/browser/node_modules/playwright-core",
        "tests/browser/node_modules/axe-core",
        "infra/local/webhooks/node_modules/standardwebhooks",
    ];
    if Path::new(chromium).exists() && needed.iter().all(|package| root().join(package).exists()) {
        return Some(chromium.to_owned());
    }
    println!("skipped: there is no {chromium}, or one of {needed:?} is missing; `make setup` installs them");
    None
}

/// Runs a script in `tests/browser`.
async fn tell(script: &str, story: &Value, chromium: &str) {
    let telling = Command::new("node")
        .arg(root().join("tests/browser").join(script))
        .env("STORY", story.to_string())
        .env("CHROMIUM", chromium)
        .env("SHOTS", root().join("target/browser"))
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .status();
    let told = tokio::time::timeout(PATIENCE, telling)
        .await
        .expect("in time")
        .expect("node runs");
    assert!(
        told.success(),
        "{script} broke off; a screenshot in target/browser shows where"
    );
}

/// The owner signs in, manages an agent, and finally revokes the agent's API key.
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_can_manage_an_agent_in_a_browser() {
    let Some(chromium) = chromium() else { return };
    let program = program().await;
    let allowed = program.trim_start_matches("http://").to_owned();
    let world = World::with(Options {
        environment: [("WEBHOOK_ALLOWED_HOSTS".to_owned(), allowed)].into(),
        streams: Streaming::On,
        mail: MailService::Inbox(0),
        ..Options::default()
    })
    .await;
    tokio::spawn(world.stack.publish_continuously());
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
    tell("story.mjs", &story, &chromium).await;
}

/// Each of five tasks takes at most four clicks from the overview. axe-core checks the pages.
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_can_govern_many_agents_in_a_browser() {
    let Some(chromium) = chromium() else { return };
    let world = World::with(Options {
        streams: Streaming::On,
        throttle_per_minute: 1_200,
        ..Options::default()
    })
    .await;
    tokio::spawn(world.stack.publish_continuously());
    let file = StackFile::new(&world.stack);
    let size = FleetSize {
        agents: FleetSize::FEWEST_AGENTS,
        days: 2,
    };
    fill_fleet(file.clone(), size, |step| println!("{step}"))
        .await
        .expect("a fleet");
    let story = json!({
        "base_url": file.base_url,
        "dashboard_url": file.dashboard_url,
        "name": DEMO_OWNER.name,
        "token": file.user.token,
    });
    tell("fleet.mjs", &story, &chromium).await;
}
