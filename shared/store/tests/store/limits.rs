//! Tests rules about how often and whom an agent pays.

use crate::{assert_sound, at_once, count};
use purser_domain::{
    Agent, BudgetLimit, CalendarPeriod, Category, Check, CheckName, CheckOutcome, CountLimit, DuplicateGuard, Duration,
    LimitAction, MAX_RECENT_CALLS, NewPayee, PriceAboveUsual, Purpose, RetryAt, Rule, RuleKind, RuleWindow, Settlement,
    SettlementId, Timestamp, UsualPrice, WindowPeriod, ZoneName,
};
use purser_store::{ApprovalDecision, Claim, ConfirmResult, DecisionKeys, Ledger, TransitionResult};
use purser_testkit::{
    Emulator,
    authorize::{Answer, Request, authorize},
    sample,
};

const MINUTE: Duration = Duration::from_secs_u32(60);

fn rule(n: u128, kind: RuleKind) -> Rule {
    Rule {
        id: sample::rule_id(n),
        version: 1,
        kind,
    }
}

fn guard(action: LimitAction) -> Rule {
    let (services, within) = (None, MINUTE);
    let kind = RuleKind::DuplicateGuard(DuplicateGuard {
        services,
        within,
        action,
    });
    rule(1, kind)
}

fn count_limit(count: u32) -> Rule {
    let (services, window) = (None, MINUTE);
    let kind = RuleKind::CountLimit(CountLimit {
        count,
        window: RuleWindow {
            services,
            ..window.into()
        },
    });
    rule(1, kind)
}

async fn ledger_with(rules: Vec<Rule>) -> (Emulator, Ledger) {
    let emulator = Emulator::start().await;
    let ledger = emulator.ledger();
    let agent = sample::agent(1, rules);
    ledger.create_agent(&agent, &sample::audit()).await.unwrap();
    let enabled = sample::enabled(sample::service_id(1), 1_000_000, 1_000_000);
    ledger.put_policy(agent.id, &enabled, &sample::audit()).await.unwrap();
    (emulator, ledger)
}

fn budget(limit: u64, period: WindowPeriod, action: LimitAction) -> Rule {
    let services = None;
    let kind = RuleKind::BudgetLimit(BudgetLimit {
        limit: sample::units(limit),
        window: RuleWindow {
            services,
            categories: None,
            keys: None,
            per_payee: false,
            period,
            action,
        },
    });
    rule(1, kind)
}

/// The next week begins on Monday at midnight in the budget's time zone.
#[tokio::test]
async fn a_weekly_budget_limits_concurrent_payments_and_restarts_at_local_midnight() {
    let week = WindowPeriod::Calendar(CalendarPeriod::Week, ZoneName::parse("Europe/Berlin").unwrap());
    let (emulator, ledger) = ledger_with(vec![budget(55, week, LimitAction::Block)]).await;
    let monday = Timestamp::parse("2026-11-22T23:00:00Z").unwrap();
    let sunday = Timestamp::from_micros(monday.micros() - 1).unwrap();
    for (round, at, next) in [
        (1, sunday, monday),
        (2, monday, monday.after(Duration::from_secs_u32(604_800))),
    ] {
        let requests = (0..12).map(|n| request(10, &format!("{round} {n}"))).collect();
        let answers = at_once(&ledger, requests, at).await;
        assert_eq!(count(&answers, is_allowed), 5, "{answers:?}");
        let is_full = |answer: &Answer| matches!(answer, Answer::Full { fits: RetryAt::At(at), .. } if *at == next);
        assert_eq!(count(&answers, is_full), 7, "{answers:?}");
    }
    assert_sound(&emulator).await;
}

