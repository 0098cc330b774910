//! The Lambda function `reconcile`, which a schedule calls.

use purser_reconcile::{Part, Reconcile};
use serde_json::Value;
use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let run = async |reconcile: &Reconcile, event: &Value, time_left| {
        reconcile.run_part(Part::of_event(event)?, time_left).await.map(|_| ())
    };
    purser_api::serve_schedule(Reconcile::boot, run).await
}
