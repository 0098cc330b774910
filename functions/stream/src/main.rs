//! The Lambda function `events`, which the tables' streams and a schedule call.

use purser_stream::Events;
use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let build = async |boot| Events::boot(boot);
    purser_api::serve_schedule(build, async |events: &Events, event, time_left| {
        events.handle_event(event, time_left).await
    })
    .await
}
