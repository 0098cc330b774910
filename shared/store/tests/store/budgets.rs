//! Tests budgets: windows over all services, which are enforced in the same transaction as the day window.

use crate::{assert_sound, at_once, count};
use purser_domain::{Agent, Rule, RuleKind, Timestamp};
use purser_store::{EvictResult, Ledger, UpdateResult};
use purser_testkit::{
    Emulator, Fate, Moment, ProxyConfig,
    authorize::{Answer, Request, authorize},
    sample,
};

const HOUR: u32 = 3_600;

async fn ledger_with(rules: Vec<Rule>) -> (Emulator, Ledger) {
    let emulator = Emulator::start().await;
    let ledger = emulator.ledger();
    ledger
        .create_agent(&sample::agent(1, rules), &sample::audit())
        .await
        .unwrap();
    for service in 1..=2 {
        let enabled = sample::enabled(sample::service_id(service), 1_000_000, 1_000_000);
        ledger
            .put_policy(sample::agent_id(1), &enabled, &sample::audit())
            .await
            .unwrap();
    }
    (emulator, ledger)
}

async fn pay(ledger: &Ledger, service: u128, amount: u64, now: Timestamp) -> Answer {
    let key = format!("{service} {amount} {now}");
    let request = Request::new(sample::agent_id(1), sample::service_id(service), amount, key);
    authorize(ledger, &request, now).await.unwrap()
}

fn is_allowed(answer: &Answer) -> bool {
    matches!(answer, Answer::Allowed(_))
}

#[tokio::test]
async fn budgets_count_all_services_within_their_window() {
    let (emulator, ledger) = ledger_with(vec![sample::budget(1, 100, sample::secs(HOUR))]).await;
    let start = sample::start();
    assert!(is_allowed(&pay(&ledger, 1, 60, start).await));
    let Answer::Full { live, fits } = pay(&ledger, 2, 41, start).await else {
        panic!()
    };
    let hour = start.after(sample::secs(HOUR));
    assert_eq!((live, fits), (sample::units(60), purser_domain::RetryAt::At(hour)));
    assert!(is_allowed(&pay(&ledger, 2, 40, start).await));
    assert!(!is_allowed(
        &pay(&ledger, 1, 1, Timestamp::from_micros(hour.micros() - 1).unwrap()).await
    ));
    assert!(
        is_allowed(&pay(&ledger, 1, 100, hour).await),
        "all of it has rolled out of the hour"
    );
    assert_sound(&emulator).await;
}

/// Of 32 payments to two services, exactly ten fit.
#[tokio::test]
async fn concurrent_payments_never_exceed_the_budget() {
    let (emulator, ledger) = ledger_with(vec![sample::budget(1, 100, sample::secs(HOUR))]).await;
    let service = |n: u32| sample::service_id(u128::from(n % 2) + 1);
    let requests = (0..32)
        .map(|n| Request::new(sample::agent_id(1), service(n), 10, n.to_string()))
        .collect();
    let answers = at_once(&ledger, requests, sample::start()).await;
    assert_eq!(count(&answers, is_allowed), 10);
    assert_sound(&emulator).await;
}

