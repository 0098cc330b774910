//! An event and the only serialized form of events: `CloudEvents` 1.0, structured JSON (`CloudEvents` JSON format §3).

use crate::{AgentId, EventData, EventKind, EventTopic, Field, ServiceId, Timestamp, UserId};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use std::fmt;
use uuid::{Builder, Uuid};

/// An event that is published to webhooks and used for notifications.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    id: EventId,
    source: EventSource,
    kind: EventKind,
    time: Timestamp,
    subject: EventSubject,
    owner: Option<UserId>,
    data: EventData,
}

/// An event's id: a `UUIDv8` from a hash. The same change always has the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(Uuid);

impl EventId {
    /// Derives the id from the kind and from the parts that identify the change, such as the row's key.
    pub fn derive(kind: EventKind, parts: &[&dyn fmt::Display]) -> Self {
        let mut hash = Sha256::new();
        hash.update(b"purser/event/v1\0");
        hash.update(kind.name());
        for part in parts {
            // A zero byte, which no part contains, separates the parts.
            hash.update([0]);
            hash.update(part.to_string());
        }
        let digest: [u8; 32] = hash.finalize().into();
        // A SHA-256 digest is longer than a UUID, so the default is never used.
        let bytes = digest.first_chunk().copied().unwrap_or_default();
        let id = Builder::from_bytes(bytes).with_version(uuid::Version::Custom);
        Self(id.with_variant(uuid::Variant::RFC4122).into_uuid())
    }

    /// Parses a UUID in lower case with hyphens. Returns `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let id = Uuid::try_parse(text).ok().map(Self)?;
        (id.to_string() == text).then_some(id)
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The deployment that publishes an event, as the URI `purser:<deployment>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventSource(String);

/// The source `purser:purser`, for a deployment with the default name `purser`.
impl Default for EventSource {
    fn default() -> Self {
        Self(format!("{}purser", Self::SCHEME))
    }
}

impl EventSource {
    const SCHEME: &'static str = "purser:";

    /// Creates the source for a deployment from the name of the `CloudFormation` stack: 1 to 128 ASCII
    /// letters, digits and hyphens. Returns `None` for any other name.
    pub fn for_stack(stack: &str) -> Option<Self> {
        let is_name =
            (1..=128).contains(&stack.len()) && stack.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        is_name.then(|| Self(format!("{}{stack}", Self::SCHEME)))
    }

    /// Parses a URI `purser:<deployment>`. Returns `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        Self::for_stack(text.strip_prefix(Self::SCHEME)?)
    }

    /// Returns the URI `purser:<deployment>`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The object that an event concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventSubject {
    /// The event concerns an agent.
    Agent(AgentId),
    /// The event concerns a service in the catalog.
    Service(ServiceId),
    /// The event concerns a user.
    Person(UserId),
    /// The event concerns the whole deployment.
    Deployment,
}

impl EventSubject {
    const DEPLOYMENT: &'static str = "deployment";

    const fn topic(&self) -> EventTopic {
        match self {
            Self::Agent(_) => EventTopic::Agent,
            Self::Service(_) => EventTopic::Service,
            Self::Person(_) => EventTopic::Person,
            Self::Deployment => EventTopic::Deployment,
        }
    }

    fn parse(topic: EventTopic, text: &str) -> Option<Self> {
        match topic {
            EventTopic::Agent => AgentId::parse(text).map(Self::Agent),
            EventTopic::Service => ServiceId::parse(text).map(Self::Service),
            EventTopic::Person => UserId::parse(text).map(Self::Person),
            EventTopic::Deployment => (text == Self::DEPLOYMENT).then_some(Self::Deployment),
        }
    }
}

/// Writes the value of the `subject` field.
impl fmt::Display for EventSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agent(agent) => agent.fmt(f),
            Self::Service(service) => service.fmt(f),
            Self::Person(user) => user.fmt(f),
            Self::Deployment => f.write_str(Self::DEPLOYMENT),
        }
    }
}

/// Why an event is invalid: a field is missing, unknown or malformed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{member}` is missing, unknown or wrong")]
pub struct EventError {
    /// The name of the field that is missing, unknown or malformed.
    pub member: String,
}

impl EventError {
    fn at_field(field: impl Into<String>) -> Self {
        Self { member: field.into() }
    }
}

/// The version of the `CloudEvents` format.
const SPEC_VERSION: &str = "1.0";
const CONTENT_TYPE: &str = "application/json";
/// The URI of `docs/events.schema.json`. `CloudEvents` requires an absolute URI.
pub(crate) const SCHEMA: &str = "purser:schemas/events.v1.json";

