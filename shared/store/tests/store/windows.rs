//! Tests windows: the conditions of a reservation, and payments that leave the window.

use crate::{assert_sound, at_once, count, ledger_with, request};
use aws_sdk_dynamodb::types::AttributeValue;
use purser_domain::{
    Agent, AgentStatus, Amount, ApprovalId, Duration, Fingerprint, IncreasedCaps, LimitIncrease, RetryAt, Timestamp,
};
use purser_store::{Backoff, DecisionKeys, Ledger, ReserveResult, ServiceState, UpdateResult};
use purser_testkit::{
    Emulator, LEDGER,
    authorize::{Answer, authorize, grant},
    invariants::scan,
    sample,
};
use std::time;

async fn pay(ledger: &Ledger, amount: u64, key: &str, now: Timestamp) -> Answer {
    authorize(ledger, &request(amount, key), now).await.unwrap()
}

/// Decides a payment, runs `meanwhile`, and then reserves the payment with the earlier decision.
async fn use_late(ledger: &Ledger, amount: u64, now: Timestamp, meanwhile: impl AsyncFnOnce()) -> ReserveResult {
    let request = request(amount, "late");
    let (grant, terms) = grant(ledger, &request, now).await;
    meanwhile().await;
    ledger
        .reserve_payment(&grant, &terms, &request.fingerprint(), &mut Backoff::new())
        .await
        .unwrap()
}

/// After the limit increase has ended, payments stay within the policy's cap again.
#[tokio::test]
async fn payments_use_the_higher_cap_until_the_limit_increase_ends() {
    let (emulator, ledger) = ledger_with(100, 1_000).await;
    let (start, until) = (sample::start(), sample::start().after(sample::secs(3_600)));
    let mut raised = sample::enabled(sample::service_id(1), 100, 1_000);
    raised.version = 2;
    raised.policy.raises = vec![LimitIncrease {
        caps: IncreasedCaps {
            max_per_call: None,
            max_per_day: Some(sample::units(250)),
        },
        from: start,
        until,
        by: sample::agent(1, Vec::new()).owner,
        approval: ApprovalId::derive(sample::agent_id(1), &Fingerprint::for_text("raise"), 0),
    }];
    let edited = ledger.put_policy(sample::agent_id(1), &raised, &sample::audit()).await;
    assert_eq!(edited.unwrap(), UpdateResult::Stored);
    let requests = (0..8).map(|n| request(60, &n.to_string())).collect();
    let answers = at_once(&ledger, requests, start).await;
    assert_eq!(
        count(&answers, |answer| matches!(answer, Answer::Allowed(_))),
        4,
        "{answers:?}"
    );
    let last = until.before(sample::secs(1));
    assert!(matches!(pay(&ledger, 9, "last", last).await, Answer::Allowed(_)));
    // After the increase has ended, a payment that only the increased cap would allow is denied.
    assert!(matches!(pay(&ledger, 1, "late", until).await, Answer::Full { live, .. } if live == sample::units(249)));
    assert_sound(&emulator).await;
}

#[tokio::test]
async fn policy_updates_invalidate_earlier_decisions() {
    let (emulator, ledger) = ledger_with(1_000, 1_000).await;
    let reserved = use_late(&ledger, 10, sample::start(), async || {
        let mut policy = sample::enabled(sample::service_id(1), 5, 5);
        policy.version = 2;
        assert_eq!(
            ledger
                .put_policy(sample::agent_id(1), &policy, &sample::audit())
                .await
                .unwrap(),
            UpdateResult::Stored
        );
    });
    assert_eq!(reserved.await, ReserveResult::Raced);
    assert!(
        ledger
            .read_settlements(sample::agent_id(1), None, 1)
            .await
            .unwrap()
            .is_empty()
    );
    assert_sound(&emulator).await;
}

