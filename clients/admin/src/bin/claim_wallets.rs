//! Writes a wallet claim for every agent. Run this program once after an upgrade from a version without wallet claims:
//!
//! ```text
//! claim-wallets --stack <name>
//! ```
//!
//! Without a claim, `payments` would attest an old agent's wallet for another agent if `dashboard` requested the
//! attestation. The program runs with the caller's permissions, because it gets the account, the region and the
//! credentials from the `aws` command. The program can be repeated.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for people at a terminal"
)]

use purser_admin::{Failed, aws, environment, output};
use purser_api::{Boot, Clock};
use purser_chain::is_attested;
use purser_store::Ledger;
use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let ["--stack", stack] = arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] else {
        eprintln!("claim-wallets: usage: claim-wallets --stack <name>");
        return ExitCode::from(2);
    };
    match run(stack).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("claim-wallets: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns true if every agent has a wallet claim.
async fn run(stack: &str) -> Result<bool, Failed> {
    let outputs = aws(&["cloudformation", "describe-stacks", "--stack-name", stack], None)?;
    let (ledger, decisions) = (
        output(&outputs, "LedgerTableName")?,
        output(&outputs, "DecisionsTableName")?,
    );
    let db = purser_store::dynamodb_client(&Boot::new(environment(&outputs)?, Clock::system()).aws);
    let ledger = Ledger::new(db, ledger, decisions);
    let done = ledger
        .claim_attested_wallets(|agent| is_attested(&agent.wallet.attestation, agent.id, agent.wallet.address))
        .await?;
    println!("claim-wallets: the wallets of {} agents are claimed", done.claimed);
    for agent in &done.refused {
        eprintln!("claim-wallets: agent {agent} has no claim: see docs/runbook.md");
    }
    if done.unreadable > 0 {
        eprintln!("claim-wallets: {} rows can't be read", done.unreadable);
    }
    Ok(done.refused.is_empty() && done.unreadable == 0)
}