impl Event {
    /// Creates an event if `data` has exactly the fields of the kind.
    pub fn new(
        id: EventId,
        source: EventSource,
        kind: EventKind,
        time: Timestamp,
        subject: EventSubject,
        owner: Option<UserId>,
        data: EventData,
    ) -> Result<Self, EventError> {
        if subject.topic() != kind.topic() {
            return Err(EventError::at_field("subject"));
        }
        if owner.is_some() != kind.topic().has_owner() {
            return Err(EventError::at_field("owner"));
        }
        let missing = |field: &&Field| data.find(field.name).is_none_or(|value| !field.form.matches(value));
        if let Some(field) = kind
            .fields()
            .filter(|field| field.required || data.find(field.name).is_some())
            .find(missing)
        {
            return Err(EventError::at_field(field.name));
        }
        let is_known = |name: &str| kind.fields().any(|field| field.name == name);
        if let Some(unknown) = data.fields().keys().find(|name| !is_known(name)) {
            return Err(EventError::at_field(unknown));
        }
        Ok(Self {
            id,
            source,
            kind,
            time,
            subject,
            owner,
            data,
        })
    }

    /// Parses the JSON form. Rejects fields that Purser does not publish.
    pub fn parse(bytes: &[u8]) -> Result<Self, EventError> {
        let fields: Map<String, Value> = serde_json::from_slice(bytes).map_err(|_| EventError::at_field(""))?;
        let known = [
            "specversion",
            "id",
            "source",
            "type",
            "time",
            "subject",
            "datacontenttype",
            "dataschema",
            "owner",
            "data",
        ];
        if let Some(unknown) = fields.keys().find(|name| !known.contains(&name.as_str())) {
            return Err(EventError::at_field(unknown));
        }
        let text = |name: &str| fields.get(name).and_then(Value::as_str);
        let constant = |name: &str, value: &str| match text(name) {
            Some(found) if found == value => Ok(()),
            Some(_) | None => Err(EventError::at_field(name)),
        };
        constant("specversion", SPEC_VERSION)?;
        constant("datacontenttype", CONTENT_TYPE)?;
        constant("dataschema", SCHEMA)?;
        let wrong = |name: &'static str| move || EventError::at_field(name);
        let id = text("id").and_then(EventId::parse).ok_or_else(wrong("id"))?;
        let source = text("source")
            .and_then(EventSource::parse)
            .ok_or_else(wrong("source"))?;
        let kind = text("type").and_then(EventKind::from_name).ok_or_else(wrong("type"))?;
        let time = text("time").and_then(Timestamp::parse).ok_or_else(wrong("time"))?;
        let subject = text("subject").and_then(|text| EventSubject::parse(kind.topic(), text));
        let subject = subject.ok_or_else(wrong("subject"))?;
        let owner = match fields.get("owner") {
            None => None,
            Some(owner) => {
                let owner = owner.as_str().and_then(UserId::parse);
                Some(owner.ok_or_else(wrong("owner"))?)
            }
        };
        let data = fields.get("data").and_then(Value::as_object).cloned();
        let data = EventData(data.ok_or_else(wrong("data"))?);
        Self::new(id, source, kind, time, subject, owner, data)
    }

    /// Returns the event as a JSON object in the `CloudEvents` 1.0 format.
    pub fn to_json(&self) -> Value {
        let mut event = json!({
            "specversion": SPEC_VERSION,
            "id": self.id.to_string(),
            "source": self.source.as_str(),
            "type": self.kind.name(),
            "time": self.time.to_string(),
            "subject": self.subject.to_string(),
            "datacontenttype": CONTENT_TYPE,
            "dataschema": SCHEMA,
            "data": self.data.0,
        });
        if let (Some(owner), Some(fields)) = (&self.owner, event.as_object_mut()) {
            fields.insert("owner".to_owned(), Value::String(owner.to_string()));
        }
        event
    }

    /// Returns the event's id. Deliveries of the same change have the same id.
    pub const fn id(&self) -> EventId {
        self.id
    }

    /// Returns the deployment that published the event.
    pub const fn source(&self) -> &EventSource {
        &self.source
    }

    /// Returns the event's kind.
    pub const fn kind(&self) -> EventKind {
        self.kind
    }

    /// Returns the time of the change that the event reports.
    pub const fn time(&self) -> Timestamp {
        self.time
    }

    /// Returns what the event concerns.
    pub const fn subject(&self) -> &EventSubject {
        &self.subject
    }

