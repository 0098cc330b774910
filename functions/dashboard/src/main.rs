//! The Lambda function `people`: the dashboard's pages and the JSON API for users.

use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    purser_api::serve_with_stage_variable("OIDC_CLIENT_ID", purser_dashboard::router).await
}
