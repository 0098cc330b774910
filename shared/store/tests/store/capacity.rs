//! What each operation consumes. The figures are in `docs/data-model.md`; none of them grows with history.

use crate::{ledger_with, request};
use purser_domain::{Duration, Timestamp};
use purser_store::{Ledger, Verdict};
use purser_testkit::{
    Emulator, Meter,
    authorize::{Answer, Request, authorize},
    sample,
};

/// A ledger with an agent that may spend so much, and what is consumed from here on.
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
async fn an_authorization_costs_what_the_design_says() {
    let (meter, ledger) = metered_with(1_000, 100).await;
    let (start, tomorrow) = (sample::start(), sample::start().after(Duration::DAY));
    let allow = |key| request(10, key);
    let (allowed, _) = cost(&meter, &ledger, &allow("a"), start).await;
    let (replayed, _) = cost(&meter, &ledger, &allow("a"), start).await;
    let (escalated, answer) = cost(&meter, &ledger, &request(101, "b"), start).await;
    let Answer::Waits(id) = answer else {
        panic!("{answer:?}")
    };
    meter.take();
    ledger
        .resolve_approval(id, Verdict::Approve, &sample::ruling(start))
        .await
        .unwrap();
    let resolved = meter.take().units();
    let retry = Request {
        approval: Some(id),
        ..request(101, "b")
    };
    let (executed, _) = cost(&meter, &ledger, &retry, start).await;
    let (denied, answer) = cost(&meter, &ledger, &request(900, "c"), start).await;
    assert!(matches!(answer, Answer::Full { .. }), "{answer:?}");
    let (evicted, answer) = cost(&meter, &ledger, &allow("d"), tomorrow).await;
    assert!(matches!(answer, Answer::Allowed(_)), "{answer:?}");

    assert_eq!(allowed, (3, 9, 3), "allow");
    assert_eq!(replayed, (3, 0, 2), "replay");
    assert_eq!(escalated, (3, 9, 3), "escalate");
    assert_eq!(resolved, (0, 1, 1), "verdict");
    assert_eq!(executed, (4, 11, 3), "approved retry");
    assert_eq!(denied, (5, 1, 5), "daily denial");
    assert_eq!(evicted, (3, 13, 3), "allow that evicts two");
}

#[tokio::test]
async fn everything_else_costs_what_the_design_says() {
    let (meter, ledger) = metered_with(1_000, 1_000).await;
    let Answer::Allowed(id) = authorize(&ledger, &request(10, "a"), sample::start()).await.unwrap() else {
        panic!()
    };
    let agent = sample::agent_id(1);
    meter.take();
    let units = || meter.take().units();

    let paid = ledger.settlement(agent, id).await.unwrap().unwrap();
    assert_eq!(units(), (1, 0, 1), "receipt");
    ledger
        .confirm(&paid, &sample::transfer(&paid, sample::tx_hash(1)), sample::start())
        .await
        .unwrap();
    assert_eq!(units(), (0, 6, 1), "complete");
    ledger.settlements(agent, None, 25).await.unwrap();
    assert_eq!(units(), (1, 0, 1), "list");
    ledger.agent(agent).await.unwrap();
    assert_eq!(units(), (1, 0, 1), "agent");
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

#[tokio::test]
async fn a_long_history_costs_nothing() {
    let (meter, ledger) = metered_with(1_000_000, 1_000_000).await;
    for n in 0..300 {
        let (units, _) = cost(&meter, &ledger, &request(10, &n.to_string()), sample::start()).await;
        assert_eq!(units, (3, 9, 3), "after {n}");
    }
}

#[tokio::test]
async fn a_request_is_counted_with_one_unit() {
    let (emulator, meter) = Emulator::start().await.metered().await;
    emulator
        .throttle(120)
        .hit("203.0.113.7", sample::start())
        .await
        .unwrap();
    assert_eq!(meter.take().units(), (0, 1, 1));
}
