//! The two queues of notifications: the work of the function `notices`, and requests for notifications.
//!
//! The functions `people` and `webhooks` can only send requests, which contain no event. Only the function `notices`
//! sends to the queue of notifications. A compromised function therefore can't notify users of an event that did not
//! happen.

use crate::lambda::sqs::Queue;
use aws_types::SdkConfig;
use purser_domain::{DeliveryId, Duration, Event, NoticeChannel, NotificationPace, Result, UserId, WebhookId};
use serde::{Deserialize, Serialize};

/// A task in the queue of messages that the function `notices` sends to itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum NotificationWork {
    /// Stores an event that has no owner, for each affected user of one shard.
    Spread {
        /// The event to store.
        event: Event,
        /// The shard: the first hexadecimal digit of the users' ids.
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

/// A request for a notification, which contains only ids.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NotificationRequest {
    /// The user to notify.
    pub person: UserId,
    /// The subject of the notification.
    pub of: NotificationSource,
}

/// The subject of a requested notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NotificationSource {
    /// A test notification. The id identifies the user's request, even if SQS delivers the request twice.
    Test(DeliveryId),
    /// A user's webhook whose calls fail.
    Webhook(WebhookId),
}

/// A client of the queue of requests for notifications.
#[derive(Clone, Debug)]
pub struct NotificationRequestsQueue(Queue);

impl NotificationRequestsQueue {
    /// Creates a client for the queue at this URL.
    pub fn new(aws: &SdkConfig, url: impl Into<String>) -> Self {
        Self(Queue::new(aws, url))
    }

    /// Sends a request.
    pub async fn send(&self, request: &NotificationRequest) -> Result<()> {
        self.0.send(request.person.as_str(), request, None).await
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
        self.0.send(&group, work, delay).await
    }

    /// Schedules the sending of the pending notifications after [`NotificationPace::TURN`]. Returns the message id.
    pub async fn schedule_flush(&self, user: &UserId, channel: NoticeChannel) -> Result<String> {
        let flush = NotificationWork::Flush {
            person: user.clone(),
            channel,
        };
        self.0
            .send_and_return_message_id(user.as_str(), &flush, Some(NotificationPace::TURN))
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
    use serde_json::{Value, json};

    #[test]
    fn notification_messages_round_trip_as_json() {
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
        let parse_work = |message: Value| serde_json::from_value::<NotificationWork>(message).ok();
        for work in rows {
            assert_eq!(parse_work(json!(work)), Some(work));
        }
        let [test, request] = [
            NotificationSource::Test(DeliveryId::new_at(Timestamp::EPOCH, [0; 8])),
            NotificationSource::Webhook(WebhookId::from_uuid(uuid::Uuid::max())),
        ]
        .map(|of| NotificationRequest {
            person: UserId::derive("https://issuer.example", "ann"),
            of,
        });
        let parse_request = |message: Value| serde_json::from_value::<NotificationRequest>(message).ok();
        for request in [&test, &request] {
            assert_eq!(parse_request(json!(request)).as_ref(), Some(request));
            let mut with_event = json!(request);
            with_event["event"] = json!({});
            for message in [json!(""), json!({}), with_event] {
                assert_eq!(parse_request(message), None);
            }
        }
        let both = json!({"flush": {"person": request.person, "channel": "mail", "event": event}});
        for message in [
            json!(""),
            json!([]),
            json!({}),
            json!({"flush": {"person": 1}}),
            json!({"flush": {"channel": "mail"}}),
            both,
            json!(request),
        ] {
            assert_eq!(parse_work(message.clone()), None, "{message}");
        }
    }
}
