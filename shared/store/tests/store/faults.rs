//! Lost requests and responses: everything is written once, and the caller gets the true result or an error.

use crate::{assert_sound, count, ledger_with, request};
use purser_store::{Confirmed, Edited};
use purser_testkit::{
    ProxyConfig,
    authorize::{Answer, authorize},
    sample,
};

/// The SDK makes three attempts.
const ATTEMPTS: u32 = 3;

fn losing(lost_answers: u32, lost_requests: u32) -> ProxyConfig {
    ProxyConfig {
        lost_answers,
        lost_requests,
        ..ProxyConfig::default()
    }
}

#[tokio::test]
async fn a_payment_whose_answer_or_request_is_lost_is_made_once() {
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
            ledger.settlements(sample::agent_id(1), None, 5).await.unwrap().len(),
            1,
            "{config:?}"
        );
        assert_sound(&emulator).await;
    }
}

#[tokio::test]
async fn a_payment_that_stays_in_doubt_is_an_error_and_its_repetition_tells() {
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
        assert_eq!(ledger.settlements(sample::agent_id(1), None, 5).await.unwrap().len(), 1);
        assert_sound(&emulator).await;
    }
}

#[tokio::test]
async fn an_escalation_whose_answer_is_lost_stages_one_approval() {
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

#[tokio::test]
async fn a_confirmation_or_edit_whose_answer_is_lost_is_found_done() {
    let (emulator, direct) = ledger_with(1_000, 1_000).await;
    let Answer::Allowed(id) = authorize(&direct, &request(10, "k"), sample::start()).await.unwrap() else {
        panic!()
    };
    let paid = direct.settlement(sample::agent_id(1), id).await.unwrap().unwrap();
    let transfer = sample::transfer(&paid, sample::tx_hash(1));
    let (ledger, _proxy) = emulator.ledger_behind(losing(ATTEMPTS, 0)).await;
    let confirmed = ledger.confirm(&paid, &transfer, sample::start()).await.unwrap();
    assert!(matches!(confirmed, Confirmed::Already(stored) if stored == paid.confirmed(&transfer, sample::start())));

    let mut policy = sample::enabled(sample::service_id(1), 7, 7);
    policy.version = 2;
    let (ledger, _proxy) = emulator.ledger_behind(losing(ATTEMPTS, 0)).await;
    assert_eq!(
        ledger.put_policy(sample::agent_id(1), &policy).await.unwrap(),
        Edited::Stored
    );
    let mut agent = sample::agent(1, sample::rules());
    agent.version = 2;
    let (ledger, _proxy) = emulator.ledger_behind(losing(ATTEMPTS, 0)).await;
    assert_eq!(ledger.put_agent(&agent).await.unwrap(), Edited::Stored);
    assert_sound(&emulator).await;
}
