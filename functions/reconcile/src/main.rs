//! The Lambda function `reconcile`, which a schedule calls.

use purser_reconcile::Reconcile;
use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let run = async |reconcile: &Reconcile, time_left| reconcile.run(time_left).await.map(|_| ());
    purser_api::serve_schedule(Reconcile::boot, run).await
}