/// Only a release makes room in the budget, which counts all earlier payments.
#[tokio::test]
async fn a_lifetime_budget_counts_every_payment_that_was_not_released() {
    let (emulator, ledger) = ledger_with(Vec::new()).await;
    let mut at = sample::start();
    for n in 0..10 {
        let answer = authorize(&ledger, &request(10, &format!("before {n}")), at)
            .await
            .unwrap();
        assert!(is_allowed(&answer), "{answer:?}");
        at = at.after(Duration::from_secs_u32(40 * 86_400));
    }
    let changed = Agent {
        version: 2,
        ..sample::agent(1, vec![budget(115, WindowPeriod::Lifetime, LimitAction::Block)])
    };
    ledger.put_agent(&changed, &sample::audit()).await.unwrap();
    let Answer::Allowed(last) = authorize(&ledger, &request(10, "last"), at).await.unwrap() else {
        panic!()
    };
    let later = at.after(Duration::from_secs_u32(400 * 86_400));
    let full = authorize(&ledger, &request(10, "later"), later).await.unwrap();
    assert!(
        matches!(full, Answer::Full { live, fits: RetryAt::Never } if live == sample::units(110)),
        "{full:?}"
    );
    let settlement = ledger
        .read_settlement_by_id(sample::agent_id(1), last)
        .await
        .unwrap()
        .unwrap();
    let released = ledger
        .release_hold(&settlement, &sample::unusable(&settlement))
        .await
        .unwrap();
    assert!(matches!(released, TransitionResult::Done(_)));
    assert!(is_allowed(
        &authorize(&ledger, &request(10, "again"), later).await.unwrap()
    ));
    assert_sound(&emulator).await;
}

#[tokio::test]
async fn a_budget_of_a_category_counts_only_services_in_the_category() {
    let of_category = |n, limit, category| {
        let window = RuleWindow {
            categories: Some(vec![category]),
            ..Duration::DAY.into()
        };
        let limit = sample::units(limit);
        rule(n, RuleKind::BudgetLimit(BudgetLimit { limit, window }))
    };
    // The service is in the category `data`.
    let rules = vec![of_category(1, 25, Category::Data), of_category(2, 5, Category::Ai)];
    let (emulator, ledger) = ledger_with(rules).await;
    let at = sample::start();
    let answers = at_once(&ledger, (0..6).map(|n| request(10, &n.to_string())).collect(), at).await;
    assert_eq!(count(&answers, is_allowed), 2, "{answers:?}");
    let paid = answers.iter().find_map(|answer| match answer {
        Answer::Allowed(settlement) => Some(*settlement),
        _ => None,
    });
    let paid = ledger.read_settlement_by_id(sample::agent_id(1), paid.unwrap()).await;
    let paid = paid.unwrap().unwrap();
    assert_eq!(paid.terms.purchase().unwrap().budgets, [sample::rule_id(1)]);
    let released = ledger.release_hold(&paid, &sample::unusable(&paid)).await.unwrap();
    assert!(matches!(released, TransitionResult::Done(_)));
    assert!(is_allowed(
        &authorize(&ledger, &request(10, "freed"), at).await.unwrap()
    ));
    let full = authorize(&ledger, &request(10, "full"), at).await.unwrap();
    assert!(
        matches!(full, Answer::Full { live, .. } if live == sample::units(20)),
        "{full:?}"
    );
    assert_sound(&emulator).await;
}

/// Payments beyond a budget with the action `ask` wait for an approval. An approved payment counts.
#[tokio::test]
async fn concurrent_payments_beyond_a_budget_with_action_ask_need_approval() {
    let period = WindowPeriod::Rolling(Duration::DAY);
    let (emulator, ledger) = ledger_with(vec![budget(55, period, LimitAction::Ask)]).await;
    let at = sample::start();
    let requests = (0..8).map(|n| request(10, &n.to_string())).collect();
    let answers = at_once(&ledger, requests, at).await;
    assert_eq!(count(&answers, is_allowed), 5, "{answers:?}");
    let waits = |answer: &Answer| matches!(answer, Answer::Waits(_));
    assert_eq!(count(&answers, waits), 3, "{answers:?}");
    let approved = request(20, "approved");
    let Answer::Waits(approval) = authorize(&ledger, &approved, at).await.unwrap() else {
        panic!()
    };
    let (ruling, audit) = (sample::ruling(at), sample::audit());
    let decision = ledger.resolve_approval(approval, ApprovalDecision::Approve, &ruling, &audit);
    decision.await.unwrap();
    let approved = Request {
        approval: Some(approval),
        ..approved
    };
    assert!(is_allowed(&authorize(&ledger, &approved, at).await.unwrap()));
    // The approved payment brought the window to 70, above the limit of 55, so further payments need an approval.
    assert!(waits(&authorize(&ledger, &request(1, "small"), at).await.unwrap()));
    let tomorrow = at.after(Duration::DAY);
    assert!(is_allowed(
        &authorize(&ledger, &request(55, "tomorrow"), tomorrow).await.unwrap()
    ));
    assert_sound(&emulator).await;
}

