//! The event source mappings of the queues: messages as batches for `webhooks`, which answers what stays.
//!
//! As Lambda does it, but for its pace: a batch that failed, or whose function ended, stays whole and comes again when its
//! messages are visible again.

use purser_api::Clock;
use purser_testkit::{EventBus, Sqs};
use purser_webhooks::Webhooks;
use serde_json::json;
use std::time::Duration;

/// The queue of what happened.
pub const WEBHOOK_EVENTS: &str = "WebhookEventsQueue";
/// The queue of deliveries.
pub const WEBHOOK_DELIVERIES: &str = "WebhookDeliveriesQueue";

/// How long a batch may take, and how many messages it has, as in `template.yaml`.
const TIMEOUT: Duration = Duration::from_secs(30);
const BATCH: usize = 10;
/// How often the queues are looked at.
const PACE: Duration = Duration::from_millis(50);

/// The queues of `template.yaml`, by this clock.
pub(crate) fn queues(clock: Clock) -> Sqs {
    let sqs = Sqs::new(move || clock.now().micros());
    sqs.create(WEBHOOK_EVENTS, 180, 20);
    sqs.create(WEBHOOK_DELIVERIES, 180, 100);
    sqs
}

/// The functions' variables, of queues at that endpoint.
pub(crate) fn variables(url: &str) -> [(String, String); 3] {
    [
        ("SQS_ENDPOINT", url.to_owned()),
        ("DELIVERIES_QUEUE_URL", Sqs::url(url, WEBHOOK_DELIVERIES)),
        ("DELIVERIES_QUEUE_ARN", Sqs::arn(WEBHOOK_DELIVERIES)),
    ]
    .map(|(name, value)| (name.to_owned(), value))
}

/// The rule of the bus: each event of this deployment that has an owner comes into the queue of events.
pub fn follow_bus(bus: &EventBus, sqs: &Sqs, deployment: &str) {
    let (sqs, source) = (sqs.clone(), format!("purser:{deployment}"));
    let is_wanted = move |entry: &purser_testkit::Entry| entry.source == source && entry.detail.get("owner").is_some();
    bus.on(is_wanted, move |entry| {
        let from_bus = json!({"source": entry.source, "detail-type": entry.detail_type, "detail": entry.detail});
        sqs.send(WEBHOOK_EVENTS, &from_bus.to_string());
    });
}

/// Fills the queue of events from the bus, and calls the function with what comes into either, until the runtime ends.
pub(crate) fn follow(bus: &EventBus, sqs: &Sqs, deployment: &str, webhooks: &Webhooks) {
    follow_bus(bus, sqs, deployment);
    for queue in [WEBHOOK_EVENTS, WEBHOOK_DELIVERIES] {
        let (sqs, webhooks) = (sqs.clone(), webhooks.clone());
        tokio::spawn(async move {
            loop {
                while let Some(batch) = sqs.receive(queue, BATCH) {
                    let (sqs, webhooks) = (sqs.clone(), webhooks.clone());
                    // In its own task, as in an environment of its own.
                    tokio::spawn(async move {
                        let work = tokio::time::timeout(TIMEOUT, webhooks.run(batch.clone(), TIMEOUT));
                        let answer = work.await.ok().and_then(Result::ok);
                        sqs.delete_done(queue, &batch, answer.as_ref());
                    });
                }
                tokio::time::sleep(PACE).await;
            }
        });
    }
}