    /// Returns the user who owns the event; `None` for events about a service or the deployment.
    pub const fn owner(&self) -> Option<&UserId> {
        self.owner.as_ref()
    }

    /// Returns the agent that the event concerns; `None` if the subject is not an agent.
    pub const fn agent(&self) -> Option<AgentId> {
        match self.subject {
            EventSubject::Agent(agent) => Some(agent),
            EventSubject::Service(_) | EventSubject::Person(_) | EventSubject::Deployment => None,
        }
    }

    /// Returns the event's data, which has only fields of the event's kind.
    pub const fn data(&self) -> &EventData {
        &self.data
    }
}

impl Serialize for Event {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_json().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Event {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let event = Value::deserialize(deserializer)?;
        Self::parse(event.to_string().as_bytes()).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn person() -> UserId {
        UserId::derive("https://issuer.example", "ann")
    }

    fn made(kind: EventKind, subject: EventSubject, owner: Option<UserId>, data: EventData) -> Result<Event, String> {
        let id = EventId::derive(kind, &[&"x"]);
        let source = EventSource::for_stack("stack").unwrap();
        Event::new(id, source, kind, Timestamp::EPOCH, subject, owner, data).map_err(|problem| problem.member)
    }

    fn test_event() -> Event {
        let data = EventData::new().text("endpoint_id", "e");
        made(
            EventKind::WebhookTest,
            EventSubject::Person(person()),
            Some(person()),
            data,
        )
        .unwrap()
    }

    #[test]
    fn events_survive_serialization_and_parsing() {
        let event = test_event();
        assert_eq!(Event::parse(event.to_json().to_string().as_bytes()), Ok(event));
        let frozen = made(
            EventKind::DeploymentFrozen,
            EventSubject::Deployment,
            None,
            EventData::new(),
        )
        .unwrap();
        assert_eq!(frozen.to_json().get("owner"), None);
        assert_eq!(Event::parse(frozen.to_json().to_string().as_bytes()), Ok(frozen));
    }

    #[test]
    fn events_contain_exactly_the_fields_of_their_kind() {
        let test = |data| {
            made(
                EventKind::WebhookTest,
                EventSubject::Person(person()),
                Some(person()),
                data,
            )
        };
        let endpoint = || EventData::new().text("endpoint_id", "e");
        assert_eq!(test(EventData::new()), Err("endpoint_id".to_owned()));
        assert_eq!(test(endpoint().text("secret", "s")), Err("secret".to_owned()));
        assert_eq!(
            test(EventData::new().number("endpoint_id", 1)),
            Err("endpoint_id".to_owned())
        );
        let nobody = made(EventKind::WebhookTest, EventSubject::Person(person()), None, endpoint());
        assert_eq!(nobody, Err("owner".to_owned()));
        let other = made(
            EventKind::WebhookTest,
            EventSubject::Deployment,
            Some(person()),
            endpoint(),
        );
        assert_eq!(other, Err("subject".to_owned()));
    }

    #[test]
    fn invalid_event_attributes_are_rejected() {
        let changed = |name: &str, value: Value| {
            let mut event = test_event().to_json();
            event.as_object_mut().unwrap().insert(name.to_owned(), value);
            Event::parse(event.to_string().as_bytes()).map_err(|problem| problem.member)
        };
        let rows = [
            ("specversion", json!("0.3")),
            ("id", json!("")),
            ("source", json!("https://other.example")),
            ("type", json!("purser.webhook.test.v2")),
            ("time", json!("yesterday")),
            ("subject", json!("deployment")),
            ("owner", json!(null)),
            ("data", json!([])),
            ("traceparent", json!("00")),
        ];
        for (name, value) in rows {
            assert_eq!(changed(name, value), Err(name.to_owned()));
        }
        assert!(Event::parse(b"[]").is_err());
    }

    #[test]
    fn equal_changes_have_equal_event_ids() {
        let id = |kind, parts: &[&dyn fmt::Display]| EventId::derive(kind, parts);
        let released = id(EventKind::PaymentReleased, &[&"a", &"b"]);
        assert_eq!(released, id(EventKind::PaymentReleased, &[&"a", &"b"]));
        assert_eq!(EventId::parse(&released.to_string()), Some(released));
        for other in [
            id(EventKind::PaymentConfirmed, &[&"a", &"b"]),
            id(EventKind::PaymentReleased, &[&"ab"]),
            id(EventKind::PaymentReleased, &[&"a", &"c"]),
        ] {
            assert_ne!(other, released);
        }
    }
}
