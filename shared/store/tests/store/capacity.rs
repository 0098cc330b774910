//! Costs that whole operations do not cover (`tests/src/costs.rs`): evictions and edits. The figures are in
//! `docs/data-model.md`.

use crate::{ledger_with, request};
use purser_domain::{Duration, Timestamp};
use purser_store::Ledger;
use purser_testkit::{
    Meter,
    authorize::{Answer, Request, authorize},
    sample,
};

/// A ledger with an agent that has these limits, and a meter of what is consumed from here on.
async fn metered_with(max_per_day: u64, require_approval_above: u64) -> (Meter, Ledger) {
    let (emulator, _) = ledger_with(max_per_day, require_approval_above).await;
    let (emulator, meter) = emulator.metered().await;
    (meter, emulator.ledger())
}

/// Read units, write units and calls of one authorize.
async fn cost(meter: &Meter, ledger: &Ledger, request: &Request, now: Timestamp) -> ((u32, u32, u32), Answer) {
    meter.take();
    let answer = authorize(ledger, request, now).await.unwrap();
    (meter.take().units(), answer)
}

#[tokio::test]
async fn an_eviction_costs_its_rows() {
    let (meter, ledger) = metered_with(1_000, 100).await;
    let (start, tomorrow) = (sample::start(), sample::start().after(Duration::DAY));
    for key in ["a", "b"] {
        cost(&meter, &ledger, &request(10, key), start).await;
    }
    let (evicted, answer) = cost(&meter, &ledger, &request(10, "c"), tomorrow).await;
    assert!(matches!(answer, Answer::Allowed(_)), "{answer:?}");
    assert_eq!(evicted, (3, 13, 3), "allow that evicts two");
}

#[tokio::test]
async fn an_edit_costs_what_the_design_says() {
    let (meter, ledger) = metered_with(1_000, 1_000).await;
    authorize(&ledger, &request(10, "a"), sample::start()).await.unwrap();
    let agent = sample::agent_id(1);
    meter.take();
    let units = || meter.take().units();

    ledger
        .put_policy(agent, &sample::enabled(sample::service_id(2), 1, 1))
        .await
        .unwrap();
    assert_eq!(units(), (1, 8, 2), "policy of a new service");
    let budget = sample::budget(1, 100, sample::secs(3_600));
    let agent = purser_domain::Agent {
        version: 2,
        ..sample::agent(1, vec![budget])
    };
    ledger.put_agent(&agent).await.unwrap();
    assert_eq!(units(), (2, 6, 5), "agent with a new budget, and two windows to shut");
    let (budgeted, _) = cost(&meter, &ledger, &request(10, "b"), sample::start()).await;
    assert_eq!(budgeted, (4, 13, 4), "allow under a budget");
}
