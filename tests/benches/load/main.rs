//! `make load`: makes many payments per second while processes, the database, the node and a webhook receiver fail. At
//! the end the ledger, the chain, the usage and the events must agree (`docs/performance.md`).
//!
//! Each payment starts at a fixed time, so the latencies include the delay that slow responses cause.

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
    /// The time during which payments start, in seconds.
    #[arg(long, default_value_t = 3_600)]
    pub seconds: u32,
    /// The number of payments that start in each second.
    #[arg(long, default_value_t = 200)]
    pub rate: u32,
    /// The number of agents. Each of the two owners has half of them.
    #[arg(long, default_value_t = 100)]
    pub agents: usize,
    /// The number of execution environments of `payments`, which is the number of concurrent calls.
    #[arg(long, default_value_t = 16)]
    pub environments: usize,
    /// Passed by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
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
