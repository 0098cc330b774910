//! `purser mcp`: the tools for an agent's host, over standard input and output.
//!
//! Nothing but the protocol goes to standard output.

use crate::exit::{Exit, Failure};
use purser_client::Purser;
use purser_mcp::{KeyFrom, Providers, Tools};
use reqwest::redirect::Policy;
use rmcp::ServiceExt as _;
use std::time::Duration;

/// One call of a tool: hosts commonly give up after a minute.
const LONGEST: Duration = Duration::from_secs(55);

/// Serves until the host ends its side.
pub(crate) async fn serve(purser: Purser) -> Result<Exit, Failure> {
    // A redirect would carry the payment elsewhere.
    let client = reqwest::Client::builder().redirect(Policy::none()).build();
    let client = client.map_err(|error| Failure::Words(format!("the HTTP client can't be made: {error}")))?;
    // An agent on this machine reaches what the machine reaches anyway.
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
