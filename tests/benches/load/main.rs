//! `make load`: many payments a second by many agents, while functions are killed, the database throttles and loses
//! answers, the node is down, a webhook's program is dead, keys are rotated and limits are edited. At the end the ledger,
//! the chain, the usage and the events must agree to the unit, and no caller may have waited longer than
//! [`callers::PATIENCE`] outside of the node's outage. How to read it: `docs/performance.md`.
//!
//! Payments start by the clock, not when an earlier one ends, and a latency counts from the moment at which the payment
//! was due: a slow answer is not hidden by the calls that it kept from starting.

mod callers;
mod faults;
mod phase;
mod place;
mod report;
mod verdict;

use clap::Parser;
use phase::Plan;
use place::Place;
use report::Report;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// The size of a run.
#[derive(Clone, Debug, Parser)]
pub struct Size {
    /// How long payments start, in seconds.
    #[arg(long, default_value_t = 3_600)]
    pub seconds: u32,
    /// The payments that start in each second.
    #[arg(long, default_value_t = 200)]
    pub rate: u32,
    /// The agents, half of them of each of two owners.
    #[arg(long, default_value_t = 100)]
    pub agents: usize,
    /// The execution environments of `payments`: how many calls run at once.
    #[arg(long, default_value_t = 16)]
    pub environments: usize,
    /// Passed by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    // Lines are formatted as in production, and discarded.
    purser_api::log_to("warn,purser=info", std::io::sink);
    let size = Size::parse();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(run(size))
}

async fn run(size: Size) -> ExitCode {
    let place = Arc::new(Place::start(&size).await);
    let plan = Plan::new(Duration::from_secs(size.seconds.into()));
    let report = Arc::new(Report::default());
    place.keep_time();
    let faults = tokio::spawn(faults::follow(Arc::clone(&place), plan));
    callers::pay(&place, &size, plan, &report).await;
    faults.await.expect("the faults end");
    let payments = place.finish().await;
    report.print(&size, &payments, place.kills());
    let wrong = verdict::check(&place, &payments, &report).await;
    for line in &wrong {
        println!("WRONG    {line}");
    }
    if wrong.is_empty() {
        println!("ledger, chain, usage and events agree");
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
