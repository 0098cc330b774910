//! Tests that actions are published as events and counted in the owner's usage. `functions/stream/tests` tests
//! failures.

use super::{Household, KIM, LEE};
use aws_sdk_dynamodb::types::AttributeValue;
use purser_domain::{Event, EventKind, UserId};
use purser_local::{Options, Streaming};
use purser_testkit::LEDGER;
use purser_tests::{World, body_of, dollars};
use serde_json::{Value, json};
use std::collections::BTreeMap;

async fn home() -> Household {
    let options = Options {
        streams: Streaming::On,
        ..Options::default()
    };
    let home = Household::in_world(World::still_with(options).await).await;
    let policy = json!({"max_per_day_units": dollars(20), "require_approval_above_units": dollars(5)});
    home.set_policy(policy).await;
    home
}

impl Household {
    /// Returns the published events about the agent, without duplicates.
    fn told(&self) -> BTreeMap<EventKind, Vec<Event>> {
        let mut told: BTreeMap<EventKind, Vec<Event>> = BTreeMap::new();
        for entry in self.world.stack.bus.taken() {
            let event = Event::parse(entry.detail.to_string().as_bytes()).expect("one of our events");
            if event.agent() == Some(self.agent.id) {
                let events = told.entry(event.kind()).or_default();
                if events.iter().all(|before| before.id() != event.id()) {
                    events.push(event);
                }
            }
        }
        told
    }

    async fn usage(&self, query: &str) -> Value {
        let path = format!("/usage?{query}");
        self.world.person_gets(&self.kim, &path).await.ok()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn events_and_usage_belong_only_to_the_owner() {
    let mut home = home().await;
    let (world, agent) = (&home.world, &home.agent);
    let paid = world.authorize(agent, &body_of(world.offer(1_000))).await.ok();
    let hash = world.settle(&paid).await;
    let id = paid["settlement_id"].as_str().unwrap();
    let proof = json!({"payment_response_header": "e30=", "tx_hash": hash});
    world.complete(agent, id, &proof).await.ok();
    let blocked = world.authorize(agent, &body_of(world.offer(dollars(21)))).await;
    let blocked = blocked.refused(402, "daily_spend_limit_exceeded");
    let asked = world.authorize(agent, &body_of(world.offer(dollars(6) / 10 * 9))).await;
    assert_eq!(
        (asked.status, asked.slug()),
        (402, "approval_required"),
        "{}",
        asked.body
    );
    assert_eq!(world.stack.publish_changes().await, 0);

    let told = home.told();
    let kim = UserId::derive(world.stack.issuer.url(), KIM.sub);
    assert!(
        told.values().flatten().all(|event| event.owner() == Some(&kim)),
        "{told:?}"
    );
    let counts: BTreeMap<&str, usize> = told.iter().map(|(kind, events)| (kind.name(), events.len())).collect();
    let expected = [
        (EventKind::PaymentAuthorized, 1),
        (EventKind::PaymentConfirmed, 1),
        (EventKind::PaymentRefused, 1),
        (EventKind::PaymentEscalated, 1),
        (EventKind::ApprovalAsked, 1),
        (EventKind::AgentCreated, 1),
        (EventKind::KeyCreated, 1),
        (EventKind::PolicyChanged, 1),
    ];
    assert_eq!(counts, expected.map(|(kind, count)| (kind.name(), count)).into());
    let confirmed = told[&EventKind::PaymentConfirmed][0].to_json();
    assert_eq!(confirmed["data"]["tx_hash"], hash);
    assert_eq!(confirmed["data"]["settlement_id"], id);
    let refused = told[&EventKind::PaymentRefused][0].to_json();
    assert_eq!(refused["data"]["transaction_id"], blocked["transaction_id"]);
    // Events do not contain URLs from agents.
    let text = format!("{:?}", world.stack.bus.taken());
    for secret in ["provider.example/x", agent.key.as_str()] {
        assert!(!text.contains(secret), "{secret}");
    }

    let usage = home.usage("").await;
    let sums = json!({
        "authorized_units": 1_000, "confirmed_units": 1_000, "released_units": 0, "taken_back_units": 0,
        "allowed": 1, "blocked": 1, "escalated": 1,
    });
    assert_eq!(usage["total"], sums);
    let today = world.now().to_string()[..10].to_owned();
    assert_eq!(
        (&usage["to"], &usage["rows"][0]["day"], &usage["count"]),
        (&json!(today), &json!(today), &json!(1))
    );
    for (by, name, of) in [
        ("agent", "agent_id", agent.id.to_string()),
        (
            "service",
            "service_id",
            world.service("lab-search").await.id.to_string(),
        ),
    ] {
        let usage = home.usage(&format!("by={by}")).await;
        assert_eq!((&usage["total"], &usage["rows"][0][name]), (&sums, &json!(of)), "{by}");
    }
    let usage = home.usage(&format!("by=reason&from={today}&to={today}")).await;
    let rows = usage["rows"].as_array().unwrap().iter();
    let rows: BTreeMap<_, _> = rows
        .map(|row| {
            (
                row["reason"].as_str().unwrap(),
                (row["blocked"].clone(), row["escalated"].clone()),
            )
        })
        .collect();
    let expected = [
        ("daily_spend_limit_exceeded", (json!(1), json!(0))),
        ("approval_required", (json!(0), json!(1))),
    ];
    assert_eq!(rows, expected.into());
    let lee = world.person(&LEE);
    let of_lee = world.person_gets(&lee, "/usage").await.ok();
    assert_eq!(
        (&of_lee["rows"], &of_lee["total"]["authorized_units"]),
        (&json!([]), &json!(0))
    );
    assert_eq!(home.usage("from=2026-01-01&to=2026-01-31").await["rows"], json!([]));

    // A pending approval expires after a day, which is published as an event.
    home.pass_a_day();
    home.world.pass(120);
    home.world
        .stack
        .events
        .publish_due_events(std::time::Duration::from_secs(30))
        .await
        .unwrap();
    let expired = &home.told()[&EventKind::ApprovalExpired][0];
    assert_eq!(
        expired.data().find_text("approval_id"),
        asked.body["approval_id"].as_str()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_rows_do_not_delay_events() {
    let home = home().await;
    let (world, agent) = (&home.world, &home.agent);
    let text = |text: String| AttributeValue::S(text);
    let put = world.stack.db.put_item().table_name(LEDGER);
    let put = put
        .item("pk", text(format!("S#{}", agent.id)))
        .item("sk", text("poison".to_owned()));
    put.send().await.unwrap();
    world.authorize(agent, &body_of(world.offer(1_000))).await.ok();
    assert_eq!(world.stack.publish_changes().await, 0);
    assert_eq!(home.told()[&EventKind::PaymentAuthorized].len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_periods_have_at_most_31_days() {
    let home = home().await;
    for (query, at) in [
        ("from=yesterday", "/from"),
        ("to=2026-13-01", "/to"),
        ("by=week", "/by"),
        ("from=2026-01-02&to=2026-01-01", "/to"),
        ("from=2026-01-01&to=2026-02-01", "/to"),
    ] {
        let path = format!("/usage?{query}");
        let refused = home
            .world
            .person_gets(&home.kim, &path)
            .await
            .refused(400, "invalid_request");
        assert_eq!(refused["details"][0]["path"], at, "{query}: {refused}");
    }
    home.usage("from=2026-01-01&to=2026-01-31&by=service").await;
}
