//! Kills a function's process at each step of an operation, restarts it, and repeats the request. There must be one
//! payment and one receipt.
//!
//! Two attempts per payment are killed, at two different steps. The simulation covers approvals and updates.

use super::steps::{AUTHORIZE, COMPLETE, FIRST, Kills, REPLAY, Stop, stops};
use super::{authorizing, completing, confirmed, made_once, payments, policy};
use purser_local::DEMO_OWNER;
use purser_tests::{Answer, Process, Request, TestAgent, World, as_repeated, body_of, dollars};
use serde_json::Value;

/// Returns the steps at which the first two attempts are killed, so that all pairs occur.
fn pair(places: &[Stop], payment: usize) -> [Stop; 2] {
    let turn = payment / places.len();
    // The factor 11 has no common divisor with any number of steps here, so all steps occur.
    [payment, payment * 11 + turn * 3].map(|at| places[at % places.len()])
}

/// Repeats a request until it gets a response, with kills at these steps. Collects the responses in `told`.
async fn ask(
    kills: &Kills,
    process: &Process,
    operation: &'static str,
    stops: [Stop; 2],
    request: &Request,
    told: &mut Vec<Answer>,
) -> Answer {
    for stop in stops {
        told.extend(kills.send(process, operation, stop, request).await);
    }
    process.insist(request).await
}

/// Repeats a request that has already taken effect, with kills.
async fn ask_again(
    kills: &Kills,
    process: &Process,
    operation: &'static str,
    calls: &[&'static str],
    payment: usize,
    request: &Request,
) -> Option<Answer> {
    process.stop().await;
    let places = stops(calls);
    kills
        .send(process, operation, places[payment % places.len()], request)
        .await
}

/// Completes a payment with kills, and reads its receipt.
async fn complete(kills: &Kills, process: &Process, agent: &TestAgent, authorized: &Value, hash: &str, payment: usize) {
    let request = completing(agent, authorized, hash);
    let places = pair(&stops(&COMPLETE), payment);
    let mut told = Vec::new();
    let receipt = confirmed(ask(kills, process, "complete", places, &request, &mut told).await, hash);
    for answer in told {
        assert_eq!(answer.ok(), receipt, "the same receipt, whoever asks");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_survives_kills_at_any_two_steps() {
    const PAYMENTS: usize = 63;
    let world = World::start().await;
    let agent = world.agent(policy(dollars(1_000)), vec![]).await;
    let process = payments(&world, &[]).await;
    let kills = Kills::default();
    let places = stops(&AUTHORIZE);
    for payment in 0..PAYMENTS {
        process.stop().await;
        let request = authorizing(&agent, &body_of(world.offer(dollars(1))));
        let mut told = Vec::new();
        let places = pair(&places, payment);
        let authorized = ask(&kills, &process, "authorize", places, &request, &mut told)
            .await
            .ok();
        told.extend(ask_again(&kills, &process, "replay", &REPLAY, payment, &request).await);
        for answer in told {
            assert_eq!(as_repeated(&answer.ok()), as_repeated(&authorized), "the same payment");
        }
        let hash = world.settle(&authorized).await;
        complete(&kills, &process, &agent, &authorized, &hash, payment).await;
        let made = payment + 1;
        let units = u64::try_from(made).unwrap() * dollars(1);
        let after = world.footprint().await;
        assert_eq!(
            (after.settlements, after.entries, after.keys, after.total),
            (made, made, made, units),
            "{places:?}"
        );
    }
    made_once(&world, &agent, PAYMENTS, dollars(1)).await;
    kills.assert_everywhere("authorize", &AUTHORIZE, &REPLAY);
    kills.assert_everywhere("replay", &REPLAY, &REPLAY);
    kills.assert_everywhere("complete", &COMPLETE, &COMPLETE);
    println!("{} kills", kills.total());
    assert!(kills.total() >= 240, "{} kills", kills.total());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_payment_is_authorized_once_although_the_process_is_killed() {
    let world = World::start().await;
    let person = world.person(&DEMO_OWNER);
    let process = payments(&world, &[]).await;
    let kills = Kills::default();
    for (number, stop) in stops(&FIRST).into_iter().enumerate() {
        process.stop().await;
        let agent = world.agent_of(&person, &format!("agent {number}")).await;
        let request = authorizing(&agent, &body_of(world.offer(dollars(1))));
        let told = kills.send(&process, "first", stop, &request).await;
        let authorized = process.insist(&request).await.ok();
        if let Some(answer) = told {
            assert_eq!(as_repeated(&answer.ok()), as_repeated(&authorized), "the same payment");
        }
        let (after, made) = (world.footprint().await, number + 1);
        assert_eq!(
            (after.settlements, after.entries, after.keys),
            (made, made, made),
            "{stop:?}"
        );
    }
    purser_testkit::invariants::assert_hold(&world.stack.db, "LedgerTable").await;
    kills.assert_everywhere("first", &FIRST, &REPLAY);
}
