//! The Lambda function `notices`: sends users notifications of events by mail and incoming webhook.
//!
//! `collect.rs` stores each notification as a pending row, and `flush.rs` sends a channel's pending rows as one
//! message. A queue message stays in the queue until the work is done. A notification may be sent twice if the function
//! is interrupted before the row is deleted.
//!
//! Invariants: a user gets notifications of the user's own events, and of events of services and the deployment. A link
//! in a notification only opens a page of the dashboard. No address, URL or response is logged.

mod collect;
mod flush;
mod mail;
mod send;

use mail::Mail;
use purser_api::{
    Boot, BootError, Clock, Entropy, MessageResult, NotificationsQueue, SecretsKey, SqsBatch, SqsRecord,
    UntrustedHttpClient,
};
use purser_domain::{Causes, Error, EventSource, MailAddress, Result};
use purser_store::{CatalogCache, CatalogTable, Ledger, WebhooksTable};
use serde_json::Value;
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// The number of queue messages that are processed concurrently: the size of an SQS batch.
const MAX_CONCURRENT: usize = 10;
/// The timeout of one call to the mail service or an incoming webhook.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// The time that is reserved for calls to the database and the queue.
const RESERVED_TIME: Duration = Duration::from_secs(9);

const PROGRAM: &str = "Purser-Notices";

/// The Lambda function `notices`, ready to run. Clones share all state.
#[derive(Clone)]
pub struct Notifications(Arc<Inner>);

struct Inner {
    table: WebhooksTable,
    ledger: Ledger,
    catalog: CatalogCache,
    queue: NotificationsQueue,
    arns: QueueArns,
    /// The mail client. `None` if the deployment sends no mail.
    mail: Option<Mail>,
    incoming: UntrustedHttpClient,
    /// The KMS key that encrypts the URLs of incoming webhooks.
    key: SecretsKey,
    /// The origin of the dashboard's pages.
    origin: String,
    /// The deployment's name in events.
    event_source: EventSource,
    clock: Clock,
    entropy: Entropy,
}

/// The queues that invoke the Lambda function `notices`. The queue determines which work a message may request.
struct QueueArns {
    /// The queue with events from the event bus.
    events: String,
    /// The queue with requests for notifications, from the Lambda functions `people` and `webhooks`.
    requests: String,
    /// The queue with the messages that the function `notices` sends to itself.
    notices: String,
}

impl Notifications {
    /// Creates the function `notices`, configured by environment variables.
    pub fn boot(boot: Boot) -> Result<Self, BootError> {
        Self::boot_with_timeout(boot, CALL_TIMEOUT)
    }

    /// Creates the function `notices` with `call_timeout` as the timeout for calls.
    pub fn boot_with_timeout(boot: Boot, call_timeout: Duration) -> Result<Self, BootError> {
        let mut env = boot.env;
        let names = [
            "WEBHOOKS_TABLE",
            "LEDGER_TABLE",
            "CATALOG_TABLE",
            "NOTICES_QUEUE_URL",
            "NOTICES_QUEUE_ARN",
            "NOTICE_REQUESTS_QUEUE_ARN",
            "NOTICE_EVENTS_QUEUE_ARN",
            "DASHBOARD_URL",
            "WEBHOOK_SECRETS_KEY_ARN",
        ];
        let texts = names.map(|name| env.require_text(name));
        let sender = env.get("NOTICES_SENDER").map(MailAddress::parse);
        if sender == Some(None) {
            env.add_error("NOTICES_SENDER", "must be empty, or a mail address");
        }
        let allowed = env.take_allowed_hosts("WEBHOOK_ALLOWED_HOSTS");
        let source = env.require_event_source();
        let ([webhooks, ledger, catalog, url, notices, requests, events, origin, key], sender, allowed, event_source) =
            env.finish((texts, sender.flatten(), allowed, source))?;
        let db = purser_store::dynamodb_client(&boot.aws);
        Ok(Self(Arc::new(Inner {
            table: WebhooksTable::new(db.clone(), webhooks),
            ledger: Ledger::without_decisions_table(db.clone(), ledger),
            catalog: CatalogCache::without_probe_results(CatalogTable::new(db, catalog)),
            queue: NotificationsQueue::new(&boot.aws, url),
            arns: QueueArns {
                events,
                requests,
                notices,
            },
            event_source,
            key: SecretsKey::new(boot.aws.clone(), key),
            mail: sender.map(|sender| Mail::new(&boot.aws, sender, call_timeout)),
            incoming: UntrustedHttpClient::new(PROGRAM, allowed, call_timeout)?,
            origin,
            clock: boot.clock,
            entropy: boot.entropy,
        })))
    }

    /// Processes a batch of messages within `budget`. The response names the messages that stay in their queue.
    pub async fn process_batch(&self, event: Value, budget: Duration) -> Result<Value> {
        let now = Instant::now();
        // A call that starts after `last_call` might end too late to write the rows.
        let last_call = now
            .checked_add(budget.saturating_sub(CALL_TIMEOUT.saturating_add(RESERVED_TIME)))
            .unwrap_or(now);
        SqsBatch::run_batch(event, MAX_CONCURRENT, |record| {
            let notices = self.clone();
            async move { notices.process_message(&record, last_call).await }
        })
        .await
    }

    async fn process_message(&self, record: &SqsRecord, last_call: Instant) -> MessageResult {
        let (arn, arns) = (&record.queue_arn, &self.0.arns);
        let taken = match () {
            () if *arn == arns.events => self.process_event(record).await,
            () if *arn == arns.requests => self.process_request(record).await,
            () if *arn == arns.notices => self.process_work_message(record, last_call).await,
            () => Err(Error::internal(
                "reading a queue message",
                "the message is from an unknown queue",
            )),
        };
        taken.unwrap_or_else(|error| {
            tracing::error!(message.id = record.message_id, cause = %Causes(&error), "notice.message_failed");
            MessageResult::Stays
        })
    }
}
