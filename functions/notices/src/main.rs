//! The Lambda function `notices`, which two queues invoke.

use purser_notices::Notifications;
use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let build = async |boot| Notifications::boot(boot);
    purser_api::serve_schedule(build, async |notices: &Notifications, event, time_left| {
        notices.process_batch(event.clone(), time_left).await
    })
    .await
}
