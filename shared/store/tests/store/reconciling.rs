//! Releases, late confirmations and reverted confirmations, concurrently and on a database with conflicts and lost
//! responses; and the index that finds them.

use crate::{assert_sound, ledger_with, request};
use purser_domain::{
    Agent, AgentId, Duration, LoggedDecision, Settlement, SettlementId, SettlementState, Timestamp, TransactionId,
    WindowScope,
};
use purser_store::{Confirmed, IndexKey, Ledger, Moved, ReconcileRequest};
use purser_testkit::{
    Emulator, LEDGER, ProxyConfig,
    authorize::{Answer, authorize},
    invariants::scan,
    sample,
};
use std::time;

async fn pay(ledger: &Ledger, amount: u64, key: &str, now: Timestamp) -> Settlement {
    let answer = authorize(ledger, &request(amount, key), now).await.unwrap();
    let Answer::Allowed(id) = answer else {
        panic!("{answer:?}")
    };
    stored(ledger, id).await
}

async fn stored(ledger: &Ledger, id: SettlementId) -> Settlement {
    ledger.settlement(sample::agent_id(1), id).await.unwrap().unwrap()
}

async fn release(ledger: &Ledger, settlement: &Settlement) -> Moved {
    ledger.release(settlement, &sample::unusable(settlement)).await.unwrap()
}

async fn confirm(ledger: &Ledger, settlement: &Settlement, now: Timestamp) -> Confirmed {
    let transfer = sample::transfer(settlement, sample::tx_hash(1));
    ledger.confirm(settlement, &transfer, now).await.unwrap()
}

async fn revert_confirmation(ledger: &Ledger, confirmed: &Settlement) -> Moved {
    let at = sample::start().after(sample::secs(1));
    let decision = TransactionId::at(at, getrandom::u64().unwrap().to_be_bytes());
    let transfer_gone = sample::transfer_gone(confirmed);
    ledger
        .revert_confirmation(confirmed, &transfer_gone, decision, at)
        .await
        .unwrap()
}

/// A ledger whose agent also has a budget, in which every payment counts too.
async fn ledger_with_budget(max: u64) -> (Emulator, Ledger) {
    let (emulator, ledger) = ledger_with(max, max).await;
    let agent = Agent {
        version: 2,
        ..sample::agent(1, vec![sample::budget(1, max, sample::secs(3_600))])
    };
    ledger.put_agent(&agent).await.unwrap();
    (emulator, ledger)
}

/// The totals of the day window and of the budget's.
async fn totals(emulator: &Emulator) -> Vec<u64> {
    let mut totals: Vec<u64> = scan(&emulator.client, LEDGER, None)
        .await
        .iter()
        .filter_map(|item| item.get("total")?.as_n().ok()?.parse().ok())
        .collect();
    totals.sort_unstable();
    totals
}

#[tokio::test]
async fn a_released_spend_can_be_spent_again_under_every_window() {
    let (emulator, ledger) = ledger_with_budget(100).await;
    let paid = pay(&ledger, 100, "a", sample::start()).await;
    assert_eq!(totals(&emulator).await, [100, 100]);
    let full = authorize(&ledger, &request(1, "b"), sample::start()).await.unwrap();
    assert!(!matches!(full, Answer::Allowed(_)), "{full:?}");

    let Moved::Done(expired) = release(&ledger, &paid).await else {
        panic!()
    };
    assert_eq!(expired.state, SettlementState::Expired);
    assert_eq!(stored(&ledger, paid.id()).await, expired);
    assert_eq!(totals(&emulator).await, [0, 0]);
    assert_sound(&emulator).await;

    pay(&ledger, 100, "c", sample::start().after(sample::secs(1))).await;
    assert_eq!(release(&ledger, &paid).await, Moved::Superseded(expired));
    assert_eq!(
        totals(&emulator).await,
        [100, 100],
        "what is given back is given back once"
    );
    assert_sound(&emulator).await;
}

