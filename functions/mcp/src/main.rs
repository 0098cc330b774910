//! The Lambda function `mcp`: serves the MCP tools over HTTP at `/mcp`.

use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    purser_api::serve(purser_mcp_function::router).await
}
