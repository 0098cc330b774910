//! The Lambda function `agents`.

use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    purser_api::serve(purser_agents::router).await
}
