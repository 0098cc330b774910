//! The Lambda function `webhooks`, which three queues and a schedule invoke.

use purser_webhooks::Webhooks;
use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let build = async |boot| Webhooks::boot(boot);
    purser_api::serve_schedule(build, async |webhooks: &Webhooks, event, time_left| {
        webhooks.handle_event(event.clone(), time_left).await
    })
    .await
}
