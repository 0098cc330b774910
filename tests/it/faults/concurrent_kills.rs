//! Kills several processes of `payments` at random while several clients send requests.

use super::{authorizing, completing, confirmed, made_once, payments, policy};
use purser_testkit::Rng;
use purser_tests::{Answer, Process, Request, World, as_repeated, body_of, dollars, together};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::Duration;

const PROCESSES: usize = 4;
const KEYS: usize = 30;
/// The number of one-dollar payments that fit into the daily cap.
const FIT: usize = 20;

/// Sends a request to one process after another until one responds.
async fn insist(processes: Arc<Vec<Process>>, first: usize, request: Request) -> Answer {
    for turn in 0..1_000 {
        let process = &processes[(first + turn) % PROCESSES];
        match process.send(&request).await {
            Some(answer) if answer.status < 500 => return answer,
            Some(_) | None => {}
        }
    }
    panic!("no process lives to answer");
}

#[tokio::test(flavor = "multi_thread")]
async fn randomly_killed_processes_neither_lose_nor_duplicate_payments() {
    let world = World::start().await;
    let agent = world.agent(policy(dollars(FIT.try_into().unwrap())), vec![]).await;
    let mut processes = Vec::new();
    for _ in 0..PROCESSES {
        processes.push(payments(&world, &[]).await);
    }
    let processes = Arc::new(processes);
    // One call in sixteen kills its process, before or after it takes effect.
    for (index, process) in processes.iter().enumerate() {
        let mut rng = Rng::from_seed(0x9e37_79b9_7f4a_7c15 + u64::try_from(index).unwrap());
        process.kill_where(move |_, _| rng.below(32) == 0);
    }
    let over = Arc::new(AtomicBool::new(false));
    let (at_random, all, done) = (Arc::new(AtomicU32::new(0)), Arc::clone(&processes), Arc::clone(&over));
    let moments = Arc::clone(&at_random);
    let killing = tokio::spawn(async move {
        let mut rng = Rng::from_seed(0xd1b5_4a32_d192_ed03);
        while !done.load(SeqCst) {
            tokio::time::sleep(Duration::from_millis(100 + rng.below(300))).await;
            let one = usize::try_from(rng.below(4)).unwrap();
            all[one].killer().kill();
            moments.fetch_add(1, SeqCst);
        }
    });

    // Two clients use each idempotency key.
    let offer = world.offer(dollars(1));
    let requests: Vec<Request> = (0..KEYS)
        .map(|_| authorizing(&agent, &body_of(offer.clone())))
        .collect();
    let clients = (0..2 * KEYS).map(|n| insist(Arc::clone(&processes), n + n / KEYS, requests[n % KEYS].clone()));
    let answers = together(clients.collect()).await;
    let mut authorized: Vec<Value> = Vec::new();
    for (one, other) in answers[..KEYS].iter().zip(&answers[KEYS..]) {
        match (one.status, other.status) {
            (200, 200) => {
                assert_eq!(as_repeated(&one.body), as_repeated(&other.body), "the same payment");
                authorized.push(one.body.clone());
            }
            _ => {
                for denied in [one, other] {
                    let denied = denied.clone().refused(402, "daily_spend_limit_exceeded");
                    assert_eq!(
                        denied["spend_today"],
                        dollars(FIT.try_into().unwrap()),
                        "denied only when it is true"
                    );
                }
            }
        }
    }
    assert_eq!(authorized.len(), FIT, "what fits, and no more");

    let mut paid = Vec::new();
    for payment in &authorized {
        let hash = world.settle(payment).await;
        paid.push((completing(&agent, payment, &hash), hash));
    }
    let clients = (0..2 * FIT).map(|n| insist(Arc::clone(&processes), n + n / FIT, paid[n % FIT].0.clone()));
    let answers = together(clients.collect()).await;
    for (n, answer) in answers.iter().enumerate() {
        let receipt = confirmed(answer.clone(), &paid[n % FIT].1);
        assert_eq!(receipt, answers[n % FIT].body, "one receipt");
    }
    over.store(true, SeqCst);
    killing.await.unwrap();
    for process in processes.iter() {
        process.spare();
    }
    made_once(&world, &agent, FIT, dollars(1)).await;
    let kills: u32 = processes.iter().map(|process| process.killer().kills()).sum();
    println!(
        "{kills} kills, of them at most {} at random moments",
        at_random.load(SeqCst)
    );
    // Usually there are about sixty kills.
    assert!(kills >= 30, "{kills} kills");
}