/// Tries every narrowing change of the agent's record, and one change that does not narrow.
#[tokio::test]
async fn agent_updates_that_narrow_limits_invalidate_earlier_decisions() {
    let narrowing: [fn(&mut Agent); 4] = [
        |agent| agent.status = AgentStatus::Frozen,
        |agent| agent.rules.push(sample::budget(1, 5, sample::secs(3_600))),
        |agent| agent.keys[0].ends_at = Some(sample::start()),
        |agent| agent.keys.clear(),
    ];
    let renaming: fn(&mut Agent) = |agent| agent.name = "other".to_owned();
    let edits = narrowing.into_iter().map(|edit| (edit, ReserveResult::Raced));
    for (edit, expected) in edits.chain([(renaming, ReserveResult::Done)]) {
        let (emulator, ledger) = ledger_with(1_000, 1_000).await;
        let other = sample::enabled(sample::service_id(2), 5, 5);
        ledger
            .put_policy(sample::agent_id(1), &other, &sample::audit())
            .await
            .unwrap();
        let reserved = use_late(&ledger, 10, sample::start(), async || {
            let mut agent = ledger.read_agent_by_id(sample::agent_id(1)).await.unwrap().unwrap();
            agent.version += 1;
            edit(&mut agent);
            assert_eq!(
                ledger.put_agent(&agent, &sample::audit()).await.unwrap(),
                UpdateResult::Stored
            );
        });
        assert_eq!(reserved.await, expected);
        assert_sound(&emulator).await;
        // Decisions on a new record that allows them can be reserved again.
        let mut agent = ledger.read_agent_by_id(sample::agent_id(1)).await.unwrap().unwrap();
        (agent.version, agent.status, agent.rules) = (agent.version + 1, AgentStatus::Active, Vec::new());
        assert_eq!(
            ledger.put_agent(&agent, &sample::audit()).await.unwrap(),
            UpdateResult::Stored
        );
        assert!(matches!(
            pay(&ledger, 10, "after", sample::start()).await,
            Answer::Allowed(_)
        ));
    }
}

#[tokio::test]
async fn a_reservation_fails_only_if_the_amount_no_longer_fits_the_window() {
    let (emulator, ledger) = ledger_with(1_000, 1_000).await;
    let reserved = use_late(&ledger, 10, sample::start(), async || {
        assert!(matches!(
            pay(&ledger, 991, "first", sample::start()).await,
            Answer::Allowed(_)
        ));
    });
    assert_eq!(reserved.await, ReserveResult::Raced);
    let reserved = use_late(&ledger, 4, sample::start(), async || {
        assert!(matches!(
            pay(&ledger, 5, "second", sample::start()).await,
            Answer::Allowed(_)
        ));
    });
    assert_eq!(reserved.await, ReserveResult::Done, "what still fits commutes");
    assert_sound(&emulator).await;
}

/// With a slow clock, a payment is decided again and recorded at the eviction watermark.
#[tokio::test]
async fn a_payment_older_than_the_eviction_watermark_is_not_recorded() {
    let (emulator, ledger) = ledger_with(1_000, 1_000).await;
    let start = sample::start();
    let tomorrow = start.after(Duration::DAY);
    assert!(matches!(pay(&ledger, 900, "first", start).await, Answer::Allowed(_)));
    let just_before = Timestamp::from_micros(tomorrow.micros() - 1).unwrap();
    let reserved = use_late(&ledger, 100, just_before, async || {
        assert!(matches!(
            pay(&ledger, 900, "evicts", tomorrow).await,
            Answer::Allowed(_)
        ));
    });
    assert_eq!(reserved.await, ReserveResult::Raced, "decided on a window that is gone");
    // After a new decision, the payment is recorded at the eviction watermark.
    let Answer::Allowed(id) = pay(&ledger, 100, "slow", start).await else {
        panic!()
    };
    let settlement = ledger
        .read_settlement_by_id(sample::agent_id(1), id)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(settlement.terms.authorized_at, tomorrow);
    assert_sound(&emulator).await;
}

#[tokio::test]
async fn an_expired_payment_is_evicted_once_despite_concurrent_evictions() {
    let (emulator, ledger) = ledger_with(1_000, 1_000).await;
    let start = sample::start();
    for n in 0..5 {
        pay(&ledger, 100, &n.to_string(), start).await;
    }
    let tomorrow = start.after(Duration::DAY);
    let reserved = use_late(&ledger, 10, tomorrow, async || {
        assert!(matches!(pay(&ledger, 20, "evicts", tomorrow).await, Answer::Allowed(_)));
    });
    assert_eq!(reserved.await, ReserveResult::Raced);
    assert_sound(&emulator).await;
    let Answer::Full { live, .. } = pay(&ledger, 981, "too much", tomorrow).await else {
        panic!()
    };
    assert_eq!(live, sample::units(20));
}

#[tokio::test]
async fn expired_payments_are_evicted_before_a_payment_is_denied() {
    let (emulator, ledger) = ledger_with(1_000, 1_000).await;
    let start = sample::start();
    for n in 0..200 {
        let at = start.after(sample::secs(n));
        assert!(matches!(pay(&ledger, 5, &n.to_string(), at).await, Answer::Allowed(_)));
    }
    let later = start.after(Duration::DAY).after(sample::secs(200));
    assert!(matches!(pay(&ledger, 1_000, "all", later).await, Answer::Allowed(_)));
    assert_sound(&emulator).await;
    let entries = scan(&emulator.client, LEDGER, None).await;
    let entries = entries
        .iter()
        .filter(|item| item["sk"].as_s().unwrap().starts_with("E#"))
        .count();
    assert!(entries < 30, "two drains and eight evictions leave {entries}");
}