#[tokio::test]
async fn a_window_that_has_evicted_the_entry_is_left_alone() {
    let (emulator, ledger) = ledger_with_budget(100).await;
    let paid = pay(&ledger, 60, "a", sample::start()).await;
    // After an hour it has rolled out of the budget's window, but not of the day window.
    let later = sample::start().after(sample::secs(3_600));
    pay(&ledger, 40, "b", later).await;
    assert_eq!(totals(&emulator).await, [40, 100]);
    assert!(matches!(release(&ledger, &paid).await, Moved::Done(_)));
    assert_eq!(totals(&emulator).await, [40, 40]);
    assert_sound(&emulator).await;

    let paid = pay(&ledger, 60, "c", later).await;
    let tomorrow = later.after(Duration::DAY);
    pay(&ledger, 1, "d", tomorrow).await;
    assert!(matches!(release(&ledger, &paid).await, Moved::Done(_)));
    assert_eq!(totals(&emulator).await, [1, 1]);
    assert_sound(&emulator).await;
}

#[tokio::test]
async fn evidence_of_one_settlement_releases_no_other() {
    let (emulator, ledger) = ledger_with(100, 100).await;
    let [one, other] = [
        pay(&ledger, 10, "a", sample::start()).await,
        pay(&ledger, 20, "b", sample::start()).await,
    ];
    assert!(ledger.release(&other, &sample::unusable(&one)).await.is_err());
    assert_eq!(totals(&emulator).await, [30]);
    assert_sound(&emulator).await;
}

#[tokio::test]
async fn releases_and_confirmations_at_once_move_a_settlement_once() {
    let config = ProxyConfig {
        hold: Some(time::Duration::from_millis(2)),
        ..ProxyConfig::default()
    };
    for round in 0..6 {
        let (emulator, direct) = ledger_with_budget(100).await;
        let (proxied, _proxy) = emulator.ledger_behind(config).await;
        let paid = pay(&direct, 100, "a", sample::start()).await;
        let mut racing = tokio::task::JoinSet::new();
        for racer in 0..6 {
            let (ledger, paid) = (proxied.clone(), paid.clone());
            racing.spawn(async move {
                // The order of the two alternates with the rounds.
                if (racer + round) % 2 == 0 {
                    matches!(release(&ledger, &paid).await, Moved::Done(_))
                } else {
                    matches!(confirm(&ledger, &paid, sample::start()).await, Confirmed::Done(_))
                }
            });
        }
        racing.join_all().await;
        // A proof after the release is still counted.
        let last = stored(&direct, paid.id()).await;
        assert!(last.tx_hash().is_some(), "{last:?}");
        assert_eq!(totals(&emulator).await, [100, 100]);
        assert_sound(&emulator).await;
    }
}

#[tokio::test]
async fn two_releases_behind_a_database_that_conflicts_and_loses_answers_give_back_once() {
    for (lost_answers, lost_requests) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
        let (emulator, direct) = ledger_with_budget(100).await;
        let paid = pay(&direct, 30, "a", sample::start()).await;
        pay(&direct, 50, "b", sample::start()).await;
        let config = ProxyConfig {
            hold: Some(time::Duration::from_millis(2)),
            lost_answers,
            lost_requests,
            ..ProxyConfig::default()
        };
        let (proxied, _proxy) = emulator.ledger_behind(config).await;
        let (one, other) = tokio::join!(release(&proxied, &paid), release(&proxied, &paid));
        let done = [&one, &other]
            .iter()
            .filter(|moved| matches!(moved, Moved::Done(_)))
            .count();
        // After a lost response, the retry returns `Superseded`.
        assert!(done == 1 || (lost_answers == 1 && done == 0), "{one:?} {other:?}");
        assert_eq!(totals(&emulator).await, [50, 50]);
        assert_sound(&emulator).await;
    }
}

