//! The Lambda function `payments`.

use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    purser_api::serve_both(purser_payments::routers).await
}
