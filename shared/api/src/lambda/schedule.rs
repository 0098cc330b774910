//! Runs functions that a schedule, a DynamoDB stream or a queue invokes. No caller waits for the result.

use crate::{
    Boot, BootError, Clock, TraceId,
    lambda::boot::{ColdStart, log_fatal_error, read_env_and_start_logging},
};
use lambda_http::lambda_runtime::{self, LambdaEvent, service_fn};
use purser_domain::Result;
use serde::Serialize;
use serde_json::Value;
use std::{process::ExitCode, time::Duration};
use tracing::Instrument as _;

/// Runs a function that a schedule, stream or queue invokes. Calls `job` with each event and the remaining time.
///
/// An error counts as a failed invocation. The event source mapping of a stream or queue reads the result.
pub async fn serve_schedule<F, A: Serialize>(
    build: impl AsyncFnOnce(Boot) -> Result<F, BootError>,
    job: impl AsyncFn(&F, &Value, Duration) -> Result<A>,
) -> ExitCode {
    let served = async {
        let env = read_env_and_start_logging();
        let cold_start = ColdStart::begin(&env);
        let function = build(env.into()).await?;
        cold_start.log_duration();
        lambda_runtime::run(service_fn(async |event: LambdaEvent<Value>| {
            let deadline = Duration::from_millis(event.context.deadline);
            let trace = TraceId::from_context(&event.context).map(tracing::field::display);
            let span = tracing::info_span!("run", request.id = event.context.request_id, trace.id = trace);
            let run = Box::pin(job(&function, &event.payload, time_until(deadline)).instrument(span));
            run.await.map_err(BootError::from)
        }))
        .await
    };
    match served.await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => log_fatal_error(&*error),
    }
}

/// Returns the real time until a deadline, which is a time since the Unix epoch.
fn time_until(deadline_since_epoch: Duration) -> Duration {
    let now = Duration::from_micros(Clock::system().now().micros().unsigned_abs());
    deadline_since_epoch.saturating_sub(now)
}
