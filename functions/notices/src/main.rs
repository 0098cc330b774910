//! The Lambda function `notices`, which two queues invoke.

use purser_notices::Notices;
use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let build = async |boot| Notices::boot(boot);
    purser_api::serve_schedule(build, async |notices: &Notices, event, time_left| {
        notices.run(event.clone(), time_left).await
    })
    .await
}
