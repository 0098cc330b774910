//! `make demo-fleet`: fills the running stack with agents and a month of payments. `AGENTS` and `DAYS` reduce the size.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for people at a terminal"
)]

use purser_local::{FleetSize, StackFile, fill_fleet, stack_folder};
use std::process::ExitCode;

type Failed = Box<dyn std::error::Error>;

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("demo-fleet: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Failed> {
    let mut env = purser_api::Env::from_process();
    let size = FleetSize {
        agents: env.parse_number("AGENTS", 1_000, FleetSize::FEWEST_AGENTS..=FleetSize::MAX_AGENTS),
        days: env.parse_number("DAYS", 30, 1..=FleetSize::MAX_DAYS),
    };
    let folder = stack_folder(&env);
    let size = env.finish(size)?;
    let stack = StackFile::read(&folder).map_err(|error| format!("{error}; is `make run` running?"))?;
    let dashboard = stack.dashboard_url.clone();
    let counts = fill_fleet(stack, size, |step| println!("demo-fleet: {step}")).await?;
    println!("\n{counts}\nThe dashboard: {dashboard}");
    Ok(())
}
