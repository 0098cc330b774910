//! `simulate`: runs many seeds on all cores, and prints the coverage; see `make simulate`.
//!
//! ```text
//! simulate --seeds 2000     seeds 0 to 1999; stops at the first failure and prints it shrunk
//! simulate --seed 17        only this seed; if it fails, its calls are printed
//!          --shrink 0       uses no further runs to shrink a failure
//! ```
//!
//! Exit status: 0, no finding and full coverage; 1, a finding; 2, an event never occurred.

use purser_sim::{Coverage, EXERCISED, Plan, run, shrink};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Instant;

const SHRINKING: u64 = 600;
/// With fewer seeds, an event that never occurs is no error.
const ENOUGH: u64 = 500;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        let number = arguments.get(at + 1).and_then(|text| text.parse::<u64>().ok());
        Some(number.unwrap_or_else(|| panic!("{name} takes a number")))
    };
    let shrinking = usize::try_from(number("--shrink").unwrap_or(SHRINKING)).expect("not that many");
    match number("--seed") {
        Some(seed) => alone(seed, shrinking),
        None => many(
            number("--from").unwrap_or(0),
            number("--seeds").unwrap_or(200),
            shrinking,
        ),
    }
}

fn alone(seed: u64, shrinking: usize) -> ExitCode {
    let outcome = run(&Plan::from_seed(seed));
    print!("{}", outcome.coverage);
    if outcome.complaints.is_empty() {
        println!("seed {seed}: nothing found");
        return ExitCode::SUCCESS;
    }
    tell(seed, shrinking, true);
    ExitCode::FAILURE
}

fn many(first: u64, count: u64, shrinking: usize) -> ExitCode {
    let (next, failed) = (Arc::new(AtomicU64::new(first)), Arc::new(AtomicBool::new(false)));
    let found: Arc<Mutex<Vec<u64>>> = Arc::default();
    let coverage: Arc<Mutex<Coverage>> = Arc::default();
    let began = Instant::now();
    let work = || {
        let (next, failed, found, coverage) = (next.clone(), failed.clone(), found.clone(), coverage.clone());
        move || {
            while !failed.load(SeqCst) {
                let seed = next.fetch_add(1, SeqCst);
                if seed >= first + count {
                    return;
                }
                let outcome = run(&Plan::from_seed(seed));
                coverage.lock().expect("not poisoned").add(outcome.coverage);
                if !outcome.complaints.is_empty() {
                    failed.store(true, SeqCst);
                    found.lock().expect("not poisoned").push(seed);
                }
            }
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads: Vec<_> = (0..cores).map(|_| std::thread::spawn(work())).collect();
    for thread in threads {
        thread.join().expect("a run never panics");
    }
    let coverage = std::mem::take(&mut *coverage.lock().expect("not poisoned"));
    let done = (next.load(SeqCst) - first).min(count);
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{coverage}{done} seeds from {first} in {seconds:.0} s: {:.1} a second",
        done as f64 / seconds
    );
    let found = std::mem::take(&mut *found.lock().expect("not poisoned"));
    if let Some(seed) = found.into_iter().min() {
        tell(seed, shrinking, false);
        return ExitCode::FAILURE;
    }
    println!("nothing found");
    let missing: Vec<&str> = EXERCISED
        .iter()
        .copied()
        .filter(|what| coverage.occurrences(what) == 0)
        .collect();
    if count >= ENOUGH && !missing.is_empty() {
        println!("never happened, so nothing is known about it: {missing:?}");
        return ExitCode::from(2);
    }
    ExitCode::SUCCESS
}

/// Shrinks a failing plan, and prints it as a test.
fn tell(seed: u64, shrinking: usize, with_calls: bool) {
    println!("seed {seed} fails:");
    for complaint in run(&Plan::from_seed(seed)).complaints {
        println!("  {complaint}");
    }
    let plan = shrink(&Plan::from_seed(seed), shrinking);
    let outcome = run(&plan);
    println!("\nshrunk to {} operations:", plan.len());
    for complaint in &outcome.complaints {
        println!("  {complaint}");
    }
    if with_calls {
        println!("\nits calls:");
        for call in &outcome.trace {
            println!("  {call}");
        }
    }
    println!("\nto keep it, add to tests/sim/tests/simulation/reproductions.rs:\n\n{plan}");
}
