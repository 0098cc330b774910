//! The Lambda function `oauth`: issues tokens to clients to which users gave access.

use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    purser_api::serve(purser_oauth::router).await
}
