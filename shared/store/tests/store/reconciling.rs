//! Tests releases, late confirmations, reverted confirmations, and the index of holds.

use crate::{assert_sound, ledger_with, request};
use aws_sdk_dynamodb::types::AttributeValue;
use purser_domain::{
    Agent, AgentId, Duration, LoggedDecision, Settlement, SettlementId, SettlementState, Timestamp, TransactionId,
    WindowPeriod, WindowScope, find_authorized_transfer,
};
use purser_store::{Claim, ConfirmResult, Ledger, PARTITIONS, ReconcileRequest, TransitionResult};
use purser_testkit::{
    Emulator, Fate, LEDGER, Moment, ProxyConfig,
    authorize::{Answer, authorize},
    invariants::scan,
    sample,
};
use std::{collections::BTreeSet, sync::Arc, time};

async fn pay(ledger: &Ledger, amount: u64, key: &str, now: Timestamp) -> Settlement {
    let answer = authorize(ledger, &request(amount, key), now).await.unwrap();
    let Answer::Allowed(id) = answer else {
        panic!("{answer:?}")
    };
    stored(ledger, id).await
}

async fn stored(ledger: &Ledger, id: SettlementId) -> Settlement {
    ledger
        .read_settlement_by_id(sample::agent_id(1), id)
        .await
        .unwrap()
        .unwrap()
}

async fn release(ledger: &Ledger, settlement: &Settlement) -> TransitionResult {
    ledger
        .release_hold(settlement, &sample::unusable(settlement))
        .await
        .unwrap()
}

async fn confirm(ledger: &Ledger, settlement: &Settlement, now: Timestamp) -> ConfirmResult {
    let transfer = sample::transfer(settlement, sample::tx_hash(1));
    ledger
        .confirm_settlement(settlement, &transfer, Claim::Transaction, now)
        .await
        .unwrap()
}

async fn revert_confirmation(ledger: &Ledger, confirmed: &Settlement) -> TransitionResult {
    let at = sample::start().after(sample::secs(1));
    let decision = TransactionId::new_at(at, getrandom::u64().unwrap().to_be_bytes());
    let transfer_gone = sample::transfer_gone(confirmed);
    ledger
        .revert_confirmation(confirmed, &transfer_gone, decision, at)
        .await
        .unwrap()
}

/// Creates a ledger whose agent also has a budget in which every payment counts.
async fn ledger_with_budget(max: u64) -> (Emulator, Ledger) {
    let (emulator, ledger) = ledger_with(max, max).await;
    let agent = Agent {
        version: 2,
        ..sample::agent(1, vec![sample::budget(1, max, sample::secs(3_600))])
    };
    ledger.put_agent(&agent, &sample::audit()).await.unwrap();
    (emulator, ledger)
}

/// Returns the totals of the day window and of the budget's window, sorted.
async fn totals(emulator: &Emulator) -> Vec<u64> {
    let mut totals: Vec<u64> = scan(&emulator.client, LEDGER, None)
        .await
        .iter()
        .filter_map(|item| item.get("total")?.as_n().ok()?.parse().ok())
        .collect();
    totals.sort_unstable();
    totals
}

/// A release frees the amount in every window, and only once.
#[tokio::test]
async fn released_amounts_can_be_spent_again() {
    let (emulator, ledger) = ledger_with_budget(100).await;
    let paid = pay(&ledger, 100, "a", sample::start()).await;
    assert_eq!(totals(&emulator).await, [100, 100]);
    let full = authorize(&ledger, &request(1, "b"), sample::start()).await.unwrap();
    assert!(!matches!(full, Answer::Allowed(_)), "{full:?}");

    let TransitionResult::Done(expired) = release(&ledger, &paid).await else {
        panic!()
    };
    assert_eq!(expired.state, SettlementState::Expired);
    assert_eq!(stored(&ledger, paid.id()).await, expired);
    assert_eq!(totals(&emulator).await, [0, 0]);
    assert_sound(&emulator).await;

    pay(&ledger, 100, "c", sample::start().after(sample::secs(1))).await;
    assert_eq!(release(&ledger, &paid).await, TransitionResult::Superseded(expired));
    assert_eq!(
        totals(&emulator).await,
        [100, 100],
        "what is given back is given back once"
    );
    assert_sound(&emulator).await;
}

