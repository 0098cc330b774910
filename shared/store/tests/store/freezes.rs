//! Tests operators' freezes: a change is stored only if the stored freeze has not changed since the read.

use purser_domain::{FreezeChange, FreezeTarget, OperatorFreeze, OperatorName, OperatorReason, UserId};
use purser_store::{ChangeFreezeResult, Ledger};
use purser_testkit::{Emulator, LEDGER, ProxyConfig, invariants::scan, sample};

fn freeze(target: &FreezeTarget, by: &str, reason: &str) -> OperatorFreeze {
    OperatorFreeze {
        target: target.clone(),
        reason: OperatorReason::parse(reason).unwrap(),
        by: OperatorName::from_stored(by).unwrap(),
        at: sample::start(),
        end_asked_by: None,
    }
}

async fn change(ledger: &Ledger, change: FreezeChange) -> ChangeFreezeResult {
    ledger.change_freeze(&change, &sample::audit()).await.unwrap()
}

/// Tests all pairs of stored and read freezes in each scope.
#[tokio::test]
async fn a_freeze_changes_only_if_it_is_unchanged_since_it_was_read() {
    let emulator = Emulator::start().await;
    let ledger = emulator.ledger();
    let token = OperatorName::parse("ann").unwrap();
    for target in [
        FreezeTarget::Agent(sample::agent_id(1)),
        FreezeTarget::Owner(UserId::derive("x", "y")),
        FreezeTarget::Deployment,
    ] {
        let browsers = freeze(&target, "browser:ada", "why");
        let asked = OperatorFreeze {
            end_asked_by: Some(browsers.by.clone()),
            ..browsers.clone()
        };
        let states = [
            None,
            Some(browsers),
            Some(asked),
            Some(freeze(&target, "browser:ada", "another reason")),
            Some(freeze(&target, "browser:bob", "why")),
            Some(freeze(&target, "ada", "why")),
        ];
        for stored in &states {
            for read in &states {
                let clear = ledger.read_operator_freeze(&target).await.unwrap();
                let clear = FreezeChange::end_freeze(target.clone(), clear, &token, false).unwrap();
                assert_eq!(change(&ledger, clear).await, ChangeFreezeResult::Stored);
                if let Some(stored) = stored {
                    let begin = FreezeChange::begin_freeze(None, stored.clone()).unwrap();
                    assert_eq!(change(&ledger, begin).await, ChangeFreezeResult::Stored);
                }
                let before = scan(&emulator.client, LEDGER, None).await;
                let next = freeze(&target, "ann", "next");
                let changes = [
                    FreezeChange::begin_freeze(read.clone(), next),
                    FreezeChange::end_freeze(target.clone(), read.clone(), &token, false),
                ];
                for stale in changes.into_iter().filter(|_| stored != read) {
                    let stale = change(&ledger, stale.unwrap()).await;
                    assert_eq!(stale, ChangeFreezeResult::Conflict, "{stored:?} {read:?}");
                    assert_eq!(
                        scan(&emulator.client, LEDGER, None).await,
                        before,
                        "{stored:?} {read:?}"
                    );
                }
            }
        }
    }
}

#[tokio::test]
async fn a_freeze_with_a_lost_response_is_recognized_as_stored() {
    let target = FreezeTarget::Deployment;
    let first = freeze(&target, "ann", "why");
    let end = FreezeChange::end_freeze(target.clone(), Some(first.clone()), &first.by, false);
    for (stored, lost) in [
        (None, FreezeChange::begin_freeze(None, first.clone())),
        (
            Some(&first),
            FreezeChange::begin_freeze(Some(first.clone()), first.clone()),
        ),
        (Some(&first), end),
    ] {
        let emulator = Emulator::start().await;
        if let Some(stored) = stored {
            let begin = FreezeChange::begin_freeze(None, stored.clone()).unwrap();
            assert_eq!(change(&emulator.ledger(), begin).await, ChangeFreezeResult::Stored);
        }
        // The SDK makes three attempts.
        let config = ProxyConfig {
            lost_answers: 3,
            ..ProxyConfig::default()
        };
        let (ledger, _proxy) = emulator.ledger_behind(config).await;
        let lost = lost.unwrap();
        let after = lost.new_freeze().cloned();
        assert_eq!(change(&ledger, lost).await, ChangeFreezeResult::Stored);
        assert_eq!(ledger.read_operator_freeze(&target).await.unwrap(), after);
    }
}