#[tokio::test]
async fn a_windows_retry_time_is_found_beyond_the_first_query_page() {
    let (emulator, ledger) = ledger_with(1_000, 1_000).await;
    let start = sample::start();
    for n in 0..250 {
        pay(&ledger, 4, &n.to_string(), start.after(sample::secs(n))).await;
    }
    let now = start.after(sample::secs(1_000));
    let fits_after = |n| RetryAt::At(start.after(sample::secs(n)).after(Duration::DAY));
    // 40 units are free when ten payments have left the window, and 900 units when 225 payments have left.
    for (amount, fits) in [
        (1, fits_after(0)),
        (40, fits_after(9)),
        (900, fits_after(224)),
        (1_000, fits_after(249)),
    ] {
        let answer = pay(&ledger, amount, "asks", now).await;
        assert_eq!(
            answer,
            Answer::Full {
                live: sample::units(1_000),
                fits
            },
            "{amount}"
        );
    }
    assert_sound(&emulator).await;
}

/// Reads the first agent's service state for a service.
async fn service_state(ledger: &Ledger, service: u128) -> purser_domain::Result<ServiceState> {
    let ask = DecisionKeys {
        service: Some(sample::service_id(service)),
        ..DecisionKeys::default()
    };
    let (_, read) = ledger.read_decision_inputs(sample::agent_id(1), &ask).await?;
    Ok(read.service_state.unwrap())
}

#[tokio::test]
async fn services_without_a_policy_have_an_empty_window() {
    let (_emulator, ledger) = ledger_with(1_000, 1_000).await;
    let service_state = service_state(&ledger, 9).await.unwrap();
    assert_eq!(
        (
            service_state.enabled,
            service_state.day.total,
            service_state.day.complete
        ),
        (None, sample::units(0), true)
    );
    let (stranger, read) = ledger
        .read_decision_inputs(sample::agent_id(9), &DecisionKeys::default())
        .await
        .unwrap();
    assert_eq!((stranger, read.service_state), (None, None));
    assert_eq!(
        pay(&ledger, 1, "k", sample::start()).await,
        replayed(pay(&ledger, 1, "k", sample::start()).await)
    );
}

/// Converts the result of a repeated request to the first result.
fn replayed(answer: Answer) -> Answer {
    match answer {
        Answer::Replayed(id) => Answer::Allowed(id),
        other => other,
    }
}

/// Writes one number of the window's totals directly, without the store.
async fn set(emulator: &Emulator, attribute: &str, to: &str) {
    let text = |text: &str| AttributeValue::S(text.to_owned());
    let window = format!("L#{}#{}", sample::agent_id(1), sample::service_id(1));
    let update = emulator.client.update_item().table_name(LEDGER);
    let update = update.key("pk", text(&window)).key("sk", text("#W"));
    let update = update.update_expression(format!("SET {attribute} = :to"));
    let to = AttributeValue::N(to.to_owned());
    update.expression_attribute_values(":to", to).send().await.unwrap();
}

#[tokio::test]
async fn the_eviction_watermark_never_moves_back() {
    let (emulator, ledger) = ledger_with(1_000, 1_000).await;
    pay(&ledger, 100, "first", sample::start()).await;
    let tomorrow = sample::start().after(Duration::DAY);
    let cleared = sample::start().after(sample::secs(1)).micros().to_string();
    let reserved = use_late(&ledger, 10, tomorrow, async || {
        set(&emulator, "hz86400", &cleared).await;
    });
    assert_eq!(reserved.await, ReserveResult::Raced);
    let day = service_state(&ledger, 1).await.unwrap().day;
    ledger.evict_expired(&day, tomorrow).await.unwrap();
    let day = service_state(&ledger, 1).await.unwrap().day;
    assert_eq!((day.watermark.micros().to_string(), day.total), (cleared, Amount::ZERO));
}

/// Another worker, whose clock is a day behind, adds a payment before the eviction watermark. (Found by `tests/model`.)
#[tokio::test]
async fn a_payment_older_than_the_eviction_watermark_is_evicted() {
    let (emulator, ledger) = ledger_with(100, 100).await;
    let (start, tomorrow) = (sample::start(), sample::start().after(Duration::DAY));
    pay(&ledger, 40, "first", start).await;
    let reserved = use_late(&ledger, 10, tomorrow, async || {
        let behind = pay(&ledger, 50, "behind", start.before(sample::secs(1))).await;
        assert!(matches!(behind, Answer::Allowed(_)), "{behind:?}");
    });
    assert_eq!(reserved.await, ReserveResult::Done);
    let day = service_state(&ledger, 1).await.unwrap().day;
    assert_eq!((day.watermark, day.total), (start, sample::units(60)));
    let last = pay(&ledger, 90, "last", tomorrow).await;
    assert!(matches!(last, Answer::Allowed(_)), "{last:?}");
    let day = service_state(&ledger, 1).await.unwrap().day;
    assert_eq!((day.watermark, day.total), (start, sample::units(100)));
    assert_sound(&emulator).await;
}

