//! The Lambda function `probe`, which a schedule calls.

use lambda_runtime::{LambdaEvent, service_fn};
use purser_api::{BootError, ColdStart, TraceId};
use purser_probe::Probe;
use serde_json::Value;
use std::{process::ExitCode, time::Duration};
use tracing::Instrument as _;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let served = async {
        let boot = purser_api::start();
        let cold_start = ColdStart::of(&boot);
        let probe = Probe::boot(boot)?;
        cold_start.over();
        // What the event says makes no difference: what is due, the catalog tells.
        lambda_runtime::run(service_fn(async |event: LambdaEvent<Value>| {
            let deadline = Duration::from_millis(event.context.deadline);
            // An error makes the call a failed one in Lambda's metrics.
            let trace = TraceId::of_context(&event.context).map(tracing::field::display);
            let span = tracing::info_span!("run", request.id = event.context.request_id, trace.id = trace);
            let run = Box::pin(probe.run(purser_probe::time_until(deadline)).instrument(span)).await;
            run.map(|_| ()).map_err(BootError::from)
        }))
        .await
    };
    match served.await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(cause = %error, "function.stopped");
            ExitCode::FAILURE
        }
    }
}
