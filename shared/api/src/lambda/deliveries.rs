//! The two queues of webhook calls: users' requests, and deliveries.
//!
//! The function `people` can only send requests, which contain ids and no event. Only the function `webhooks` sends to
//! the queue of deliveries. A compromised `people` therefore can't make the service sign a forged event.

use crate::lambda::sqs::{MAX_DELAY_SECS, Queue};
use aws_types::SdkConfig;
use purser_domain::{DeliveryId, Duration, Event, Result, UserId, WebhookId};
use serde::{Deserialize, Serialize};

/// A webhook call that is due.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeliveryMessage {
    /// The user who owns the webhook.
    pub person: UserId,
    /// The webhook to call.
    pub webhook: WebhookId,
    /// The event or the stored delivery to send.
    pub of: DeliveryOf,
}

/// What a webhook call sends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryOf {
    /// A new event from the event bus.
    Event(Event),
    /// A stored delivery whose next attempt is due.
    Stored(DeliveryId),
}

/// A user's request to test a webhook or to send a delivery again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebhookRequest {
    /// The user who owns the webhook.
    pub person: UserId,
    /// The webhook to call.
    pub webhook: WebhookId,
    /// The id of the delivery that the request causes, even if SQS delivers the request twice.
    pub id: DeliveryId,
    /// The stored delivery to send again; `None` for a test event.
    pub again: Option<DeliveryId>,
}

/// A client of the queue of due webhook calls.
#[derive(Clone, Debug)]
pub struct DeliveriesQueue(Queue);

impl DeliveriesQueue {
    /// The maximum delay of an SQS message. Any number of messages may be delayed (SQS developer guide, "Quotas").
    pub const MAX_DELAY: Duration = Duration::from_secs_u32(MAX_DELAY_SECS);

    /// Creates a client for the queue at this URL.
    pub fn new(aws: &SdkConfig, url: impl Into<String>) -> Self {
        Self(Queue::new(aws, url))
    }

    /// Sends a message with a delay of `pause`. A message that is sent twice causes one delivery.
    pub async fn send(&self, message: &DeliveryMessage, pause: Option<Duration>) -> Result<()> {
        self.0.send(&message.webhook.to_string(), message, pause).await
    }
}

/// A client of the queue of users' webhook requests.
#[derive(Clone, Debug)]
pub struct WebhookRequestsQueue(Queue);

impl WebhookRequestsQueue {
    /// Creates a client for the queue at this URL.
    pub fn new(aws: &SdkConfig, url: impl Into<String>) -> Self {
        Self(Queue::new(aws, url))
    }

    /// Sends a request.
    pub async fn send(&self, request: &WebhookRequest) -> Result<()> {
        self.0.send(&request.webhook.to_string(), request, None).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use purser_domain::{EventSource, test_event};
    use serde_json::{Value, json};
    use uuid::Uuid;

    fn person() -> UserId {
        UserId::derive("https://issuer.example", "ann")
    }

    fn id(n: u128) -> DeliveryId {
        DeliveryId::from_uuid(Uuid::from_u128(n))
    }

    fn with(message: &impl Serialize, name: &str, value: Value) -> Value {
        let mut fields = serde_json::to_value(message).unwrap();
        fields[name] = value;
        fields
    }

    fn parse<T: serde::de::DeserializeOwned>(message: Value) -> Option<T> {
        serde_json::from_value(message).ok()
    }

    fn event() -> Event {
        let source = EventSource::for_stack("stack").unwrap();
        test_event(source, &person(), "x", id(1)).unwrap()
    }

    #[test]
    fn delivery_messages_round_trip_as_json() {
        for of in [DeliveryOf::Event(event()), DeliveryOf::Stored(id(1))] {
            let message = DeliveryMessage {
                person: person(),
                webhook: WebhookId::from_uuid(Uuid::nil()),
                of,
            };
            assert_eq!(parse(json!(message)), Some(message.clone()));
            assert_eq!(parse::<DeliveryMessage>(with(&message, "event", json!({}))), None);
            let both = json!({"event": event(), "stored": id(1)});
            assert_eq!(parse::<DeliveryMessage>(with(&message, "of", both)), None);
        }
        for message in [json!(""), json!([]), json!({}), json!({"person": 1})] {
            assert_eq!(parse::<DeliveryMessage>(message), None);
        }
    }

    #[test]
    fn webhook_requests_that_contain_events_are_rejected() {
        for again in [None, Some(id(1))] {
            let request = WebhookRequest {
                person: person(),
                webhook: WebhookId::from_uuid(Uuid::nil()),
                id: id(2),
                again,
            };
            assert_eq!(parse(json!(request)), Some(request.clone()));
            assert_eq!(parse::<DeliveryMessage>(json!(request)), None);
            for (name, value) in [("event", json!(event())), ("again", json!(1)), ("id", Value::Null)] {
                assert_eq!(parse::<WebhookRequest>(with(&request, name, value)), None, "{name}");
            }
        }
        let delivery = DeliveryMessage {
            person: person(),
            webhook: WebhookId::from_uuid(Uuid::nil()),
            of: DeliveryOf::Event(event()),
        };
        assert_eq!(parse::<WebhookRequest>(json!(delivery)), None);
        assert_eq!(parse::<WebhookRequest>(json!({})), None);
    }
}
