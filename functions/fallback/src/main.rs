//! The Lambda function `fallback`.

use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    purser_api::serve(purser_fallback::router).await
}
