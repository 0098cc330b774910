//! The Lambda function `probe`, which a schedule invokes.

use purser_probe::Probe;
use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let build = async |boot| Probe::boot(boot);
    purser_api::serve_schedule(build, async |probe, _, time_left| {
        probe.run_probes(time_left).await.map(|_| ())
    })
    .await
}
