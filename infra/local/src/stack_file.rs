//! Writes `.local/stack.json` for tools, and `.local/functions.json` for `sam local --env-vars`.

use crate::chain::NETWORK;
use crate::stack::{RECENT_SIGN_IN, Stack};
use purser_api::Env;
use purser_domain::Duration;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// The lifetime of the token in the file: ten years, so that no step of `/_local/clock` makes it expire.
const TOKEN_LIFE: Duration = Duration::from_secs_u32(10 * 366 * 86_400);

/// The content of `.local/stack.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StackFile {
    /// The gateway's URL.
    pub base_url: String,
    /// The dashboard's URL.
    pub dashboard_url: String,
    /// The paid provider that speaks x402 v2.
    pub provider_url: String,
    /// The URL of the chain's node.
    pub rpc_url: String,
    /// The database's URL.
    pub dynamodb_url: String,
    /// The chain's id.
    pub chain_id: u64,
    /// The address of the token contract.
    pub usdc_address: String,
    /// The demo agent.
    pub agent: StackAgent,
    /// The demo owner.
    pub user: StackUser,
    /// The operator token for the internal API.
    pub internal_token: String,
}

/// The demo owner.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StackUser {
    /// The user's `sub` claim.
    pub sub: String,
    /// A session token, for `Authorization: Bearer`.
    pub token: String,
    /// The time until which the token counts as a recent sign-in. `make token` returns a new token.
    pub token_recent_until: String,
}

/// The demo agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StackAgent {
    /// The agent's id.
    pub agent_id: String,
    /// The whole API key.
    pub key: String,
    /// The agent's wallet.
    pub wallet_address: String,
}

/// The stack file can't be written or read.
#[derive(Debug, thiserror::Error)]
pub enum StackFileError {
    /// A file system error.
    #[error(".local: {0}")]
    File(#[from] io::Error),
    /// The file is no valid stack file.
    #[error(".local: {0}")]
    Form(#[from] serde_json::Error),
}

impl StackFile {
    /// Returns the file's content for a stack.
    pub fn new(stack: &Stack) -> Self {
        let recent = stack
            .environment
            .get(RECENT_SIGN_IN)
            .and_then(|seconds| seconds.parse().ok());
        let recent = Duration::from_secs_u32(recent.unwrap_or(0));
        Self {
            base_url: stack.base_url.clone(),
            dashboard_url: format!("{}/dashboard", stack.base_url),
            provider_url: stack.providers.provider_url.clone(),
            rpc_url: stack.rpc_url.clone(),
            dynamodb_url: stack.dynamodb_url.clone(),
            chain_id: NETWORK.chain_id(),
            usdc_address: NETWORK.token().address.to_string(),
            agent: StackAgent {
                agent_id: stack.agent.id.to_string(),
                key: stack.agent.key.clone(),
                wallet_address: stack.agent.wallet_address.to_string(),
            },
            user: StackUser {
                sub: stack.owner.sub.to_owned(),
                token: stack.issuer.token_for(stack.owner, TOKEN_LIFE),
                token_recent_until: stack.clock.now().after(recent).to_string(),
            },
            internal_token: stack.internal_token.clone(),
        }
    }

    /// Writes the file, readable only by its owner.
    pub fn write(&self, folder: &Path) -> Result<(), StackFileError> {
        write(folder, STACK, &serde_json::to_vec_pretty(self)?)
    }

    /// Reads the file of the stack that was started last.
    pub fn read(folder: &Path) -> Result<Self, StackFileError> {
        Ok(serde_json::from_slice(&std::fs::read(folder.join(STACK))?)?)
    }

    /// Removes the file when the stack ends.
    pub fn remove(folder: &Path) {
        let _ = std::fs::remove_file(folder.join(STACK));
    }
}

/// Returns the folder for a stack's files: `STACK_FOLDER`, or `.local`.
pub fn stack_folder(env: &Env) -> PathBuf {
    env.get("STACK_FOLDER").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.local"),
        PathBuf::from,
    )
}

/// The content of `.local/functions.json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct FunctionsFile<'a> {
    /// The environment variables. `sam local` passes each function only the variables in `template.yaml`.
    parameters: &'a BTreeMap<String, String>,
}

impl FunctionsFile<'_> {
    /// Writes the file, readable only by its owner.
    pub fn write(folder: &Path, variables: &BTreeMap<String, String>) -> Result<(), StackFileError> {
        let file = FunctionsFile { parameters: variables };
        write(folder, FUNCTIONS, &serde_json::to_vec_pretty(&file)?)
    }

    /// Removes the file when the stack ends.
    pub fn remove(folder: &Path) {
        let _ = std::fs::remove_file(folder.join(FUNCTIONS));
    }
}

const STACK: &str = "stack.json";
const FUNCTIONS: &str = "functions.json";

fn write(folder: &Path, name: &str, text: &[u8]) -> Result<(), StackFileError> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    std::fs::create_dir_all(folder)?;
    let path = folder.join(name);
    let _ = std::fs::remove_file(&path);
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)?;
    file.write_all(text)?;
    Ok(())
}
