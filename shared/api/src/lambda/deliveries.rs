//! The queue of deliveries: one message for each, which stays until its webhook has taken it or it is given up.
//!
//! A message is sent by `webhooks`, for an event, and by `people`, for a test or to send one again. It is in the message
//! group of its webhook.

use crate::lambda::sqs::Queue;
use aws_types::SdkConfig;
use purser_domain::{DeliveryId, Duration, Event, PersonId, Result, WebhookId};
use serde_json::{Map, Value, json};

/// One delivery that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryMessage {
    /// Whose webhook it is.
    pub person: PersonId,
    /// Which.
    pub webhook: WebhookId,
    /// What of.
    pub asked: AskedDelivery,
}

/// What a message asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AskedDelivery {
    /// This event.
    Event(Event),
    /// What was tried before, again.
    Again {
        /// What.
        delivery: DeliveryId,
        /// Tells one request from a repeated message.
        request: DeliveryId,
    },
}

impl DeliveryMessage {
    /// Its text.
    pub fn text(&self) -> String {
        let mut members = Map::new();
        members.insert("person".to_owned(), json!(self.person.as_str()));
        members.insert("webhook".to_owned(), json!(self.webhook.to_string()));
        match &self.asked {
            AskedDelivery::Event(event) => {
                members.insert("event".to_owned(), event.to_json());
            }
            AskedDelivery::Again { delivery, request } => {
                members.insert("delivery".to_owned(), json!(delivery.to_string()));
                members.insert("request".to_owned(), json!(request.to_string()));
            }
        }
        Value::Object(members).to_string()
    }

    /// Reads what [`DeliveryMessage::text`] writes; `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let message: Map<String, Value> = serde_json::from_str(text).ok()?;
        let member = |name: &str| message.get(name).and_then(Value::as_str);
        let asked = match (message.get("event"), member("delivery"), member("request")) {
            (Some(event), None, None) => AskedDelivery::Event(Event::parse(event.to_string().as_bytes()).ok()?),
            (None, Some(delivery), Some(request)) => AskedDelivery::Again {
                delivery: DeliveryId::parse(delivery)?,
                request: DeliveryId::parse(request)?,
            },
            _ => return None,
        };
        Some(Self {
            person: PersonId::parse(member("person")?)?,
            webhook: WebhookId::parse(member("webhook")?)?,
            asked,
        })
    }
}

/// The queue.
#[derive(Clone, Debug)]
pub struct DeliveriesQueue(Queue);

impl DeliveriesQueue {
    /// The queue at this URL.
    pub fn new(aws: &SdkConfig, url: impl Into<String>) -> Self {
        Self(Queue::new(aws, url))
    }

    /// Adds a message. Sent twice, it is two; the delivery's row tells that they are one.
    pub async fn send(&self, message: &DeliveryMessage) -> Result<()> {
        self.0.send(&message.webhook.to_string(), message.text(), None).await
    }

    /// Lets nobody receive a message for so long, from now on.
    pub async fn hide(&self, receipt_handle: &str, pause: Duration) -> Result<()> {
        self.0.hide(receipt_handle, pause).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use purser_domain::{EventData, EventId, EventKind, EventSource, EventSubject, Timestamp};
    use uuid::Uuid;

    #[test]
    fn a_message_returns_from_its_text_and_no_other_is_read() {
        let person = PersonId::of("https://issuer.example", "ann");
        let event = Event::new(
            EventId::of(EventKind::WebhookTest, &[&1]),
            EventSource::of("stack").unwrap(),
            EventKind::WebhookTest,
            Timestamp::EPOCH,
            EventSubject::Person(person.clone()),
            Some(person.clone()),
            EventData::new().text("endpoint_id", "x"),
        );
        let id = |n| DeliveryId::from_uuid(Uuid::from_u128(n));
        let again = AskedDelivery::Again {
            delivery: id(1),
            request: id(2),
        };
        for asked in [AskedDelivery::Event(event.unwrap()), again] {
            let message = DeliveryMessage {
                person: person.clone(),
                webhook: WebhookId::from_uuid(Uuid::nil()),
                asked,
            };
            assert_eq!(DeliveryMessage::parse(&message.text()), Some(message.clone()));
            let mut both: Value = serde_json::from_str(&message.text()).unwrap();
            both["event"] = json!({});
            assert_eq!(DeliveryMessage::parse(&both.to_string()), None);
        }
        for text in ["", "[]", "{}", r#"{"person": 1}"#] {
            assert_eq!(DeliveryMessage::parse(text), None, "{text}");
        }
    }
}
