//! Tests lost requests and responses: every change is written once, and the caller gets the true result or an error.

use crate::{assert_sound, count, ledger_with, request};
use purser_domain::{Agent, AgentStatus, ErrorKind};
use purser_store::{Claim, ConfirmResult, UpdateResult};
use purser_testkit::{
    AUDIT, Emulator, Fate, LEDGER, Moment, Proxy, ProxyConfig, Step,
    authorize::{Answer, authorize},
    sample,
};
use serde_json::{Value, json};
use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::SeqCst},
};

/// The number of attempts that the SDK makes, also for throttled calls.
const ATTEMPTS: u32 = 3;

fn losing(lost_answers: u32, lost_requests: u32) -> ProxyConfig {
    ProxyConfig {
        lost_answers,
        lost_requests,
        ..ProxyConfig::default()
    }
}

#[tokio::test]
async fn lost_messages_do_not_duplicate_a_payment() {
    for config in [
        losing(1, 0),
        losing(ATTEMPTS, 0),
        losing(0, 1),
        losing(0, ATTEMPTS),
        losing(2, 1),
    ] {
        let (emulator, _) = ledger_with(1_000, 1_000).await;
        let (ledger, _proxy) = emulator.ledger_behind(config).await;
        let answer = authorize(&ledger, &request(10, "k"), sample::start()).await.unwrap();
        assert!(matches!(answer, Answer::Allowed(_)), "{config:?}");
        assert_eq!(
            ledger
                .read_settlements(sample::agent_id(1), None, 5)
                .await
                .unwrap()
                .len(),
            1,
            "{config:?}"
        );
        assert_sound(&emulator).await;
    }
}

#[tokio::test]
async fn payments_with_unknown_outcome_fail_and_are_resolved_on_retry() {
    for (config, made) in [(losing(2 * ATTEMPTS, 0), true), (losing(0, 2 * ATTEMPTS), false)] {
        let (emulator, _) = ledger_with(1_000, 1_000).await;
        let (ledger, _proxy) = emulator.ledger_behind(config).await;
        assert!(authorize(&ledger, &request(10, "k"), sample::start()).await.is_err());
        assert_sound(&emulator).await;
        let answer = authorize(&ledger, &request(10, "k"), sample::start()).await.unwrap();
        assert_eq!(
            count(&[answer], |answer| matches!(answer, Answer::Replayed(_))),
            usize::from(made)
        );
        assert_eq!(
            ledger
                .read_settlements(sample::agent_id(1), None, 5)
                .await
                .unwrap()
                .len(),
            1
        );
        assert_sound(&emulator).await;
    }
}

#[tokio::test]
async fn escalations_with_lost_responses_create_one_approval() {
    let (emulator, _) = ledger_with(1_000, 5).await;
    let (ledger, _proxy) = emulator.ledger_behind(losing(ATTEMPTS, 0)).await;
    let first = authorize(&ledger, &request(10, "k"), sample::start()).await.unwrap();
    assert!(matches!(first, Answer::Waits(id) if id.sequence() == 0));
    assert_eq!(
        authorize(&ledger, &request(10, "k"), sample::start()).await.unwrap(),
        first
    );
    assert_sound(&emulator).await;
}

/// A repeated write finds the stored row and succeeds.
#[tokio::test]
async fn writes_with_lost_responses_are_recognized() {
    let (emulator, direct) = ledger_with(1_000, 1_000).await;
    let Answer::Allowed(id) = authorize(&direct, &request(10, "k"), sample::start()).await.unwrap() else {
        panic!()
    };
    let paid = direct
        .read_settlement_by_id(sample::agent_id(1), id)
        .await
        .unwrap()
        .unwrap();
    let transfer = sample::transfer(&paid, sample::tx_hash(1));
    // First all responses to the claim are lost, then all responses to the settlement.
    for write in ["PutItem", "UpdateItem"] {
        let (ledger, proxy) = emulator.ledger_behind(ProxyConfig::default()).await;
        proxy.follow(move |step| match step.moment {
            Moment::CarriedOut if step.call.starts_with(write) => Fate::server_error(),
            _ => Fate::PassOn,
        });
        let confirmed = ledger.confirm_settlement(&paid, &transfer, Claim::Transaction, sample::start());
        assert_eq!(confirmed.await.expect_err(write).kind().slug(), "internal_error");
    }
    let confirmed = direct
        .confirm_settlement(&paid, &transfer, Claim::Transaction, sample::start())
        .await
        .unwrap();
    assert!(matches!(confirmed, ConfirmResult::Already(stored) if stored == paid.confirm(&transfer, sample::start())));

    let mut policy = sample::enabled(sample::service_id(1), 7, 7);
    policy.version = 2;
    let (ledger, _proxy) = emulator.ledger_behind(losing(ATTEMPTS, 0)).await;
    assert_eq!(
        ledger
            .put_policy(sample::agent_id(1), &policy, &sample::audit())
            .await
            .unwrap(),
        UpdateResult::Stored
    );
    let mut agent = sample::agent(1, sample::rules());
    agent.version = 2;
    let (ledger, _proxy) = emulator.ledger_behind(losing(ATTEMPTS, 0)).await;
    assert_eq!(
        ledger.put_agent(&agent, &sample::audit()).await.unwrap(),
        UpdateResult::Stored
    );
    assert_sound(&emulator).await;
}

