//! The event source mappings of the queues: messages as batches for `webhooks` and `notices`, which answer what stays.
//!
//! As Lambda does it, but for its pace: a batch that failed, or whose function ended, stays whole and comes again when its
//! messages are visible again.

use purser_api::Clock;
use purser_notices::Notices;
use purser_testkit::{Entry, EventBus, Sqs};
use purser_webhooks::Webhooks;
use serde_json::{Value, json};
use std::time::Duration;

/// The queue of what happened.
pub const WEBHOOK_EVENTS: &str = "WebhookEventsQueue";
/// The queue of tests and redeliveries that people ask for.
const WEBHOOK_REQUESTS: &str = "WebhookRequestsQueue";
/// The queue of deliveries.
pub const WEBHOOK_DELIVERIES: &str = "WebhookDeliveriesQueue";

/// The queue of what happened, for notices.
pub const NOTICE_EVENTS: &str = "NoticeEventsQueue";
/// The queue of tests of notices that people ask for.
const NOTICE_REQUESTS: &str = "NoticeRequestsQueue";
/// The queue of notices.
pub const NOTICES: &str = "NoticesQueue";

/// How long a batch may take, and how many messages it has, as in `template.yaml`.
const TIMEOUT: Duration = Duration::from_secs(30);
const BATCH: usize = 10;
/// The time between two sweeps: less than the minute of `template.yaml`, since a test lets hours pass at once.
const SWEEP: Duration = Duration::from_secs(5);
/// How often the queues are looked at.
const PACE: Duration = Duration::from_millis(50);

/// The queues of `template.yaml`, by this clock.
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

/// The functions' variables, of queues at that endpoint.
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

/// The rules of the bus: each event of this deployment comes into the queue of notices' events, and one that has an owner
/// into that of webhooks'.
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

/// Runs the sweep of paused deliveries every [`SWEEP`] until the runtime ends.
pub(crate) fn sweep(webhooks: Webhooks) {
    tokio::spawn(async move {
        loop {
            webhooks.sweep(TIMEOUT).await;
            tokio::time::sleep(SWEEP).await;
        }
    });
}

/// Fills the queues of events from the bus, and calls the functions with what comes into any queue, until the runtime ends.
pub(crate) fn follow(bus: &EventBus, sqs: &Sqs, deployment: &str, webhooks: &Webhooks, notices: &Notices) {
    follow_bus(bus, sqs, deployment);
    for queue in [WEBHOOK_EVENTS, WEBHOOK_REQUESTS, WEBHOOK_DELIVERIES] {
        let webhooks = webhooks.clone();
        poll(sqs, queue, move |batch| {
            let webhooks = webhooks.clone();
            async move { webhooks.run(batch, TIMEOUT).await.ok() }
        });
    }
    for queue in [NOTICE_EVENTS, NOTICE_REQUESTS, NOTICES] {
        let notices = notices.clone();
        poll(sqs, queue, move |batch| {
            let notices = notices.clone();
            async move { notices.run(batch, TIMEOUT).await.ok() }
        });
    }
}

/// Calls a function with what comes into a queue.
fn poll<F>(sqs: &Sqs, queue: &'static str, call: impl Fn(Value) -> F + Send + 'static)
where
    F: Future<Output = Option<Value>> + Send + 'static,
{
    let sqs = sqs.clone();
    tokio::spawn(async move {
        loop {
            while let Some(batch) = sqs.receive(queue, BATCH) {
                let (sqs, work) = (sqs.clone(), tokio::time::timeout(TIMEOUT, call(batch.clone())));
                // In its own task, as in an environment of its own.
                tokio::spawn(async move {
                    let answer = work.await.ok().flatten();
                    sqs.delete_done(queue, &batch, answer.as_ref());
                });
            }
            tokio::time::sleep(PACE).await;
        }
    });
}
