//! Tests budgets: windows over all services, which are enforced in the same transaction as the day window.

use crate::{assert_sound, at_once, count};
use purser_domain::{
    Agent, AgentKey, BudgetLimit, Catalog, Category, DuplicateGuard, KeyId, LimitAction, Rule, RuleKind, RuleWindow,
    Service, ServiceSlug, Settlement, Timestamp, WindowPeriod,
};
use purser_store::{Claim, ConfirmResult, DecisionKeys, EvictResult, Ledger, TransitionResult, UpdateResult};
use purser_testkit::{
    Emulator, Fate, Moment, ProxyConfig,
    authorize::{Answer, Request, authorize},
    sample,
};

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

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

    // An hour later, both payments have left the window and are evicted. Then the window's duration becomes a day.
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
async fn a_changed_rule_cannot_be_stored_with_its_old_version() {
    let (_emulator, ledger) = ledger_with(vec![sample::budget(1, 100, sample::secs(HOUR))]).await;
    let RuleKind::BudgetLimit(BudgetLimit { window, .. }) = sample::budget(1, 100, sample::secs(HOUR)).kind else {
        panic!()
    };
    let changed = Agent {
        version: 2,
        ..sample::agent(1, vec![sample::budget(1, 200, window.period.duration().unwrap())])
    };
    assert!(ledger.put_agent(&changed, &sample::audit()).await.is_err());
}

#[tokio::test]
async fn evictions_that_exceed_one_transaction_are_written_before_the_payment() {
    let budgets = (1..=12).map(|n| sample::budget(n, 1_000, sample::secs(HOUR))).collect();
    let (emulator, ledger) = ledger_with(budgets).await;
    for n in 0..8 {
        assert!(is_allowed(&pay(&ledger, 1, 100 + n, sample::start()).await));
    }
    // Thirteen windows with eight expired payments each exceed the hundred actions of a transaction.
    let later = sample::start().after(sample::secs(24 * HOUR));
    assert!(is_allowed(&pay(&ledger, 2, 1_000, later).await));
    assert_sound(&emulator).await;
}

