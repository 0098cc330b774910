//! The queue of notices: what is to be told, and to whom.
//!
//! A message is sent by `notices`, and by `people` for a test. It is in the message group of its person, or of the event.

use crate::lambda::sqs::Queue;
use aws_types::SdkConfig;
use purser_domain::{Duration, Event, NoticeChannel, NoticePace, PersonId, Result};
use serde_json::{Map, Value, json};

/// What a message asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoticeWork {
    /// Tell a person this, on the channels where they want it.
    Collect {
        /// Whom.
        person: PersonId,
        /// What.
        event: Event,
    },
    /// Let what is nobody's own reach those whom it concerns: some of a part of all people, and so on.
    Spread {
        /// What.
        event: Event,
        /// The part.
        part: char,
        /// Whom to go on after.
        after: Option<PersonId>,
    },
    /// Send what waits on a channel.
    Flush {
        /// Whose.
        person: PersonId,
        /// Which.
        channel: NoticeChannel,
    },
}

impl NoticeWork {
    /// Its text.
    pub fn text(&self) -> String {
        let members = match self {
            Self::Collect { person, event } => json!({"person": person.as_str(), "event": event.to_json()}),
            Self::Spread { event, part, after } => {
                json!({"part": part, "after": after.as_ref().map(PersonId::as_str), "event": event.to_json()})
            }
            Self::Flush { person, channel } => json!({"person": person.as_str(), "channel": channel.name()}),
        };
        members.to_string()
    }

    /// Reads what [`NoticeWork::text`] writes; `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let message: Map<String, Value> = serde_json::from_str(text).ok()?;
        let member = |name: &str| message.get(name).and_then(Value::as_str);
        let event = match message.get("event") {
            None => None,
            Some(event) => Some(Event::parse(event.to_string().as_bytes()).ok()?),
        };
        let person = |name: &str| member(name).map(PersonId::parse);
        match (event, member("part"), member("channel")) {
            (Some(event), None, None) => Some(Self::Collect {
                person: person("person")??,
                event,
            }),
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

/// The queue.
#[derive(Clone, Debug)]
pub struct NoticesQueue(Queue);

impl NoticesQueue {
    /// The queue at this URL.
    pub fn new(aws: &SdkConfig, url: impl Into<String>) -> Self {
        Self(Queue::new(aws, url))
    }

    /// Adds a message. Sent twice, it is two; the rows tell what was done. What sends waits first, so that one message
    /// tells a burst.
    pub async fn send(&self, work: &NoticeWork) -> Result<()> {
        let (group, delay) = match work {
            NoticeWork::Collect { person, .. } => (person.to_string(), None),
            NoticeWork::Spread { event, .. } => (event.id().to_string(), None),
            NoticeWork::Flush { person, .. } => (person.to_string(), Some(NoticePace::GATHERING)),
        };
        self.0.send(&group, work.text(), delay).await
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

    #[test]
    fn a_message_returns_from_its_text_and_no_other_is_read() {
        let person = PersonId::of("https://issuer.example", "ann");
        let kind = EventKind::DeploymentFrozen;
        let event = Event::new(
            EventId::of(kind, &[&1]),
            EventSource::of("stack").unwrap(),
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
            NoticeWork::Collect {
                person: person.clone(),
                event: event.clone(),
            },
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
        let both = r#"{"person": "", "channel": "mail", "event": {}}"#;
        for text in ["", "[]", "{}", r#"{"person": 1}"#, r#"{"channel": "mail"}"#, both] {
            assert_eq!(NoticeWork::parse(text), None, "{text}");
        }
    }
}
