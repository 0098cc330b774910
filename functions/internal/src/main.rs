//! The Lambda function `internal`.

use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    purser_api::serve_both(purser_internal::routers).await
}
