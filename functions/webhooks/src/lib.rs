//! The Lambda function `webhooks`: calls users' webhook receivers with events.
//!
//! ```text
//! bus ─▶ queue of events ─fan_out─▶ queue of deliveries ─deliver─▶ a user's webhook receiver
//!                                     ▲            └─pause─▶ rows ┐
//!                                     └────sweep, each minute─────┘
//! people ─▶ queue of requests (tests, redeliveries) ─deliver─▶ a user's webhook receiver
//! deliver, if calls fail for long ─▶ notices' queue of requests
//! ```
//!
//! A message stays in its queue until its work is done, and each delivery's row records the calls. In the worst case, a
//! call is made twice with the same `webhook-id`.
//!
//! Invariants: an event is sent only to webhooks of the event's owner. No secret, signature, URL or response is logged.

mod call;
mod deliver;
mod fan_out;
mod pauses;

pub use call::{Posted, WebhookReceivers};

use call::{CALL_TIMEOUT, Caller, webhook_receivers};
use purser_api::{
    AllowedHosts, Boot, BootError, Clock, DeliveriesQueue, Entropy, MessageResult, NotificationRequestsQueue,
    SecretsKey, SqsBatch, SqsRecord,
};
use purser_domain::{Causes, Error, EventSource, Result};
use purser_store::WebhooksTable;
use serde_json::Value;
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// The number of messages that are processed concurrently, more than a batch has.
const MAX_CONCURRENT: usize = 32;
/// The time that is reserved for calls to the database and the queue.
const RESERVED_TIME: Duration = Duration::from_secs(9);

/// The Lambda function `webhooks`, ready to run. Clones share all state.
#[derive(Clone)]
pub struct Webhooks(Arc<Inner>);

struct Inner {
    table: WebhooksTable,
    deliveries: DeliveriesQueue,
    notice_requests: NotificationRequestsQueue,
    arns: QueueArns,
    /// The deployment's name in events.
    event_source: EventSource,
    /// The KMS key that encrypts webhook secrets.
    key: SecretsKey,
    caller: Caller,
    clock: Clock,
    entropy: Entropy,
}

/// The queues that invoke the Lambda function `webhooks`. The queue determines which work a message may request.
struct QueueArns {
    /// The queue with events from the event bus.
    events: String,
    /// The queue with users' requests, from the Lambda function `people`, to test a webhook or repeat a delivery.
    requests: String,
    /// The queue with the webhook calls to make. The Lambda function `webhooks` sends messages to it.
    deliveries: String,
}

impl Webhooks {
    /// Creates the function `webhooks`, configured by environment variables.
    pub fn boot(boot: Boot) -> Result<Self, BootError> {
        Self::boot_with_timeout(boot, CALL_TIMEOUT)
    }

    /// Creates the function `webhooks` with `call_timeout` as the timeout for calls.
    pub fn boot_with_timeout(boot: Boot, call_timeout: Duration) -> Result<Self, BootError> {
        Self::boot_with_receivers(boot, |allowed| Ok(webhook_receivers(allowed, call_timeout)?))
    }

    /// Creates the function `webhooks`. `receivers` creates the HTTP client for webhook receivers. The argument of
    /// `receivers` lists the hosts that the client may call even at private addresses.
    pub fn boot_with_receivers(
        boot: Boot,
        receivers: impl FnOnce(AllowedHosts) -> Result<Box<dyn WebhookReceivers>, BootError>,
    ) -> Result<Self, BootError> {
        let mut env = boot.env;
        let table = env.require_text("WEBHOOKS_TABLE");
        let url = env.require_text("DELIVERIES_QUEUE_URL");
        let notices = env.require_text("NOTICE_REQUESTS_QUEUE_URL");
        let arns = QueueArns {
            events: env.require_text("WEBHOOK_EVENTS_QUEUE_ARN"),
            requests: env.require_text("WEBHOOK_REQUESTS_QUEUE_ARN"),
            deliveries: env.require_text("DELIVERIES_QUEUE_ARN"),
        };
        let key = env.require_text("WEBHOOK_SECRETS_KEY_ARN");
        let source = env.require_event_source();
        let allowed = env.take_allowed_hosts("WEBHOOK_ALLOWED_HOSTS");
        let (table, url, notices, arns, key, event_source, allowed) =
            env.finish((table, url, notices, arns, key, source, allowed))?;
        Ok(Self(Arc::new(Inner {
            table: WebhooksTable::new(purser_store::dynamodb_client(&boot.aws), table),
            deliveries: DeliveriesQueue::new(&boot.aws, url),
            notice_requests: NotificationRequestsQueue::new(&boot.aws, notices),
            arns,
            event_source,
            key: SecretsKey::new(boot.aws, key),
            caller: Caller::new(receivers(allowed)?),
            clock: boot.clock,
            entropy: boot.entropy,
        })))
    }

    /// Handles a Lambda event within `budget`. The response to a batch names the messages that stay in their queue.
    pub async fn handle_event(&self, event: Value, budget: Duration) -> Result<Value> {
        if event.get("Records").is_some() {
            self.process_batch(event, budget).await
        } else {
            self.enqueue_due_paused_deliveries(budget).await;
            Ok(Value::Null)
        }
    }

    /// Processes a batch of messages within `budget`. The response names the messages that stay in their queue.
    pub async fn process_batch(&self, event: Value, budget: Duration) -> Result<Value> {
        let now = Instant::now();
        // A call that starts after `last_call` might end too late to write the delivery's row.
        let last_call = now
            .checked_add(budget.saturating_sub(CALL_TIMEOUT.saturating_add(RESERVED_TIME)))
            .unwrap_or(now);
        SqsBatch::run_batch(event, MAX_CONCURRENT, |record| {
            let webhooks = self.clone();
            async move { webhooks.process_message(&record, last_call).await }
        })
        .await
    }

    async fn process_message(&self, record: &SqsRecord, last_call: Instant) -> MessageResult {
        let (arn, arns) = (&record.queue_arn, &self.0.arns);
        let taken = match () {
            () if *arn == arns.events => self.fan_out(record).await,
            () if *arn == arns.requests => self.process_requested_delivery(record, last_call).await,
            () if *arn == arns.deliveries => self.process_delivery(record, last_call).await,
            () => Err(Error::internal(
                "reading a queue message",
                "the message is from an unknown queue",
            )),
        };
        taken.unwrap_or_else(|error| {
            tracing::error!(message.id = record.message_id, cause = %Causes(&error), "webhook.message_failed");
            MessageResult::Stays
        })
    }
}