#[tokio::test]
async fn a_late_proof_counts_from_now_on_whatever_the_caps_say() {
    let (emulator, ledger) = ledger_with_budget(100).await;
    let paid = pay(&ledger, 60, "a", sample::start()).await;
    release(&ledger, &paid).await;
    pay(&ledger, 100, "b", sample::start().after(sample::secs(60))).await;

    let late = sample::start().after(sample::secs(120));
    let Confirmed::Done(confirmed) = confirm(&ledger, &paid, late).await else {
        panic!()
    };
    assert_eq!((confirmed.counted_at, confirmed.settled_at()), (late, Some(late)));
    assert_eq!(stored(&ledger, paid.id()).await, confirmed);
    assert_eq!(totals(&emulator).await, [160, 160]);
    assert_sound(&emulator).await;
    let again = confirm(&ledger, &paid, late.after(sample::secs(9))).await;
    assert_eq!(again, Confirmed::Already(confirmed));
    assert_eq!(totals(&emulator).await, [160, 160]);

    // It rolls out one window length after it was counted, not after it was authorized.
    let out = late.after(sample::secs(3_600));
    let full = authorize(&ledger, &request(1, "c"), out).await.unwrap();
    assert!(
        matches!(full, Answer::Full { .. }),
        "the day still counts both: {full:?}"
    );
    let tomorrow = late.after(Duration::DAY);
    pay(&ledger, 100, "d", tomorrow).await;
    assert_eq!(totals(&emulator).await, [100, 100]);
    assert_sound(&emulator).await;
}

#[tokio::test]
async fn a_late_proof_is_never_counted_at_a_time_that_was_cleared() {
    let (emulator, ledger) = ledger_with_budget(1_000).await;
    let first = pay(&ledger, 60, "a", sample::start()).await;
    let second = pay(&ledger, 70, "b", sample::start()).await;
    release(&ledger, &first).await;
    // A worker whose clock is ahead has cleared both windows up to `second`.
    let ahead = sample::start().after(Duration::DAY);
    pay(&ledger, 1, "c", ahead).await;
    let Confirmed::Done(confirmed) = confirm(&ledger, &first, sample::start()).await else {
        panic!()
    };
    assert_eq!(confirmed.counted_at, second.counted_at.after(Duration::DAY));
    assert_sound(&emulator).await;
}

#[tokio::test]
async fn a_late_proof_races_itself_and_the_windows_and_counts_once() {
    let config = ProxyConfig {
        hold: Some(time::Duration::from_millis(2)),
        lost_answers: 1,
        ..ProxyConfig::default()
    };
    let (emulator, direct) = ledger_with_budget(1_000).await;
    let paid = pay(&direct, 60, "a", sample::start()).await;
    release(&direct, &paid).await;
    let (proxied, _proxy) = emulator.ledger_behind(config).await;
    let mut racing = tokio::task::JoinSet::new();
    for n in 0..8 {
        let (ledger, paid) = (proxied.clone(), paid.clone());
        racing.spawn(async move {
            if n % 2 == 0 {
                confirm(&ledger, &paid, sample::start().after(sample::secs(90))).await;
            } else {
                pay(&ledger, 1, &n.to_string(), sample::start().after(Duration::DAY)).await;
            }
        });
    }
    racing.join_all().await;
    assert_eq!(totals(&emulator).await, [64, 64]);
    assert_sound(&emulator).await;
}

#[tokio::test]
async fn a_proof_that_was_late_can_be_taken_back_and_released_again() {
    let (emulator, ledger) = ledger_with_budget(100).await;
    let paid = pay(&ledger, 60, "a", sample::start()).await;
    release(&ledger, &paid).await;
    let Confirmed::Done(confirmed) = confirm(&ledger, &paid, sample::start().after(sample::secs(90))).await else {
        panic!()
    };
    let Moved::Done(held) = revert_confirmation(&ledger, &confirmed).await else {
        panic!()
    };
    assert_eq!(stored(&ledger, paid.id()).await, held);
    assert_eq!(totals(&emulator).await, [60, 60]);
    assert_sound(&emulator).await;
    assert!(matches!(release(&ledger, &held).await, Moved::Done(_)));
    assert_eq!(totals(&emulator).await, [0, 0]);
    assert_sound(&emulator).await;
}

