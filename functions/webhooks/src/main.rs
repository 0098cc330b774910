//! The Lambda function `webhooks`, which two queues call.

use purser_webhooks::Webhooks;
use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let build = async |boot| Webhooks::boot(boot);
    purser_api::serve_schedule(build, async |webhooks: &Webhooks, event, time_left| {
        webhooks.run(event.clone(), time_left).await
    })
    .await
}
