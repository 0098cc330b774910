//! `make bench`: what each operation consumes, beside what it may.

use purser_tests::every_operation;

#[tokio::main]
async fn main() {
    println!(
        "{:<16} {:>10} {:>10} {:>7} {:>12}",
        "operation", "read units", "write units", "calls", "round trips"
    );
    for (measured, budget) in every_operation().await {
        let tenths = |tenths: u64, of: u64| format!("{}.{} of {of}", tenths / 10, tenths % 10);
        println!(
            "{:<16} {:>10} {:>10} {:>7} {:>12}",
            measured.name,
            tenths(measured.units.read, budget.read),
            tenths(measured.units.write, budget.write),
            format!("{} of {}", measured.calls, budget.calls),
            format!("{} of {}", measured.rounds, budget.rounds),
        );
    }
}
