//! Tests webhooks with an emulated DynamoDB and SQS, and the official Standard Webhooks library.

#![expect(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test stops where its ground is missing"
)]

use aws_sdk_dynamodb::types::AttributeValue;
use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response},
    routing::any,
};
use purser_api::{Boot, Clock, DeliveryMessage, DeliveryOf, NotificationRequest, NotificationSource, WebhookRequest};
use purser_domain::{
    AgentId, CallResult, Delivery, DeliveryId, DeliveryState, Event, EventData, EventId, EventKind, EventSource,
    EventSubject, FailedCalls, FailureStage, SecretOf, SecretValidity, Timestamp, UserId, Webhook, WebhookContentType,
    WebhookId, WebhookSecret, WebhookSecretId, WebhookSettings, WebhookUrl,
};
use purser_store::{NewWebhookSecret, PageRequest, USER_SHARDS, UpdateResult, WebhooksTable};
use purser_testkit::{Emulator, Fate, Kms, Moment, Proxy, ProxyConfig, Sqs, WEBHOOKS, environment, sample, serve};
use purser_webhooks::Webhooks;
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};
use uuid::Uuid;

const EVENTS: &str = "events";
const REQUESTS: &str = "requests";
const DELIVERIES: &str = "deliveries";
const NOTICES: &str = "notice-requests";
/// The maximum delay of an SQS message, in seconds.
const LONGEST_DELAY_SECS: i64 = 900;
/// The timeout of a call in these tests.
const LONGEST_CALL: Duration = Duration::from_secs(3);
const BUDGET: Duration = Duration::from_secs(30);
/// The default visibility timeout of a message.
const VISIBILITY_SECS: i64 = 180;

#[derive(Clone)]
enum Answers {
    Status(u16),
    With(u16, &'static str, String),
    Hangs,
}

#[derive(Clone)]
struct Receiver {
    url: String,
    answers: Arc<Mutex<Answers>>,
    calls: Arc<Mutex<Vec<Call>>>,
}

#[derive(Clone)]
struct Call {
    headers: HeaderMap,
    body: Bytes,
    at: Instant,
}

impl Call {
    fn id(&self) -> String {
        self.headers["webhook-id"].to_str().unwrap().to_owned()
    }

    fn event(&self) -> Event {
        Event::parse(&self.body).unwrap()
    }

    /// Returns whether the official library verifies the call at the current time.
    fn is_verified_with(&self, secret: &str) -> bool {
        let library = standardwebhooks::Webhook::new(secret).unwrap();
        library.verify(&self.body, &self.headers).is_ok()
    }

    /// Returns whether the official library computes the same signature, regardless of the call's time.
    fn is_signed_with(&self, secret: &str) -> bool {
        let library = standardwebhooks::Webhook::new(secret).unwrap();
        let header = |name: &str| self.headers[name].to_str().unwrap();
        let signed = library.sign(&self.id(), header("webhook-timestamp").parse().unwrap(), &self.body);
        header("webhook-signature")
            .split(' ')
            .any(|signature| signature == signed.as_ref().unwrap())
    }
}

impl Receiver {
    async fn start() -> Self {
        let receiver = Self {
            url: String::new(),
            answers: Arc::new(Mutex::new(Answers::Status(204))),
            calls: Arc::default(),
        };
        let router = Router::new().fallback(any(received)).with_state(receiver.clone());
        Self {
            url: format!("{}/hook?token=in-the-url", serve(router).await),
            ..receiver
        }
    }

    fn answer(&self, answers: Answers) {
        *self.answers.lock().unwrap() = answers;
    }

    fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap().clone()
    }

    fn authority(&self) -> String {
        let url = self.url.trim_start_matches("http://");
        url.split('/').next().unwrap().to_owned()
    }
}

async fn received(State(receiver): State<Receiver>, headers: HeaderMap, body: Bytes) -> Response {
    receiver.calls.lock().unwrap().push(Call {
        headers,
        body,
        at: Instant::now(),
    });
    let answers = receiver.answers.lock().unwrap().clone();
    match answers {
        Answers::Status(status) => (StatusCode::from_u16(status).unwrap(), "the answer's own body").into_response(),
        Answers::With(status, name, value) => (StatusCode::from_u16(status).unwrap(), [(name, value)]).into_response(),
        Answers::Hangs => std::future::pending().await,
    }
}

/// A database, the queues, and the Lambda function `webhooks` with a clock that stands still.
struct World {
    emulator: Emulator,
    table: WebhooksTable,
    sqs: Sqs,
    sqs_url: String,
    kms: Kms,
    kms_url: String,
    micros: Arc<AtomicI64>,
    webhooks: Webhooks,
    allowed: String,
}

impl World {
    /// Starts the function, which may call these receivers on this machine.
    async fn start(receivers: &[&Receiver]) -> Self {
        let emulator = Emulator::start().await;
        let now = Arc::new(AtomicI64::new(Clock::system().now().micros()));
        let clock = Arc::clone(&now);
        let sqs = Sqs::new(move || clock.load(SeqCst));
        sqs.create(EVENTS, VISIBILITY_SECS, 20);
        sqs.create(REQUESTS, VISIBILITY_SECS, 20);
        sqs.create(DELIVERIES, VISIBILITY_SECS, 100);
        sqs.create(NOTICES, VISIBILITY_SECS, 20);
        let sqs_url = sqs.serve().await;
        let allowed: Vec<String> = receivers.iter().map(|receiver| receiver.authority()).collect();
        let allowed = allowed.join(",");
        let kms = Kms::default();
        let kms_url = kms.serve().await;
        let webhooks = function([&emulator.url, &sqs_url, &kms_url], &allowed, &now);
        Self {
            table: WebhooksTable::new(emulator.client.clone(), WEBHOOKS),
            emulator,
            sqs,
            sqs_url,
            kms,
            kms_url,
            micros: now,
            webhooks,
            allowed,
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.micros.load(SeqCst)).unwrap()
    }

    fn pass(&self, secs: i64) {
        self.micros.fetch_add(secs * 1_000_000, SeqCst);
    }

