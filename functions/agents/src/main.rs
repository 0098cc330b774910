//! The Lambda function `agents`: serves the routes for an agent's own data.

use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    purser_api::serve(purser_agents::router).await
}
