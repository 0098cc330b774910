//! The queues of notifications: the work of the function `notices`, and requests for test notifications and for
//! notifications about failing webhooks.
//!
//! Only `notices` sends to the queue of notifications. A message's group is its user or, if it has no user, its event.
//! `people` and `webhooks` can only send to the queue of requests, which never contains an event, so a compromised
//! function can't notify users of an event that did not happen.

use crate::lambda::sqs::Queue;
use aws_types::SdkConfig;
use purser_domain::{DeliveryId, Duration, Event, NoticeChannel, NoticePace, PersonId, Result, WebhookId};
use serde_json::{Map, Value, json};

/// The work that a message requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoticeWork {
    /// Stores an event without an owner for all affected users. One message covers one shard of the users.
    Spread {
        /// The event to store.
        event: Event,
        /// The shard of the users.
        part: char,
        /// The last user whom the previous message for this shard covered; `None` at the start of the shard.
        after: Option<PersonId>,
    },
    /// Sends the pending notifications of a user's channel.
    Flush {
        /// The user to notify.
        person: PersonId,
        /// The channel to send through.
        channel: NoticeChannel,
    },
}

impl NoticeWork {
    /// Serializes the message.
    pub fn text(&self) -> String {
        let members = match self {
            Self::Spread { event, part, after } => {
                json!({"part": part, "after": after.as_ref().map(PersonId::as_str), "event": event.to_json()})
            }
            Self::Flush { person, channel } => json!({"person": person.as_str(), "channel": channel.name()}),
        };
        members.to_string()
    }

    /// Parses a message; `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let message: Map<String, Value> = serde_json::from_str(text).ok()?;
        let member = |name: &str| message.get(name).and_then(Value::as_str);
        let event = match message.get("event") {
            None => None,
            Some(event) => Some(Event::parse(event.to_string().as_bytes()).ok()?),
        };
        let person = |name: &str| member(name).map(PersonId::parse);
        match (event, member("part"), member("channel")) {
            (Some(event), Some(part), None) => Some(Self::Spread {
                event,
                part: part.chars().next()?,
                after: match person("after") {
                    None => None,
                    Some(after) => Some(after?),
                },
            }),
            (None, None, Some(channel)) => Some(Self::Flush {
                person: person("person")??,
                channel: NoticeChannel::from_name(channel)?,
            }),
            _ => None,
        }
    }
}

/// A request for a notification. The request contains only ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoticeRequest {
    /// The user to notify.
    pub person: PersonId,
    /// The subject of the notification.
    pub of: NoticeOf,
}

/// The subject of a requested notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoticeOf {
    /// A test that the user requested. The request's id identifies a repeated message.
    Test(DeliveryId),
    /// A webhook of the user whose calls fail. The failed calls are in the table.
    Webhook(WebhookId),
}

impl NoticeRequest {
    /// Serializes the request.
    pub fn text(&self) -> String {
        let (name, id) = match self.of {
            NoticeOf::Test(id) => ("request", id.to_string()),
            NoticeOf::Webhook(id) => ("webhook", id.to_string()),
        };
        json!({"person": self.person.as_str(), name: id}).to_string()
    }

    /// Parses a request; `None` for any other text, for example a message with an event.
    pub fn parse(text: &str) -> Option<Self> {
        let message: Map<String, Value> = serde_json::from_str(text).ok()?;
        let member = |name: &str| message.get(name).and_then(Value::as_str);
        (message.len() == 2).then_some(Self {
            person: PersonId::parse(member("person")?)?,
            of: match member("webhook") {
                Some(webhook) => NoticeOf::Webhook(WebhookId::parse(webhook)?),
                None => NoticeOf::Test(DeliveryId::parse(member("request")?)?),
            },
        })
    }
}

/// A client of the queue of requests.
#[derive(Clone, Debug)]
pub struct NoticeRequestsQueue(Queue);

impl NoticeRequestsQueue {
    /// Creates a client for the queue at this URL.
    pub fn new(aws: &SdkConfig, url: impl Into<String>) -> Self {
        Self(Queue::new(aws, url))
    }

    /// Sends a request.
    pub async fn send(&self, request: &NoticeRequest) -> Result<()> {
        self.0.send(request.person.as_str(), request.text(), None).await
    }
}

/// A client of the queue of notifications.
#[derive(Clone, Debug)]
pub struct NoticesQueue(Queue);

impl NoticesQueue {
    /// Creates a client for the queue at this URL.
    pub fn new(aws: &SdkConfig, url: impl Into<String>) -> Self {
        Self(Queue::new(aws, url))
    }

    /// Sends a message. Sending a message twice is safe, because the rows record finished work. A flush is delayed, so
    /// that one notification contains all events of a burst.
    pub async fn send(&self, work: &NoticeWork) -> Result<()> {
        let (group, delay) = match work {
            NoticeWork::Spread { event, .. } => (event.id().to_string(), None),
            NoticeWork::Flush { person, .. } => (person.to_string(), Some(NoticePace::GATHERING)),
        };
        self.0.send(&group, work.text(), delay).await
    }

    /// Sends a flush that becomes visible when the next send slot begins. Returns the message id.
    pub async fn wake(&self, person: &PersonId, channel: NoticeChannel) -> Result<String> {
        let person = person.clone();
        let (group, flush) = (person.to_string(), NoticeWork::Flush { person, channel });
        self.0.send_for_id(&group, flush.text(), Some(NoticePace::TURN)).await
    }

    /// Hides a message from receivers for `pause`.
    pub async fn hide(&self, receipt_handle: &str, pause: Duration) -> Result<()> {
        self.0.hide(receipt_handle, pause).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use purser_domain::{EventData, EventId, EventKind, EventSource, EventSubject, Timestamp};

    #[test]
    fn notice_messages_round_trip_as_text() {
        let person = PersonId::derive("https://issuer.example", "ann");
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
        let spread = |after| NoticeWork::Spread {
            event: event.clone(),
            part: 'a',
            after,
        };
        let rows = [
            spread(None),
            spread(Some(person.clone())),
            NoticeWork::Flush {
                person,
                channel: NoticeChannel::Slack,
            },
        ];
        for work in rows {
            assert_eq!(NoticeWork::parse(&work.text()), Some(work));
        }
        let [test, request] = [
            NoticeOf::Test(DeliveryId::at(Timestamp::EPOCH, [0; 8])),
            NoticeOf::Webhook(WebhookId::from_uuid(uuid::Uuid::max())),
        ]
        .map(|of| NoticeRequest {
            person: PersonId::derive("https://issuer.example", "ann"),
            of,
        });
        for request in [&test, &request] {
            assert_eq!(NoticeRequest::parse(&request.text()).as_ref(), Some(request));
            let with_event = request.text().replace('{', r#"{"event": {}, "#);
            for text in ["", "{}", &with_event] {
                assert_eq!(NoticeRequest::parse(text), None, "{text}");
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
            &request.text(),
        ] {
            assert_eq!(NoticeWork::parse(text), None, "{text}");
        }
    }
}