    /// Stores a webhook of a user, and returns the webhook with the secret.
    async fn webhook(
        &self,
        person: &str,
        slot: u8,
        url: &str,
        edit: impl FnOnce(&mut WebhookSettings),
    ) -> (Webhook, String) {
        let (id, of) = (WebhookId::from_uuid(Uuid::new_v4()), self::person(person));
        let (secret, text) = self.secret(&of, id, slot + 1);
        let mut terms = WebhookSettings {
            url: WebhookUrl::parse(url).unwrap(),
            description: None,
            kinds: None,
            agents: None,
            enabled: true,
            content_type: WebhookContentType::CloudEvents,
        };
        edit(&mut terms);
        let webhook = Webhook {
            id,
            person: of,
            slot,
            version: 1,
            created_at: self.now(),
            terms,
            secrets: vec![SecretValidity {
                id: secret.id,
                created_at: self.now(),
                ends_at: None,
            }],
        };
        let stored = self
            .table
            .create_webhook(&webhook, &secret, &sample::audit())
            .await
            .unwrap();
        assert_eq!(stored, UpdateResult::Stored);
        (webhook, text)
    }

    /// Creates a webhook secret. Returns the stored form and the form that the user gets.
    fn secret(&self, person: &UserId, webhook: WebhookId, byte: u8) -> (NewWebhookSecret, String) {
        let (id, secret) = (
            WebhookSecretId::from_uuid(Uuid::new_v4()),
            WebhookSecret::from_random([byte; 32]),
        );
        let of = SecretOf::Webhook {
            person: person.clone(),
            webhook,
            secret: id,
        };
        let stored = self.kms.encrypt(&of, secret.as_bytes());
        (
            NewWebhookSecret { id, secret: stored },
            secret.to_standard_text().to_string(),
        )
    }

    /// Publishes an event in the format of the event bus.
    fn happen(&self, event: &Event) {
        let from_bus = json!({
            "version": "0", "id": Uuid::new_v4().to_string(), "detail-type": event.kind().name(),
            "source": event.source().as_str(), "account": "000000000000", "time": event.time().to_string(),
            "region": "us-east-1", "resources": [], "detail": event.to_json(),
        });
        self.sqs.send(EVENTS, &from_bus.to_string());
    }

    /// Runs the sweep, and processes messages until none is visible.
    async fn run(&self) {
        let scheduled = include_str!("../../../events/webhooks/every-minute.json");
        let scheduled: Value = serde_json::from_str(scheduled).unwrap();
        assert_eq!(
            self.webhooks.handle_event(scheduled, BUDGET).await.unwrap(),
            Value::Null
        );
        for queue in [EVENTS, REQUESTS, DELIVERIES] {
            while let Some(batch) = self.sqs.receive(queue, 10) {
                let answer = self.webhooks.handle_event(batch.clone(), BUDGET).await.unwrap();
                self.sqs.delete_done(queue, &batch, Some(&answer));
            }
        }
    }

    async fn deliveries(&self, webhook: &Webhook) -> Vec<Delivery> {
        let newest = PageRequest {
            before: None,
            limit: 100,
        };
        self.table.read_delivery_page(webhook.id, newest).await.unwrap().items
    }

    async fn delivery(&self, webhook: &Webhook) -> Delivery {
        let deliveries = self.deliveries(webhook).await;
        assert_eq!(deliveries.len(), 1);
        deliveries[0].clone()
    }

    async fn failed_calls(&self, webhook: &Webhook) -> Option<FailedCalls> {
        self.table
            .list_failed_calls(&[webhook.id])
            .await
            .unwrap()
            .remove(&webhook.id)
    }

    /// Advances the clock by `hours`, and makes the calls that become due.
    async fn run_for(&self, hours: i64) {
        for _ in 0..hours {
            self.pass(3_600);
            self.run().await;
        }
    }

    /// Returns the number of messages in the delivery queue, hidden or not.
    fn waiting(&self) -> usize {
        self.sqs.bodies(DELIVERIES).len()
    }

    /// Returns the number of rows for long pauses.
    async fn paused(&self) -> usize {
        let mut count = 0;
        for part in USER_SHARDS {
            let rows = self
                .table
                .read_delivery_pauses(part, None, Timestamp::MAX, 1_000)
                .await
                .unwrap();
            count += rows.len();
        }
        count
    }
}

fn function([dynamodb, sqs, kms]: [&str; 3], allowed: &str, now: &Arc<AtomicI64>) -> Webhooks {
    let mut env: std::collections::BTreeMap<&str, String> = environment(dynamodb, sqs).collect();
    env.insert("SQS_ENDPOINT", sqs.to_owned());
    env.insert("KMS_ENDPOINT", kms.to_owned());
    env.insert("DELIVERIES_QUEUE_URL", Sqs::url(sqs, DELIVERIES));
    env.insert("NOTICE_REQUESTS_QUEUE_URL", Sqs::url(sqs, NOTICES));
    env.insert("DELIVERIES_QUEUE_ARN", Sqs::arn(DELIVERIES));
    env.insert("WEBHOOK_REQUESTS_QUEUE_ARN", Sqs::arn(REQUESTS));
    env.insert("WEBHOOK_EVENTS_QUEUE_ARN", Sqs::arn(EVENTS));
    env.insert("WEBHOOK_ALLOWED_HOSTS", allowed.to_owned());
    let boot = Boot::new(env.into_iter().collect(), Clock::at_fixed_time(Arc::clone(now)));
    Webhooks::boot_with_timeout(boot, LONGEST_CALL).unwrap()
}

fn person(name: &str) -> UserId {
    UserId::derive("https://issuer.example", name)
}

fn agent(n: u128) -> AgentId {
    AgentId::from_uuid(Uuid::from_u128(n))
}

/// Returns the event of the agent's `n`-th freeze.
fn frozen(owner: &str, of: AgentId, n: u64, at: Timestamp) -> Event {
    let kind = EventKind::AgentFrozen;
    let id = EventId::derive(kind, &[&of, &n]);
    let source = EventSource::for_stack("tests").unwrap();
    let data = EventData::new().text("by", "owner");
    Event::new(id, source, kind, at, EventSubject::Agent(of), Some(person(owner)), data).unwrap()
}

