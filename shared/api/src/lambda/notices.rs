//! The two queues of notifications: the work of the function `notices`, and requests for notifications.
//!
//! The functions `people` and `webhooks` can only send requests, which contain no event. Only the function `notices`
//! sends to the queue of notifications. A compromised function therefore can't notify users of an event that did not
//! happen.

use crate::lambda::sqs::Queue;
use aws_types::SdkConfig;
use purser_domain::{DeliveryId, Duration, Event, NoticeChannel, NotificationPace, Result, UserId, WebhookId};
use serde_json::{Map, Value, json};

/// The work that a message requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotificationWork {
    /// Stores an event without an owner for all affected users, one shard of the users per message.
    Spread {
        /// The event to store.
        event: Event,
        /// The shard of the users: one hexadecimal digit.
        part: char,
        /// The last user of the previous message about this shard; `None` for the first message.
        after: Option<UserId>,
    },
    /// Sends a user's pending notifications through one channel.
    Flush {
        /// The user to notify.
        person: UserId,
        /// The channel to send through.
        channel: NoticeChannel,
    },
}

impl NotificationWork {
    /// Returns the message as the JSON text that [`NotificationWork::parse`] accepts.
    pub fn to_json(&self) -> String {
        let fields = match self {
            Self::Spread { event, part, after } => {
                json!({"part": part, "after": after.as_ref().map(UserId::as_str), "event": event.to_json()})
            }
            Self::Flush { person: user, channel } => json!({"person": user.as_str(), "channel": channel.name()}),
        };
        fields.to_string()
    }

    /// Parses a message; `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let message: Map<String, Value> = serde_json::from_str(text).ok()?;
        let field = |name: &str| message.get(name).and_then(Value::as_str);
        let event = match message.get("event") {
            None => None,
            Some(event) => Some(Event::parse(event.to_string().as_bytes()).ok()?),
        };
        let user = |name: &str| field(name).map(UserId::parse);
        match (event, field("part"), field("channel")) {
            (Some(event), Some(part), None) => Some(Self::Spread {
                event,
                part: part.chars().next()?,
                after: match user("after") {
                    None => None,
                    Some(after) => Some(after?),
                },
            }),
            (None, None, Some(channel)) => Some(Self::Flush {
                person: user("person")??,
                channel: NoticeChannel::from_name(channel)?,
            }),
            _ => None,
        }
    }
}

/// A request for a notification. The request contains only ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotificationRequest {
    /// The user to notify.
    pub person: UserId,
    /// The subject of the notification.
    pub of: NotificationSource,
}

/// The subject of a requested notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotificationSource {
    /// A test notification. The id identifies the user's request, even if SQS delivers the request twice.
    Test(DeliveryId),
    /// A user's webhook whose calls fail.
    Webhook(WebhookId),
}

impl NotificationRequest {
    /// Serializes the request.
    pub fn to_json(&self) -> String {
        let (name, id) = match self.of {
            NotificationSource::Test(id) => ("request", id.to_string()),
            NotificationSource::Webhook(id) => ("webhook", id.to_string()),
        };
        json!({"person": self.person.as_str(), name: id}).to_string()
    }

    /// Parses a request; `None` for any other text, for example a message with an event.
    pub fn parse(text: &str) -> Option<Self> {
        let message: Map<String, Value> = serde_json::from_str(text).ok()?;
        let field = |name: &str| message.get(name).and_then(Value::as_str);
        (message.len() == 2).then_some(Self {
            person: UserId::parse(field("person")?)?,
            of: match field("webhook") {
                Some(webhook) => NotificationSource::Webhook(WebhookId::parse(webhook)?),
                None => NotificationSource::Test(DeliveryId::parse(field("request")?)?),
            },
        })
    }
}

/// A client of the queue of requests.
#[derive(Clone, Debug)]
pub struct NotificationRequestsQueue(Queue);