fn request(amount: u64, key: &str) -> Request {
    crate::request(amount, key)
}

/// Adds this check to the settlement's decision, because the test's own decisions record no checks.
async fn checked(ledger: &Ledger, id: SettlementId, name: CheckName) -> Settlement {
    let mut settlement = ledger
        .read_settlement_by_id(sample::agent_id(1), id)
        .await
        .unwrap()
        .unwrap();
    if let Purpose::Purchase(purchase) = &mut settlement.terms.purpose {
        let outcome = CheckOutcome::Passed;
        let (limit, used, remaining) = (None, None, None);
        purchase.checks = vec![Check {
            name,
            outcome,
            limit,
            used,
            remaining,
        }];
    }
    settlement
}

const fn is_allowed(answer: &Answer) -> bool {
    matches!(answer, Answer::Allowed(_))
}

/// The first calls also compete to create the map of recent payments. Of 16 different calls, all are paid.
#[tokio::test]
async fn of_concurrent_duplicate_calls_one_is_paid() {
    let (emulator, ledger) = ledger_with(vec![guard(LimitAction::Block)]).await;
    let start = sample::start();
    let same = (0..16).map(|n| request(10, &format!("same {n}"))).collect();
    let answers = at_once(&ledger, same, start).await;
    assert_eq!(count(&answers, is_allowed), 1, "{answers:?}");
    let different = (0..16).map(|n| request(100 + n, &format!("other {n}"))).collect();
    let answers = at_once(&ledger, different, start).await;
    assert_eq!(count(&answers, is_allowed), 16, "{answers:?}");

    let later = start.after(MINUTE);
    let again = (0..8).map(|n| request(100, &format!("again {n}"))).collect();
    assert_eq!(count(&at_once(&ledger, again, later).await, is_allowed), 1);
    assert_sound(&emulator).await;
}

#[tokio::test]
async fn a_repeated_call_is_allowed_after_the_guarded_time() {
    let (_emulator, ledger) = ledger_with(vec![guard(LimitAction::Block)]).await;
    let start = sample::start();
    let pay = async |key: &str, at: Timestamp| authorize(&ledger, &request(10, key), at).await.unwrap();
    let Answer::Allowed(first) = pay("a", start).await else {
        panic!()
    };
    assert_eq!(pay("a", start).await, Answer::Replayed(first));
    let fits = start.after(MINUTE);
    let early = Timestamp::from_micros(fits.micros() - 1).unwrap();
    assert!(matches!(pay("b", early).await, Answer::Full { fits: RetryAt::At(at), .. } if at == fits));
    assert!(is_allowed(&pay("b", fits).await));
}

/// A payment that removes old calls from the map does not remove a call that was paid again meanwhile.
#[tokio::test]
async fn a_duplicate_guard_keeps_a_call_that_is_paid_again_while_old_calls_are_removed() {
    let (emulator, ledger) = ledger_with(vec![guard(LimitAction::Block)]).await;
    let mut at = sample::start();
    for round in 0..12 {
        let amount = 100 + 20 * round;
        for n in 0..16 {
            at = at.after(Duration::from_secs_u32(5));
            let answer = authorize(&ledger, &request(amount + n, &format!("{round} {n}")), at)
                .await
                .unwrap();
            assert!(is_allowed(&answer), "{round} {n} {answer:?}");
        }
        let racing = vec![
            request(amount, &format!("{round} oldest")),
            request(amount + 17, &format!("{round} new")),
        ];
        assert_eq!(count(&at_once(&ledger, racing, at).await, is_allowed), 2);
        let again = authorize(&ledger, &request(amount, &format!("{round} again")), at)
            .await
            .unwrap();
        assert!(!is_allowed(&again), "{round}: {again:?}");
    }
    assert_sound(&emulator).await;
}