/// The official Standard Webhooks library verifies each call.
#[tokio::test]
async fn events_call_only_the_owners_subscribed_webhooks() {
    let [all, some, others, bobs] = [(); 4].map(|()| Receiver::start());
    let [all, some, others, bobs] = [all.await, some.await, others.await, bobs.await];
    let world = World::start(&[&all, &some, &others, &bobs]).await;
    let (_, secret) = world.webhook("ann", 0, &all.url, |_| {}).await;
    let (_, some_secret) = world
        .webhook("ann", 1, &some.url, |terms| {
            terms.kinds = Some([EventKind::AgentFrozen].into());
            terms.agents = Some([agent(1)].into());
            terms.content_type = WebhookContentType::Json;
        })
        .await;
    let (_, _) = world
        .webhook("ann", 2, &others.url, |terms| terms.agents = Some([agent(2)].into()))
        .await;
    // Bob's webhook selects Ann's agent, but receives none of Ann's events.
    world
        .webhook("bob", 0, &bobs.url, |terms| terms.agents = Some([agent(1)].into()))
        .await;
    let event = frozen("ann", agent(1), 1, world.now());
    world.happen(&event);
    world.run().await;

    for (receiver, secret, other, content_type) in [
        (&all, &secret, &some_secret, "application/cloudevents+json"),
        (&some, &some_secret, &secret, "application/json"),
    ] {
        let calls = receiver.calls();
        assert_eq!(calls.len(), 1);
        assert!(calls[0].is_verified_with(secret) && !calls[0].is_verified_with(other));
        assert_eq!(calls[0].event(), event);
        assert_eq!(calls[0].id(), event.id().to_string());
        assert_eq!(calls[0].headers["content-type"], content_type);
        let of_ours = calls[0]
            .headers
            .keys()
            .map(axum::http::HeaderName::as_str)
            .collect::<BTreeSet<_>>();
        assert!(["authorization", "cookie"].iter().all(|name| !of_ours.contains(name)));
    }
    assert!(others.calls().is_empty() && bobs.calls().is_empty());
    assert!(world.sqs.bodies(EVENTS).is_empty() && world.waiting() == 0);
}

/// Each retry has the same id and a new signature.
#[tokio::test]
async fn failed_webhook_calls_are_retried_for_about_a_day() {
    let receiver = Receiver::start().await;
    let world = World::start(&[&receiver]).await;
    let (webhook, secret) = world.webhook("ann", 0, &receiver.url, |_| {}).await;
    let elsewhere = Receiver::start().await;
    let failures = [
        (Answers::Status(500), "status_500"),
        // Redirects are not followed.
        (Answers::With(307, "location", elsewhere.url.clone()), "status_307"),
        (Answers::Hangs, "timeout"),
        (Answers::Status(404), "status_404"),
        (Answers::Status(302), "status_302"),
        (Answers::With(429, "retry-after", "21600".to_owned()), "status_429"),
        (Answers::Status(503), "status_503"),
        (Answers::Status(400), "status_400"),
    ];
    world.happen(&frozen("ann", agent(1), 1, world.now()));
    let mut passed = 0;
    for (n, (answers, result)) in failures.into_iter().enumerate() {
        receiver.answer(answers);
        world.run().await;
        let delivery = world.delivery(&webhook).await;
        assert_eq!(
            (receiver.calls().len(), delivery.attempts),
            (n + 1, u32::try_from(n + 1).unwrap())
        );
        assert_eq!(delivery.last.unwrap().result.to_string(), result);
        let Some(next_at) = delivery.next_at else {
            assert_eq!((n, delivery.state), (7, DeliveryState::Failed));
            break;
        };
        // A short pause is a delayed message, and a long pause is a row. No message is in flight meanwhile.
        let pause = i64::try_from(next_at.since(world.now()).secs_rounded_up()).unwrap();
        let in_row = usize::from(pause > LONGEST_DELAY_SECS);
        assert_eq!(
            (world.paused().await, world.waiting()),
            (in_row, 1 - in_row),
            "{result}"
        );
        assert_eq!(world.sqs.in_flight(DELIVERIES), 0);
        world.pass(pause - 2);
        world.run().await;
        assert_eq!(receiver.calls().len(), n + 1, "{result}");
        world.pass(2);
        passed += pause;
    }
    assert!((82_000..=93_000).contains(&passed), "{passed}");
    assert_eq!(
        (world.waiting(), world.paused().await),
        (0, 0),
        "what was given up waits no more"
    );
    assert!(elsewhere.calls().is_empty());
    let calls = receiver.calls();
    let ids: BTreeSet<String> = calls.iter().map(Call::id).collect();
    let times: BTreeSet<_> = calls
        .iter()
        .map(|call| call.headers["webhook-timestamp"].clone())
        .collect();
    assert_eq!((ids.len(), times.len()), (1, calls.len()));
    assert!(calls.iter().all(|call| call.is_signed_with(&secret)));
}

#[tokio::test]
async fn a_410_response_stops_webhook_calls_until_an_update() {
    let receiver = Receiver::start().await;
    let world = World::start(&[&receiver]).await;
    let (webhook, _) = world.webhook("ann", 0, &receiver.url, |_| {}).await;
    let happen = async |n| {
        world.happen(&frozen("ann", agent(1), n, world.now()));
        world.run().await;
    };
    receiver.answer(Answers::Status(410));
    happen(1).await;
    assert_eq!(world.delivery(&webhook).await.state, DeliveryState::Failed);
    assert_eq!(
        world
            .table
            .read_410_response_times(std::slice::from_ref(&webhook))
            .await
            .unwrap()
            .len(),
        1
    );
    receiver.answer(Answers::Status(200));
    happen(2).await;
    assert_eq!((receiver.calls().len(), world.waiting()), (1, 0));
    let edited = webhook.clone().with_settings(webhook.terms.clone());
    let stored = world.table.update_webhook(&edited, &sample::audit()).await.unwrap();
    assert_eq!(stored, UpdateResult::Stored);
    happen(3).await;
    assert_eq!(receiver.calls().len(), 2);
}

