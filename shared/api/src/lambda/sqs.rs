//! SQS: batches of messages from an event source mapping, and a client that sends and hides messages.

use crate::lambda::at_most::run_with_concurrency_limit;
use aws_sdk_sqs::{Client, error::DisplayErrorContext};
use aws_types::SdkConfig;
use purser_domain::{Duration, Error, Event, Result};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json, value::RawValue};

/// The messages of one invocation by an SQS event source mapping.
#[derive(Debug, Deserialize)]
pub struct SqsBatch {
    #[serde(rename = "Records")]
    records: Vec<SqsRecord>,
}

/// A message. `Debug` omits the body, which must not be logged.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SqsRecord {
    /// The id that SQS assigned to the message.
    pub message_id: String,
    /// The handle with which the message's visibility timeout is changed.
    pub receipt_handle: String,
    /// The message as JSON, or the event bus's envelope.
    pub body: String,
    /// The ARN of the queue from which the message came.
    #[serde(rename = "eventSourceARN")]
    pub queue_arn: String,
}

impl std::fmt::Debug for SqsRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("SqsRecord").field(&self.message_id).finish()
    }
}

/// Whether SQS deletes a message after it was processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageResult {
    /// SQS deletes the message.
    Done,
    /// The message stays in the queue and is received again.
    Stays,
}

impl SqsBatch {
    /// Processes a batch's messages, at most `max_concurrent` at a time, and returns Lambda's partial batch response.
    ///
    /// A message whose task returns [`MessageResult::Stays`] or panics stays in the queue (Lambda developer guide,
    /// "Implementing partial batch responses").
    pub async fn run_batch<F>(event: Value, max_concurrent: usize, work: impl Fn(SqsRecord) -> F) -> Result<Value>
    where
        F: Future<Output = MessageResult> + Send + 'static,
    {
        let records = Self::read(event)?.records;
        let ids: Vec<String> = records.iter().map(|record| record.message_id.clone()).collect();
        let work = records.into_iter().map(|record| {
            let id = record.message_id.clone();
            let work = work(record);
            async move { (id, work.await) }
        });
        let results = run_with_concurrency_limit(max_concurrent, work).await;
        let is_done = |id: &String| results.contains(&(id.clone(), MessageResult::Done));
        let failures = ids.iter().filter(|id| !is_done(id));
        let failures: Vec<Value> = failures.map(|id| json!({"itemIdentifier": id})).collect();
        Ok(json!({"batchItemFailures": failures}))
    }

    fn read(event: Value) -> Result<Self> {
        serde_json::from_value(event).map_err(|_| {
            Error::internal(
                "reading a batch of queue messages",
                "the batch has an unexpected format",
            )
        })
    }
}

/// The event bus's envelope of an event, which is in `detail` (user guide, "Amazon `EventBridge` events").
#[derive(Deserialize)]
struct FromBus<'a> {
    #[serde(borrow)]
    detail: &'a RawValue,
}

impl SqsRecord {
    /// Parses a message that a function of this service sent.
    pub fn parse_message<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_str(&self.body)
            .map_err(|_| Error::internal("reading a queue message", "the message has an unexpected format"))
    }

    /// Parses the event that the event bus delivered.
    pub fn parse_event(&self) -> Result<Event> {
        const OPERATION: &str = "reading an event from the bus";
        let from_bus: FromBus<'_> = serde_json::from_str(&self.body)
            .map_err(|_| Error::internal(OPERATION, "the message has an unexpected format"))?;
        Event::parse(from_bus.detail.get().as_bytes()).map_err(|error| Error::internal(OPERATION, error))
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Queue {
    client: Client,
    url: String,
}

/// The maximum delay of a message, in seconds (API reference, `SendMessage`).
pub(crate) const MAX_DELAY_SECS: u32 = 900;
/// The maximum time to hide a message, in seconds (API reference, `ChangeMessageVisibility`).
const MAX_VISIBILITY_TIMEOUT_SECS: u64 = 43_200;

impl Queue {
    pub(crate) fn new(aws: &SdkConfig, url: impl Into<String>) -> Self {
        Self {
            client: Client::new(aws),
            url: url.into(),
        }
    }

    /// Sends a message. SQS prefers other groups if a group has many or slow messages (developer guide, "Amazon SQS
    /// fair queues").
    pub(crate) async fn send(&self, group: &str, message: &impl Serialize, delay: Option<Duration>) -> Result<()> {
        self.send_and_return_message_id(group, message, delay).await.map(|_| ())
    }

    /// Sends a message like [`Queue::send`], delayed by up to [`MAX_DELAY_SECS`]. Returns the message id.
    pub(crate) async fn send_and_return_message_id(
        &self,
        group: &str,
        message: &impl Serialize,
        delay: Option<Duration>,
    ) -> Result<String> {
        const OPERATION: &str = "sending a message to a queue";
        let body = serde_json::to_string(message).map_err(|error| Error::internal(OPERATION, error))?;
        let delay = delay.map(|delay| delay.secs_rounded_up().min(u64::from(MAX_DELAY_SECS)));
        let request = self
            .client
            .send_message()
            .queue_url(&self.url)
            .message_group_id(group)
            .set_delay_seconds(delay.and_then(|secs| i32::try_from(secs).ok()))
            .message_body(body);
        let sent = request.send().await;
        let sent = sent.map_err(|error| {
            let result = DisplayErrorContext(error).to_string();
            Error::temporarily_unavailable(OPERATION, result)
        })?;
        let id = sent.message_id;
        id.ok_or_else(|| Error::internal(OPERATION, "the response has no message id"))
    }

    /// Hides a message from all receivers for `pause`, at most [`MAX_VISIBILITY_TIMEOUT_SECS`].
    pub(crate) async fn hide_message(&self, receipt_handle: &str, pause: Duration) -> Result<()> {
        let secs = i32::try_from(pause.secs_rounded_up().min(MAX_VISIBILITY_TIMEOUT_SECS)).unwrap_or(i32::MAX);
        let hide = self
            .client
            .change_message_visibility()
            .queue_url(&self.url)
            .receipt_handle(receipt_handle)
            .visibility_timeout(secs);
        let hidden = hide.send().await;
        hidden.map(|_| ()).map_err(|error| {
            let result = DisplayErrorContext(error).to_string();
            Error::temporarily_unavailable("postponing a message", result)
        })
    }
}
