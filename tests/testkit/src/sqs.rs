//! SQS queues with visibility timeouts and receive counts, for the functions' calls (AWS JSON 1.0) and for an event
//! source mapping. The caller provides the clock.

use crate::serve;
use axum::Router;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// Returns the time in microseconds since 1970.
type Now = Arc<dyn Fn() -> i64 + Send + Sync>;

/// SQS with queues by name. Clones share the queues.
#[derive(Clone)]
pub struct Sqs {
    now: Now,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    queues: BTreeMap<String, Queue>,
    /// A counter that makes ids distinct.
    count: u64,
    /// The status of the error response to every call; `None` if calls succeed.
    lie: Option<u16>,
}

#[derive(Default)]
struct Queue {
    visibility_secs: i64,
    most_receipts: u32,
    messages: Vec<Message>,
    /// The dead-letter queue: the bodies of messages that were received too often.
    set_aside: Vec<String>,
    /// The maximum number of messages in flight, if a test lowered SQS's limit.
    most_in_flight: Option<usize>,
}

/// A message in a queue.
#[derive(Clone, Debug)]
struct Message {
    id: String,
    body: String,
    /// The receipt handle of the last receive. Only this handle can hide or delete the message.
    receipt: String,
    receipts: u32,
    visible_at: i64,
}

/// The account in queues' URLs and ARNs.
const ACCOUNT: &str = "000000000000";

impl Sqs {
    /// Creates SQS without queues.
    pub fn new(now: impl Fn() -> i64 + Send + Sync + 'static) -> Self {
        Self {
            now: Arc::new(now),
            state: Arc::default(),
        }
    }

    /// Adds a queue. After `most_receipts` receives, a message moves to the dead-letter queue.
    pub fn create(&self, name: &str, visibility_secs: i64, most_receipts: u32) {
        let queue = Queue {
            visibility_secs,
            most_receipts,
            ..Queue::default()
        };
        self.state().queues.insert(name.to_owned(), queue);
    }

    /// Lowers the maximum number of messages in flight. SQS's limit is 120,000 (developer guide, "Quotas").
    pub fn limit_in_flight(&self, queue: &str, most: usize) {
        self.state()
            .queues
            .get_mut(queue)
            .expect("the queue exists")
            .most_in_flight = Some(most);
    }

    /// Returns the number of messages in flight: received, not deleted, and not visible again.
    pub fn in_flight(&self, queue: &str) -> usize {
        let now = (self.now)();
        self.state().queues[queue].in_flight(now)
    }

    /// Returns the ARN of a queue.
    pub fn arn(name: &str) -> String {
        format!("arn:aws:sqs:us-east-1:{ACCOUNT}:{name}")
    }

    /// Returns the URL of a queue.
    pub fn url(endpoint: &str, name: &str) -> String {
        format!("{endpoint}/{ACCOUNT}/{name}")
    }

    /// Serves SQS until the runtime ends, and returns its URL.
    pub async fn serve(&self) -> String {
        let sqs = self.clone();
        let answer = async move |headers: HeaderMap, body: String| sqs.answer(&headers, &body);
        serve(Router::new().route("/", post(answer))).await
    }

    /// Responds to every later call with this status.
    pub fn lie(&self, status: u16) {
        self.state().lie = Some(status);
    }

    /// Ends the errors of [`Self::lie`].
    pub fn behave(&self) {
        self.state().lie = None;
    }

    /// Adds a message to a queue.
    pub fn send(&self, queue: &str, body: &str) {
        let now = (self.now)();
        self.state().send(queue, body, now).expect("the queue exists");
    }

    /// Returns the bodies of all messages in a queue, visible or not.
    pub fn bodies(&self, queue: &str) -> Vec<String> {
        let state = self.state();
        let messages = state.queues[queue].messages.iter();
        messages.map(|message| message.body.clone()).collect()
    }

    /// Returns the bodies of the messages in the dead-letter queue.
    pub fn set_aside(&self, queue: &str) -> Vec<String> {
        self.state().queues[queue].set_aside.clone()
    }

    /// Receives up to `most` messages as an event source mapping does; `None` if no message is visible.
    pub fn receive(&self, queue: &str, most: usize) -> Option<Value> {
        let now = (self.now)();
        let taken = self.state().receive(queue, most, now)?;
        let records = taken.iter().map(|message| {
            json!({
                "messageId": message.id,
                "receiptHandle": message.receipt,
                "body": message.body,
                "attributes": {"ApproximateReceiveCount": message.receipts.to_string()},
                "messageAttributes": {},
                "eventSource": "aws:sqs",
                "eventSourceARN": Self::arn(queue),
                "awsRegion": "us-east-1",
            })
        });
        (!taken.is_empty()).then(|| json!({"Records": records.collect::<Vec<_>>()}))
    }

    /// Deletes a batch's messages, except for the messages that the function's response reports as failed.
    pub fn delete_done(&self, queue: &str, batch: &Value, answer: Option<&Value>) {
        let Some(left) = answer.and_then(|answer| answer["batchItemFailures"].as_array()) else {
            return;
        };
        let is_left = |id: &Value| left.iter().any(|left| left["itemIdentifier"] == *id);
        let records = batch["Records"].as_array().into_iter().flatten();
        for record in records.filter(|record| !is_left(&record["messageId"])) {
            let receipt = record["receiptHandle"].as_str().unwrap_or_default();
            let mut state = self.state();
            let messages = &mut state.queues.get_mut(queue).expect("the queue exists").messages;
            messages.retain(|message| message.receipt != receipt);
        }
    }

