//! `purser mcp`: the MCP tools for an agent's host, over standard input and output.
//!
//! Only the protocol is written to standard output.

use crate::exit::{Exit, Failure};
use purser_client::{Purser, http_client};
use purser_mcp::{KeyFrom, Providers, Tools};
use rmcp::ServiceExt as _;
use std::time::Duration;

/// The time limit of one tool call. Hosts commonly give up after a minute.
const LONGEST: Duration = Duration::from_secs(55);

/// Serves until the host closes the connection.
pub(crate) async fn serve(purser: Purser) -> Result<Exit, Failure> {
    let client = http_client(concat!("purser-mcp/", env!("CARGO_PKG_VERSION"))).build();
    let client = client.map_err(|error| Failure::Words(format!("the HTTP client can't be made: {error}")))?;
    // All addresses are allowed: an agent on this machine can reach them anyway.
    let providers = Providers::new(client, |_| true);
    let tools = Tools::new(purser, KeyFrom::Purser, providers, LONGEST);
    let ended = |error: &dyn std::fmt::Display| Failure::Words(format!("the host's side is not MCP: {error}"));
    let running = tools
        .serve(rmcp::transport::stdio())
        .await
        .map_err(|error| ended(&error))?;
    running.waiting().await.map_err(|error| ended(&error))?;
    Ok(Exit::Done)
}