/// A call whose payment was released is no duplicate, unless the call was authorized again meanwhile.
#[tokio::test]
async fn a_call_may_be_repeated_after_its_payment_was_released() {
    let (emulator, ledger) = ledger_with(vec![guard(LimitAction::Block)]).await;
    let start = sample::start();
    let pay = async |key: &str, at: Timestamp| authorize(&ledger, &request(10, key), at).await.unwrap();
    let settlement = async |answer: Answer| {
        let Answer::Allowed(id) = answer else {
            panic!("{answer:?}")
        };
        checked(&ledger, id, CheckName::Duplicate).await
    };
    let release = async |settlement: &Settlement| {
        let released = ledger
            .release_hold(settlement, &sample::unusable(settlement))
            .await
            .unwrap();
        assert!(matches!(released, TransitionResult::Done(_)));
    };
    let first = settlement(pay("a", start).await).await;
    release(&first).await;
    let second = settlement(pay("b", start.after(sample::secs(1))).await).await;
    assert!(!is_allowed(&pay("c", start.after(sample::secs(2))).await));

    // Only the release of the last payment removes the call.
    let third = settlement(pay("c", start.after(sample::secs(61))).await).await;
    release(&second).await;
    assert!(!is_allowed(&pay("d", start.after(sample::secs(62))).await));
    release(&third).await;
    assert!(is_allowed(&pay("d", start.after(sample::secs(62))).await));
    assert_sound(&emulator).await;
}

/// The other attributes of the totals do not change.
#[tokio::test]
async fn remembered_recent_payments_are_limited_in_number() {
    let price = RuleKind::PriceAboveUsual(PriceAboveUsual {
        services: None,
        percent: 10_000,
        over: UsualPrice::Median(9),
        action: LimitAction::Block,
    });
    let rules = vec![
        guard(LimitAction::Block),
        rule(2, price),
        rule(3, RuleKind::NewPayee(NewPayee { services: None })),
    ];
    let (emulator, ledger) = ledger_with(rules).await;
    // The payee is new, so an approval is required.
    let asked = authorize(&ledger, &request(1, "asked"), sample::start()).await.unwrap();
    assert!(matches!(asked, Answer::Waits(_)), "{asked:?}");
    let known = RuleKind::NewPayee(NewPayee {
        services: Some(vec![purser_domain::ServiceSlug::parse("other").unwrap()]),
    });
    let agent = ledger.read_agent_by_id(sample::agent_id(1)).await.unwrap().unwrap();
    let mut rules = agent.rules.clone();
    rules[2] = Rule {
        version: 2,
        kind: known,
        ..rules[2].clone()
    };
    let version = agent.version + 1;
    let edited = Agent {
        rules,
        version,
        ..agent
    };
    ledger.put_agent(&edited, &sample::audit()).await.unwrap();
    let mut at = sample::start();
    for n in 0..40 {
        // Two seconds pass between calls, so the guard's minute contains fewer different calls than the store
        // remembers.
        at = at.after(sample::secs(2));
        let answer = authorize(&ledger, &request(100 + n, &n.to_string()), at).await.unwrap();
        let Answer::Allowed(id) = answer else {
            panic!("{n} {answer:?}")
        };
        // The last payment is not confirmed, so the price is not stored.
        if n < 39 {
            let settlement = checked(&ledger, id, CheckName::Price).await;
            let transfer = sample::transfer(&settlement, sample::tx_hash(u8::try_from(n).unwrap()));
            let confirmed = ledger
                .confirm_settlement(&settlement, &transfer, Claim::Transaction, at)
                .await;
            assert!(matches!(confirmed, Ok(ConfirmResult::Done(_))), "{n} {confirmed:?}");
        }
    }
    let keys = DecisionKeys {
        service: Some(sample::service_id(1)),
        ..DecisionKeys::default()
    };
    let (_, inputs) = ledger.read_decision_inputs(edited.id, &keys).await.unwrap();
    let recent = inputs.service_state.unwrap().recent;
    let mut times: Vec<Timestamp> = recent.calls.iter().map(|(_, at)| *at).collect();
    times.sort_unstable();
    assert_eq!((times.len(), times.last()), (MAX_RECENT_CALLS, Some(&at)));
    assert_eq!(recent.payees, [], "no rule asks about the payees of this service");
    let [(_, paid)] = recent.prices.as_slice() else {
        panic!("{recent:?}")
    };
    assert_eq!(paid.prices, (130..139).map(sample::units).collect::<Vec<_>>());
    assert_sound(&emulator).await;
}