/// If the reads stay inconsistent, the result is an error.
#[tokio::test]
async fn inconsistent_policy_and_window_reads_are_repeated() {
    let (emulator, ledger) = ledger_with(1_000, 1_000).await;
    let set_stamp = async |to: &str| set(&emulator, "pver", to).await;
    set_stamp("2").await;
    let (read, ()) = tokio::join!(service_state(&ledger, 1), async {
        tokio::time::sleep(time::Duration::from_millis(60)).await;
        set_stamp("1").await;
    });
    let read = read.unwrap();
    assert_eq!((read.enabled.unwrap().version, read.day.stamp), (1, 1));
    set_stamp("2").await;
    assert!(
        service_state(&ledger, 1).await.is_err(),
        "what never agrees is an error, not an endless loop"
    );
}

#[tokio::test]
async fn a_window_changed_since_it_was_read_is_detected() {
    let (_emulator, ledger) = ledger_with(1_000, 1_000).await;
    let window = service_state(&ledger, 1).await.unwrap().day;
    let key = |text| Fingerprint::for_text(text);
    assert!(
        ledger
            .is_window_unchanged_and_key_unused(&window, &key("k"))
            .await
            .unwrap()
    );
    pay(&ledger, 1, "k", sample::start()).await;
    assert!(
        !ledger
            .is_window_unchanged_and_key_unused(&window, &key("other"))
            .await
            .unwrap()
    );
    // The key "k" already has a payment, so only the denial of another key is confirmed.
    let window_now = service_state(&ledger, 1).await.unwrap().day;
    assert!(
        ledger
            .is_window_unchanged_and_key_unused(&window_now, &key("other"))
            .await
            .unwrap()
    );
    assert!(
        !ledger
            .is_window_unchanged_and_key_unused(&window_now, &key("k"))
            .await
            .unwrap()
    );
    let never = purser_domain::WindowScope::Day {
        agent: sample::agent_id(1),
        service: sample::service_id(9),
    };
    let never = purser_domain::Window {
        scope: never,
        version: 0,
        stamp: 0,
        ..window
    };
    assert!(
        ledger
            .is_window_unchanged_and_key_unused(&never, &key("other"))
            .await
            .unwrap()
    );
}

/// The agent's record may be read before a freeze, and the policy and the new window after the freeze.
#[tokio::test]
async fn a_new_window_rejects_a_decision_made_before_the_agent_was_frozen() {
    let request = request(10, "late");
    let (elsewhere, same) = ledger_with(1_000, 1_000).await;
    let (grant, terms) = grant(&same, &request, sample::start()).await;
    let frozen = Agent {
        status: AgentStatus::Frozen,
        version: 2,
        ..sample::agent(1, Vec::new())
    };
    let enabled = sample::enabled(sample::service_id(1), 1_000, 1_000);
    for overtaken in [false, true] {
        let emulator = Emulator::start().await;
        let ledger = emulator.ledger();
        ledger
            .create_agent(&sample::agent(1, Vec::new()), &sample::audit())
            .await
            .unwrap();
        let (proxied, proxy) = emulator.ledger_behind(purser_testkit::ProxyConfig::default()).await;
        if overtaken {
            // The write of the policy's row is in progress when the agent is frozen.
            proxy.stall(1);
            let policy = {
                let (ledger, enabled) = (proxied.clone(), enabled.clone());
                tokio::spawn(async move {
                    ledger
                        .put_policy(sample::agent_id(1), &enabled, &sample::audit())
                        .await
                        .unwrap()
                })
            };
            proxy.stalled(1).await;
            assert_eq!(
                ledger.put_agent(&frozen, &sample::audit()).await.unwrap(),
                UpdateResult::Stored
            );
            proxy.resume();
            assert_eq!(policy.await.unwrap(), UpdateResult::Stored);
        } else {
            assert_eq!(
                ledger.put_agent(&frozen, &sample::audit()).await.unwrap(),
                UpdateResult::Stored
            );
            let stored = ledger
                .put_policy(sample::agent_id(1), &enabled, &sample::audit())
                .await
                .unwrap();
            assert_eq!(stored, UpdateResult::Stored);
        }
        let fingerprint = request.fingerprint();
        let mut backoff = Backoff::new();
        let reserved = ledger.reserve_payment(&grant, &terms, &fingerprint, &mut backoff).await;
        assert_eq!(reserved.unwrap(), ReserveResult::Raced, "overtaken: {overtaken}");
        assert_sound(&emulator).await;
    }
    assert_sound(&elsewhere).await;
}
