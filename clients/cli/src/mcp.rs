//! `purser mcp`: serves the MCP tools over standard input and output. Standard output has only protocol messages.

use crate::exit::{Exit, Failure};
use purser_client::{Purser, http_client};
use purser_mcp::{KeyFrom, Providers, Tools};
use rmcp::ServiceExt as _;
use std::time::Duration;

/// The maximum duration of a tool call. Hosts commonly have a timeout of one minute.
const TIMEOUT: Duration = Duration::from_secs(55);

/// Serves the tools until the host closes the connection.
pub(crate) async fn serve(purser: Purser) -> Result<Exit, Failure> {
    let client = http_client(concat!("purser-mcp/", env!("CARGO_PKG_VERSION"))).build();
    let client = client.map_err(|error| Failure::Words(format!("the HTTP client can't be made: {error}")))?;
    // An agent on this machine can call any URL by itself.
    let providers = Providers::new(client, |_| true);
    let tools = Tools::new(purser, KeyFrom::Purser, providers, TIMEOUT);
    let ended = |error: &dyn std::fmt::Display| Failure::Words(format!("the host's side is not MCP: {error}"));
    let running = tools
        .serve(rmcp::transport::stdio())
        .await
        .map_err(|error| ended(&error))?;
    running.waiting().await.map_err(|error| ended(&error))?;
    Ok(Exit::Done)
}
