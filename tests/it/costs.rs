//! What each operation costs through the real functions, never more than its written budget. Counted, not timed;
//! `make bench` prints the figures.

use purser_domain::SpendPolicy;
use purser_tests::{World, body_of, every_operation, measure};

#[tokio::test(flavor = "multi_thread")]
async fn every_operation_stays_within_its_budget() {
    for (measured, budget) in every_operation().await {
        let found = (
            measured.units.read,
            measured.units.write,
            measured.calls,
            measured.rounds,
        );
        let within = found.0 <= budget.read * 10
            && found.1 <= budget.write * 10
            && found.2 <= budget.calls
            && found.3 <= budget.rounds;
        assert!(
            within,
            "{}: (read tenths, write tenths, calls, rounds) are {found:?}; {budget:?}",
            measured.name
        );
    }
}

/// One of many payments costs what the first one costs.
#[tokio::test(flavor = "multi_thread")]
async fn an_authorization_costs_the_same_after_many() {
    let world = World::metered().await;
    let agent = world.agent(SpendPolicy::column_defaults(), vec![]).await;
    let mut costs = std::collections::BTreeSet::new();
    for n in 0..60 {
        let (measured, answer) = measure(&world, "allow", world.authorize(&agent, &body_of(world.offer(1)))).await;
        answer.ok();
        // The catalog may be asked for its version along the way.
        if n > 0 && measured.calls == 4 {
            costs.insert((measured.units.read, measured.units.write, measured.rounds));
        }
    }
    assert_eq!(costs.len(), 1, "{costs:?}");
}
