//! Tests the program of `make run`, with its variables and its local routes.

#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test stops where its ground is missing"
)]

use purser_local::{FleetError, FleetSize, StackFile, fill_fleet};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use uuid::Uuid;

/// A running stack, which ends when it is dropped.
struct Run {
    process: Child,
    folder: PathBuf,
    file: StackFile,
    http: reqwest::Client,
}

impl Run {
    async fn start(name: &str, variables: &[(&str, &str)]) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("run-{name}"));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let mut process = Command::new(env!("CARGO_BIN_EXE_stack"))
            .env_remove("ACCEPT_PROVIDER_OK")
            .envs([("PORTS", "free"), ("STACK_FOLDER", folder.to_str().unwrap())])
            .envs(variables.iter().copied())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let file = loop {
            // The file is complete only when the stack is ready.
            if let Ok(file) = StackFile::read(&folder) {
                break file;
            }
            assert_eq!(process.try_wait().unwrap(), None, "the stack ended");
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        Self {
            process,
            folder,
            file,
            http: reqwest::Client::new(),
        }
    }

    /// Sends a request with the content type of an HTML form, as `curl -d` does.
    async fn curl(&self, path: &str, body: String) -> (u16, Value) {
        let request = self
            .http
            .post(format!("{}{path}", self.file.base_url))
            .header("authorization", format!("Bearer {}", self.file.agent.key))
            .header("content-type", "application/x-www-form-urlencoded")
            .body(body);
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap())
    }

    /// Sends `provider_ok` for an unknown settlement. The error shows whether the function accepts the field.
    async fn assertion(&self) -> String {
        let body = json!({"provider_ok": true, "tx_hash": format!("0x{}", "ab".repeat(32))});
        let path = format!("/x402/settlements/{}/complete", Uuid::nil());
        let (_, answer) = self.curl(&path, body.to_string()).await;
        answer["error"].as_str().unwrap().to_owned()
    }

    /// Returns the value of `ACCEPT_PROVIDER_OK` for functions in containers.
    fn in_containers(&self) -> Value {
        let text = fs::read(self.folder.join("functions.json")).unwrap();
        serde_json::from_slice::<Value>(&text).unwrap()["Parameters"]["ACCEPT_PROVIDER_OK"].clone()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[tokio::test]
async fn the_local_stack_accepts_provider_assertions_only_when_configured() {
    let told = Run::start("told", &[("ACCEPT_PROVIDER_OK", "true")]).await;
    assert_eq!(told.assertion().await, "not_found");
    assert_eq!(told.in_containers(), "true");
    drop(told);
    let untold = Run::start("untold", &[]).await;
    assert_eq!(untold.assertion().await, "provider_proof_required");
    assert_eq!(untold.in_containers(), Value::Null);
}

#[tokio::test]
async fn local_clock_and_fund_routes_accept_any_content_type() {
    let stack = Run::start("controls", &[]).await;
    let clock = stack.curl("/_local/clock", json!({"advance_seconds": 90}).to_string());
    assert_eq!(clock.await, (200, json!({"ahead_seconds": 90})));
    let funds = json!({"wallet_address": stack.file.agent.wallet_address, "units": 5});
    assert_eq!(stack.curl("/_local/fund", funds.to_string()).await, (200, funds));
    for path in ["/_local/clock", "/_local/fund"] {
        for body in [
            "",
            "{",
            "advance_seconds=90&units=5",
            "{\"advance_seconds\": -1, \"units\": -1}",
        ] {
            let (status, answer) = stack.curl(path, body.to_owned()).await;
            assert_eq!(
                (status, &answer["error"]),
                (400, &json!("invalid_request")),
                "{path} {body}"
            );
        }
    }
}

#[tokio::test]
async fn the_demo_fleet_fills_a_running_stack_once() {
    let stack = Run::start("fleet", &[]).await;
    let size = FleetSize {
        agents: FleetSize::FEWEST_AGENTS,
        days: 1,
    };
    let counts = fill_fleet(stack.file.clone(), size, |_| ()).await.unwrap();
    assert_eq!(counts.agents, 50);
    assert!(
        counts.payments > 5 && counts.settled > 5 && counts.refusals == 4 && counts.approvals > 5,
        "{counts}"
    );
    let again = fill_fleet(stack.file.clone(), size, |_| ()).await;
    assert!(matches!(again, Err(FleetError::Filled)), "{again:?}");
}
