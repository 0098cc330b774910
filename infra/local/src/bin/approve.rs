//! Decides an approval of the running stack, in a person's place until there is a dashboard:
//! `approve <approval_id>` or `approve <approval_id> --reject`.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for people at a terminal"
)]

use purser_domain::{ApprovalId, Timestamp};
use purser_local::{StackFile, ledger_at};
use purser_store::{Resolved, Verdict};
use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("approve: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Box<dyn std::error::Error>> {
    const USAGE: &str = "usage: approve <approval_id> [--reject]";
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (id, verdict) = match arguments.as_slice() {
        [id] => (id, Verdict::Approve),
        [id, flag] if flag == "--reject" => (id, Verdict::Reject),
        _ => return Err(USAGE.into()),
    };
    let id = ApprovalId::parse(id).ok_or(USAGE)?;
    let stack = StackFile::read()?;
    let ledger = ledger_at(&stack.dynamodb_url).await;
    let now = stack_time(&stack).await?;
    match ledger.resolve_approval(id, verdict, now).await? {
        Resolved::Done(approval) => println!("{id} is {}", approval.status(now).name()),
        Resolved::Already(approval) => return Err(format!("{id} is {} already", approval.status(now).name()).into()),
        Resolved::NotFound => return Err(format!("there is no approval {id}").into()),
    }
    Ok(())
}

/// The stack's time, which may be ahead of ours.
async fn stack_time(stack: &StackFile) -> Result<Timestamp, Box<dyn std::error::Error>> {
    let clock = reqwest::Client::new().post(format!("{}/_local/clock", stack.base_url));
    let answer: serde_json::Value = clock
        .json(&serde_json::json!({"advance_seconds": 0}))
        .send()
        .await?
        .json()
        .await?;
    let ahead = answer
        .get("ahead_seconds")
        .and_then(serde_json::Value::as_u64)
        .and_then(|seconds| u32::try_from(seconds).ok());
    let ahead = ahead.ok_or("the stack does not tell its time")?;
    Ok(purser_api::Clock::system()
        .now()
        .after(purser_domain::Duration::from_secs_u32(ahead)))
}
