//! Tests confirmations, and the lists of settlements and decisions.

use crate::{assert_sound, ledger_with, request};
use purser_domain::{LoggedDecision, Settlement, SettlementState};
use purser_store::{Claim, ConfirmResult, Ledger, LogRange};
use purser_testkit::{
    authorize::{Answer, authorize},
    sample,
};

async fn pay(ledger: &Ledger, key: u32) -> Settlement {
    let now = sample::start().after(sample::secs(key));
    let Answer::Allowed(id) = authorize(ledger, &request(10, &key.to_string()), now).await.unwrap() else {
        panic!()
    };
    ledger
        .read_settlement_by_id(sample::agent_id(1), id)
        .await
        .unwrap()
        .unwrap()
}

async fn confirm(ledger: &Ledger, settlement: &Settlement, hash: u8) -> ConfirmResult {
    let transfer = sample::transfer(settlement, sample::tx_hash(hash));
    ledger
        .confirm_settlement(settlement, &transfer, Claim::Transaction, sample::start())
        .await
        .unwrap()
}

#[tokio::test]
async fn a_confirmation_is_final_and_can_be_repeated() {
    let (emulator, ledger) = ledger_with(1_000, 1_000).await;
    let paid = pay(&ledger, 1).await;
    let ConfirmResult::Done(confirmed) = confirm(&ledger, &paid, 1).await else {
        panic!()
    };
    let state = SettlementState::Confirmed {
        tx_hash: sample::tx_hash(1),
        block_number: sample::BLOCK,
        settled_at: sample::start(),
    };
    assert_eq!(confirmed, Settlement { state, ..paid.clone() });
    assert_eq!(
        ledger
            .read_settlement_by_id(sample::agent_id(1), paid.id())
            .await
            .unwrap(),
        Some(confirmed.clone())
    );
    for hash in [1, 2] {
        assert_eq!(
            confirm(&ledger, &paid, hash).await,
            ConfirmResult::Already(confirmed.clone())
        );
    }
    assert_sound(&emulator).await;
}

#[tokio::test]
async fn one_transaction_confirms_only_one_settlement() {
    let (emulator, ledger) = ledger_with(1_000, 1_000).await;
    let mut racing = tokio::task::JoinSet::new();
    for key in 0..32 {
        let (ledger, paid) = (ledger.clone(), pay(&ledger, key).await);
        racing.spawn(async move { confirm(&ledger, &paid, 7).await });
    }
    let answers = racing.join_all().await;
    let winner = answers.iter().find_map(|answer| {
        if let ConfirmResult::Done(paid) = answer {
            Some(paid.id())
        } else {
            None
        }
    });
    let lost = ConfirmResult::TransactionUsed { by: winner.unwrap() };
    assert_eq!(answers.iter().filter(|answer| **answer == lost).count(), 31);
    assert_sound(&emulator).await;
}

#[tokio::test]
async fn concurrent_confirmations_confirm_a_settlement_once() {
    let (emulator, ledger) = ledger_with(1_000, 1_000).await;
    let paid = pay(&ledger, 1).await;
    let mut racing = tokio::task::JoinSet::new();
    for _ in 0..32 {
        let (ledger, paid) = (ledger.clone(), paid.clone());
        racing.spawn(async move { confirm(&ledger, &paid, 7).await });
    }
    let answers = racing.join_all().await;
    assert_eq!(
        answers
            .iter()
            .filter(|answer| matches!(answer, ConfirmResult::Done(_)))
            .count(),
        1
    );
    assert_eq!(
        answers
            .iter()
            .filter(|answer| matches!(answer, ConfirmResult::Already(_)))
            .count(),
        31
    );
    assert_sound(&emulator).await;
}

#[tokio::test]
async fn settlements_are_listed_newest_first_per_agent() {
    let (_emulator, ledger) = ledger_with(1_000, 1_000).await;
    let mut paid = Vec::new();
    for key in 0..5 {
        paid.insert(0, pay(&ledger, key).await);
    }
    assert_eq!(
        ledger.read_settlements(sample::agent_id(1), None, 100).await.unwrap(),
        paid
    );
    assert_eq!(
        ledger.read_settlements(sample::agent_id(1), None, 2).await.unwrap(),
        paid[..2]
    );
    assert_eq!(
        ledger.read_settlements(sample::agent_id(2), None, 100).await.unwrap(),
        []
    );
    assert_eq!(
        ledger
            .read_settlement_by_id(sample::agent_id(2), paid[0].id())
            .await
            .unwrap(),
        None
    );
}

#[tokio::test]
async fn unknown_settlements_cannot_be_confirmed() {
    let (_emulator, ledger) = ledger_with(1_000, 1_000).await;
    let mut paid = pay(&ledger, 1).await;
    paid.terms.agent = sample::agent_id(2);
    let transfer = sample::transfer(&paid, sample::tx_hash(1));
    assert!(
        ledger
            .confirm_settlement(&paid, &transfer, Claim::Transaction, sample::start())
            .await
            .is_err()
    );
}

/// The payments and the blocked requests of an agent are one log, which is read in both directions.
#[tokio::test]
async fn decision_log_pages_contain_each_decision_once() {
    let (_emulator, ledger) = ledger_with(100, 1_000).await;
    let (start, agent) = (sample::start(), sample::agent_id(1));
    // The second, the fourth and the fifth payment do not fit.
    for (number, amount) in (1_u32..).zip([60, 50, 30, 20, 11, 10]) {
        let at = start.after(sample::secs(number));
        authorize(&ledger, &request(amount, &number.to_string()), at)
            .await
            .unwrap();
    }
    let end = start.after(sample::secs(60));
    let mut logs = Vec::new();
    for limit in [1, 2, 100] {
        for newest_first in [false, true] {
            let (mut places, mut rest) = (Vec::new(), Some(LogRange::new(start, end, newest_first)));
            while let Some(range) = rest {
                let page = ledger.read_decisions_between(agent, range, limit).await.unwrap();
                places.extend(page.decisions.iter().map(LoggedDecision::log_position));
                rest = page.rest;
            }
            if newest_first {
                places.reverse();
            }
            logs.push(places);
        }
    }
    assert!(logs.iter().all(|log| *log == logs[0]), "{logs:?}");
    assert!(logs[0].len() == 6 && logs[0].is_sorted(), "{logs:?}");
    for place in &logs[0] {
        let one = LogRange {
            first: *place,
            last: *place,
            newest_first: false,
        };
        let page = ledger.read_decisions_between(agent, one, 10).await.unwrap();
        let found: Vec<_> = page.decisions.iter().map(LoggedDecision::log_position).collect();
        assert_eq!((found, page.rest), (vec![*place], None));
    }
    let none = LogRange::new(end, start, false);
    assert!(
        ledger
            .read_decisions_between(agent, none, 10)
            .await
            .unwrap()
            .decisions
            .is_empty()
    );
}
