//! The Lambda function `internal`: serves the API for operators, who update the catalog and freeze agents.

use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    purser_api::serve_all_events(purser_internal::routers).await
}