/// A receiver fails, recovers and fails for a week. Each stage of failure requests one notification.
#[tokio::test]
async fn failing_webhooks_are_reported_and_disabled() {
    let receiver = Receiver::start().await;
    let world = World::start(&[&receiver]).await;
    let (webhook, _) = world.webhook("ann", 0, &receiver.url, |_| {}).await;
    let happen = async |n| {
        world.happen(&frozen("ann", agent(1), n, world.now()));
        world.run().await;
    };
    let is_gone = async || {
        !world
            .table
            .read_410_response_times(std::slice::from_ref(&webhook))
            .await
            .unwrap()
            .is_empty()
    };
    receiver.answer(Answers::Status(503));
    let since = world.now();
    happen(1).await;
    world.run_for(10).await;
    let failed = world.failed_calls(&webhook).await.unwrap();
    assert_eq!((failed.since, failed.stage), (since, FailureStage::New));
    assert_eq!(
        (usize::try_from(failed.count).unwrap(), failed.last),
        (receiver.calls().len(), CallResult::Status(503))
    );
    receiver.answer(Answers::Status(204));
    world.run_for(10).await;
    assert_eq!(world.failed_calls(&webhook).await, None, "the first success ends them");
    assert!(world.sqs.bodies(NOTICES).is_empty());

    receiver.answer(Answers::Status(503));
    let since = world.now();
    happen(2).await;
    world.run_for(20).await;
    let failed = world.failed_calls(&webhook).await.unwrap();
    assert_eq!(
        (failed.since, failed.stage, failed.notified),
        (since, FailureStage::Notified, FailureStage::Notified)
    );
    let request = NotificationRequest {
        person: person("ann"),
        of: NotificationSource::Webhook(webhook.id),
    };
    assert_eq!(world.sqs.bodies(NOTICES), [serde_json::to_string(&request).unwrap()]);
    // The delivery of the fourth round ends after 5 days.
    for day in 0..5 {
        assert!(!is_gone().await, "after {day} days");
        happen(3 + day).await;
        world.run_for(25).await;
    }
    assert!(is_gone().await);
    let failed = world.failed_calls(&webhook).await.unwrap();
    assert_eq!((failed.since, failed.stage), (since, FailureStage::Disabled));
    assert_eq!(world.sqs.bodies(NOTICES).len(), 2);

    // An update by the user clears the failures.
    let calls = receiver.calls().len();
    happen(20).await;
    assert_eq!(receiver.calls().len(), calls, "it is disabled");
    let updated = webhook.clone().with_settings(webhook.terms.clone());
    assert_eq!(
        world.table.update_webhook(&updated, &sample::audit()).await.unwrap(),
        UpdateResult::Stored
    );
    let since = world.now();
    happen(21).await;
    assert_eq!(receiver.calls().len(), calls + 1);
    let failed = world.failed_calls(&webhook).await.unwrap();
    assert_eq!((failed.version, failed.since, failed.count), (2, since, 1));
}

#[tokio::test]
async fn successful_webhook_calls_write_no_failure_record() {
    let receiver = Receiver::start().await;
    let world = World::start(&[&receiver]).await;
    let (webhook, _) = world.webhook("ann", 0, &receiver.url, |_| {}).await;
    world.happen(&frozen("ann", agent(1), 1, world.now()));
    world.run().await;
    assert_eq!(receiver.calls().len(), 1);
    let rows = world
        .emulator
        .client
        .query()
        .table_name(WEBHOOKS)
        .key_condition_expression("pk = :pk");
    let rows = rows.expression_attribute_values(":pk", AttributeValue::S(format!("G#{}", webhook.id)));
    assert_eq!(rows.send().await.unwrap().count(), 0);
}

/// Long pauses are stored as rows, so no message stays in flight.
#[tokio::test]
async fn failing_webhooks_do_not_delay_other_users() {
    let [dead, other] = [Receiver::start().await, Receiver::start().await];
    let world = World::start(&[&dead, &other]).await;
    let (_, bobs_secret) = world.webhook("bob", 0, &other.url, |_| {}).await;
    dead.answer(Answers::With(503, "retry-after", "21600".to_owned()));
    // SQS allows 120,000 messages in flight. The test has a lower limit, and more deliveries per round.
    world.sqs.limit_in_flight(DELIVERIES, 20);
    for round in 0..4_u64 {
        let mut hooks = Vec::new();
        for slot in 0..3 {
            hooks.push(world.webhook("ann", slot, &dead.url, |_| {}).await.0);
        }
        for n in 0..10 {
            world.happen(&frozen("ann", agent(1), round * 10 + n, world.now()));
        }
        world.run().await;
        assert_eq!(dead.calls().len(), usize::try_from(round + 1).unwrap() * 30);
        assert_eq!(
            (world.sqs.in_flight(DELIVERIES), world.waiting()),
            (0, 0),
            "round {round}"
        );
        world.happen(&frozen("bob", agent(2), round, world.now()));
        world.run().await;
        let calls = other.calls();
        assert_eq!(calls.len(), usize::try_from(round + 1).unwrap());
        assert!(calls.last().unwrap().is_signed_with(&bobs_secret));
        for hook in hooks {
            assert_eq!(
                world.table.remove_webhook(&hook, &sample::audit()).await.unwrap(),
                UpdateResult::Stored
            );
        }
    }
    assert_eq!(world.paused().await, 120);
    // Deliveries of removed webhooks are dropped without a call when their pauses end.
    world.pass(8 * 3_600);
    world.run().await;
    assert_eq!((world.paused().await, world.waiting(), dead.calls().len()), (0, 0, 120));
    let rows = world.emulator.client.scan().table_name(WEBHOOKS).send().await.unwrap();
    let waiting = format!("W#{}", person("ann"));
    assert!(!rows.items().iter().any(|row| format!("{row:?}").contains(&waiting)));
}

