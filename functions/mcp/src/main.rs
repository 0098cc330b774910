//! The Lambda function `mcp`.

use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    purser_api::serve(purser_mcp_function::router).await
}