/// Makes each call read only one of the requested items.
fn read_one(step: &Step<'_>) -> Fate {
    if step.moment != Moment::CarriedOut || !step.call.starts_with("BatchGetItem") {
        return Fate::PassOn;
    }
    let keys = step.request["RequestItems"][LEDGER]["Keys"].as_array().unwrap().clone();
    Fate::Edit(Box::new(move |reply| {
        let items = reply["Responses"][LEDGER].as_array_mut().unwrap();
        items.truncate(1);
        let read = items[0].clone();
        let is_left = |key: &&Value| (&key["pk"], &key["sk"]) != (&read["pk"], &read["sk"]);
        let left: Vec<&Value> = keys.iter().filter(is_left).collect();
        if !left.is_empty() {
            reply["UnprocessedKeys"] = json!({LEDGER: {"Keys": left, "ConsistentRead": true}});
        }
    }))
}

#[tokio::test]
async fn partial_batch_reads_are_completed() {
    let (emulator, direct) = ledger_with(1_000, 1_000).await;
    let mut wanted = Vec::new();
    for n in 0..5 {
        let answer = authorize(&direct, &request(10, &format!("k{n}")), sample::start()).await;
        let Ok(Answer::Allowed(id)) = answer else {
            panic!("{answer:?}")
        };
        wanted.push((sample::agent_id(1), id));
    }
    let (ledger, proxy) = emulator.ledger_behind(ProxyConfig::default()).await;
    proxy.follow(read_one);
    assert_eq!(ledger.read_settlements_by_id(&wanted).await.unwrap().len(), 5);
}

/// Each call is attempted three times.
#[tokio::test]
async fn lasting_throttling_returns_a_retryable_error() {
    type Case = (&'static str, fn(&Step<'_>) -> Fate);
    let cases: [Case; 7] = [
        ("BatchGetItem", |_| Fate::throttled("ThrottlingException")),
        ("BatchGetItem", |step| Fate::unprocessed(step.request)),
        ("Query", |_| Fate::throttled("ProvisionedThroughputExceededException")),
        ("TransactWriteItems", |_| Fate::throttled("RequestLimitExceeded")),
        ("TransactWriteItems", |_| Fate::throttled("ThrottlingException")),
        ("TransactWriteItems", |step| {
            Fate::throttled_transaction(step.request, "ThrottlingError")
        }),
        ("TransactWriteItems", |step| {
            Fate::throttled_transaction(step.request, "ProvisionedThroughputExceeded")
        }),
    ];
    let (emulator, _) = ledger_with(1_000, 1_000).await;
    for (n, (operation, fate)) in cases.into_iter().enumerate() {
        let (ledger, proxy) = emulator.ledger_behind(ProxyConfig::default()).await;
        let throttle = |times: u32| {
            let met = Arc::new(AtomicU32::new(0));
            let counted = Arc::clone(&met);
            proxy.follow(move |step| {
                let is_it = step.moment == Moment::Arrived && step.call.starts_with(operation);
                if is_it && met.fetch_add(1, SeqCst) < times {
                    fate(step)
                } else {
                    Fate::PassOn
                }
            });
            counted
        };
        let key = format!("k{n}");
        let attempts = throttle(u32::MAX);
        let error = authorize(&ledger, &request(10, &key), sample::start())
            .await
            .expect_err(operation);
        assert!(
            matches!(error.kind(), ErrorKind::TemporarilyUnavailable { retry_after: 1 }),
            "{operation}: {error}"
        );
        assert_eq!(attempts.load(SeqCst), ATTEMPTS, "{operation}");
        // Brief throttling causes no error.
        throttle(ATTEMPTS - 1);
        let answer = authorize(&ledger, &request(10, &key), sample::start()).await.unwrap();
        assert!(matches!(answer, Answer::Allowed(_)), "{operation}: {answer:?}");
    }
    assert_sound(&emulator).await;
}