/// Recreating a webhook does not raise the user's limit of pending deliveries.
#[tokio::test]
async fn pending_deliveries_are_limited_per_user() {
    let dead = Receiver::start().await;
    let world = World::start(&[&dead]).await;
    let (first, _) = world.webhook("ann", 0, &dead.url, |_| {}).await;
    let (bobs, _) = world.webhook("bob", 0, &dead.url, |_| {}).await;
    dead.answer(Answers::Status(503));
    let happen = async |owner, n| {
        let event = frozen(owner, agent(1), n, world.now());
        world.happen(&event);
        world.run().await;
        event
    };
    // The user has one pending delivery less than the maximum.
    for n in 1..Delivery::MAX_WAITING {
        let id = DeliveryId::from_uuid(Uuid::from_u128(n.into()));
        assert!(
            world
                .table
                .try_mark_delivery_waiting(&person("ann"), id, world.now())
                .await
                .unwrap()
        );
    }
    let state = async |webhook: &Webhook, event: &Event| {
        let id = Delivery::new(webhook.id, event).id;
        let delivery = world.table.read_delivery_by_id(webhook.id, id).await.unwrap().unwrap();
        (delivery.state, delivery.attempts)
    };
    let last = happen("ann", 1).await;
    assert_eq!(state(&first, &last).await, (DeliveryState::Waiting, 1));
    let too_many = happen("ann", 2).await;
    assert_eq!(state(&first, &too_many).await, (DeliveryState::Failed, 1));
    assert_eq!(world.waiting(), 1, "nothing of it is in the queue");
    // Another user's delivery can still become pending.
    let event = happen("bob", 3).await;
    assert_eq!(state(&bobs, &event).await, (DeliveryState::Waiting, 1));
    // A recreated webhook does not raise the limit. The end of a delivery allows another pending delivery.
    world.table.remove_webhook(&first, &sample::audit()).await.unwrap();
    let (again, _) = world.webhook("ann", 0, &dead.url, |_| {}).await;
    let event = happen("ann", 4).await;
    assert_eq!(state(&again, &event).await, (DeliveryState::Failed, 1));
    world.pass(10);
    world.run().await;
    let event = happen("ann", 5).await;
    assert_eq!(state(&again, &event).await, (DeliveryState::Waiting, 1));
    // A row that a crash left does not count after it expires.
    world.pass(4 * 86_400);
    world.run().await;
    let event = happen("ann", 6).await;
    assert_eq!(state(&again, &event).await, (DeliveryState::Waiting, 1));
}

/// An unreadable row does not delay others, and two concurrent sweeps make one call.
#[tokio::test]
async fn failed_runs_of_the_retry_schedule_lose_no_delivery() {
    let receiver = Receiver::start().await;
    let world = World::start(&[&receiver]).await;
    let (webhook, _) = world.webhook("ann", 0, &receiver.url, |_| {}).await;
    receiver.answer(Answers::With(503, "retry-after", "7200".to_owned()));
    world.happen(&frozen("ann", agent(1), 1, world.now()));
    world.run().await;
    assert_eq!(world.paused().await, 1);
    // The unreadable row is the first in the shard.
    let part = person("ann").as_str().chars().next().unwrap();
    let key = |name: &str, text: String| (name.to_owned(), AttributeValue::S(text));
    let put = world.emulator.client.put_item().table_name(WEBHOOKS);
    let row = [key("pk", format!("N#{part}")), key("sk", "2000".to_owned())];
    put.set_item(Some(row.into())).send().await.unwrap();
    world.pass(3 * 3_600);
    receiver.answer(Answers::Status(200));
    world.sqs.lie(500);
    world.run().await;
    assert_eq!((world.paused().await, receiver.calls().len()), (2, 1));
    world.sqs.behave();
    // Two concurrent sweeps send two messages, but only one call is made.
    tokio::join!(
        world.webhooks.enqueue_due_paused_deliveries(BUDGET),
        world.webhooks.enqueue_due_paused_deliveries(BUDGET)
    );
    world.run().await;
    // The second message finds the claimed delivery and is received again later.
    world.pass(VISIBILITY_SECS);
    world.run().await;
    assert_eq!(
        (world.paused().await, receiver.calls().len(), world.waiting()),
        (1, 2, 0)
    );
    assert_eq!(world.delivery(&webhook).await.state, DeliveryState::Delivered);
}

/// A compromised `people` could send any message to the queue of requests.
#[tokio::test]
async fn forged_events_in_the_request_queue_are_never_signed() {
    let receiver = Receiver::start().await;
    let world = World::start(&[&receiver]).await;
    let (webhook, _) = world.webhook("ann", 0, &receiver.url, |_| {}).await;
    let forged = frozen("ann", agent(1), 1, world.now());
    let request = WebhookRequest {
        person: person("ann"),
        webhook: webhook.id,
        id: DeliveryId::new_at(world.now(), [1; 8]),
        again: None,
    };
    let mut with_event = json!(request);
    with_event["event"] = forged.to_json();
    let message = DeliveryMessage {
        person: person("ann"),
        webhook: webhook.id,
        of: DeliveryOf::Event(forged.clone()),
    };
    let bodies = [
        json!(message).to_string(),
        with_event.to_string(),
        json!({"detail": forged.to_json()}).to_string(),
    ];
    for body in &bodies {
        world.sqs.send(REQUESTS, body);
    }
    for _ in 0..22 {
        world.run().await;
        world.pass(VISIBILITY_SECS);
    }
    assert!(receiver.calls().is_empty());
    assert_eq!(world.sqs.set_aside(REQUESTS).len(), bodies.len());
    // A genuine request names only the webhook to test, and `webhooks` creates the event.
    world.sqs.send(REQUESTS, &json!(request).to_string());
    world.run().await;
    assert_eq!(receiver.calls()[0].event().kind(), EventKind::WebhookTest);
}

