//! The notices: tells people what happened, by mail and by incoming webhook, in one message for all that waits.
//!
//! ```text
//! people ─▶ queue of requests (tests) ┐
//! bus ─▶ queue of events ─────────────┴collect─▶ rows that wait ┐
//!                    └─spread (of no single person)─────────────┴─▶ queue of notices ─flush─▶ one message, some minutes apart
//! ```
//!
//! A message stays in its queue until what it asks for is done. What waits is a row, which goes only after it was told:
//! cut off in between, it is told again. Whoever flushes a channel has the turn alone (`pace`).
//!
//! Always true: a person is told of their own events, and of services' and the deployment's; no link decides anything; no
//! address, URL or answer is logged.
//!
//! Deliberately elsewhere: the words (`shared/domain/src/notice`), who may say what they are told (`functions/people`).

mod collect;
mod flush;
mod mail;
mod send;

use mail::Mail;
use purser_api::{Boot, BootError, Clock, Entropy, NoticesQueue, SecretsKey, SqsBatch, SqsRecord, Stranger, at_most};
use purser_domain::{Causes, Error, EventSource, MailAddress, Result};
use purser_store::{CatalogCache, CatalogTable, Ledger, WebhooksTable};
use serde_json::Value;
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// How many messages are worked on concurrently: as many as a batch has.
const AT_ONCE: usize = 10;
/// One message to the mail service or to an incoming webhook.
const LONGEST_CALL: Duration = Duration::from_secs(10);
/// What calls of the database and of the queue may take besides.
const BOOKKEEPING: Duration = Duration::from_secs(9);

const USER_AGENT: &str = concat!("Purser-Notices/", env!("CARGO_PKG_VERSION"));

/// The function, ready to run. Clones share everything.
#[derive(Clone)]
pub struct Notices(Arc<Shared>);

struct Shared {
    table: WebhooksTable,
    ledger: Ledger,
    catalog: CatalogCache,
    queue: NoticesQueue,
    arns: QueueArns,
    /// `None` where nothing is mailed.
    mail: Option<Mail>,
    incoming: Stranger,
    /// The key that incoming webhooks' URLs are encrypted with.
    key: SecretsKey,
    /// The pages' origin.
    origin: String,
    /// The deployment, as events name it.
    event_source: EventSource,
    clock: Clock,
    entropy: Entropy,
}

/// The queues that call the function. A message's queue says what it may ask for, and IAM says who sends to each.
struct QueueArns {
    /// From the bus.
    events: String,
    /// From `people`.
    requests: String,
    /// From the function itself.
    notices: String,
}

/// What becomes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Message {
    /// What it asks for is done: it leaves its queue.
    Done,
    /// It stays, and comes again.
    Stays,
}

impl Notices {
    /// The function with this configuration: `WEBHOOKS_TABLE`, `LEDGER_TABLE`, `CATALOG_TABLE`, `STACK`, `NOTICES_QUEUE_URL`,
    /// `NOTICES_QUEUE_ARN`, `NOTICE_REQUESTS_QUEUE_ARN`, `NOTICE_EVENTS_QUEUE_ARN`, `WEBHOOK_SECRETS_KEY_ARN`, `DASHBOARD_URL`, `NOTICES_SENDER`, `WEBHOOK_ALLOWED_HOSTS`.
    pub fn boot(boot: Boot) -> Result<Self, BootError> {
        Self::boot_with(boot, LONGEST_CALL)
    }

    /// The same, with another timeout of messages.
    pub fn boot_with(boot: Boot, longest_call: Duration) -> Result<Self, BootError> {
        let Boot {
            mut env,
            aws,
            clock,
            entropy,
            ..
        } = boot;
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
        let texts = names.map(|name| env.text(name));
        let sender = env.get("NOTICES_SENDER").map(MailAddress::parse);
        if sender == Some(None) {
            env.wrong("NOTICES_SENDER", "must be empty, or a mail address");
        }
        let allowed = env.allowed_hosts("WEBHOOK_ALLOWED_HOSTS");
        let source = env.event_source();
        let ([webhooks, ledger, catalog, url, notices, requests, events, origin, key], sender, allowed, event_source) =
            env.finish((texts, sender.flatten(), allowed, source))?;
        let db = purser_store::client(&aws);
        Ok(Self(Arc::new(Shared {
            table: WebhooksTable::new(db.clone(), webhooks),
            ledger: Ledger::without_decisions(db.clone(), ledger),
            catalog: CatalogCache::without_sightings(CatalogTable::new(db, catalog)),
            queue: NoticesQueue::new(&aws, url),
            arns: QueueArns {
                events,
                requests,
                notices,
            },
            event_source,
            key: SecretsKey::new(aws.clone(), key),
            mail: sender.map(|sender| Mail::new(&aws, sender, longest_call)),
            incoming: Stranger::new(USER_AGENT, allowed, longest_call)?,
            origin,
            clock,
            entropy,
        })))
    }

    /// Does what a batch of messages asks for, within this time; the answer names those that stay in their queue.
    pub async fn run(&self, event: Value, budget: Duration) -> Result<Value> {
        let now = Instant::now();
        // What begins later might be cut off between a message and its rows.
        let last_call = now
            .checked_add(budget.saturating_sub(LONGEST_CALL.saturating_add(BOOKKEEPING)))
            .unwrap_or(now);
        let records = SqsBatch::read(event)?.records;
        let ids: Vec<String> = records.iter().map(|record| record.message_id.clone()).collect();
        let work = records.into_iter().map(|record| {
            let notices = self.clone();
            async move {
                let message = notices.take(&record, last_call).await;
                (record.message_id, message)
            }
        });
        let done = at_most(AT_ONCE, work).await;
        // One whose work panicked has no result, and stays as well.
        let is_done = |id: &String| {
            done.iter()
                .any(|(done, message)| done == id && *message == Message::Done)
        };
        let left: Vec<String> = ids.into_iter().filter(|id| !is_done(id)).collect();
        Ok(SqsBatch::leaving(&left))
    }

    async fn take(&self, record: &SqsRecord, last_call: Instant) -> Message {
        let (arn, arns) = (&record.queue_arn, &self.0.arns);
        let taken = match () {
            () if *arn == arns.events => self.happened(record).await,
            () if *arn == arns.requests => self.requested(record).await,
            () if *arn == arns.notices => self.work(record, last_call).await,
            () => Err(unread()),
        };
        taken.unwrap_or_else(|error| {
            tracing::error!(message.id = record.message_id, cause = %Causes(&error), "notice.message_failed");
            Message::Stays
        })
    }
}

/// The error for a message of another form.
fn unread() -> Error {
    Error::internal("reading a message of notices", "it has another form")
}