#[tokio::test]
async fn what_is_taken_back_is_held_again_and_told_and_its_transaction_is_free() {
    let (emulator, ledger) = ledger_with(100, 100).await;
    let paid = pay(&ledger, 60, "a", sample::start()).await;
    let Confirmed::Done(confirmed) = confirm(&ledger, &paid, sample::start()).await else {
        panic!()
    };
    assert_eq!(
        revert_confirmation(&ledger, &confirmed).await,
        Moved::Done(paid.clone())
    );
    assert_eq!(stored(&ledger, paid.id()).await, paid);
    assert_sound(&emulator).await;
    let log = ledger.decisions(sample::agent_id(1), None, 10).await.unwrap();
    let [LoggedDecision::ConfirmationReverted(told), LoggedDecision::Allowed(_)] = &log[..] else {
        panic!("{log:?}")
    };
    assert_eq!((told.settlement, told.tx_hash), (paid.id(), sample::tx_hash(1)));
    let recorded = ledger.recorded_decision(sample::agent_id(1), told.transaction).await;
    assert_eq!(recorded.unwrap().as_ref(), Some(&log[0]));

    // A second one finds nothing to revert, and records no decision.
    assert_eq!(
        revert_confirmation(&ledger, &confirmed).await,
        Moved::Superseded(paid.clone())
    );
    assert_eq!(ledger.decisions(sample::agent_id(1), None, 10).await.unwrap().len(), 2);
    assert!(matches!(
        confirm(&ledger, &paid, sample::start()).await,
        Confirmed::Done(_)
    ));
    assert_sound(&emulator).await;
}

#[tokio::test]
async fn a_confirmation_is_taken_back_once_whoever_tries_and_whatever_is_lost() {
    for (lost_answers, lost_requests) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
        let (emulator, direct) = ledger_with(100, 100).await;
        let paid = pay(&direct, 60, "a", sample::start()).await;
        let Confirmed::Done(confirmed) = confirm(&direct, &paid, sample::start()).await else {
            panic!()
        };
        let config = ProxyConfig {
            hold: Some(time::Duration::from_millis(2)),
            lost_answers,
            lost_requests,
            ..ProxyConfig::default()
        };
        let (proxied, _proxy) = emulator.ledger_behind(config).await;
        let (one, other) = tokio::join!(
            revert_confirmation(&proxied, &confirmed),
            revert_confirmation(&proxied, &confirmed)
        );
        let moved = [one, other];
        assert!(moved.contains(&Moved::Done(paid.clone())), "{moved:?}");
        let told = direct.recorded(sample::agent_id(1), None, 10).await.unwrap();
        assert_eq!(told.len(), 1, "told once");
        assert_sound(&emulator).await;
    }
}

#[tokio::test]
async fn the_index_is_gone_through_in_pages_from_anywhere() {
    let (emulator, ledger) = ledger_with(1_000, 1_000).await;
    let mut paid = Vec::new();
    for n in 0..40 {
        // Every two have the same index key, and some of those also the same partition.
        let at = sample::start().after(sample::secs(n / 2));
        paid.push(pay(&ledger, 10, &n.to_string(), at).await);
    }
    let mut confirmed = Vec::new();
    for (n, settlement) in (1..).zip(&paid[..2]) {
        let transfer = sample::transfer(settlement, sample::tx_hash(n));
        let Confirmed::Done(settlement) = ledger.confirm(settlement, &transfer, sample::start()).await.unwrap() else {
            panic!()
        };
        confirmed.push(settlement);
    }
    release(&ledger, &paid[2]).await;

    let (mut seen, mut from) = (Vec::new(), None);
    loop {
        let (page, next) = ledger.holds(from.as_ref(), 3).await.unwrap();
        let page: Vec<_> = page.into_iter().map(|held| held.unwrap()).collect();
        if let (Some(last), Some(next)) = (page.last(), &next) {
            assert_eq!(last.position(), next, "a position is that of the last one seen");
        }
        seen.extend(page.iter().map(|held| (held.settlement, held.place)));
        // A stored position reads back equal.
        ledger.save_scan_cursor(next.as_ref()).await.unwrap();
        assert_eq!(ledger.scan_cursor().await.unwrap(), next);
        from = next;
        if from.is_none() {
            break;
        }
    }
    seen.sort_by_key(|(id, _)| *id);
    let held = |settlement: &Settlement| (settlement.id(), IndexKey::Held(settlement.terms.valid_before));
    let watched = |settlement: &Settlement| (settlement.id(), IndexKey::Watched(sample::BLOCK));
    let mut expected = vec![watched(&paid[0]), watched(&paid[1])];
    expected.extend(paid[3..].iter().map(held));
    expected.sort_by_key(|(id, _)| *id);
    assert_eq!(seen, expected, "each is seen once");

    let (first, next) = ledger.holds(None, 1).await.unwrap();
    let first = stored(&ledger, first[0].as_ref().unwrap().settlement).await;
    for settlement in &confirmed {
        ledger.stop_watching(settlement).await.unwrap();
        ledger.stop_watching(settlement).await.unwrap();
    }
    let (rest, _) = ledger.holds(next.as_ref(), 99).await.unwrap();
    let left = if first.tx_hash().is_some() { 37 } else { 36 };
    assert_eq!(rest.len(), left, "what is behind a position that is gone is found");
    // `stop_watching` does not change a reverted confirmation.
    revert_confirmation(&ledger, &confirmed[0]).await;
    ledger.stop_watching(&confirmed[0]).await.unwrap();
    assert_sound(&emulator).await;
}

