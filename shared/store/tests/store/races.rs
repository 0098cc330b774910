//! Tests concurrent payments, also with transaction conflicts: no spend above the cap, and no double payment.

use crate::{assert_sound, at_once, count, ledger_with, request};
use purser_domain::{Agent, Duration, EnabledService, SettlementId, Timestamp};
use purser_store::{Claim, Ledger, UpdateResult};
use purser_testkit::{
    Emulator, LEDGER, ProxyConfig, Rng,
    authorize::{Answer, Request, authorize},
    invariants::most_within,
    sample,
};
use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::SeqCst},
    },
    time,
};

/// A proxy whose transactions lock their items for as long as in DynamoDB.
const CONFLICTS: ProxyConfig = ProxyConfig {
    hold: Some(time::Duration::from_millis(4)),
    latency: time::Duration::ZERO,
    lost_answers: 0,
    lost_requests: 0,
};

async fn spent(emulator: &Emulator) -> i64 {
    most_within(
        &emulator.client,
        LEDGER,
        &sample::service_id(1).to_string(),
        Duration::DAY.micros(),
    )
    .await
}

/// Of 64 concurrent payments, exactly as many are allowed as fit.
#[tokio::test]
async fn concurrent_payments_never_exceed_the_cap() {
    for (cap, amount, fit) in [(1_000, 25, 40), (70, 10, 7), (10, 10, 1)] {
        let (emulator, ledger) = ledger_with(cap, cap).await;
        let requests = (0..64).map(|n| request(amount, &n.to_string())).collect();
        let answers = at_once(&ledger, requests, sample::start()).await;
        assert_eq!(count(&answers, |answer| matches!(answer, Answer::Allowed(_))), fit);
        let live = sample::units(amount * u64::try_from(fit).unwrap());
        assert_eq!(
            count(
                &answers,
                |answer| matches!(answer, Answer::Full { live: told, .. } if *told == live)
            ),
            64 - fit
        );
        assert_eq!(spent(&emulator).await, i64::try_from(live.units()).unwrap());
        assert_sound(&emulator).await;
    }
}

/// Returns the settlement of an allowed payment.
const fn paid(answer: &Answer) -> Option<SettlementId> {
    match answer {
        Answer::Allowed(id) | Answer::Replayed(id) => Some(*id),
        _ => None,
    }
}

#[tokio::test]
async fn the_cap_holds_despite_conflicting_transactions() {
    let (emulator, _) = ledger_with(1_000, 1_000).await;
    let (ledger, proxy) = emulator.ledger_behind(CONFLICTS).await;
    let requests = (0..64).map(|n| request(25, &n.to_string())).collect();
    let answers = at_once(&ledger, requests, sample::start()).await;
    // On a busy machine, the SDK may send a transaction twice. The payment is then a replay.
    let paid: BTreeSet<_> = answers.iter().filter_map(paid).collect();
    assert_eq!(paid.len(), 40, "{answers:?}");
    assert_eq!(
        count(&answers, |answer| matches!(answer, Answer::Full { .. })),
        24,
        "{answers:?}"
    );
    assert!(proxy.conflicts() > 0);
    assert_sound(&emulator).await;
}

/// The other 63 requests replay this payment.
#[tokio::test]
async fn concurrent_requests_with_one_idempotency_key_pay_once() {
    for conflicts in [false, true] {
        let (emulator, direct) = ledger_with(10_000, 10_000).await;
        let (proxied, _proxy) = emulator.ledger_behind(CONFLICTS).await;
        let ledger = if conflicts { &proxied } else { &direct };
        let answers = at_once(ledger, vec![request(25, "one"); 64], sample::start()).await;
        let paid = answers.iter().find_map(|answer| {
            if let Answer::Allowed(id) = answer {
                Some(*id)
            } else {
                None
            }
        });
        assert_eq!(count(&answers, |answer| matches!(answer, Answer::Allowed(_))), 1);
        assert_eq!(count(&answers, |answer| *answer == Answer::Replayed(paid.unwrap())), 63);
        assert_eq!(spent(&emulator).await, 25);
        assert_sound(&emulator).await;
    }
}

/// Requests with the other body are rejected because the key was used before.
#[tokio::test]
async fn one_idempotency_key_with_two_bodies_pays_once() {
    let (emulator, ledger) = ledger_with(10_000, 10_000).await;
    let bodies = (0..64)
        .map(|n| Request {
            body: (n % 2).to_string(),
            ..request(25, "one")
        })
        .collect();
    let answers = at_once(&ledger, bodies, sample::start()).await;
    assert_eq!(count(&answers, |answer| matches!(answer, Answer::Allowed(_))), 1);
    assert_eq!(count(&answers, |answer| matches!(answer, Answer::Replayed(_))), 31);
    assert_eq!(
        count(&answers, |answer| matches!(answer, Answer::KeyReused(Some(_)))),
        32
    );
    assert_sound(&emulator).await;
}

