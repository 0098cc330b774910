//! The stack's child processes: Anvil, and the x402 facilitator and providers in Node.
//!
//! Each process ends when its pipe from the stack closes, however the stack ends.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

/// The reason why a child process did not start.
#[derive(Debug, thiserror::Error)]
pub enum ChildError {
    /// The program could not be started.
    #[error("could not start {program}: {source}")]
    Start {
        /// The program's name, for example `anvil`.
        program: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
    /// The program is not installed.
    #[error("{0} is not installed: run `make setup`")]
    Missing(&'static str),
    /// The program exited, or its output was unexpected.
    #[error("{program} did not come up: {detail}")]
    Failed {
        /// The program's name, for example `anvil`.
        program: &'static str,
        /// The exit status, or the unexpected output.
        detail: String,
    },
}

/// The folder of the Node package.
fn x402_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("x402")
}

/// Starts Anvil, which mines a block every second and after each transaction.
pub(crate) fn anvil(chain_id: u64, port: u16) -> Result<Child, ChildError> {
    let binary = x402_folder().join("node_modules/@foundry-rs/anvil-linux-amd64/bin/anvil");
    if !binary.exists() {
        return Err(ChildError::Missing("Anvil"));
    }
    // Anvil ignores its standard input, so a shell waits for the end of the pipe. It uses descriptor 3, because
    // background jobs of a shell have no standard input.
    let script = r#"exec 3<&0; "$@" </dev/null & pid=$!; trap 'kill "$pid" 2>/dev/null' EXIT; cat <&3 >/dev/null"#;
    Command::new("sh")
        .args(["-c", script, "anvil"])
        .arg(binary)
        .args([
            "--host",
            "127.0.0.1",
            "--port",
            &port.to_string(),
            "--chain-id",
            &chain_id.to_string(),
        ])
        .args(["--mixed-mining", "--block-time", "1", "--silent"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()
        .map_err(|source| ChildError::Start {
            program: "Anvil",
            source,
        })
}

/// The address that the mail service prints.
#[derive(serde::Deserialize)]
struct Inbox {
    inbox_url: String,
}

/// Starts the mail service. Returns the process and its URL; `None` if the service is not installed.
pub(crate) async fn inbox(port: u16) -> Result<Option<(Child, String)>, ChildError> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("mail");
    if !folder.join("node_modules").exists() {
        return Ok(None);
    }
    let mut child = Command::new("node")
        .arg("inbox.mjs")
        .current_dir(folder)
        .env("PORT", port.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|source| ChildError::Start {
            program: "the mail service",
            source,
        })?;
    let Inbox { inbox_url } = first_line(&mut child, "the mail service", "node inbox.mjs in infra/local/mail").await?;
    Ok(Some((child, inbox_url)))
}

/// Parses the first line of a child's output as JSON.
async fn first_line<T: serde::de::DeserializeOwned>(
    child: &mut Child,
    program: &'static str,
    command: &str,
) -> Result<T, ChildError> {
    let failed = |detail: String| ChildError::Failed { program, detail };
    let stdout = child
        .stdout
        .take()
        .ok_or_else(|| failed("it has no output".to_owned()))?;
    let line = BufReader::new(stdout)
        .lines()
        .next_line()
        .await
        .map_err(|error| failed(error.to_string()))?;
    let line = line.ok_or_else(|| failed(format!("it ended; run `{command}` to see why")))?;
    serde_json::from_str(&line).map_err(|error| failed(error.to_string()))
}

/// The addresses of the facilitator and the providers.
#[derive(Clone, Debug, serde::Deserialize)]
pub struct Providers {
    /// The URL of the official facilitator.
    pub facilitator_url: String,
    /// The URL of the provider that speaks x402 v2.
    pub provider_url: String,
    /// The URL of the provider that speaks x402 v1.
    pub provider_v1_url: String,
    /// The wallet that both providers are paid to.
    pub pay_to: String,
    /// The address of a contract that makes several transfers in one transaction.
    pub batch_address: String,
}

/// The ports of the providers; zero selects a free port.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProviderPorts {
    /// The port of the provider that speaks x402 v2.
    pub v2: u16,
    /// The port of the provider that speaks x402 v1.
    pub v1: u16,
}

/// Returns `stack.bundle.mjs`, unless a program in the folder is newer.
fn newest_program(folder: &Path) -> &'static str {
    const BUNDLE: &str = "stack.bundle.mjs";
    let written_at = |path: &Path| path.metadata().and_then(|metadata| metadata.modified()).ok();
    let bundled_at = written_at(&folder.join(BUNDLE));
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut programs = files
        .map(|file| file.path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "mjs"));
    let is_newest = bundled_at.is_some() && programs.all(|path| written_at(&path) <= bundled_at);
    if is_newest { BUNDLE } else { "stack.mjs" }
}

/// Starts the facilitator and the providers.
pub(crate) async fn providers(
    rpc_url: &str,
    chain_id: u64,
    ports: ProviderPorts,
) -> Result<(Child, Providers), ChildError> {
    const PROGRAM: &str = "the x402 providers";
    if !x402_folder().join("node_modules").exists() {
        return Err(ChildError::Missing("the x402 SDK"));
    }
    let mut child = Command::new("node")
        .arg(newest_program(&x402_folder()))
        .current_dir(x402_folder())
        .env("RPC_URL", rpc_url)
        .env("CHAIN_ID", chain_id.to_string())
        .env("PROVIDER_PORT", ports.v2.to_string())
        .env("PROVIDER_V1_PORT", ports.v1.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|source| ChildError::Start {
            program: PROGRAM,
            source,
        })?;
    let providers = first_line(&mut child, PROGRAM, "node stack.mjs in infra/local/x402").await?;
    Ok((child, providers))
}
