//! Runs a Lambda function in a separate process, which fault tests start, kill and restart.

use purser_reconcile::Reconcile;
use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let name = std::env::args().nth(1);
    match name.as_deref() {
        Some("payments") => purser_api::serve_all_events(purser_payments::routers).await,
        Some("people") => purser_api::serve(purser_dashboard::router).await,
        Some("reconcile") => {
            let run = async |reconcile: &Reconcile, _: &serde_json::Value, time_left| {
                reconcile.reconcile_all(time_left).await.map(|_| ())
            };
            purser_api::serve_schedule(Reconcile::boot, run).await
        }
        _ => {
            eprintln!("function: payments, people or reconcile, and not {name:?}");
            ExitCode::FAILURE
        }
    }
}