#[tokio::test]
async fn transaction_conflicts_are_retried_more_often_than_throttled_calls() {
    let (emulator, _) = ledger_with(1_000, 1_000).await;
    let (ledger, proxy) = emulator.ledger_behind(ProxyConfig::default()).await;
    let mut left = 4 * ATTEMPTS;
    proxy.follow(move |step| {
        let meets = step.moment == Moment::Arrived && step.call.starts_with("TransactWriteItems") && left > 0;
        if !meets {
            return Fate::PassOn;
        }
        left -= 1;
        Fate::conflict(step.request)
    });
    let answer = authorize(&ledger, &request(10, "k"), sample::start()).await.unwrap();
    assert!(matches!(answer, Answer::Allowed(_)), "{answer:?}");
    assert_sound(&emulator).await;
}

#[tokio::test]
async fn throttled_counters_neither_delay_nor_reject_calls() {
    let emulator = Emulator::start().await;
    let proxy = Proxy::start(emulator.url.clone(), ProxyConfig::default()).await;
    let throttle = emulator.throttle_behind(&proxy, 1);
    let attempts = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&attempts);
    proxy.follow(move |step| match step.moment {
        Moment::Arrived => {
            counted.fetch_add(1, SeqCst);
            Fate::throttled("ProvisionedThroughputExceededException")
        }
        Moment::CarriedOut => Fate::PassOn,
    });
    for n in 1..=3 {
        throttle
            .run_limited_by("a", sample::start(), async { Ok(()) })
            .await
            .unwrap();
        assert_eq!(attempts.load(SeqCst), n);
    }
    // Other failures are retried, because a lost count would let a call through.
    proxy.behave();
    throttle
        .run_limited_by("a", sample::start(), async { Ok(()) })
        .await
        .unwrap();
    let mut left = ATTEMPTS - 1;
    proxy.follow(move |step| match step.moment {
        Moment::Arrived if left > 0 => {
            left -= 1;
            Fate::server_error()
        }
        _ => Fate::PassOn,
    });
    let refused = throttle
        .run_limited_by("a", sample::start(), async { Ok(()) })
        .await
        .unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::TooManyRequests { .. }), "{refused}");
}

#[tokio::test]
async fn updates_and_their_audit_rows_are_atomic() {
    let rows = async |emulator: &Emulator| {
        let scan = emulator.client.scan().table_name(AUDIT).send().await;
        scan.unwrap().items().len()
    };
    for config in [
        losing(1, 0),
        losing(ATTEMPTS, 0),
        losing(2 * ATTEMPTS, 0),
        losing(0, 1),
        losing(0, 2 * ATTEMPTS),
    ] {
        let (emulator, first) = ledger_with(1_000, 1_000).await;
        let written = rows(&emulator).await;
        let (ledger, _proxy) = emulator.ledger_behind(config).await;
        let agent = first.read_agent_by_id(sample::agent_id(1)).await.unwrap().unwrap();
        let frozen = Agent {
            status: AgentStatus::Frozen,
            version: agent.version + 1,
            ..agent
        };
        // The update may be stored even if the caller gets an error.
        let _ = ledger.put_agent(&frozen, &sample::audit()).await;
        let stored = first.read_agent_by_id(frozen.id).await.unwrap().unwrap();
        let is_made = stored == frozen;
        assert_eq!(rows(&emulator).await, written + usize::from(is_made), "{config:?}");
        // The repeated call stores the update, or finds it stored and adds no row.
        let again = first.put_agent(&frozen, &sample::audit()).await.unwrap();
        assert_eq!(
            (again, rows(&emulator).await),
            (UpdateResult::Stored, written + 1),
            "{config:?}"
        );
    }
}