/// A payment that has left the shorter window counts again in the longer window.
#[tokio::test]
async fn eviction_uses_the_current_window_length() {
    for under_way in [false, true] {
        let (emulator, ledger) = ledger_with(vec![sample::budget(1, 100, sample::secs(HOUR))]).await;
        let start = sample::start();
        assert!(is_allowed(&pay(&ledger, 1, 60, start).await));
        let later = start.after(sample::secs(HOUR));
        let agent = ledger.read_agent_by_id(sample::agent_id(1)).await.unwrap().unwrap();
        let scope = agent
            .counting_rules()
            .next()
            .unwrap()
            .window_scope(agent.id, None)
            .unwrap();
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

/// The 200 payments take three pages. A backfill that stops after a page continues.
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
    // The process stops after writing the agent's version to two windows and the first page of the backfill.
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

#[tokio::test]
async fn a_payment_evaluated_without_the_new_rule_is_not_reserved() {
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

/// The first service has the slug that the requests use.
fn catalog() -> Catalog {
    let slug = sample::service_slug();
    Catalog::new(vec![
        sample::service(sample::service_id(1), slug.as_str()),
        sample::service(sample::service_id(2), "other"),
    ])
}

/// Returns a lifetime budget for these services.
fn lifetime(n: u128, version: u64, limit: u64, services: Option<&[&str]>) -> Rule {
    let slug = |text: &&str| ServiceSlug::parse(text).unwrap();
    Rule {
        id: sample::rule_id(n),
        version,
        kind: RuleKind::BudgetLimit(BudgetLimit {
            limit: sample::units(limit),
            window: RuleWindow {
                services: services.map(|services| services.iter().map(slug).collect()),
                categories: None,
                keys: None,
                per_payee: false,
                period: WindowPeriod::Lifetime,
                action: LimitAction::Block,
            },
        }),
    }
}

/// Replaces the agent's rules and backfills the windows with the catalog.
async fn put_rules(ledger: &Ledger, rules: Vec<Rule>) {
    put_rules_at(ledger, rules, &catalog(), sample::start()).await;
}

async fn put_rules_at(ledger: &Ledger, rules: Vec<Rule>, catalog: &Catalog, now: Timestamp) {
    let agent = ledger.read_agent_by_id(sample::agent_id(1)).await.unwrap().unwrap();
    let version = agent.version + 1;
    let updated = Agent {
        rules,
        version,
        ..agent
    };
    let stored = ledger.put_agent(&updated, &sample::audit()).await.unwrap();
    assert_eq!(stored, UpdateResult::Stored);
    ledger.backfill_payments(&updated, None, catalog, now).await.unwrap();
}

async fn confirm(ledger: &Ledger, settlement: &Settlement, now: Timestamp) {
    let transfer = sample::transfer(settlement, sample::tx_hash(1));
    let confirmed = ledger
        .confirm_settlement(settlement, &transfer, Claim::Transaction, now)
        .await;
    assert!(matches!(confirmed, Ok(ConfirmResult::Done(_))), "{confirmed:?}");
}

async fn is_backfilled(ledger: &Ledger) -> bool {
    let keys = DecisionKeys {
        service: Some(sample::service_id(1)),
        ..DecisionKeys::default()
    };
    let (_, inputs) = ledger.read_decision_inputs(sample::agent_id(1), &keys).await.unwrap();
    inputs.service_state.unwrap().is_backfilled
}

async fn settlement(ledger: &Ledger, answer: Answer) -> Settlement {
    let Answer::Allowed(id) = answer else {
        panic!("{answer:?}")
    };
    let settlement = ledger.read_settlement_by_id(sample::agent_id(1), id).await;
    settlement.unwrap().unwrap()
}

async fn release(ledger: &Ledger, settlement: &Settlement) {
    let released = ledger.release_hold(settlement, &sample::unusable(settlement)).await;
    assert!(matches!(released, Ok(TransitionResult::Done(_))), "{released:?}");
}

/// Returns the total of the rule's window.
async fn total(ledger: &Ledger, rule: u128) -> u64 {
    let agent = ledger.read_agent_by_id(sample::agent_id(1)).await.unwrap().unwrap();
    let rules: Vec<_> = agent.counting_rules().collect();
    let counting = rules.iter().find(|counting| counting.rule.id == sample::rule_id(rule));
    let scopes = counting.map(|counting| (counting.window_scope(agent.id, None).unwrap(), counting.period));
    let windows = ledger
        .read_nonzero_windows(&[scopes.unwrap()], sample::start())
        .await
        .unwrap();
    windows.first().map_or(0, |window| window.total.units())
}

#[tokio::test]
async fn a_rule_for_some_services_counts_a_payment_that_is_confirmed_late() {
    let (emulator, ledger) = ledger_with(Vec::new()).await;
    let start = sample::start();
    let late = settlement(&ledger, pay(&ledger, 1, 60, start).await).await;
    release(&ledger, &late).await;
    let own = sample::service_slug();
    let rules = vec![
        lifetime(1, 1, 100, Some(&[own.as_str()])),
        lifetime(2, 1, 100, Some(&["other"])),
        lifetime(3, 1, 1_000, None),
    ];
    put_rules(&ledger, rules).await;
    assert!(is_allowed(&pay(&ledger, 1, 30, start).await));
    let now = start.after(sample::secs(90));
    confirm(&ledger, &late, now).await;
    assert!(is_backfilled(&ledger).await);
    assert_eq!(
        (
            total(&ledger, 1).await,
            total(&ledger, 2).await,
            total(&ledger, 3).await
        ),
        (90, 0, 90)
    );
    assert!(!is_allowed(&pay(&ledger, 1, 11, now).await));
    assert!(is_allowed(&pay(&ledger, 1, 10, now).await));
    assert_sound(&emulator).await;
}

/// The settlement contains the service's slug, so the rule's new services do not include the payment.
#[tokio::test]
async fn a_rule_with_other_services_does_not_count_a_payment_that_is_confirmed_late() {
    let own = sample::service_slug();
    let (emulator, ledger) = ledger_with(vec![lifetime(1, 1, 100, Some(&[own.as_str()]))]).await;
    let start = sample::start();
    let late = settlement(&ledger, pay(&ledger, 1, 60, start).await).await;
    release(&ledger, &late).await;
    put_rules(&ledger, vec![lifetime(1, 2, 100, Some(&["other"]))]).await;
    confirm(&ledger, &late, start).await;
    assert_eq!(total(&ledger, 1).await, 0);
    assert!(is_allowed(&pay(&ledger, 2, 100, start).await));
    assert_sound(&emulator).await;
}

/// The ledger has more than a page of newer payments, which the budget for an hour no longer counts.
#[tokio::test]
async fn a_new_rule_counts_a_late_confirmation_of_an_older_payment() {
    let (emulator, ledger) = ledger_with(Vec::new()).await;
    let start = sample::start();
    let late = settlement(&ledger, pay(&ledger, 1, 60, start).await).await;
    release(&ledger, &late).await;
    let newer = start.after(sample::secs(1));
    let service = |n: u32| sample::service_id(u128::from(n % 2) + 1);
    let requests = (0..91).map(|n| Request::new(sample::agent_id(1), service(n), 1, n.to_string()));
    let answers = at_once(&ledger, requests.collect(), newer).await;
    assert_eq!(count(&answers, is_allowed), 91);
    let now = start.after(sample::secs(2 * HOUR));
    confirm(&ledger, &late, now).await;
    let rules = vec![sample::budget(1, 100, sample::secs(HOUR)), lifetime(2, 1, 1_000, None)];
    put_rules_at(&ledger, rules, &catalog(), now).await;
    assert_eq!((total(&ledger, 1).await, total(&ledger, 2).await), (60, 151));
    assert_sound(&emulator).await;
}

#[tokio::test]
async fn a_backfill_counts_by_the_category_at_the_time_of_the_payment() {
    let of_categories = |n, version, categories: &[Category]| {
        let mut rule = lifetime(n, version, 100, None);
        let RuleKind::BudgetLimit(BudgetLimit { window, .. }) = &mut rule.kind else {
            panic!("a budget")
        };
        window.categories = Some(categories.to_vec());
        rule
    };
    let (emulator, ledger) = ledger_with(vec![of_categories(1, 1, &[Category::Data])]).await;
    let start = sample::start();
    assert!(is_allowed(&pay(&ledger, 1, 90, start).await));
    let moved = Catalog::new(vec![Service {
        category: Category::Ai,
        ..sample::service(sample::service_id(1), sample::service_slug().as_str())
    }]);
    let rules = vec![
        of_categories(1, 2, &[Category::Data, Category::Search]),
        of_categories(2, 1, &[Category::Ai]),
    ];
    put_rules_at(&ledger, rules, &moved, start).await;
    assert_eq!((total(&ledger, 1).await, total(&ledger, 2).await), (90, 0));
    assert!(!is_allowed(&pay(&ledger, 1, 11, start).await));
    assert_sound(&emulator).await;
}

/// Releases and late confirmations change the budget of the key.
#[tokio::test]
async fn a_budget_of_a_key_counts_only_payments_with_the_key() {
    let of_key = |n, version, limit, keys: &[KeyId]| {
        let mut rule = lifetime(n, version, limit, None);
        let RuleKind::BudgetLimit(BudgetLimit { window, .. }) = &mut rule.kind else {
            panic!("a budget")
        };
        window.keys = Some(keys.to_vec());
        rule
    };
    let (first, second) = (sample::KEY, KeyId(2));
    let (emulator, ledger) = ledger_with(Vec::new()).await;
    let start = sample::start();
    let pay = async |agent_key, amount, text: &str| {
        let request = Request {
            agent_key,
            ..Request::new(sample::agent_id(1), sample::service_id(1), amount, text)
        };
        authorize(&ledger, &request, start).await.unwrap()
    };
    let earlier = settlement(&ledger, pay(first, 60, "a").await).await;
    assert!(is_allowed(&pay(second, 30, "b").await));
    put_rules(&ledger, vec![of_key(1, 1, 100, &[first]), of_key(2, 1, 40, &[second])]).await;
    assert_eq!((total(&ledger, 1).await, total(&ledger, 2).await), (60, 30));
    assert!(!is_allowed(&pay(first, 41, "c").await));
    assert!(!is_allowed(&pay(second, 11, "d").await));
    assert!(is_allowed(&pay(KeyId(3), 1_000, "e").await));
    release(&ledger, &earlier).await;
    assert_eq!((total(&ledger, 1).await, total(&ledger, 2).await), (0, 30));
    confirm(&ledger, &earlier, start).await;
    assert_eq!((total(&ledger, 1).await, total(&ledger, 2).await), (60, 30));
    put_rules(&ledger, vec![of_key(1, 2, 100, &[first, second])]).await;
    assert_eq!(total(&ledger, 1).await, 90);
    let requests = (0..8).map(|n: u32| Request {
        agent_key: if n.is_multiple_of(2) { first } else { second },
        ..Request::new(sample::agent_id(1), sample::service_id(1), 5, n.to_string())
    });
    let answers = at_once(&ledger, requests.collect(), start).await;
    assert_eq!(count(&answers, is_allowed), 2);
    assert_sound(&emulator).await;
}

/// The 200 payments take three pages.
#[tokio::test]
async fn a_backfill_reads_no_payments_from_long_before_the_budgets_keys() {
    let (emulator, ledger) = ledger_with(Vec::new()).await;
    let mut at = sample::start();
    for _ in 0..200 {
        at = at.after(sample::secs(1));
        assert!(is_allowed(&pay(&ledger, 1, 10, at).await));
    }
    let now = at.after(sample::secs(2 * HOUR));
    let mut agent = ledger.read_agent_by_id(sample::agent_id(1)).await.unwrap().unwrap();
    agent.keys.push(AgentKey {
        id: KeyId(2),
        created_at: now,
        ..agent.keys[0].clone()
    });
    let (measured, proxy) = emulator.ledger_behind(ProxyConfig::default()).await;
    let queries = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&queries);
    proxy.follow(move |step| {
        if step.moment == Moment::Arrived && step.call.starts_with("Query") {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        Fate::PassOn
    });
    let mut backfill = async |keys: &[KeyId], n| {
        let mut rule = lifetime(n, 1, 5_000, None);
        if let RuleKind::BudgetLimit(BudgetLimit { window, .. }) = &mut rule.kind {
            window.keys = Some(keys.to_vec());
        }
        (agent.rules, agent.version) = (vec![rule], agent.version + 1);
        ledger.put_agent(&agent, &sample::audit()).await.unwrap();
        let before = queries.load(Ordering::Relaxed);
        measured.backfill_payments(&agent, None, &catalog(), now).await.unwrap();
        (queries.load(Ordering::Relaxed) - before, total(&ledger, n).await)
    };
    let (with_new_key, spent) = backfill(&[KeyId(2)], 1).await;
    assert_eq!(spent, 0);
    for (n, keys) in [
        (2, &[sample::KEY][..]),
        (3, &[KeyId(2), sample::KEY]),
        (4, &[KeyId(2), KeyId(9)]),
    ] {
        let spent = if keys.contains(&sample::KEY) { 2_000 } else { 0 };
        assert_eq!(backfill(keys, n).await, (with_new_key + 2, spent), "{keys:?}");
    }
    assert_sound(&emulator).await;
}

/// The release removes the call, and the late confirmation stores the call again.
#[tokio::test]
async fn a_duplicate_guard_knows_the_call_of_a_payment_that_is_confirmed_late() {
    let guard = Rule {
        id: sample::rule_id(1),
        version: 1,
        kind: RuleKind::DuplicateGuard(DuplicateGuard {
            services: None,
            within: sample::secs(2 * HOUR),
            action: LimitAction::Block,
        }),
    };
    let (emulator, ledger) = ledger_with(vec![guard]).await;
    let start = sample::start();
    let minutes = |minutes: u32| start.after(sample::secs(60 * minutes));
    let first = settlement(&ledger, pay(&ledger, 1, 10, start).await).await;
    release(&ledger, &first).await;
    confirm(&ledger, &first, minutes(2)).await;
    assert!(!is_allowed(&pay(&ledger, 1, 10, minutes(3)).await), "the call was paid");
    assert!(is_allowed(&pay(&ledger, 1, 10, minutes(121)).await));
    // The agent repeats the call after the release, before the first payment is confirmed.
    let second = settlement(&ledger, pay(&ledger, 2, 10, start).await).await;
    release(&ledger, &second).await;
    assert!(is_allowed(&pay(&ledger, 2, 10, minutes(60)).await));
    let transfer = sample::transfer(&second, sample::tx_hash(2));
    let confirmed = ledger.confirm_settlement(&second, &transfer, Claim::Transaction, minutes(61));
    assert!(matches!(confirmed.await, Ok(ConfirmResult::Done(_))));
    assert!(
        !is_allowed(&pay(&ledger, 2, 10, minutes(130)).await),
        "the repetition was paid"
    );
    assert_sound(&emulator).await;
}

/// A late confirmation that read the agent before the rule was added is repeated.
#[tokio::test]
async fn a_late_confirmation_counts_in_a_rule_that_is_added_meanwhile() {
    let (emulator, ledger) = ledger_with(Vec::new()).await;
    let start = sample::start();
    let late = settlement(&ledger, pay(&ledger, 1, 60, start).await).await;
    release(&ledger, &late).await;
    let (behind, proxy) = emulator.ledger_behind(ProxyConfig::default()).await;
    proxy.stall(1);
    let transfer = sample::transfer(&late, sample::tx_hash(1));
    let confirming = tokio::spawn(async move {
        let confirmed = behind.confirm_settlement(&late, &transfer, Claim::Transaction, start);
        assert!(matches!(confirmed.await, Ok(ConfirmResult::Done(_))));
    });
    proxy.stalled(1).await;
    put_rules(&ledger, vec![lifetime(1, 1, 100, None)]).await;
    proxy.resume();
    confirming.await.unwrap();
    assert_eq!(total(&ledger, 1).await, 60);
    assert_sound(&emulator).await;
}

/// A later release subtracts the payment from the rule's window, also while the backfill is writing the payment.
#[tokio::test]
async fn a_payment_that_a_backfill_counted_is_released() {
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum ReleaseOrder {
        AfterBackfill,
        BeforePage,
        ReadBeforePage,
    }
    for order in [
        ReleaseOrder::AfterBackfill,
        ReleaseOrder::BeforePage,
        ReleaseOrder::ReadBeforePage,
    ] {
        let (emulator, ledger) = ledger_with(Vec::new()).await;
        let start = sample::start();
        let held = settlement(&ledger, pay(&ledger, 1, 60, start).await).await;
        if order == ReleaseOrder::AfterBackfill {
            put_rules(&ledger, vec![lifetime(1, 1, 100, None)]).await;
            assert_eq!(total(&ledger, 1).await, 60);
            release(&ledger, &held).await;
        } else {
            let (behind, proxy) = emulator.ledger_behind(ProxyConfig::default()).await;
            let agent = ledger.read_agent_by_id(held.terms.agent).await.unwrap().unwrap();
            let updated = Agent {
                version: 2,
                rules: vec![lifetime(1, 1, 100, None)],
                ..agent
            };
            ledger.put_agent(&updated, &sample::audit()).await.unwrap();
            if order == ReleaseOrder::BeforePage {
                proxy.stall(2);
                let backfilling =
                    tokio::spawn(async move { behind.backfill_payments(&updated, None, &catalog(), start).await });
                // The backfill writes the agent's version to the windows of two services. Then it counts the payment.
                proxy.stalled(2).await;
                proxy.resume();
                proxy.stall(1);
                proxy.stalled(1).await;
                release(&ledger, &held).await;
                proxy.resume();
                backfilling.await.unwrap().unwrap();
            } else {
                proxy.stall(1);
                let releasing = tokio::spawn(async move { release(&behind, &held).await });
                // The release has read the window, and the page of the backfill is committed before the release.
                proxy.stalled(1).await;
                ledger
                    .backfill_payments(&updated, None, &catalog(), start)
                    .await
                    .unwrap();
                assert_eq!(total(&ledger, 1).await, 60);
                proxy.resume();
                releasing.await.unwrap();
            }
        }
        assert_eq!(total(&ledger, 1).await, 0, "{order:?}");
        assert!(is_allowed(&pay(&ledger, 1, 100, start).await));
        assert_sound(&emulator).await;
    }
}

#[tokio::test]
async fn changed_services_change_which_earlier_payments_a_budget_counts() {
    let (emulator, ledger) = ledger_with(vec![lifetime(1, 1, 200, None)]).await;
    let mut at = sample::start();
    for n in 0..10 {
        at = at.after(sample::secs(1));
        assert!(is_allowed(&pay(&ledger, n % 2 + 1, 10, at).await));
    }
    assert_eq!(total(&ledger, 1).await, 100);
    let own = sample::service_slug();
    put_rules(&ledger, vec![lifetime(1, 2, 60, Some(&[own.as_str()]))]).await;
    assert_eq!(total(&ledger, 1).await, 50);
    assert!(!is_allowed(&pay(&ledger, 1, 11, at).await));
    assert!(is_allowed(&pay(&ledger, 1, 10, at).await));
    put_rules(&ledger, vec![lifetime(1, 3, 60, Some(&["other"]))]).await;
    assert_eq!(total(&ledger, 1).await, 50);
    put_rules(&ledger, vec![lifetime(1, 4, 60, None)]).await;
    assert_eq!(total(&ledger, 1).await, 110);
    assert_sound(&emulator).await;
}

/// A budget for each payee has a window for each payee, also for payments before the rule, after a release, and after a
/// change of the rule.
#[tokio::test]
async fn a_budget_for_each_payee_counts_each_payee_alone() {
    let (emulator, ledger) = ledger_with(Vec::new()).await;
    let start = sample::start();
    let at = |minutes: u32| start.after(sample::secs(60 * minutes));
    let pay_to = async |payee: u8, amount, minutes| {
        let key = format!("{payee} {amount} {minutes}");
        let request = Request {
            payee: sample::wallet(payee),
            ..Request::new(sample::agent_id(1), sample::service_id(1), amount, key)
        };
        authorize(&ledger, &request, at(minutes)).await.unwrap()
    };
    let rule = |version, limit, period| Rule {
        id: sample::rule_id(1),
        version,
        kind: RuleKind::BudgetLimit(BudgetLimit {
            limit: sample::units(limit),
            window: RuleWindow {
                per_payee: true,
                period,
                ..sample::secs(HOUR).into()
            },
        }),
    };
    let earlier = settlement(&ledger, pay_to(1, 60, 0).await).await;
    let unseen = settlement(&ledger, pay_to(4, 60, 0).await).await;
    put_rules(&ledger, vec![rule(1, 100, WindowPeriod::Lifetime)]).await;
    assert!(!is_allowed(&pay_to(1, 41, 1).await));
    let paid = settlement(&ledger, pay_to(2, 100, 2).await).await;
    assert!(!is_allowed(&pay_to(2, 1, 3).await));
    assert!(is_allowed(&pay_to(1, 40, 4).await));
    release(&ledger, &paid).await;
    assert!(is_allowed(&pay_to(2, 99, 5).await));
    // A payment of before the rule is released, too. A late confirmation counts the payment again.
    release(&ledger, &earlier).await;
    confirm(&ledger, &earlier, at(6)).await;
    assert!(!is_allowed(&pay_to(1, 1, 7).await));
    // A payee that was not paid since the rule was added has no window when the earlier payment is released.
    release(&ledger, &unseen).await;
    assert!(is_allowed(&pay_to(4, 100, 8).await));
    let third = settlement(&ledger, pay_to(3, 100, 8).await).await;
    put_rules(&ledger, vec![rule(2, 150, WindowPeriod::Lifetime)]).await;
    release(&ledger, &third).await;
    assert!(is_allowed(&pay_to(1, 50, 9).await));
    assert!(is_allowed(&pay_to(3, 150, 10).await));
    put_rules(&ledger, vec![rule(3, 150, WindowPeriod::Rolling(sample::secs(HOUR)))]).await;
    assert!(!is_allowed(&pay_to(1, 1, 11).await));
    assert!(is_allowed(&pay_to(1, 150, 120).await));
    assert_sound(&emulator).await;
}