#[tokio::test]
async fn a_release_skips_windows_that_already_evicted_the_payment() {
    let (emulator, ledger) = ledger_with_budget(100).await;
    let paid = pay(&ledger, 60, "a", sample::start()).await;
    // After an hour the payment has left the budget's window, but not the day window.
    let later = sample::start().after(sample::secs(3_600));
    pay(&ledger, 40, "b", later).await;
    assert_eq!(totals(&emulator).await, [40, 100]);
    assert!(matches!(release(&ledger, &paid).await, TransitionResult::Done(_)));
    assert_eq!(totals(&emulator).await, [40, 40]);
    assert_sound(&emulator).await;

    let paid = pay(&ledger, 60, "c", later).await;
    let tomorrow = later.after(Duration::DAY);
    pay(&ledger, 1, "d", tomorrow).await;
    assert!(matches!(release(&ledger, &paid).await, TransitionResult::Done(_)));
    assert_eq!(totals(&emulator).await, [1, 1]);
    assert_sound(&emulator).await;
}

#[tokio::test]
async fn evidence_about_one_settlement_releases_no_other_settlement() {
    let (emulator, ledger) = ledger_with(100, 100).await;
    let [one, other] = [
        pay(&ledger, 10, "a", sample::start()).await,
        pay(&ledger, 20, "b", sample::start()).await,
    ];
    assert!(ledger.release_hold(&other, &sample::unusable(&one)).await.is_err());
    assert_eq!(totals(&emulator).await, [30]);
    assert_sound(&emulator).await;
}

/// The settlement ends as confirmed, because a proof counts even after the release.
#[tokio::test]
async fn concurrent_releases_and_confirmations_apply_once() {
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
                // The first racer alternates with the rounds.
                if (racer + round) % 2 == 0 {
                    matches!(release(&ledger, &paid).await, TransitionResult::Done(_))
                } else {
                    matches!(confirm(&ledger, &paid, sample::start()).await, ConfirmResult::Done(_))
                }
            });
        }
        racing.join_all().await;
        // A proof that arrives after the release still counts.
        let last = stored(&direct, paid.id()).await;
        assert!(last.tx_hash().is_some(), "{last:?}");
        assert_eq!(totals(&emulator).await, [100, 100]);
        assert_sound(&emulator).await;
    }
}

/// The test covers conflicts, lost requests and lost responses.
#[tokio::test]
async fn concurrent_releases_return_the_amount_once() {
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
            .filter(|moved| matches!(moved, TransitionResult::Done(_)))
            .count();
        // After a lost response, the retry returns `Superseded`.
        assert!(done == 1 || (lost_answers == 1 && done == 0), "{one:?} {other:?}");
        assert_eq!(totals(&emulator).await, [50, 50]);
        assert_sound(&emulator).await;
    }
}

