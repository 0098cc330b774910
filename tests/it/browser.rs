//! The dashboard in a real browser: Debian's Chromium, driven by `tests/browser/story.mjs`. It writes screenshots of
//! every page to `target/browser`.

use purser_api::Env;
use purser_local::{DEMO_OWNER, DEMO_PASSWORD};
use purser_tests::World;
use serde_json::json;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// Debian's path; `CHROMIUM` names another.
const CHROMIUM: &str = "/usr/bin/chromium";

/// Far more than the script takes.
const PATIENCE: Duration = Duration::from_secs(300);

#[tokio::test(flavor = "multi_thread")]
async fn a_person_governs_an_agent_from_sign_in_to_revocation() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let env = Env::process();
    let chromium = env.get("CHROMIUM").unwrap_or(CHROMIUM);
    let driver = root.join("tests/browser/node_modules/playwright-core");
    if !Path::new(chromium).exists() || !driver.exists() {
        println!("skipped: there is no {chromium}, or no playwright-core in tests/browser; `make setup` installs both");
        return;
    }
    let world = World::start().await;
    let story = json!({
        "base_url": world.stack.base_url,
        "dashboard_url": format!("{}/dashboard", world.stack.base_url),
        "provider_url": world.stack.providers.provider_url,
        "email": DEMO_OWNER.email,
        "password": DEMO_PASSWORD,
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
