//! The Lambda function `catalog`: serves the public routes, such as the catalog and the OpenAPI document.

use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    purser_api::serve(purser_catalog::router).await
}