/// Late payments count even if the total then exceeds the caps.
#[tokio::test]
async fn late_payment_proofs_count_from_their_confirmation_time() {
    let (emulator, ledger) = ledger_with_budget(100).await;
    let paid = pay(&ledger, 60, "a", sample::start()).await;
    release(&ledger, &paid).await;
    pay(&ledger, 100, "b", sample::start().after(sample::secs(60))).await;

    let late = sample::start().after(sample::secs(120));
    let ConfirmResult::Done(confirmed) = confirm(&ledger, &paid, late).await else {
        panic!()
    };
    assert_eq!((confirmed.counted_at, confirmed.settled_at()), (late, Some(late)));
    assert_eq!(stored(&ledger, paid.id()).await, confirmed);
    assert_eq!(totals(&emulator).await, [160, 160]);
    assert_sound(&emulator).await;
    let again = confirm(&ledger, &paid, late.after(sample::secs(9))).await;
    assert_eq!(again, ConfirmResult::Already(confirmed));
    assert_eq!(totals(&emulator).await, [160, 160]);

    // The payment leaves the window one window duration after it was counted, not after it was authorized.
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
async fn a_confirmed_payment_that_was_released_is_counted_after_the_eviction_watermark() {
    let (emulator, ledger) = ledger_with_budget(1_000).await;
    let first = pay(&ledger, 60, "a", sample::start()).await;
    let second = pay(&ledger, 70, "b", sample::start()).await;
    release(&ledger, &first).await;
    // A worker whose clock is ahead has evicted payments from both windows up to `second`.
    let ahead = sample::start().after(Duration::DAY);
    pay(&ledger, 1, "c", ahead).await;
    let ConfirmResult::Done(confirmed) = confirm(&ledger, &first, sample::start()).await else {
        panic!()
    };
    assert_eq!(confirmed.counted_at, second.counted_at.after(Duration::DAY));
    assert_sound(&emulator).await;
}

#[tokio::test]
async fn concurrent_confirmations_count_a_released_payment_once() {
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
async fn late_confirmations_can_be_reverted_and_released() {
    let (emulator, ledger) = ledger_with_budget(100).await;
    let paid = pay(&ledger, 60, "a", sample::start()).await;
    release(&ledger, &paid).await;
    let ConfirmResult::Done(confirmed) = confirm(&ledger, &paid, sample::start().after(sample::secs(90))).await else {
        panic!()
    };
    let TransitionResult::Done(held) = revert_confirmation(&ledger, &confirmed).await else {
        panic!()
    };
    assert_eq!(stored(&ledger, paid.id()).await, held);
    assert_eq!(totals(&emulator).await, [60, 60]);
    assert_sound(&emulator).await;
    assert!(matches!(release(&ledger, &held).await, TransitionResult::Done(_)));
    assert_eq!(totals(&emulator).await, [0, 0]);
    assert_sound(&emulator).await;
}

/// Another run read the settlement before it was released, confirmed late and reverted.
#[tokio::test]
async fn a_release_of_an_outdated_settlement_frees_no_amount() {
    let (emulator, ledger) = ledger_with_budget(100).await;
    let read = pay(&ledger, 60, "a", sample::start()).await;
    release(&ledger, &read).await;
    let ConfirmResult::Done(confirmed) = confirm(&ledger, &read, sample::start().after(sample::secs(90))).await else {
        panic!()
    };
    let TransitionResult::Done(held) = revert_confirmation(&ledger, &confirmed).await else {
        panic!()
    };
    assert_eq!(
        release(&ledger, &read).await,
        TransitionResult::Superseded(held.clone())
    );
    assert_eq!(totals(&emulator).await, [60, 60]);
    assert_sound(&emulator).await;
    assert!(matches!(release(&ledger, &held).await, TransitionResult::Done(_)));
    assert_eq!(totals(&emulator).await, [0, 0]);
    assert_sound(&emulator).await;
}

/// The same transaction may confirm the settlement again.
#[tokio::test]
async fn reverted_confirmations_become_holds_and_are_logged() {
    let (emulator, ledger) = ledger_with(100, 100).await;
    let paid = pay(&ledger, 60, "a", sample::start()).await;
    let ConfirmResult::Done(confirmed) = confirm(&ledger, &paid, sample::start()).await else {
        panic!()
    };
    assert_eq!(
        revert_confirmation(&ledger, &confirmed).await,
        TransitionResult::Done(paid.clone())
    );
    assert_eq!(stored(&ledger, paid.id()).await, paid);
    assert_sound(&emulator).await;
    let log = ledger.read_decisions(sample::agent_id(1), None, 10).await.unwrap();
    let [LoggedDecision::ConfirmationReverted(told), LoggedDecision::Allowed(_)] = &log[..] else {
        panic!("{log:?}")
    };
    assert_eq!((told.settlement, told.tx_hash), (paid.id(), sample::tx_hash(1)));
    let recorded = ledger
        .find_recorded_decision(sample::agent_id(1), told.transaction)
        .await;
    assert_eq!(recorded.unwrap().as_ref(), Some(&log[0]));

    // A second revert finds nothing to revert, and records no decision.
    assert_eq!(
        revert_confirmation(&ledger, &confirmed).await,
        TransitionResult::Superseded(paid.clone())
    );
    assert_eq!(
        ledger
            .read_decisions(sample::agent_id(1), None, 10)
            .await
            .unwrap()
            .len(),
        2
    );
    assert!(matches!(
        confirm(&ledger, &paid, sample::start()).await,
        ConfirmResult::Done(_)
    ));
    assert_sound(&emulator).await;
}

#[tokio::test]
async fn confirmations_are_reverted_once_despite_lost_messages() {
    for (lost_answers, lost_requests) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
        let (emulator, direct) = ledger_with(100, 100).await;
        let paid = pay(&direct, 60, "a", sample::start()).await;
        let ConfirmResult::Done(confirmed) = confirm(&direct, &paid, sample::start()).await else {
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
        assert!(moved.contains(&TransitionResult::Done(paid.clone())), "{moved:?}");
        let told = direct
            .list_recorded_decisions(sample::agent_id(1), None, 10)
            .await
            .unwrap();
        assert_eq!(told.len(), 1, "told once");
        assert_sound(&emulator).await;
    }
}

/// Returns the due settlements in the index `hold`, partition by partition, read in pages of three.
async fn due(ledger: &Ledger, at: Timestamp) -> Vec<SettlementId> {
    let mut due = Vec::new();
    for partition in 0..PARTITIONS {
        let (mut from, mut last) = (None, None);
        loop {
            let (page, next) = ledger.read_due_holds(partition, at, from, 3).await.unwrap();
            assert!(page.len() <= 3);
            for held in page {
                let held = held.unwrap();
                assert!(last <= Some(held.due_at), "the longest due come first");
                last = Some(held.due_at);
                due.push(held.settlement);
            }
            from = next;
            if from.is_none() {
                break;
            }
        }
    }
    due.sort_unstable();
    due
}

/// Settlements that are confirmed, released or postponed are not listed.
#[tokio::test]
async fn due_holds_are_listed_exactly_once() {
    let (emulator, ledger) = ledger_with(1_000, 1_000).await;
    let mut paid = Vec::new();
    for n in 0..40 {
        // Two settlements are due at the same time.
        let at = sample::start().after(sample::secs(n / 2));
        paid.push(pay(&ledger, 10, &n.to_string(), at).await);
    }
    confirm(&ledger, &paid[0], sample::start()).await;
    release(&ledger, &paid[1]).await;
    let due_of = |last: usize, secs: u32| {
        let mut due: Vec<SettlementId> = paid[2..=last].iter().map(Settlement::id).collect();
        due.sort_unstable();
        (paid[last].terms.valid_before.after(sample::secs(secs)), due)
    };
    let (at, expected) = due_of(21, 0);
    assert_eq!(
        due(&ledger, at).await,
        expected,
        "up to the second at which they are due"
    );
    assert_eq!(due(&ledger, at.before(Duration::DAY)).await, []);

    // A postponed hold is due later. A settlement that is no longer held is not postponed.
    let (at, mut expected) = due_of(39, 60);
    ledger.postpone_hold(&paid[2], at.after(sample::secs(1))).await.unwrap();
    ledger.postpone_hold(&paid[0], at).await.unwrap();
    ledger.postpone_hold(&paid[1], at).await.unwrap();
    expected.retain(|id| *id != paid[2].id());
    assert_eq!(due(&ledger, at).await, expected);
    assert!(due(&ledger, at.after(sample::secs(1))).await.contains(&paid[2].id()));
    assert_sound(&emulator).await;
}

/// A proof by transaction confirms only the first settlement of the transaction.
#[tokio::test]
async fn each_transfer_confirms_its_own_settlement() {
    let (emulator, ledger) = ledger_with(1_000, 1_000).await;
    let mut paid = Vec::new();
    for key in ["a", "b", "c"] {
        paid.push(pay(&ledger, 10, key, sample::start()).await);
    }
    let at = sample::start();
    let transfer = |settlement: &Settlement, log_index| sample::transfer_at(settlement, sample::tx_hash(1), log_index);
    let confirming = |index: usize, log_index, claim| {
        let (ledger, settlement) = (ledger.clone(), paid[index].clone());
        async move {
            let transfer = transfer(&settlement, log_index);
            ledger
                .confirm_settlement(&settlement, &transfer, claim, at)
                .await
                .unwrap()
        }
    };
    assert!(matches!(
        confirming(0, 1, Claim::Transaction).await,
        ConfirmResult::Done(_)
    ));
    let used = ConfirmResult::TransactionUsed { by: paid[0].id() };
    assert_eq!(confirming(1, 3, Claim::Transaction).await, used);
    assert_eq!(stored(&ledger, paid[1].id()).await, paid[1], "nothing was written");
    for index in [1, 2] {
        let log_index = 1 + 2 * u64::try_from(index).unwrap();
        let confirmed = confirming(index, log_index, Claim::Transfer).await;
        assert!(matches!(confirmed, ConfirmResult::Done(_)), "{confirmed:?}");
    }
    let network = paid[0].terms.network;
    let first = ledger
        .find_confirmed_settlement(network, sample::BLOCK, sample::tx_hash(1))
        .await;
    assert_eq!(first.unwrap(), Some(paid[0].id()));
    let mut claimed = ledger.read_claims_in_block(network, sample::BLOCK).await.unwrap();
    claimed.sort_by_key(|claim| claim.settlement);
    let ids: Vec<SettlementId> = claimed.iter().map(|claim| claim.settlement).collect();
    let mut expected: Vec<SettlementId> = paid.iter().map(Settlement::id).collect();
    expected.sort_unstable();
    assert_eq!(ids, expected);
    assert!(claimed.iter().all(|claim| claim.tx_hash == sample::tx_hash(1)));
    assert_eq!(
        ledger.read_claims_in_block(network, sample::BLOCK + 1).await.unwrap(),
        []
    );
    assert_sound(&emulator).await;
    // A claim that was made again meanwhile counts as another claim.
    for claim in &claimed {
        assert!(!ledger.try_remove_claim(claim).await.unwrap());
        let mut renewed = claim.clone();
        renewed.block_hash = purser_domain::B256::ZERO;
        assert!(ledger.try_remove_claim(&renewed).await.unwrap());
    }
    assert_eq!(
        ledger.read_claims_in_block(network, sample::BLOCK).await.unwrap().len(),
        3
    );
}

/// If another block now contains a transaction, the confirmations depend on new claims.
#[tokio::test]
async fn a_confirmation_moves_with_its_transaction_to_another_block() {
    let (emulator, ledger) = ledger_with(1_000, 1_000).await;
    let (at, hash) = (sample::start(), sample::tx_hash(1));
    let mut paid = Vec::new();
    for key in ["a", "b", "unpaid"] {
        paid.push(pay(&ledger, 10, key, at).await);
    }
    let moved = |settlement: &Settlement, log_index: u64| {
        let mut transaction = sample::transaction(settlement, hash);
        transaction.block.number += 1;
        for log in &mut transaction.logs {
            log.index += log_index - 1;
        }
        find_authorized_transfer(&sample::expected(settlement), &transaction).unwrap()
    };
    for (index, log_index) in [(0, 1), (1, 3)] {
        let transfer = sample::transfer_at(&paid[index], hash, log_index);
        let confirmed = ledger
            .confirm_settlement(&paid[index], &transfer, Claim::Transfer, at)
            .await;
        assert!(matches!(confirmed.unwrap(), ConfirmResult::Done(_)));
    }
    for (settlement, log_index) in paid.iter().zip([1, 3, 5]) {
        let transfer = moved(settlement, log_index);
        ledger.update_confirmation_block(settlement, &transfer).await.unwrap();
    }
    let network = paid[0].terms.network;
    // The claims in the former block are left for a run that checks this block.
    for claim in ledger.read_claims_in_block(network, sample::BLOCK).await.unwrap() {
        assert!(ledger.try_remove_claim(&claim).await.unwrap());
    }
    let claimed = ledger.read_claims_in_block(network, sample::BLOCK + 1).await.unwrap();
    let claimed: BTreeSet<SettlementId> = claimed.iter().map(|claim| claim.settlement).collect();
    assert_eq!(claimed, BTreeSet::from([paid[0].id(), paid[1].id()]));
    for settlement in &paid[..2] {
        let SettlementState::Confirmed { block_number, .. } = stored(&ledger, settlement.id()).await.state else {
            panic!("must stay confirmed")
        };
        assert_eq!(block_number, sample::BLOCK + 1);
    }
    assert_eq!(stored(&ledger, paid[2].id()).await, paid[2], "it was not confirmed");
    assert_sound(&emulator).await;
}

/// A run with newer chain data removes the claim before the settlement is confirmed (the model's schedule "a proof
/// beside two runs").
#[tokio::test]
async fn a_payment_is_confirmed_although_its_transaction_claim_was_removed() {
    for was_released in [false, true] {
        let (emulator, direct) = ledger_with(1_000, 1_000).await;
        let mut paid = pay(&direct, 10, "a", sample::start()).await;
        if was_released {
            release(&direct, &paid).await;
            paid = stored(&direct, paid.id()).await;
        }
        let (ledger, proxy) = emulator.ledger_behind(ProxyConfig::default()).await;
        let writes = Arc::new(tokio::sync::Notify::new());
        let (seen, mut held) = (Arc::clone(&writes), false);
        let write = if was_released {
            "TransactWriteItems"
        } else {
            "UpdateItem"
        };
        proxy.follow(move |step| {
            if step.moment == Moment::Arrived && step.call.starts_with(write) && !std::mem::replace(&mut held, true) {
                seen.notify_one();
                return Fate::Wait(time::Duration::from_millis(500));
            }
            Fate::PassOn
        });
        let removing = async {
            writes.notified().await;
            let claims = direct
                .read_claims_in_block(paid.terms.network, sample::BLOCK)
                .await
                .unwrap();
            assert_eq!(
                claims.is_empty(),
                was_released,
                "a late confirmation is written with its claim"
            );
            for claim in claims {
                assert!(direct.try_remove_claim(&claim).await.unwrap());
            }
        };
        let (confirmed, ()) = tokio::join!(confirm(&ledger, &paid, sample::start()), removing);
        assert!(matches!(confirmed, ConfirmResult::Done(_)), "{confirmed:?}");
        let claims = direct
            .read_claims_in_block(paid.terms.network, sample::BLOCK)
            .await
            .unwrap();
        assert_eq!(claims.len(), 1);
        assert_sound(&emulator).await;
        // After the confirmation is reverted, the claim can be removed.
        revert_confirmation(&direct, &stored(&direct, paid.id()).await).await;
        assert!(direct.try_remove_claim(&claims[0]).await.unwrap());
    }
}

/// Only the last failed proof is stored, so an earlier proof counts again.
#[tokio::test]
async fn repeated_failed_proofs_are_counted_once() {
    let (_emulator, ledger) = ledger_with(100, 100).await;
    let id = pay(&ledger, 10, "a", sample::start()).await.id();
    for (byte, count) in [(1, 1), (1, 1), (2, 2), (1, 3)] {
        let settlement = stored(&ledger, id).await;
        ledger
            .record_failed_proof(&settlement, sample::tx_hash(byte))
            .await
            .unwrap();
        let proofs = stored(&ledger, id).await.failed_proofs;
        assert_eq!((proofs.count, proofs.last), (count, Some(sample::tx_hash(byte))));
    }
}

#[tokio::test]
async fn newer_reconcile_requests_are_not_cleared() {
    let (emulator, ledger) = ledger_with(100, 100).await;
    let paid = pay(&ledger, 10, "a", sample::start()).await;
    let mark = |secs| ReconcileRequest {
        agent: AgentId::from_uuid(sample::agent_id(1).uuid()),
        settlement: paid.id(),
        requested_at: sample::start().after(sample::secs(secs)),
    };
    ledger.request_reconcile(&mark(1), &sample::audit()).await.unwrap();
    ledger.request_reconcile(&mark(2), &sample::audit()).await.unwrap();
    let marks = async || -> Vec<ReconcileRequest> {
        let marks = ledger.read_reconcile_requests().await.unwrap();
        marks.into_iter().collect::<Result<_, _>>().unwrap()
    };
    assert_eq!(marks().await, [mark(2)]);
    ledger.clear_reconcile_request(&mark(1)).await.unwrap();
    assert_eq!(marks().await, [mark(2)], "somebody has asked again");
    ledger.clear_reconcile_request(&mark(2)).await.unwrap();
    ledger.clear_reconcile_request(&mark(2)).await.unwrap();
    assert_eq!(marks().await, []);
    assert_sound(&emulator).await;
}

#[tokio::test]
async fn unreadable_reconcile_requests_do_not_block_other_requests() {
    let (emulator, ledger) = ledger_with(100, 100).await;
    let paid = pay(&ledger, 10, "a", sample::start()).await;
    let (agent, at) = (sample::agent_id(1), sample::start());
    let mark = ReconcileRequest {
        agent,
        settlement: paid.id(),
        requested_at: at,
    };
    let scope = WindowScope::Day {
        agent,
        service: sample::service_id(1),
    };
    ledger.request_reconcile(&mark, &sample::audit()).await.unwrap();
    ledger.request_eviction(scope, at).await.unwrap();
    for partition in ["MARKS", "EVICT"] {
        let damaged = emulator.client.put_item().table_name(LEDGER);
        let damaged = damaged.item("pk", AttributeValue::S(partition.to_owned()));
        damaged
            .item("sk", AttributeValue::S("!".to_owned()))
            .send()
            .await
            .unwrap();
    }
    let marks = ledger.read_reconcile_requests().await.unwrap();
    assert!(matches!(&marks[..], [Err(_), Ok(read)] if *read == mark), "{marks:?}");
    let evictions = ledger.read_eviction_requests().await.unwrap();
    assert!(
        matches!(&evictions[..], [Err(_), Ok(read)] if read.scope == scope),
        "{evictions:?}"
    );
}

#[tokio::test]
async fn every_settlement_transition_costs_the_documented_capacity() {
    let (emulator, ledger) = ledger_with(1_000, 1_000).await;
    let paid = pay(&ledger, 10, "a", sample::start()).await;
    let other = pay(&ledger, 10, "b", sample::start()).await;
    let (emulator, meter) = emulator.metered().await;
    let ledger = emulator.ledger();
    let units = || meter.take().units();
    release(&ledger, &paid).await;
    assert_eq!(units(), (1, 7, 2), "release");
    let expired = stored(&ledger, paid.id()).await;
    units();
    let ConfirmResult::Done(late) = confirm(&ledger, &expired, sample::start()).await else {
        panic!()
    };
    assert_eq!(units(), (3, 10, 4), "late confirmation");
    revert_confirmation(&ledger, &late).await;
    assert_eq!(units(), (0, 5, 1), "take back");
    let transfer = sample::transfer(&other, sample::tx_hash(2));
    let confirming = ledger.confirm_settlement(&other, &transfer, Claim::Transaction, sample::start());
    assert!(matches!(confirming.await.unwrap(), ConfirmResult::Done(_)));
    assert_eq!(units(), (0, 3, 2), "confirmation");
    ledger.record_failed_proof(&other, sample::tx_hash(3)).await.unwrap();
    assert_eq!(units(), (0, 1, 1), "failed proof");

    let (emulator, ledger) = ledger_with_budget(100).await;
    let paid = pay(&ledger, 10, "a", sample::start()).await;
    let (emulator, meter) = emulator.metered().await;
    release(&emulator.ledger(), &paid).await;
    assert_eq!(meter.take().units(), (1, 11, 2), "release under a budget");
    assert_sound(&emulator).await;
    let scope = WindowScope::Day {
        agent: sample::agent_id(1),
        service: sample::service_id(1),
    };
    let live = ledger
        .read_nonzero_windows(&[(scope, WindowPeriod::DAY)], sample::start())
        .await
        .unwrap();
    assert_eq!(live.len(), 0, "nothing counts any more");
}