#[tokio::test]
async fn a_changed_budget_applies_from_its_update_on() {
    let (emulator, ledger) = ledger_with(Vec::new()).await;
    let start = sample::start();
    assert!(is_allowed(&pay(&ledger, 1, 500, start).await));
    let edit = async |version, rule: Option<Rule>| {
        let agent = Agent {
            version,
            ..sample::agent(1, rule.into_iter().collect())
        };
        ledger.put_agent(&agent, &sample::audit()).await.unwrap()
    };
    assert_eq!(
        edit(2, Some(sample::budget(1, 600, sample::secs(HOUR)))).await,
        UpdateResult::Stored
    );
    assert!(is_allowed(&pay(&ledger, 1, 90, start).await));
    let Answer::Full { live, fits } = pay(&ledger, 1, 11, start).await else {
        panic!("the payment before the rule counts")
    };
    let later = start.after(sample::secs(HOUR));
    assert_eq!((live, fits), (sample::units(590), purser_domain::RetryAt::At(later)));

    // An hour later, both payments are evicted. Then the duration of the window becomes a day.
    assert!(is_allowed(&pay(&ledger, 1, 30, later).await));
    let day = Rule {
        version: 2,
        ..sample::budget(1, 700, sample::secs(24 * HOUR))
    };
    assert_eq!(edit(3, Some(day)).await, UpdateResult::Stored);
    assert!(
        !is_allowed(&pay(&ledger, 1, 81, later).await),
        "evicted payments count in the longer window"
    );
    let Answer::Allowed(id) = pay(&ledger, 1, 80, later).await else {
        panic!("exactly 80 are left")
    };
    let settlement = ledger
        .read_settlement_by_id(sample::agent_id(1), id)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        settlement.terms.authorized_at, later,
        "a longer window does not record the future"
    );
    assert!(!is_allowed(&pay(&ledger, 1, 1, later).await));

    assert_eq!(edit(4, None).await, UpdateResult::Stored);
    assert!(
        is_allowed(&pay(&ledger, 1, 1_000, later).await),
        "a removed rule is not enforced"
    );
    assert_sound(&emulator).await;
}

#[tokio::test]
async fn a_changed_rule_needs_a_new_version() {
    let (_emulator, ledger) = ledger_with(vec![sample::budget(1, 100, sample::secs(HOUR))]).await;
    let RuleKind::BudgetLimit { window, .. } = sample::budget(1, 100, sample::secs(HOUR)).kind else {
        panic!()
    };
    let changed = Agent {
        version: 2,
        ..sample::agent(1, vec![sample::budget(1, 200, window.period.duration().unwrap())])
    };
    assert!(ledger.put_agent(&changed, &sample::audit()).await.is_err());
}

#[tokio::test]
async fn large_evictions_are_done_before_the_payment() {
    let budgets = (1..=12).map(|n| sample::budget(n, 1_000, sample::secs(HOUR))).collect();
    let (emulator, ledger) = ledger_with(budgets).await;
    for n in 0..8 {
        assert!(is_allowed(&pay(&ledger, 1, 100 + n, sample::start()).await));
    }
    // 13 windows with eight expired payments each exceed the hundred actions of a transaction.
    let later = sample::start().after(sample::secs(24 * HOUR));
    assert!(is_allowed(&pay(&ledger, 2, 1_000, later).await));
    assert_sound(&emulator).await;
}

/// A decision, or reconcile, may have read a rule before the rule was changed. A payment that has left the shorter
/// window counts again in the longer window. Therefore no payment may be evicted by the old duration, even by a write
/// in progress.
#[tokio::test]
async fn eviction_uses_the_current_window_length() {
    for under_way in [false, true] {
        let (emulator, ledger) = ledger_with(vec![sample::budget(1, 100, sample::secs(HOUR))]).await;
        let start = sample::start();
        assert!(is_allowed(&pay(&ledger, 1, 60, start).await));
        let later = start.after(sample::secs(HOUR));
        let agent = ledger.read_agent_by_id(sample::agent_id(1)).await.unwrap().unwrap();
        let scope = agent.budget_rules().next().unwrap().window_scope(agent.id);
        let before = ledger.read_window_to_evict(scope).await.unwrap().unwrap();
        let longer = Rule {
            version: 2,
            ..sample::budget(1, 100, sample::secs(2 * HOUR))
        };
        let edited = Agent {
            version: 2,
            rules: vec![longer],
            ..agent
        };
        let cleared = if under_way {
            let (behind, proxy) = emulator.ledger_behind(ProxyConfig::default()).await;
            proxy.stall(1);
            let clearing = tokio::spawn(async move { behind.evict_expired(&before, later).await.unwrap() });
            proxy.stalled(1).await;
            assert_eq!(
                ledger.put_agent(&edited, &sample::audit()).await.unwrap(),
                UpdateResult::Stored
            );
            proxy.resume();
            clearing.await.unwrap()
        } else {
            assert_eq!(
                ledger.put_agent(&edited, &sample::audit()).await.unwrap(),
                UpdateResult::Stored
            );
            ledger.evict_expired(&before, later).await.unwrap()
        };
        let refused = if under_way {
            EvictResult::Superseded
        } else {
            EvictResult::Outdated
        };
        assert_eq!(cleared, refused);
        let over = pay(&ledger, 1, 41, later).await;
        assert!(!is_allowed(&over), "the first payment still counts");
        let now = ledger.read_window_to_evict(scope).await.unwrap().unwrap();
        assert_eq!(ledger.evict_expired(&now, later).await.unwrap(), EvictResult::All);
        assert!(!is_allowed(&pay(&ledger, 1, 41, later).await));
        assert_sound(&emulator).await;
    }
}

