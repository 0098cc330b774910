//! The Lambda function `reconcile`, which schedules invoke.

use purser_reconcile::{Job, Reconcile};
use serde_json::Value;
use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let run = async |reconcile: &Reconcile, event: &Value, time_left| {
        reconcile.run_job(Job::from_event(event)?, time_left).await
    };
    purser_api::serve_schedule(Reconcile::boot, run).await
}