/// The secret of a removed webhook is deleted together with the webhook.
#[tokio::test]
async fn disabled_or_removed_webhooks_receive_no_retries() {
    let [off, removed] = [Receiver::start().await, Receiver::start().await];
    let world = World::start(&[&off, &removed]).await;
    let (off_hook, _) = world.webhook("ann", 0, &off.url, |_| {}).await;
    let (removed_hook, _) = world.webhook("ann", 1, &removed.url, |_| {}).await;
    for receiver in [&off, &removed] {
        receiver.answer(Answers::Status(500));
    }
    world.happen(&frozen("ann", agent(1), 1, world.now()));
    world.run().await;
    let mut terms = off_hook.terms.clone();
    terms.enabled = false;
    world
        .table
        .update_webhook(&off_hook.clone().with_settings(terms), &sample::audit())
        .await
        .unwrap();
    let stored = world
        .table
        .remove_webhook(&removed_hook, &sample::audit())
        .await
        .unwrap();
    assert_eq!(stored, UpdateResult::Stored);
    world.pass(86_400);
    world.run().await;
    assert_eq!((off.calls().len(), removed.calls().len(), world.waiting()), (1, 1, 0));
    assert_eq!(world.delivery(&off_hook).await.state, DeliveryState::Failed);
    let ids: Vec<_> = removed_hook.secrets.iter().map(|term| term.id).collect();
    assert!(
        world
            .table
            .read_secrets(removed_hook.id, &ids)
            .await
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn rotated_webhook_secrets_sign_for_one_more_day() {
    let receiver = Receiver::start().await;
    let world = World::start(&[&receiver]).await;
    let (webhook, old) = world.webhook("ann", 0, &receiver.url, |_| {}).await;
    let (new, text) = world.secret(&webhook.person, webhook.id, 9);
    let (rotated, ended) = webhook.rotate_secret(new.id, world.now());
    world
        .table
        .rotate_webhook_secret(&rotated, &new, &ended, &sample::audit())
        .await
        .unwrap();
    let new = text;
    for (n, secs, by_old) in [(1, 0, true), (2, 86_399, true), (3, 1, false)] {
        world.pass(secs);
        world.happen(&frozen("ann", agent(1), n, world.now()));
        world.run().await;
        let call = receiver.calls().pop().unwrap();
        assert_eq!(
            (call.is_signed_with(&new), call.is_signed_with(&old)),
            (true, by_old),
            "{n}"
        );
    }
}

/// Two instances that handle one message concurrently make at most two calls.
#[tokio::test]
async fn duplicate_events_are_delivered_to_a_webhook_once() {
    let receiver = Receiver::start().await;
    let world = World::start(&[&receiver]).await;
    let (webhook, _) = world.webhook("ann", 0, &receiver.url, |_| {}).await;
    let event = frozen("ann", agent(1), 1, world.now());
    for _ in 0..2 {
        world.happen(&event);
        world.run().await;
        assert_eq!(receiver.calls().len(), 1);
    }
    let message = DeliveryMessage {
        person: person("ann"),
        webhook: webhook.id,
        of: DeliveryOf::Event(event),
    };
    world.sqs.send(DELIVERIES, &json!(message).to_string());
    world.run().await;
    assert_eq!(receiver.calls().len(), 1);

    // The queue delivers the same message to two instances.
    let other = DeliveryMessage {
        of: DeliveryOf::Event(frozen("ann", agent(1), 2, world.now())),
        ..message
    };
    world.sqs.send(DELIVERIES, &json!(other).to_string());
    let batch = world.sqs.receive(DELIVERIES, 10).unwrap();
    let (one, two) = tokio::join!(
        world.webhooks.process_batch(batch.clone(), BUDGET),
        world.webhooks.process_batch(batch.clone(), BUDGET)
    );
    for answer in [one.unwrap(), two.unwrap()] {
        world.sqs.delete_done(DELIVERIES, &batch, Some(&answer));
    }
    let calls = receiver.calls();
    assert!((2..=3).contains(&calls.len()));
    let ids: BTreeSet<String> = calls.iter().map(Call::id).collect();
    assert_eq!(ids.len(), 2);
    assert!(
        world
            .deliveries(&webhook)
            .await
            .iter()
            .all(|delivery| delivery.state == DeliveryState::Delivered)
    );
    world.pass(86_400);
    world.run().await;
    assert_eq!((receiver.calls().len(), world.waiting()), (calls.len(), 0));
}

#[tokio::test]
async fn hanging_webhooks_do_not_delay_other_webhooks() {
    let [slow, quick] = [Receiver::start().await, Receiver::start().await];
    let world = World::start(&[&slow, &quick]).await;
    world.webhook("ann", 0, &slow.url, |_| {}).await;
    world.webhook("bob", 0, &quick.url, |_| {}).await;
    slow.answer(Answers::Hangs);
    for n in 1..=8 {
        world.happen(&frozen("ann", agent(1), n, world.now()));
    }
    world.happen(&frozen("bob", agent(2), 1, world.now()));
    let batch = world.sqs.receive(EVENTS, 10).unwrap();
    let answer = world.webhooks.process_batch(batch.clone(), BUDGET).await.unwrap();
    world.sqs.delete_done(EVENTS, &batch, Some(&answer));
    let batch = world.sqs.receive(DELIVERIES, 10).unwrap();
    assert_eq!(batch["Records"].as_array().unwrap().len(), 9);
    let began = Instant::now();
    let answer = world.webhooks.process_batch(batch.clone(), BUDGET).await.unwrap();
    world.sqs.delete_done(DELIVERIES, &batch, Some(&answer));
    // No call waited for another call's timeout.
    assert!(quick.calls()[0].at.duration_since(began) < LONGEST_CALL);
    assert!(began.elapsed() < LONGEST_CALL * 3, "{:?}", began.elapsed());
    assert_eq!((slow.calls().len(), quick.calls().len(), world.waiting()), (8, 1, 8));
}

/// Another user's event is never sent.
#[tokio::test]
async fn webhook_deliveries_are_repeated_on_request() {
    let receiver = Receiver::start().await;
    let world = World::start(&[&receiver]).await;
    let (webhook, _) = world.webhook("ann", 0, &receiver.url, |_| {}).await;
    world.happen(&frozen("ann", agent(1), 1, world.now()));
    world.run().await;
    let ask = async |n, again| {
        let request = WebhookRequest {
            person: person("ann"),
            webhook: webhook.id,
            id: DeliveryId::new_at(world.now(), [n; 8]),
            again,
        };
        // SQS may deliver a message twice.
        for _ in 0..2 {
            world.sqs.send(REQUESTS, &json!(request).to_string());
            world.run().await;
        }
        receiver.calls().len()
    };
    let delivery = world.delivery(&webhook).await.id;
    assert_eq!(ask(1, Some(delivery)).await, 2);
    assert_eq!(receiver.calls()[0].id(), receiver.calls()[1].id());
    let unknown = DeliveryId::new_at(world.now(), [2; 8]);
    assert_eq!(ask(2, Some(unknown)).await, 2);
    assert_eq!(ask(3, None).await, 3);
    // Another user's event is not sent, even if a queued message contains it.
    let message = DeliveryMessage {
        person: person("ann"),
        webhook: webhook.id,
        of: DeliveryOf::Event(frozen("bob", agent(1), 2, world.now())),
    };
    world.sqs.send(DELIVERIES, &json!(message).to_string());
    world.run().await;
    assert_eq!((receiver.calls().len(), world.waiting()), (3, 0));
}

#[tokio::test]
async fn webhooks_at_private_addresses_are_never_called() {
    let receiver = Receiver::start().await;
    // This function may not call local receivers.
    let world = World::start(&[]).await;
    let port = receiver.authority().split(':').next_back().unwrap().to_owned();
    let urls = [
        receiver.url.clone(),
        format!("https://127.0.0.1:{port}/"),
        format!("https://[::1]:{port}/"),
        format!("https://localhost:{port}/"),
        "https://169.254.169.254/latest/meta-data/".to_owned(),
        "https://10.0.0.1/".to_owned(),
        "http://example.com/".to_owned(),
    ];
    for (slot, url) in urls.iter().enumerate() {
        world.webhook("ann", slot.try_into().unwrap(), url, |_| {}).await;
    }
    world.happen(&frozen("ann", agent(1), 1, world.now()));
    world.run().await;
    assert!(receiver.calls().is_empty());
    for webhook in world.table.list_webhooks(&person("ann")).await.unwrap() {
        let result = world.delivery(&webhook).await.last.unwrap().result.to_string();
        assert_eq!(result, "blocked_address", "{}", webhook.terms.url);
    }
}

#[tokio::test]
async fn malformed_messages_reach_the_dead_letter_queue() {
    let world = World::start(&[]).await;
    world.sqs.send(EVENTS, "{}");
    world.sqs.send(EVENTS, r#"{"detail": {"specversion": "1.0"}}"#);
    world.sqs.send(DELIVERIES, "not a delivery");
    for _ in 0..101 {
        world.run().await;
        world.pass(VISIBILITY_SECS);
    }
    assert_eq!(world.sqs.set_aside(EVENTS).len(), 2);
    assert_eq!(world.sqs.set_aside(DELIVERIES), ["not a delivery"]);
}

/// `people` writes the rows of secrets, but can't move a secret to another webhook.
#[tokio::test]
async fn a_secret_ciphertext_of_another_webhook_cannot_sign() {
    let [anns, bobs] = [Receiver::start().await, Receiver::start().await];
    let world = World::start(&[&anns, &bobs]).await;
    let (ann, _) = world.webhook("ann", 0, &anns.url, |_| {}).await;
    let (bob, _) = world.webhook("bob", 0, &bobs.url, |_| {}).await;
    let (_, ciphertext) = world
        .table
        .read_secrets(ann.id, &[ann.secrets[0].id])
        .await
        .unwrap()
        .remove(0);
    for id in [ann.secrets[0].id, bob.secrets[0].id] {
        let moved = NewWebhookSecret {
            id,
            secret: ciphertext.clone(),
        };
        let (mut next, _) = bob.clone().rotate_secret(moved.id, world.now());
        next.version = world.table.list_webhooks(&bob.person).await.unwrap()[0].version + 1;
        let stored = world
            .table
            .rotate_webhook_secret(&next, &moved, &[], &sample::audit())
            .await
            .unwrap();
        assert_eq!(stored, UpdateResult::Stored);
        world.happen(&frozen("bob", agent(1), next.version, world.now()));
        world.run().await;
    }
    assert!(bobs.calls().is_empty());
    assert_eq!(
        world.waiting(),
        2,
        "they stay until the cause is mended, or are set aside"
    );
}

/// The secret of a removed webhook signs nothing, although it is cached.
#[tokio::test]
async fn webhook_secrets_are_decrypted_once_and_calls_await_kms() {
    let receiver = Receiver::start().await;
    let world = World::start(&[&receiver]).await;
    let (webhook, secret) = world.webhook("ann", 0, &receiver.url, |_| {}).await;
    let happen = |n| world.happen(&frozen("ann", agent(1), n, world.now()));
    world.kms.fail("Decrypt", "KMSInternalException");
    happen(1);
    world.run().await;
    assert_eq!((receiver.calls().len(), world.waiting()), (0, 1));
    world.kms.behave();
    world.kms.asked();
    for n in 2..5 {
        happen(n);
        world.run().await;
    }
    world.pass(VISIBILITY_SECS);
    world.run().await;
    assert_eq!((receiver.calls().len(), world.kms.asked().len()), (4, 1));
    assert!(receiver.calls().iter().all(|call| call.is_signed_with(&secret)));
    // The webhook's secret is cached, but the webhook was removed.
    world.table.remove_webhook(&webhook, &sample::audit()).await.unwrap();
    happen(5);
    world.run().await;
    assert_eq!(receiver.calls().len(), 4);
}

/// Stored rows and log lines contain no secret, no signature, and no part of a response.
#[tokio::test]
async fn the_delivery_log_contains_no_secret_data() {
    let receiver = Receiver::start().await;
    let world = World::start(&[&receiver]).await;
    let (webhook, secret) = world.webhook("ann", 0, &receiver.url, |_| {}).await;
    receiver.answer(Answers::Status(500));
    world.happen(&frozen("ann", agent(1), 1, world.now()));
    world.run().await;
    let items = world.emulator.client.scan().table_name(WEBHOOKS).send().await.unwrap();
    let rows: Vec<String> = items.items().iter().map(|item| format!("{item:?}")).collect();
    let of_delivery = format!("D#{}", webhook.id);
    let row = rows.iter().find(|row| row.contains(&of_delivery)).unwrap();
    let call = &receiver.calls()[0];
    let signature = call.headers["webhook-signature"].to_str().unwrap();
    for hidden in [
        secret.trim_start_matches("whsec_"),
        signature,
        "v1,",
        "the answer's own body",
        "in-the-url",
    ] {
        assert!(!row.contains(hidden), "{hidden}: {row}");
    }
    for message in world.sqs.bodies(DELIVERIES) {
        assert!(!message.contains("whsec_") && !message.contains(signature) && !message.contains("in-the-url"));
    }
}

/// The calls of a batch, each with the moment at which the function can be killed.
type Steps = Arc<Mutex<Vec<(String, Moment)>>>;

/// Processes the queues and kills the function at this step. Returns the number of steps that were reached.
async fn killed_at(world: &World, step: Option<usize>) -> usize {
    let steps: Steps = Arc::default();
    let (kill, killed) = tokio::sync::oneshot::channel::<()>();
    let kill = Arc::new(Mutex::new(Some(kill)));
    let mut urls = Vec::new();
    for upstream in [&world.emulator.url, &world.sqs_url, &world.kms_url] {
        let proxy = Proxy::start(upstream.clone(), ProxyConfig::default()).await;
        let (steps, kill) = (Arc::clone(&steps), Arc::clone(&kill));
        proxy.follow(move |at| {
            let mut steps = steps.lock().unwrap();
            steps.push((at.call.to_owned(), at.moment));
            if step == Some(steps.len() - 1) {
                if let Some(kill) = kill.lock().unwrap().take() {
                    kill.send(()).ok();
                }
                return Fate::Silence;
            }
            Fate::PassOn
        });
        urls.push(proxy.url);
    }
    let webhooks = function([&urls[0], &urls[1], &urls[2]], &world.allowed, &world.micros);
    let work = async {
        for queue in [EVENTS, REQUESTS, DELIVERIES] {
            while let Some(batch) = world.sqs.receive(queue, 10) {
                let answer: Value = webhooks.process_batch(batch.clone(), BUDGET).await.unwrap();
                world.sqs.delete_done(queue, &batch, Some(&answer));
            }
        }
    };
    tokio::select! {
        () = work => {}
        _ = killed, if step.is_some() => {}
    }
    steps.lock().unwrap().len()
}

/// The test kills the function at every step, before a successful call and before a failed call.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_run_calls_a_webhook_at_most_twice() {
    let receiver = Receiver::start().await;
    let world = World::start(&[&receiver]).await;
    let (webhook, _) = world.webhook("ann", 0, &receiver.url, |_| {}).await;
    let mut events = 0;
    for answers in [200, 500] {
        receiver.answer(Answers::Status(answers));
        world.happen(&frozen("ann", agent(1), events, world.now()));
        events += 1;
        let steps = killed_at(&world, None).await;
        assert!(steps >= 12, "{steps}");
        for step in 0..steps {
            receiver.answer(Answers::Status(answers));
            let event = frozen("ann", agent(1), events, world.now());
            events += 1;
            let id = event.id().to_string();
            let called = || receiver.calls().iter().filter(|call| call.id() == id).count();
            world.happen(&event);
            killed_at(&world, Some(step)).await;
            let before = called();
            // The pause after a failed call ends within the message's visibility timeout.
            receiver.answer(Answers::Status(200));
            for _ in 0..4 {
                world.pass(VISIBILITY_SECS);
                world.run().await;
            }
            // A failed call delivers nothing, so another call is needed.
            let least = if answers == 200 { before.max(1) } else { before + 1 };
            let calls = called();
            assert!(
                before <= 1 && (least..=2).contains(&calls),
                "{answers}, killed at {step}: {before}, {calls}"
            );
            assert_eq!(world.waiting(), 0, "{answers}, killed at {step}");
        }
    }
    for delivery in world.deliveries(&webhook).await {
        assert_eq!(delivery.state, DeliveryState::Delivered);
    }
}

#[tokio::test]
async fn queue_and_database_failures_lose_no_delivery() {
    let receiver = Receiver::start().await;
    let world = World::start(&[&receiver]).await;
    let (webhook, _) = world.webhook("ann", 0, &receiver.url, |_| {}).await;
    world.happen(&frozen("ann", agent(1), 1, world.now()));
    world.sqs.lie(500);
    world.run().await;
    assert!(receiver.calls().is_empty());
    assert_eq!(
        world.sqs.bodies(EVENTS).len(),
        1,
        "the event stays until its deliveries are in their queue"
    );
    world.sqs.behave();
    world.pass(VISIBILITY_SECS);
    world.run().await;
    assert_eq!(world.delivery(&webhook).await.state, DeliveryState::Delivered);
}

/// Tools call the built function with the batch in `events/webhooks/what-happened.json`.
#[tokio::test]
async fn a_recorded_queue_batch_calls_the_owners_webhook() {
    let recorded = include_str!("../../../events/webhooks/what-happened.json");
    let mut recorded: Value = serde_json::from_str(recorded).unwrap();
    recorded["Records"][0]["eventSourceARN"] = json!(Sqs::arn(EVENTS));
    let receiver = Receiver::start().await;
    let world = World::start(&[&receiver]).await;
    let (mut webhook, _) = world.webhook("ann", 0, &receiver.url, |_| {}).await;
    webhook.person = UserId::parse(&"5e".repeat(32)).unwrap();
    let stored = world
        .table
        .create_webhook(
            &webhook,
            &world.secret(&webhook.person, webhook.id, 1).0,
            &sample::audit(),
        )
        .await
        .unwrap();
    assert_eq!(stored, UpdateResult::Stored);
    let answer = world.webhooks.process_batch(recorded, BUDGET).await.unwrap();
    assert_eq!(answer, json!({"batchItemFailures": []}));
    assert_eq!(world.waiting(), 1);
}