#[tokio::test]
async fn a_mark_stays_until_it_is_done_and_nobody_has_asked_again() {
    let (emulator, ledger) = ledger_with(100, 100).await;
    let paid = pay(&ledger, 10, "a", sample::start()).await;
    let mark = |secs| ReconcileRequest {
        agent: AgentId::from_uuid(sample::agent_id(1).uuid()),
        settlement: paid.id(),
        asked_at: sample::start().after(sample::secs(secs)),
    };
    ledger.request_reconcile(&mark(1)).await.unwrap();
    ledger.request_reconcile(&mark(2)).await.unwrap();
    assert_eq!(ledger.reconcile_requests().await.unwrap(), [mark(2)]);
    ledger.clear_reconcile_request(&mark(1)).await.unwrap();
    assert_eq!(
        ledger.reconcile_requests().await.unwrap(),
        [mark(2)],
        "somebody has asked again"
    );
    ledger.clear_reconcile_request(&mark(2)).await.unwrap();
    ledger.clear_reconcile_request(&mark(2)).await.unwrap();
    assert_eq!(ledger.reconcile_requests().await.unwrap(), []);
    assert_sound(&emulator).await;
}

#[tokio::test]
async fn every_move_costs_what_the_design_says() {
    let (emulator, ledger) = ledger_with(1_000, 1_000).await;
    let paid = pay(&ledger, 10, "a", sample::start()).await;
    let other = pay(&ledger, 10, "b", sample::start()).await;
    let (emulator, meter) = emulator.metered().await;
    let ledger = emulator.ledger();
    let units = || meter.take().units();
    release(&ledger, &paid).await;
    assert_eq!(units(), (0, 7, 1), "release");
    let expired = stored(&ledger, paid.id()).await;
    units();
    let Confirmed::Done(late) = confirm(&ledger, &expired, sample::start()).await else {
        panic!()
    };
    assert_eq!(units(), (1, 9, 2), "late confirmation");
    revert_confirmation(&ledger, &late).await;
    assert_eq!(units(), (0, 8, 1), "take back");
    let Confirmed::Done(confirmed) = confirm(&ledger, &other, sample::start()).await else {
        panic!()
    };
    assert_eq!(units(), (0, 6, 1), "confirmation");
    ledger.stop_watching(&confirmed).await.unwrap();
    assert_eq!(units(), (0, 2, 1), "end of a watch");

    let (emulator, ledger) = ledger_with_budget(100).await;
    let paid = pay(&ledger, 10, "a", sample::start()).await;
    let (emulator, meter) = emulator.metered().await;
    release(&emulator.ledger(), &paid).await;
    assert_eq!(meter.take().units(), (0, 11, 1), "release under a budget");
    assert_sound(&emulator).await;
    let scope = WindowScope::Day {
        agent: sample::agent_id(1),
        service: sample::service_id(1),
    };
    let live = ledger
        .windows_in_use(&[(scope, Duration::DAY)], sample::start())
        .await
        .unwrap();
    assert_eq!(live.len(), 0, "nothing counts any more");
}
