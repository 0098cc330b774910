//! The Lambda function `payments`.

use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    purser_api::serve_all_events(purser_payments::routers).await
}
