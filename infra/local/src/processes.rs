//! The stack's two child processes: Anvil, and the x402 facilitator and providers in Node.
//!
//! Neither outlives the stack: each holds the read end of a pipe to us, and ends when the pipe closes, however this
//! process ends.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

/// Why a child process did not start.
#[derive(Debug, thiserror::Error)]
pub enum ChildError {
    /// It could not be started.
    #[error("could not start {program}: {source}")]
    Start {
        /// The program.
        program: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
    /// It is not installed.
    #[error("{0} is not installed: run `make setup`")]
    Missing(&'static str),
    /// It exited, or printed something unexpected.
    #[error("{program} did not come up: {detail}")]
    Failed {
        /// The program.
        program: &'static str,
        /// What happened.
        detail: String,
    },
}

/// The folder of the Node package.
fn x402_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("x402")
}

/// Starts Anvil on a loopback port. A block is mined every second, and immediately with a transaction.
pub(crate) fn anvil(chain_id: u64, port: u16) -> Result<Child, ChildError> {
    let binary = x402_folder().join("node_modules/@foundry-rs/anvil-linux-amd64/bin/anvil");
    if !binary.exists() {
        return Err(ChildError::Missing("Anvil"));
    }
    // Anvil does not watch its standard input, so a shell does: `cat` ends when our end of the pipe closes. The
    // descriptor is duplicated as number 3, since a shell's background jobs have no standard input.
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

/// Where the facilitator and the providers listen, as Node prints it.
#[derive(Clone, Debug, serde::Deserialize)]
pub struct Providers {
    /// The official facilitator.
    pub facilitator_url: String,
    /// The paid provider that speaks x402 v2.
    pub provider_url: String,
    /// The paid provider that speaks x402 v1.
    pub provider_v1_url: String,
    /// The wallet that both are paid to.
    pub pay_to: String,
    /// The contract that makes many transfers in one transaction.
    pub batch_address: String,
}

/// Ports of the providers; zero picks a free one.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProviderPorts {
    /// For the v2 provider.
    pub v2: u16,
    /// For the v1 provider.
    pub v1: u16,
}

/// Starts the facilitator and the providers, and waits until they answer.
pub(crate) async fn providers(
    rpc_url: &str,
    chain_id: u64,
    ports: ProviderPorts,
) -> Result<(Child, Providers), ChildError> {
    const PROGRAM: &str = "the x402 providers";
    let failed = |detail: String| ChildError::Failed {
        program: PROGRAM,
        detail,
    };
    if !x402_folder().join("node_modules").exists() {
        return Err(ChildError::Missing("the x402 SDK"));
    }
    let mut child = Command::new("node")
        .arg("stack.mjs")
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
    let stdout = child
        .stdout
        .take()
        .ok_or_else(|| failed("it has no output".to_owned()))?;
    let line = BufReader::new(stdout)
        .lines()
        .next_line()
        .await
        .map_err(|error| failed(error.to_string()))?;
    let line =
        line.ok_or_else(|| failed("it ended; run `node stack.mjs` in infra/local/x402 to see why".to_owned()))?;
    let providers = serde_json::from_str(&line).map_err(|error| failed(error.to_string()))?;
    Ok((child, providers))
}