impl NotificationRequestsQueue {
    /// Creates a client for the queue at this URL.
    pub fn new(aws: &SdkConfig, url: impl Into<String>) -> Self {
        Self(Queue::new(aws, url))
    }

    /// Sends a request.
    pub async fn send(&self, request: &NotificationRequest) -> Result<()> {
        self.0.send(request.person.as_str(), request.to_json(), None).await
    }
}

/// A client of the queue of messages that the function `notices` sends to itself.
#[derive(Clone, Debug)]
pub struct NotificationsQueue(Queue);

impl NotificationsQueue {
    /// Creates a client for the queue at this URL.
    pub fn new(aws: &SdkConfig, url: impl Into<String>) -> Self {
        Self(Queue::new(aws, url))
    }

    /// Sends a message, which is safe to send twice. [`NotificationWork::Flush`] is delayed, so that one notification
    /// contains all events of a burst.
    pub async fn send(&self, work: &NotificationWork) -> Result<()> {
        let (group, delay) = match work {
            NotificationWork::Spread { event, .. } => (event.id().to_string(), None),
            NotificationWork::Flush { person: user, .. } => {
                (user.to_string(), Some(NotificationPace::COLLECTION_DELAY))
            }
        };
        self.0.send(&group, work.to_json(), delay).await
    }

    /// Schedules the sending of the pending notifications after [`NotificationPace::TURN`]. Returns the message id.
    pub async fn schedule_flush(&self, user: &UserId, channel: NoticeChannel) -> Result<String> {
        let user_id = user.clone();
        let (group, flush) = (
            user_id.to_string(),
            NotificationWork::Flush {
                person: user_id,
                channel,
            },
        );
        self.0
            .send_for_id(&group, flush.to_json(), Some(NotificationPace::TURN))
            .await
    }

    /// Hides a message from receivers for `pause`.
    pub async fn hide_message(&self, receipt_handle: &str, pause: Duration) -> Result<()> {
        self.0.hide_message(receipt_handle, pause).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use purser_domain::{EventData, EventId, EventKind, EventSource, EventSubject, Timestamp};

    #[test]
    fn notification_messages_round_trip_as_text() {
        let person = UserId::derive("https://issuer.example", "ann");
        let kind = EventKind::DeploymentFrozen;
        let event = Event::new(
            EventId::derive(kind, &[&1]),
            EventSource::for_stack("stack").unwrap(),
            kind,
            Timestamp::EPOCH,
            EventSubject::Deployment,
            None,
            EventData::new(),
        )
        .unwrap();
        let spread = |after| NotificationWork::Spread {
            event: event.clone(),
            part: 'a',
            after,
        };
        let rows = [
            spread(None),
            spread(Some(person.clone())),
            NotificationWork::Flush {
                person,
                channel: NoticeChannel::Slack,
            },
        ];
        for work in rows {
            assert_eq!(NotificationWork::parse(&work.to_json()), Some(work));
        }
        let [test, request] = [
            NotificationSource::Test(DeliveryId::new_at(Timestamp::EPOCH, [0; 8])),
            NotificationSource::Webhook(WebhookId::from_uuid(uuid::Uuid::max())),
        ]
        .map(|of| NotificationRequest {
            person: UserId::derive("https://issuer.example", "ann"),
            of,
        });
        for request in [&test, &request] {
            assert_eq!(NotificationRequest::parse(&request.to_json()).as_ref(), Some(request));
            let with_event = request.to_json().replace('{', r#"{"event": {}, "#);
            for text in ["", "{}", &with_event] {
                assert_eq!(NotificationRequest::parse(text), None, "{text}");
            }
        }
        let both = r#"{"person": "", "channel": "mail", "event": {}}"#;
        for text in [
            "",
            "[]",
            "{}",
            r#"{"person": 1}"#,
            r#"{"channel": "mail"}"#,
            both,
            &request.to_json(),
        ] {
            assert_eq!(NotificationWork::parse(text), None, "{text}");
        }
    }
}
