//! The two queues of webhook calls: users' requests, and deliveries.
//!
//! The function `people` can only send requests, which contain ids and no event. Only the function `webhooks` sends to
//! the queue of deliveries. A compromised `people` therefore can't make the service sign a forged event.

use crate::lambda::sqs::{MAX_DELAY_SECS, Queue};
use aws_types::SdkConfig;
use purser_domain::{DeliveryId, Duration, Event, Result, UserId, WebhookId};
use serde_json::{Map, Value, json};

/// A webhook call that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryMessage {
    /// The user who owns the webhook.
    pub person: UserId,
    /// The webhook to call.
    pub webhook: WebhookId,
    /// The event or the stored delivery to send.
    pub of: DeliveryOf,
}

/// The content of a webhook call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeliveryOf {
    /// A new event from the event bus.
    Event(Event),
    /// A stored delivery whose next attempt is due.
    Stored(DeliveryId),
}

/// A user's request to test a webhook or to send a delivery again.
#[derive(Clone, Debug, PartialEq, Eq)]
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

impl DeliveryMessage {
    /// Returns the message as the JSON text that [`DeliveryMessage::parse`] accepts.
    pub fn to_json(&self) -> String {
        let (name, of) = match &self.of {
            DeliveryOf::Event(event) => ("event", event.to_json()),
            DeliveryOf::Stored(delivery) => ("delivery", json!(delivery.to_string())),
        };
        json!({"person": self.person.as_str(), "webhook": self.webhook.to_string(), name: of}).to_string()
    }

    /// Parses a message; `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let message = Members::parse(text, 3)?;
        let of = match (message.0.get("event"), message.find_text("delivery")) {
            (Some(event), None) => DeliveryOf::Event(Event::parse(event.to_string().as_bytes()).ok()?),
            (None, Some(delivery)) => DeliveryOf::Stored(DeliveryId::parse(delivery)?),
            _ => return None,
        };
        Some(Self {
            person: message.user_id()?,
            webhook: message.webhook_id()?,
            of,
        })
    }
}

impl WebhookRequest {
    /// Returns the request as the JSON text that [`WebhookRequest::parse`] accepts.
    pub fn to_json(&self) -> String {
        let mut fields = json!({
            "person": self.person.as_str(), "webhook": self.webhook.to_string(), "request": self.id.to_string(),
        });
        if let (Some(again), Some(fields)) = (self.again, fields.as_object_mut()) {
            fields.insert("delivery".to_owned(), json!(again.to_string()));
        }
        fields.to_string()
    }

    /// Parses a request; `None` for any other text, for example a message with an event.
    pub fn parse(text: &str) -> Option<Self> {
        let message = Members::parse(text, 3)
            .or_else(|| Members::parse(text, 4).filter(|message| message.0.contains_key("delivery")))?;
        Some(Self {
            person: message.user_id()?,
            webhook: message.webhook_id()?,
            id: DeliveryId::parse(message.find_text("request")?)?,
            again: match message.0.get("delivery") {
                None => None,
                Some(again) => Some(DeliveryId::parse(again.as_str()?)?),
            },
        })
    }
}

struct Members(Map<String, Value>);

impl Members {
    /// Parses an object with exactly `count` fields.
    fn parse(text: &str, count: usize) -> Option<Self> {
        let fields: Map<String, Value> = serde_json::from_str(text).ok()?;
        (fields.len() == count).then_some(Self(fields))
    }

    fn find_text(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(Value::as_str)
    }

    fn user_id(&self) -> Option<UserId> {
        UserId::parse(self.find_text("person")?)
    }

    fn webhook_id(&self) -> Option<WebhookId> {
        WebhookId::parse(self.find_text("webhook")?)
    }
}

/// A client of the queue of deliveries.
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
        self.0
            .send(&message.webhook.to_string(), message.to_json(), pause)
            .await
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
        self.0.send(&request.webhook.to_string(), request.to_json(), None).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use purser_domain::{EventSource, test_event};
    use uuid::Uuid;

    fn person() -> UserId {
        UserId::derive("https://issuer.example", "ann")
    }

    fn id(n: u128) -> DeliveryId {
        DeliveryId::from_uuid(Uuid::from_u128(n))
    }

    fn with(text: &str, name: &str, value: Value) -> String {
        let mut members: Value = serde_json::from_str(text).unwrap();
        members[name] = value;
        members.to_string()
    }

    fn event() -> Event {
        let source = EventSource::for_stack("stack").unwrap();
        test_event(source, &person(), "x", id(1)).unwrap()
    }

    #[test]
    fn delivery_messages_round_trip_as_text() {
        for of in [DeliveryOf::Event(event()), DeliveryOf::Stored(id(1))] {
            let message = DeliveryMessage {
                person: person(),
                webhook: WebhookId::from_uuid(Uuid::nil()),
                of,
            };
            assert_eq!(DeliveryMessage::parse(&message.to_json()), Some(message.clone()));
            let both = with(&message.to_json(), "event", json!({}));
            assert_eq!(DeliveryMessage::parse(&both), None);
        }
        for text in ["", "[]", "{}", r#"{"person": 1}"#] {
            assert_eq!(DeliveryMessage::parse(text), None, "{text}");
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
            assert_eq!(WebhookRequest::parse(&request.to_json()), Some(request.clone()));
            assert_eq!(DeliveryMessage::parse(&request.to_json()), None);
            for (name, value) in [
                ("event", event().to_json()),
                ("delivery", json!(1)),
                ("request", Value::Null),
            ] {
                let other = with(&request.to_json(), name, value);
                assert_eq!(WebhookRequest::parse(&other), None, "{other}");
            }
        }
        let delivery = DeliveryMessage {
            person: person(),
            webhook: WebhookId::from_uuid(Uuid::nil()),
            of: DeliveryOf::Event(event()),
        };
        assert_eq!(WebhookRequest::parse(&delivery.to_json()), None);
        assert_eq!(WebhookRequest::parse("{}"), None);
    }
}
