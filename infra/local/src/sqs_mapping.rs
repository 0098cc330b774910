//! The event source mappings from the queues to the functions `webhooks` and `notices`, as in Lambda except for the
//! polling rate.

use purser_api::Clock;
use purser_notices::Notifications;
use purser_testkit::{Entry, EventBus, Sqs};
use purser_webhooks::Webhooks;
use serde_json::{Value, json};
use std::time::Duration;

/// The name of the queue of events for webhooks.
pub const WEBHOOK_EVENTS: &str = "WebhookEventsQueue";
/// The queue of tests and redeliveries that users request.
const WEBHOOK_REQUESTS: &str = "WebhookRequestsQueue";
/// The name of the queue of deliveries to webhooks.
pub const WEBHOOK_DELIVERIES: &str = "WebhookDeliveriesQueue";

/// The name of the queue of events for notifications.
pub const NOTICE_EVENTS: &str = "NoticeEventsQueue";
/// The queue of test notifications that users request.
const NOTICE_REQUESTS: &str = "NoticeRequestsQueue";
/// The name of the queue of notifications.
pub const NOTICES: &str = "NoticesQueue";

/// The timeout of a call and the maximum size of a batch, as in `template.yaml`.
const TIMEOUT: Duration = Duration::from_secs(30);
const BATCH: usize = 10;
/// The interval of the sweep for paused deliveries, which is shorter than in `template.yaml`, because a test can
/// advance the clock by hours.
const SWEEP: Duration = Duration::from_secs(5);
/// The interval at which a queue is polled.
const PACE: Duration = Duration::from_millis(50);

/// Creates the queues of `template.yaml`. `clock` determines when messages become visible.
pub(crate) fn queues(clock: Clock) -> Sqs {
    let sqs = Sqs::new(move || clock.now().micros());
    sqs.create(WEBHOOK_EVENTS, 180, 20);
    sqs.create(WEBHOOK_REQUESTS, 180, 20);
    sqs.create(WEBHOOK_DELIVERIES, 180, 100);
    sqs.create(NOTICE_EVENTS, 180, 20);
    sqs.create(NOTICE_REQUESTS, 180, 20);
    sqs.create(NOTICES, 180, 100);
    sqs
}

/// Returns the functions' environment variables for queues at `url`.
pub(crate) fn variables(url: &str) -> [(String, String); 11] {
    [
        ("SQS_ENDPOINT", url.to_owned()),
        ("WEBHOOK_EVENTS_QUEUE_ARN", Sqs::arn(WEBHOOK_EVENTS)),
        ("WEBHOOK_REQUESTS_QUEUE_URL", Sqs::url(url, WEBHOOK_REQUESTS)),
        ("WEBHOOK_REQUESTS_QUEUE_ARN", Sqs::arn(WEBHOOK_REQUESTS)),
        ("DELIVERIES_QUEUE_URL", Sqs::url(url, WEBHOOK_DELIVERIES)),
        ("DELIVERIES_QUEUE_ARN", Sqs::arn(WEBHOOK_DELIVERIES)),
        ("NOTICE_EVENTS_QUEUE_ARN", Sqs::arn(NOTICE_EVENTS)),
        ("NOTICE_REQUESTS_QUEUE_URL", Sqs::url(url, NOTICE_REQUESTS)),
        ("NOTICE_REQUESTS_QUEUE_ARN", Sqs::arn(NOTICE_REQUESTS)),
        ("NOTICES_QUEUE_URL", Sqs::url(url, NOTICES)),
        ("NOTICES_QUEUE_ARN", Sqs::arn(NOTICES)),
    ]
    .map(|(name, value)| (name.to_owned(), value))
}

/// Adds the rules of the event bus: all events go to the queue for notifications, and events with an owner also to the
/// queue for webhooks.
pub fn follow_bus(bus: &EventBus, sqs: &Sqs, deployment: &str) {
    let passing = |queue: &'static str| {
        let sqs = sqs.clone();
        move |entry: &Entry| {
            let from_bus = json!({"source": entry.source, "detail-type": entry.detail_type, "detail": entry.detail});
            sqs.send(queue, &from_bus.to_string());
        }
    };
    let source = format!("purser:{deployment}");
    let is_ours = move |entry: &Entry| entry.source == source;
    let has_owner = |entry: &Entry| entry.detail.get("owner").is_some();
    let is_owned = is_ours.clone();
    bus.on(
        move |entry| is_owned(entry) && has_owner(entry),
        passing(WEBHOOK_EVENTS),
    );
    bus.on(is_ours, passing(NOTICE_EVENTS));
}

/// Resumes paused deliveries at the interval [`SWEEP`].
pub(crate) fn sweep(webhooks: Webhooks) {
    tokio::spawn(async move {
        loop {
            webhooks.enqueue_due_paused_deliveries(TIMEOUT).await;
            tokio::time::sleep(SWEEP).await;
        }
    });
}

/// Connects the bus with the queues, and the queues with the functions, until the runtime ends.
pub(crate) fn follow(bus: &EventBus, sqs: &Sqs, deployment: &str, webhooks: &Webhooks, notifications: &Notifications) {
    follow_bus(bus, sqs, deployment);
    for queue in [WEBHOOK_EVENTS, WEBHOOK_REQUESTS, WEBHOOK_DELIVERIES] {
        let webhooks = webhooks.clone();
        poll(sqs, queue, move |batch| {
            let webhooks = webhooks.clone();
            async move { webhooks.process_batch(batch, TIMEOUT).await.ok() }
        });
    }
    for queue in [NOTICE_EVENTS, NOTICE_REQUESTS, NOTICES] {
        let notices = notifications.clone();
        poll(sqs, queue, move |batch| {
            let notices = notices.clone();
            async move { notices.process_batch(batch, TIMEOUT).await.ok() }
        });
    }
}

/// Polls a queue, and calls a function with its messages.
fn poll<F>(sqs: &Sqs, queue: &'static str, call: impl Fn(Value) -> F + Send + 'static)
where
    F: Future<Output = Option<Value>> + Send + 'static,
{
    let sqs = sqs.clone();
    tokio::spawn(async move {
        loop {
            while let Some(batch) = sqs.receive(queue, BATCH) {
                let (sqs, work) = (sqs.clone(), tokio::time::timeout(TIMEOUT, call(batch.clone())));
                // In Lambda, each call has a separate execution environment.
                tokio::spawn(async move {
                    let response = work.await.ok().flatten();
                    sqs.delete_done(queue, &batch, response.as_ref());
                });
            }
            tokio::time::sleep(PACE).await;
        }
    });
}