async fn put_rules(ledger: &Ledger, rules: Vec<Rule>) {
    let agent = ledger.read_agent_by_id(sample::agent_id(1)).await.unwrap().unwrap();
    let version = agent.version + 1;
    let updated = Agent {
        rules,
        version,
        ..agent
    };
    ledger.put_agent(&updated, &sample::audit()).await.unwrap();
}

/// The calls, and the payees and prices of confirmed payments, are known at every service.
#[tokio::test]
async fn a_new_rule_remembers_earlier_payments() {
    let (emulator, ledger) = ledger_with(Vec::new()).await;
    let enabled = sample::enabled(sample::service_id(2), 1_000_000, 1_000_000);
    ledger
        .put_policy(sample::agent_id(1), &enabled, &sample::audit())
        .await
        .unwrap();
    let at = |seconds| sample::start().after(sample::secs(seconds));
    let pay = async |service, amount, second| {
        let key = format!("{service} {amount} {second}");
        let request = Request::new(sample::agent_id(1), sample::service_id(service), amount, key);
        authorize(&ledger, &request, at(second)).await.unwrap()
    };
    let confirm = async |answer: Answer, hash| {
        let Answer::Allowed(id) = answer else {
            panic!("{answer:?}")
        };
        let settlement = ledger.read_settlement_by_id(sample::agent_id(1), id).await.unwrap();
        let settlement = settlement.unwrap();
        let transfer = sample::transfer(&settlement, sample::tx_hash(hash));
        let confirmed = ledger.confirm_settlement(&settlement, &transfer, Claim::Transaction, at(30));
        assert!(matches!(confirmed.await, Ok(ConfirmResult::Done(_))));
    };
    for (amount, hash) in [(10, 1), (20, 2), (30, 3)] {
        confirm(pay(1, amount, 0).await, hash).await;
    }
    // The payee of an unconfirmed payment is new.
    assert!(is_allowed(&pay(2, 10, 0).await));

    let price = RuleKind::PriceAboveUsual(PriceAboveUsual {
        services: None,
        percent: 100,
        over: UsualPrice::Median(3),
        action: LimitAction::Block,
    });
    let rules = vec![
        guard(LimitAction::Block),
        rule(2, price),
        rule(3, RuleKind::NewPayee(NewPayee { services: None })),
    ];
    put_rules(&ledger, rules.clone()).await;
    let held = at(60);
    let repeated = pay(1, 10, 40).await;
    assert!(
        matches!(repeated, Answer::Full { fits: RetryAt::At(fits), .. } if fits == held),
        "{repeated:?}"
    );
    // The median is 20.
    let full = Answer::Full {
        live: sample::units(40),
        fits: RetryAt::Never,
    };
    assert_eq!(pay(1, 41, 40).await, full);
    assert!(is_allowed(&pay(1, 40, 40).await));
    assert!(matches!(pay(2, 11, 40).await, Answer::Waits(_)));
    assert_sound(&emulator).await;

    // A call that is paid while there is no rule is known to the next rule.
    put_rules(&ledger, Vec::new()).await;
    confirm(pay(1, 50, 41).await, 4).await;
    put_rules(
        &ledger,
        vec![Rule {
            id: sample::rule_id(9),
            ..guard(LimitAction::Block)
        }],
    )
    .await;
    assert!(!is_allowed(&pay(1, 50, 42).await));
    assert!(!is_allowed(&pay(1, 40, 42).await));
    assert!(is_allowed(&pay(1, 60, 42).await));
    assert_sound(&emulator).await;
}

