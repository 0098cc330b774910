//! The Lambda function `payments`.

use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    purser_api::serve(purser_payments::router).await
}