/// 200 payments take three pages. A backfill that stops after a page continues, and concurrent backfills count each
/// payment once.
#[tokio::test]
async fn concurrent_backfills_count_each_payment_once() {
    let (emulator, ledger) = ledger_with(Vec::new()).await;
    let mut at = sample::start();
    for n in 0..200 {
        at = at.after(sample::secs(1));
        assert!(is_allowed(&pay(&ledger, n % 2 + 1, 10, at).await));
    }
    let agent = Agent {
        version: 2,
        ..sample::agent(1, vec![sample::budget(1, 2_050, sample::secs(HOUR))])
    };
    ledger.put_agent(&agent, &sample::audit()).await.unwrap();
    // The fence of two windows and the first page are written.
    let (stopping, proxy) = emulator.ledger_behind(ProxyConfig::default()).await;
    let mut writes = 0;
    proxy.follow(move |step| {
        writes += u32::from(step.moment == Moment::Arrived && step.call.starts_with("TransactWriteItems"));
        match writes {
            0..=3 => Fate::PassOn,
            _ => Fate::server_error(),
        }
    });
    let request = Request::new(agent.id, sample::service_id(1), 10, "stopped");
    authorize(&stopping, &request, at).await.unwrap_err();
    let service = |n: u32| sample::service_id(u128::from(n % 2) + 1);
    let requests = (0..12)
        .map(|n| Request::new(sample::agent_id(1), service(n), 10, format!("concurrent {n}")))
        .collect();
    let answers = at_once(&ledger, requests, at).await;
    assert_eq!(count(&answers, is_allowed), 5, "{answers:?}");
    assert_sound(&emulator).await;
}

/// A decision that read the agent before the rule was added commits no payment after the backfill.
#[tokio::test]
async fn a_payment_that_was_decided_before_the_rule_is_not_reserved_after_the_backfill() {
    let (emulator, ledger) = ledger_with(Vec::new()).await;
    let start = sample::start();
    let early = Request::new(sample::agent_id(1), sample::service_id(1), 60, "early");
    let (grant, terms) = purser_testkit::authorize::grant(&ledger, &early, start).await;
    // The process that stores the rule stops before it lists the windows to fence.
    let agent = Agent {
        version: 2,
        ..sample::agent(1, vec![sample::budget(1, 100, sample::secs(HOUR))])
    };
    let (stopping, proxy) = emulator.ledger_behind(ProxyConfig::default()).await;
    proxy.follow(|step| {
        if step.call.starts_with("Query") {
            Fate::server_error()
        } else {
            Fate::PassOn
        }
    });
    stopping.put_agent(&agent, &sample::audit()).await.unwrap_err();
    assert!(is_allowed(&pay(&ledger, 2, 100, start).await));
    let reserved = ledger
        .reserve_payment(&grant, &terms, &early.fingerprint(), &mut purser_store::Backoff::new())
        .await;
    assert_eq!(reserved.unwrap(), purser_store::ReserveResult::Raced);
    assert!(!is_allowed(&pay(&ledger, 1, 60, start).await));
    assert_sound(&emulator).await;
}
