//! The Lambda function `payments`: checks, authorizes and confirms the payments of agents.

use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    purser_api::serve_all_events(purser_payments::routers).await
}
