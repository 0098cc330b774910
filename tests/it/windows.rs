//! The rolling window is exact, through HTTP, with the clock moved by hand.

use purser_domain::{BUDGET_WINDOW_MIN, Duration, Rule, RuleId, RuleKind, SpendPolicy, Timestamp};
use purser_tests::{Answer, World, body_of, dollars, units};
use serde_json::Value;
use std::pin::Pin;

fn daily(cap: u64) -> SpendPolicy {
    SpendPolicy {
        max_per_call: units(dollars(100)),
        max_per_day: units(cap),
        require_approval_above: units(dollars(100)),
        ..SpendPolicy::column_defaults()
    }
}

fn micros(micros: i64) -> Duration {
    // The API of durations has no fractions of a second; instants do.
    Timestamp::from_micros(micros).unwrap().since(Timestamp::EPOCH)
}

/// The instant that an answer's ISO 8601 text names.
fn instant(text: &Value) -> Timestamp {
    let text = text.as_str().expect("an instant");
    let micros = text
        .parse::<chrono::DateTime<chrono::Utc>>()
        .expect("ISO 8601")
        .timestamp_micros();
    Timestamp::from_micros(micros).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_amount_counts_until_a_day_has_passed_and_is_free_at_that_instant() {
    let world = World::still().await;
    let agent = world.agent(daily(dollars(10)), vec![]).await;
    let start = world.now();
    world.authorize(&agent, &body_of(world.offer(dollars(6)))).await.ok();
    world.set_clock(start.after(Duration::from_secs_u32(3_600)));
    world.authorize(&agent, &body_of(world.offer(dollars(4)))).await.ok();

    let denied = world
        .authorize(&agent, &body_of(world.offer(dollars(5))))
        .await
        .refused(402, "daily_spend_limit_exceeded");
    assert_eq!(
        (denied["spend_today"].as_u64(), denied["max_per_day_units"].as_u64()),
        (Some(dollars(10)), Some(dollars(10)))
    );
    let free = start.after(Duration::DAY);
    assert_eq!(instant(&denied["retry_at"]), free, "when the first amount rolls out");

    world.set_clock(free.before(micros(1_000)));
    world
        .authorize(&agent, &body_of(world.offer(dollars(5))))
        .await
        .refused(402, "daily_spend_limit_exceeded");
    world.set_clock(free.before(micros(1)));
    let last = world
        .authorize(&agent, &body_of(world.offer(dollars(5))))
        .await
        .refused(402, "daily_spend_limit_exceeded");
    assert_eq!(instant(&last["retry_at"]), free, "the promise is kept");
    world.set_clock(free);
    world.authorize(&agent, &body_of(world.offer(dollars(5)))).await.ok();
    // 4 and 5 count now: one more dollar fits, two do not.
    world
        .authorize(&agent, &body_of(world.offer(dollars(2))))
        .await
        .refused(402, "daily_spend_limit_exceeded");
    world.authorize(&agent, &body_of(world.offer(dollars(1)))).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fits_never_is_not_promised() {
    let world = World::still().await;
    let agent = world.agent(daily(dollars(10)), vec![]).await;
    let denied = world
        .authorize(&agent, &body_of(world.offer(dollars(11))))
        .await
        .refused(402, "daily_spend_limit_exceeded");
    assert_eq!(
        (denied["retry_at"].clone(), denied["spend_today"].as_u64()),
        (Value::Null, Some(0))
    );
}

/// The window is read a few entries at a time, so the answer is compared at sizes below, at and above every page.
#[tokio::test(flavor = "multi_thread")]
async fn the_answer_does_not_depend_on_how_many_payments_came_before() {
    let world = World::still().await;
    let start = world.now();
    let (cent, cap) = (10_000, 2_000_000);
    for payments in [1_u64, 7, 8, 9, 40, 120] {
        world.set_clock(start);
        let agent = world.agent(daily(cap), vec![]).await;
        for n in 0..payments {
            world.set_clock(start.after(micros(i64::try_from(n).unwrap())));
            world.authorize(&agent, &body_of(world.offer(cent))).await.ok();
        }
        let rest = cap - payments * cent;
        let over = world
            .authorize(&agent, &body_of(world.offer(rest + 1)))
            .await
            .refused(402, "daily_spend_limit_exceeded");
        assert_eq!(over["spend_today"].as_u64(), Some(payments * cent));
        assert_eq!(
            instant(&over["retry_at"]),
            start.after(Duration::DAY),
            "one cent rolling out is enough"
        );

        // The whole cap fits again when the last of them has rolled out, and not a microsecond before.
        let whole = world
            .authorize(&agent, &body_of(world.offer(cap)))
            .await
            .refused(402, "daily_spend_limit_exceeded");
        let empty = start
            .after(micros(i64::try_from(payments).unwrap() - 1))
            .after(Duration::DAY);
        assert_eq!(instant(&whole["retry_at"]), empty, "{payments} payments");
        world.set_clock(empty.before(micros(1)));
        world
            .authorize(&agent, &body_of(world.offer(cap)))
            .await
            .refused(402, "daily_spend_limit_exceeded");
        world.set_clock(empty);
        world.authorize(&agent, &body_of(world.offer(cap))).await.ok();
    }
}

/// Nothing is read for a batch that is evicted but the window: so thousands take seconds.
#[tokio::test(flavor = "multi_thread")]
async fn however_much_has_rolled_out_a_large_payment_fits_within_one_call() {
    let world = World::watched().await;
    let agent = world.agent(daily(dollars(10)), vec![]).await;
    world.authorize(&agent, &body_of(world.offer(2_000))).await.ok();
    world.add_entries(&agent, 3_999).await;
    world.pass(86_400);
    let large = body_of(world.offer(dollars(9)));
    let foreseen = world.check(&agent, &large).await.ok();
    assert_eq!(foreseen["reason"], "x402_authorized");
    assert_eq!(world.footprint().await.entries, 4_000, "a preflight evicts nothing");
    let calls = world.proxy.as_ref().unwrap().calls();
    calls.take();
    world.authorize(&agent, &large).await.ok();
    let calls = calls.take();
    let count = |name: &str| calls.iter().filter(|call| call.operation == name).count();
    assert_eq!(count("BatchGetItem"), 2, "before, and the fresh look afterwards");
    assert_eq!(count("TransactWriteItems"), 4_000_usize.div_ceil(90) + 1);
    let after = world.footprint().await;
    assert_eq!((after.entries, after.total), (1, dollars(9)));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_no_time_left_for_what_has_rolled_out_comes_back_and_goes_on_from_there() {
    let world = World::still().await;
    let agent = world.agent(daily(dollars(10)), vec![]).await;
    world.authorize(&agent, &body_of(world.offer(5_000))).await.ok();
    world.add_entries(&agent, 1_990).await;
    world.pass(86_400);
    let large = body_of(world.offer(dollars(9)));
    // Nine seconds pass in each thousandth of one.
    let hurried = async |call: Pin<Box<dyn Future<Output = Answer> + '_>>| {
        let hurry = async {
            loop {
                world.pass(9);
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
        };
        let answer = tokio::select! { answer = call => answer, () = hurry => unreachable!() };
        assert_eq!(answer.headers["retry-after"], "1");
        let told = answer.refused(503, "temporarily_unavailable");
        assert_eq!(told["retry_after"], 1);
    };

    let before = world.footprint().await;
    // What it has to read is bounded, and less than what a call has to clear.
    assert_eq!(world.check(&agent, &large).await.ok()["would_authorize"], true);
    assert_eq!(world.footprint().await, before, "a preflight writes nothing");
    let mut left = before.entries;
    for _ in 0..3 {
        hurried(Box::pin(world.authorize(&agent, &large))).await;
        let after = world.footprint().await;
        assert_eq!(after.settlements, 1, "nothing is reserved");
        assert!(after.entries < left, "{} of {left}", after.entries);
        left = after.entries;
    }
    world.authorize(&agent, &large).await.ok();
    let after = world.footprint().await;
    assert_eq!((after.entries, after.total), (1, dollars(9)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_holds_over_all_services_for_its_own_length() {
    let world = World::still().await;
    let rule = RuleId::from_uuid(uuid::Uuid::new_v4());
    let agent = world.agent(daily(dollars(100)), vec![]).await;
    let kind = RuleKind::BudgetLimit {
        limit: units(dollars(5)),
        window: BUDGET_WINDOW_MIN,
    };
    world
        .edit(&agent, |agent| {
            agent.rules.push(Rule {
                id: rule,
                version: 1,
                kind,
            })
        })
        .await;
    world.enable(&agent, "lab-reports", daily(dollars(100))).await;
    let elsewhere = |units| {
        let mut body = body_of(world.offer(units));
        body["service_id"] = "lab-reports".into();
        body
    };
    let start = world.now();
    world.authorize(&agent, &body_of(world.offer(dollars(3)))).await.ok();
    let blocked = world
        .authorize(&agent, &elsewhere(dollars(3)))
        .await
        .refused(403, "policy_blocked");
    assert_eq!(blocked["decision"]["rule_triggered"], "budget_limit");
    assert_eq!(
        instant(&blocked["decision"]["retry_at"]),
        start.after(BUDGET_WINDOW_MIN)
    );
    world.authorize(&agent, &elsewhere(dollars(2))).await.ok();

    world.set_clock(start.after(BUDGET_WINDOW_MIN).before(micros(1)));
    world
        .authorize(&agent, &elsewhere(dollars(1)))
        .await
        .refused(403, "policy_blocked");
    world.set_clock(start.after(BUDGET_WINDOW_MIN));
    // All of it has rolled out of the budget's hour, and none of it out of the day.
    world.authorize(&agent, &elsewhere(dollars(5))).await.ok();
    let after = world.footprint().await;
    assert_eq!(
        (after.settlements, after.total),
        (3, dollars(3 + 2 + 5) + dollars(5)),
        "the day's windows, and the budget's"
    );
}
