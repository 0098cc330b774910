//! `make bench`: measures each operation against the same database and node calls without our code.
//! `docs/performance.md` explains the results, which are written to `target/bench/stack.jsonl`.
//!
//! The database is embedded and the node answers immediately, so that their time does not hide ours.

mod bare;
mod function;
mod growth;
mod operations;
mod pages;
mod place;
mod shelf;
mod timing;

use operations::{Completing, Operation, allow, operations, replay};
use place::{Place, many_threads, one_thread};
use purser_api::CustodyKind;
use timing::{Report, Turn, crowded, in_turns};

const CALLERS: usize = 32;

fn main() {
    purser_api::log_to("warn,purser=info", std::io::sink);
    let chosen: Vec<String> = std::env::args().skip(1).filter(|name| !name.starts_with('-')).collect();
    // The pages' database units don't depend on the build, so this bench can run without optimization.
    if chosen == ["pages"] {
        return pages::fleet(&mut Report::start("pages"));
    }
    let mut report = Report::start("stack");
    for (name, part) in PARTS {
        if chosen.is_empty() || chosen.iter().any(|chosen| chosen == name) {
            part(&mut report);
        }
    }
}

/// A bench and its name. `cargo bench … --bench stack -- one-caller` runs a single bench.
type Part = (&'static str, fn(&mut Report));

const PARTS: [Part; 8] = [
    ("one-caller", one_caller),
    ("kms", keys_in_kms),
    ("many-callers", many_callers),
    ("shelf", shelf::catalog),
    ("history", growth::history),
    ("services", growth::services),
    ("entries", growth::catalog),
    ("callers", growth::callers),
];

fn one_caller(report: &mut Report) {
    const TURNS: usize = 400;
    let place = Place::start(1);
    let agent = &place.agents[0];
    one_thread().block_on(async {
        let recorded = place.recorded_payments().await;
        let payments = place.payments(&[]).await;
        let asker = place.asker().await;
        for operation in operations(&place, &recorded).await {
            in_turns(&payments, &asker, operation.turns(&place, agent, TURNS / 10)).await;
            let medians = in_turns(&payments, &asker, operation.turns(&place, agent, TURNS)).await;
            report.beside_floor("one caller", operation.name, operation.limit, medians);
        }
        let completing = Completing::new(&place, &recorded).await;
        let turns = completing.turns(&place, &payments, agent, TURNS).await;
        let medians = in_turns(&payments, &asker, turns).await;
        report.beside_floor("one caller", Completing::NAME, Some(Completing::LIMIT), medians);
    });
}

/// Measures the operations that sign, with the wallet keys in KMS.
fn keys_in_kms(report: &mut Report) {
    const TURNS: usize = 400;
    let place = Place::start_with(1, CustodyKind::Kms);
    let agent = &place.agents[0];
    one_thread().block_on(async {
        let recorded = place.recorded_payments().await;
        let payments = place.payments(&[]).await;
        let asker = place.asker().await;
        for operation in [allow(&place, &recorded).await, replay(&place, &recorded).await] {
            in_turns(&payments, &asker, operation.turns(&place, agent, TURNS / 10)).await;
            let medians = in_turns(&payments, &asker, operation.turns(&place, agent, TURNS)).await;
            report.beside_floor("one caller, keys in KMS", operation.name, operation.limit, medians);
        }
    });
}

fn many_callers(report: &mut Report) {
    const ROUNDS: usize = 11;
    const TURNS: usize = 8;
    let place = Place::start(CALLERS);
    many_threads().block_on(async {
        let recorded = place.recorded_payments().await;
        let payments = place.payments(&[]).await;
        let asker = place.asker().await;
        let rounds = |operation: &Operation, rounds, turns| -> Vec<Vec<Vec<Turn>>> {
            let round = || {
                place
                    .agents
                    .iter()
                    .map(|agent| operation.turns(&place, agent, turns))
                    .collect()
            };
            (0..rounds).map(|_| round()).collect()
        };
        for operation in operations(&place, &recorded)
            .await
            .iter()
            .filter(|known| known.limit.is_some())
        {
            crowded(&payments, &asker, rounds(operation, 1, 1)).await;
            let medians = crowded(&payments, &asker, rounds(operation, ROUNDS, TURNS)).await;
            report.beside_floor("32 callers", operation.name, operation.limit, medians);
        }
    });
    // The embedded database slows down with the transactions of the last ten minutes, so the next bench gets a new
    // stack.
    drop(place);
    let place = Place::start(CALLERS);
    many_threads().block_on(async {
        let recorded = place.recorded_payments().await;
        let payments = place.payments(&[]).await;
        let asker = place.asker().await;
        let completing = Completing::new(&place, &recorded).await;
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            let mut round = Vec::new();
            for agent in &place.agents {
                round.push(completing.turns(&place, &payments, agent, TURNS / 2).await);
            }
            rounds.push(round);
        }
        let medians = crowded(&payments, &asker, rounds).await;
        report.beside_floor("32 callers", Completing::NAME, Some(Completing::LIMIT), medians);
    });
}