    /// Puts a queue's messages into a random order, because SQS guarantees no order.
    pub fn shuffle(&self, queue: &str, mut draw: impl FnMut() -> u64) {
        let mut state = self.state();
        let queue = state.queues.get_mut(queue).expect("the queue exists");
        queue.messages.sort_by_cached_key(|_| draw());
    }

    /// Returns the earliest time at which a message is visible, in microseconds since 1970; `None` if the queue is
    /// empty.
    pub fn next_visible(&self, queue: &str) -> Option<i64> {
        let state = self.state();
        let messages = state.queues[queue].messages.iter();
        messages.map(|message| message.visible_at).min()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("not poisoned")
    }

    fn answer(&self, headers: &HeaderMap, body: &str) -> Response {
        let target = headers.get("x-amz-target").and_then(|target| target.to_str().ok());
        let (status, body) = self.call(target.unwrap_or_default(), body);
        let status = StatusCode::from_u16(status).expect("a status");
        (status, [(header::CONTENT_TYPE, "application/x-amz-json-1.0")], body).into_response()
    }

    /// Responds to the operation `target`, which is the header `X-Amz-Target`. Returns a status and a body.
    pub fn call(&self, target: &str, body: &str) -> (u16, String) {
        let now = (self.now)();
        let mut state = self.state();
        if let Some(status) = state.lie {
            return refused(status, "InternalFailure");
        }
        let request: Value = serde_json::from_str(body).expect("the SDK writes JSON");
        let queue = request["QueueUrl"].as_str().unwrap_or_default();
        let queue = queue.rsplit('/').next().unwrap_or_default();
        let receipt = request["ReceiptHandle"].as_str().unwrap_or_default();
        let done = match target {
            "AmazonSQS.SendMessage" => {
                let body = request["MessageBody"].as_str().unwrap_or_default();
                let delay = request["DelaySeconds"].as_i64().unwrap_or(0);
                // The maximum delay is 900 seconds (API reference).
                if !(0..=900).contains(&delay) {
                    return refused(400, "InvalidParameterValue");
                }
                state
                    .send(queue, body, now.saturating_add(delay * 1_000_000))
                    .map(|id| json!({"MessageId": id, "MD5OfMessageBody": ""}))
            }
            "AmazonSQS.ChangeMessageVisibility" => {
                let secs = request["VisibilityTimeout"].as_i64().unwrap_or(-1);
                // The maximum visibility timeout is 12 hours (API reference).
                if !(0..=43_200).contains(&secs) {
                    return refused(400, "InvalidParameterValue");
                }
                let visible_at = now.saturating_add(secs * 1_000_000);
                state.of_receipt(queue, receipt).map(|message| {
                    message.visible_at = visible_at;
                    json!({})
                })
            }
            _ => return refused(400, "InvalidAction"),
        };
        match done {
            Some(answer) => (200, answer.to_string()),
            None => refused(400, "QueueDoesNotExist"),
        }
    }
}

impl Queue {
    fn in_flight(&self, now: i64) -> usize {
        let hidden = |message: &&Message| message.receipts > 0 && message.visible_at > now;
        self.messages.iter().filter(hidden).count()
    }
}

impl State {
    fn next(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    fn send(&mut self, queue: &str, body: &str, visible_at: i64) -> Option<String> {
        let id = format!("message-{}", self.next());
        self.queues.get_mut(queue)?.messages.push(Message {
            id: id.clone(),
            body: body.to_owned(),
            receipt: String::new(),
            receipts: 0,
            visible_at,
        });
        Some(id)
    }

    fn receive(&mut self, queue: &str, most: usize, now: i64) -> Option<Vec<Message>> {
        let mut count = self.count;
        let queue = self.queues.get_mut(queue)?;
        let hidden_until = now.saturating_add(queue.visibility_secs * 1_000_000);
        let too_often = queue.most_receipts;
        let is_too_often = |message: &Message| message.visible_at <= now && message.receipts >= too_often;
        let set_aside = queue.messages.iter().filter(|message| is_too_often(message));
        queue.set_aside.extend(set_aside.map(|message| message.body.clone()));
        queue.messages.retain(|message| !is_too_often(message));
        let room = queue
            .most_in_flight
            .unwrap_or(120_000)
            .saturating_sub(queue.in_flight(now));
        let most = most.min(room);
        let visible = queue.messages.iter_mut().filter(|message| message.visible_at <= now);
        let mut taken = Vec::new();
        for message in visible.take(most) {
            count += 1;
            message.receipt = format!("receipt-{count}");
            message.receipts += 1;
            message.visible_at = hidden_until;
            taken.push(message.clone());
        }
        self.count = count;
        Some(taken)
    }

    fn of_receipt(&mut self, queue: &str, receipt: &str) -> Option<&mut Message> {
        let messages = &mut self.queues.get_mut(queue)?.messages;
        messages.iter_mut().find(|message| message.receipt == receipt)
    }
}

fn refused(status: u16, exception: &'static str) -> (u16, String) {
    let body = json!({"__type": format!("com.amazonaws.sqs#{exception}"), "message": exception});
    (status, body.to_string())
}
