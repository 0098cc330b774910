//! The Lambda function `history`, which the tables' streams call.

use purser_stream::History;
use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let build = async |boot| History::boot(boot);
    purser_api::serve_schedule(build, async |history: &History, event, _time_left| {
        history.handle_event(event).await
    })
    .await
}
