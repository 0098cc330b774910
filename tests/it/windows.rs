//! Tests that rolling windows are exact. `shared/store/tests/store` tests budgets and many payments.

use purser_domain::{Duration, SpendPolicy, Timestamp};
use purser_local::{DEMO_OWNER, Options, Streaming};
use purser_tests::{Answer, TestAgent, World, body_of, dollars, units};
use serde_json::Value;
use std::pin::Pin;

fn daily(cap: u64) -> SpendPolicy {
    SpendPolicy {
        max_per_call: units(dollars(100)),
        max_per_day: units(cap),
        require_approval_above: units(dollars(100)),
        ..SpendPolicy::spec_defaults()
    }
}

fn micros(micros: i64) -> Duration {
    Timestamp::from_micros(micros).unwrap().since(Timestamp::EPOCH)
}

fn instant(text: &Value) -> Timestamp {
    let text = text.as_str().expect("an instant");
    let micros = text
        .parse::<chrono::DateTime<chrono::Utc>>()
        .expect("ISO 8601")
        .timestamp_micros();
    Timestamp::from_micros(micros).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn payments_stop_counting_after_exactly_one_day() {
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
    // At this time, the payments of 4 and 5 dollars count.
    world
        .authorize(&agent, &body_of(world.offer(dollars(2))))
        .await
        .refused(402, "daily_spend_limit_exceeded");
    world.authorize(&agent, &body_of(world.offer(dollars(1)))).await.ok();
}

/// An eviction needs no reads besides the window.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_payment_fits_after_thousands_of_expired_payments_are_evicted() {
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
async fn interrupted_evictions_continue_on_the_next_call() {
    let world = World::still().await;
    let agent = world.agent(daily(dollars(10)), vec![]).await;
    world.authorize(&agent, &body_of(world.offer(5_000))).await.ok();
    world.add_entries(&agent, 1_990).await;
    world.pass(86_400);
    let large = body_of(world.offer(dollars(9)));
    // The test clock advances by nine seconds in each millisecond.
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
    // A preflight reads only some of the payments that authorize would have to evict.
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

/// Returns the number of windows with a requested eviction.
async fn requests(world: &World) -> usize {
    let rows = world.scan("LedgerTable").await;
    rows.iter().filter(|row| row["pk"].as_s().unwrap() == "EVICT").count()
}

async fn page(world: &World, agent: &TestAgent) -> String {
    let url = format!("{}/dashboard/agents/{}", world.stack.base_url, agent.id);
    let page = world.http.get(url);
    let page = page.header("cookie", world.browser_session(&DEMO_OWNER).await);
    page.send().await.unwrap().text().await.unwrap()
}

/// Until the eviction, the page shows an upper bound, and the agent's reads return a retryable error.
#[tokio::test(flavor = "multi_thread")]
async fn idle_windows_are_evicted_by_reconcile() {
    // With streams, each delete would search the stream for its last record.
    let world = World::still_with(Options {
        streams: Streaming::Off,
        ..Options::default()
    })
    .await;
    let person = world.person(&DEMO_OWNER);
    let agent = world.agent_of(&person, "idle").await;
    world.put_policy(&agent, "lab-search", true, daily(dollars(100))).await;
    world.fund(&agent, dollars(100)).await;
    world.authorize(&agent, &body_of(world.offer(100))).await.ok();
    world.add_entries(&agent, 20_100).await;
    world.pass(86_400);
    let person = world.person(&DEMO_OWNER);
    let before = world.footprint().await;

    let policy = agent.path("/services/lab-search/policy");
    let unknown = world.get(&agent, &policy).await;
    assert_eq!(unknown.headers["retry-after"], "1");
    unknown.refused(503, "temporarily_unavailable");
    assert_eq!(requests(&world).await, 0, "the agent's own pages write nothing");
    // The page knows that 20,008 of the 20,101 payments have left the window.
    let shown = page(&world, &agent).await;
    assert!(shown.contains("at most <data"), "{shown}");
    let listed = world.person_gets(&person, &agent.path("/services")).await.ok();
    let services = listed["services"].as_array().unwrap().iter();
    let spent = services.map(|service| service["spend_today_units"].as_u64().unwrap());
    assert_eq!(spent.sum::<u64>(), 93 * 100);
    let check = body_of(world.offer(dollars(1)));
    world
        .check(&agent, &check)
        .await
        .refused(503, "temporarily_unavailable");
    assert_eq!(requests(&world).await, 1, "one request while it stands");
    assert_eq!(world.footprint().await, before, "who looks evicts nothing");

    for _ in 0..3 {
        world
            .stack
            .reconcile
            .reconcile_all(std::time::Duration::from_mins(1))
            .await
            .unwrap();
    }
    let after = world.footprint().await;
    assert_eq!((after.entries, after.total, requests(&world).await), (0, 0, 0));
    assert_eq!(world.check(&agent, &check).await.ok()["would_authorize"], true);
    assert_eq!(world.get(&agent, &policy).await.ok()["spend_today_units"], 0);
    assert!(!page(&world, &agent).await.contains("at most <data"));
}