/// The call may also be repeated after the payment has left the day window.
#[tokio::test]
async fn a_new_duplicate_guard_allows_a_repeated_call_after_its_payment_is_released() {
    for days in [0, 2] {
        let (emulator, ledger) = ledger_with(Vec::new()).await;
        let start = sample::start();
        let Answer::Allowed(id) = authorize(&ledger, &request(10, "a"), start).await.unwrap() else {
            panic!()
        };
        let within = Duration::from_secs_u32(7 * 86_400);
        let kind = RuleKind::DuplicateGuard(DuplicateGuard {
            services: None,
            within,
            action: LimitAction::Block,
        });
        put_rules(&ledger, vec![rule(1, kind)]).await;
        let now = start.after(Duration::from_secs_u32(1 + days * 86_400));
        let repeated = authorize(&ledger, &request(10, "b"), now).await.unwrap();
        assert!(!is_allowed(&repeated), "{repeated:?}");
        // Another payment evicts the first payment from the day window, if the first payment is old enough.
        assert!(is_allowed(&authorize(&ledger, &request(11, "c"), now).await.unwrap()));
        let settlement = ledger
            .read_settlement_by_id(sample::agent_id(1), id)
            .await
            .unwrap()
            .unwrap();
        let released = ledger.release_hold(&settlement, &sample::unusable(&settlement)).await;
        assert!(matches!(released, Ok(TransitionResult::Done(_))), "{released:?}");
        assert!(is_allowed(&authorize(&ledger, &request(10, "b"), now).await.unwrap()));
        assert_sound(&emulator).await;
    }
}

/// A rule that is older than the first payment needs no backfill.
#[tokio::test]
async fn the_first_payment_of_a_service_needs_no_backfill() {
    let (emulator, ledger) = ledger_with(vec![guard(LimitAction::Block)]).await;
    let keys = DecisionKeys {
        service: Some(sample::service_id(1)),
        ..DecisionKeys::default()
    };
    for n in 0..3 {
        let (_, inputs) = ledger.read_decision_inputs(sample::agent_id(1), &keys).await.unwrap();
        assert!(inputs.service_state.unwrap().is_backfilled, "{n}");
        let paid = authorize(&ledger, &request(10 + n, &n.to_string()), sample::start()).await;
        assert!(is_allowed(&paid.unwrap()));
    }
    assert_sound(&emulator).await;
}

/// A released payment makes room for another payment.
#[tokio::test]
async fn a_count_limit_counts_each_payment_as_one() {
    let (emulator, ledger) = ledger_with(vec![count_limit(5)]).await;
    let start = sample::start();
    let requests = (0..20).map(|n| request(1_000 + n, &n.to_string())).collect();
    let answers = at_once(&ledger, requests, start).await;
    assert_eq!(count(&answers, is_allowed), 5, "{answers:?}");
    assert_sound(&emulator).await;
    let paid = answers.iter().find_map(|answer| match answer {
        Answer::Allowed(id) => Some(*id),
        _ => None,
    });
    let settlement = ledger
        .read_settlement_by_id(sample::agent_id(1), paid.unwrap())
        .await
        .unwrap()
        .unwrap();
    let released = ledger
        .release_hold(&settlement, &sample::unusable(&settlement))
        .await
        .unwrap();
    assert!(matches!(released, TransitionResult::Done(_)));
    assert_sound(&emulator).await;
    assert!(is_allowed(&authorize(&ledger, &request(1, "x"), start).await.unwrap()));
    let full = authorize(&ledger, &request(1, "y"), start).await.unwrap();
    let fits = RetryAt::At(start.after(MINUTE));
    assert_eq!(
        full,
        Answer::Full {
            live: sample::units(5),
            fits
        }
    );
    let hour = start.after(MINUTE);
    assert!(is_allowed(&authorize(&ledger, &request(1, "y"), hour).await.unwrap()));
    assert_sound(&emulator).await;
}