#[tokio::test]
async fn concurrent_updates_of_one_version_store_one_update() {
    let (emulator, ledger) = ledger_with(1_000, 1_000).await;
    let mut agents = tokio::task::JoinSet::new();
    let mut policies = tokio::task::JoinSet::new();
    for n in 0..16 {
        let agent = Agent {
            name: n.to_string(),
            version: 2,
            ..sample::agent(1, Vec::new())
        };
        let policy = EnabledService {
            version: 2,
            ..sample::enabled(sample::service_id(1), n, n)
        };
        let (ledger, other) = (ledger.clone(), ledger.clone());
        agents.spawn(async move { ledger.put_agent(&agent, &sample::audit()).await.unwrap() });
        policies.spawn(async move {
            other
                .put_policy(sample::agent_id(1), &policy, &sample::audit())
                .await
                .unwrap()
        });
    }
    for edits in [agents.join_all().await, policies.join_all().await] {
        assert_eq!(edits.iter().filter(|edit| **edit == UpdateResult::Stored).count(), 1);
    }
    assert_sound(&emulator).await;
}

/// Returns a random number from `-most` to `most`.
fn sway(rng: &mut Rng, most: i64) -> i64 {
    i64::try_from(rng.below(u64::try_from(2 * most + 1).unwrap())).unwrap() - most
}

/// Lets workers with different clocks spend, evict and confirm for several days in one window.
async fn chaos(seed: u64, skew: Duration, conflicts: bool) {
    const CAP: u64 = 2_000;
    let (emulator, direct) = ledger_with(CAP, CAP).await;
    let (proxied, _proxy) = emulator.ledger_behind(CONFLICTS).await;
    let ledger = if conflicts { proxied } else { direct };
    let clock = Arc::new(AtomicI64::new(sample::start().micros()));
    let mut workers = tokio::task::JoinSet::new();
    for worker in 0..12 {
        let (ledger, clock) = (ledger.clone(), Arc::clone(&clock));
        let mut rng = Rng::from_seed(seed * 1_000 + worker + 1);
        workers.spawn(async move {
            for round in 0..25 {
                let step = i64::try_from(rng.below(1_800)).unwrap() * 1_000_000;
                let true_time = clock.fetch_add(step, SeqCst);
                let now = Timestamp::from_micros(true_time + sway(&mut rng, skew.micros())).unwrap();
                let request = request(1 + rng.below(400), &format!("{worker} {round}"));
                if let Answer::Allowed(id) = authorize(&ledger, &request, now).await.unwrap()
                    && rng.below(2) == 0
                {
                    confirm(&ledger, &request, id, &mut rng, now).await;
                }
            }
        });
    }
    workers.join_all().await;
    assert!(spent(&emulator).await <= i64::try_from(CAP).unwrap(), "seed {seed}");
    assert_sound(&emulator).await;
}

async fn confirm(ledger: &Ledger, request: &Request, id: SettlementId, rng: &mut Rng, now: Timestamp) {
    let stored = ledger.read_settlement_by_id(request.agent, id).await.unwrap().unwrap();
    let hash = sample::tx_hash(u8::try_from(rng.below(256)).unwrap());
    ledger
        .confirm_settlement(&stored, &sample::transfer(&stored, hash), Claim::Transaction, now)
        .await
        .unwrap();
}

#[tokio::test]
async fn the_cap_holds_despite_clock_skew() {
    for seed in 1..=2 {
        chaos(seed, sample::secs(6), false).await;
        chaos(seed, sample::secs(1_800), false).await;
    }
}

#[tokio::test]
async fn the_cap_holds_despite_skew_and_transaction_conflicts() {
    chaos(3, sample::secs(6), true).await;
    chaos(4, sample::secs(1_800), true).await;
}

/// The reference model is a plain list of the payments.
#[tokio::test]
async fn stored_window_decisions_equal_a_simple_model() {
    const CAP: u64 = 1_000;
    let day = Duration::DAY.micros();
    for seed in 1..=2 {
        let (emulator, ledger) = ledger_with(CAP, CAP).await;
        let mut rng = Rng::from_seed(seed);
        let mut now = sample::start().micros();
        let mut spends: Vec<(i64, u64)> = Vec::new();
        for round in 0..200 {
            // Sometimes the clock advances exactly to the end of a payment's time in the window, or one microsecond
            // less.
            let next = spends.iter().map(|(at, _)| at + day).find(|free| *free > now);
            now = match (rng.below(8), next) {
                (0, Some(free)) => free,
                (1, Some(free)) => (free - 1).max(now),
                _ => now + i64::try_from(rng.below(7_200)).unwrap() * 1_000_000 + 1,
            };
            let amount = 1 + rng.below(300);
            let live: u64 = spends
                .iter()
                .filter(|(at, _)| now - at < day)
                .map(|(_, units)| units)
                .sum();
            let request = request(amount, &round.to_string());
            match authorize(&ledger, &request, Timestamp::from_micros(now).unwrap())
                .await
                .unwrap()
            {
                Answer::Allowed(_) => {
                    assert!(live + amount <= CAP, "seed {seed} round {round}: {live} + {amount}");
                    spends.push((now, amount));
                }
                Answer::Full { live: told, .. } => {
                    assert!(live + amount > CAP, "seed {seed} round {round}: {live} + {amount}");
                    assert_eq!(told.units(), live, "seed {seed} round {round}");
                }
                other => panic!("seed {seed} round {round}: {other:?}"),
            }
        }
        assert_sound(&emulator).await;
    }
}
