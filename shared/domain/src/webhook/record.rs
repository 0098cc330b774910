//! A webhook: the URL of a user's webhook receiver, and the events for that URL.

use crate::{
    AgentId, AuditFields, Duration, EventKind, Timestamp, Url, UserId, ValidationError, WebhookId, WebhookSecretId,
    catalog::service::named,
};
use serde_json::{Value, json};
use std::{collections::BTreeSet, fmt};

/// The URL of a webhook, without userinfo or fragment: https, or http where private addresses are allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookUrl(Url);

impl WebhookUrl {
    /// The maximum length of a webhook's URL, in bytes.
    pub const MAX: usize = 2_048;
    /// The message of the validation error for a text that [`WebhookUrl::parse`] rejects.
    pub const FORM: &str = "must be an https URL of at most 2048 bytes, without user, password or fragment";

    /// Parses a URL. The address of the host is checked at each call.
    pub fn parse(text: &str) -> Option<Self> {
        let url = Url::parse(text).ok().filter(|_| text.len() <= Self::MAX)?;
        let is_web = matches!(url.scheme(), "https" | "http") && url.host_str().is_some_and(|host| !host.is_empty());
        let is_plain = url.username().is_empty() && url.password().is_none() && url.fragment().is_none();
        (is_web && is_plain && url.as_str().len() <= Self::MAX).then_some(Self(url))
    }

    /// Returns whether the connection is encrypted.
    pub fn is_https(&self) -> bool {
        self.0.scheme() == "https"
    }

    /// Returns the http or https URL, without userinfo or fragment.
    pub const fn url(&self) -> &Url {
        &self.0
    }
}

impl fmt::Display for WebhookUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

named! {
    /// The `Content-Type` of a webhook's calls. Both types have the same body.
    WebhookContentType {
        /// An event in structured content mode (`CloudEvents` 1.0.2, HTTP protocol binding §3.2). This is the default.
        CloudEvents = "application/cloudevents+json",
        /// The only JSON content type that some frameworks accept.
        Json = "application/json",
    }
}

/// A user's settings for a webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookSettings {
    /// The URL to call.
    pub url: WebhookUrl,
    /// The user's description of the webhook.
    pub description: Option<String>,
    /// The kinds of events to send; `None` for all kinds.
    pub kinds: Option<BTreeSet<EventKind>>,
    /// The agents whose events are sent; `None` for all agents and for events without an agent.
    pub agents: Option<BTreeSet<AgentId>>,
    /// Whether events are sent to the webhook.
    pub enabled: bool,
    /// The `Content-Type` of the webhook's calls.
    pub content_type: WebhookContentType,
}

impl WebhookSettings {
    /// The maximum number of agents in a webhook's settings.
    pub const MAX_AGENTS: usize = 100;

    /// Returns whether these settings allow a call that the settings `old` do not allow.
    pub fn widens(&self, old: &Self) -> bool {
        let more_enabled = self.enabled && !old.enabled;
        let more_kinds = is_selection_widened(self.kinds.as_ref(), old.kinds.as_ref());
        let more_agents = is_selection_widened(self.agents.as_ref(), old.agents.as_ref());
        self.url != old.url || more_enabled || more_kinds || more_agents
    }

    /// Returns validation errors for empty lists and for more than [`Self::MAX_AGENTS`] agents.
    pub fn validation_errors(&self) -> Vec<ValidationError> {
        let mut errors = Vec::new();
        if self.kinds.as_ref().is_some_and(BTreeSet::is_empty) {
            errors.push(ValidationError::at_path(
                "/kinds",
                "must have at least one kind; leave it out for all",
            ));
        }
        let agents = self.agents.as_ref().map_or(1, BTreeSet::len);
        if !(1..=Self::MAX_AGENTS).contains(&agents) {
            let message = format!("must have 1 to {} agents; leave it out for all", Self::MAX_AGENTS);
            errors.push(ValidationError::at_path("/agents", message));
        }
        errors
    }
}

/// Returns whether `new` includes a value that `old` does not. `None` includes all values.
fn is_selection_widened<T: Ord>(new: Option<&BTreeSet<T>>, old: Option<&BTreeSet<T>>) -> bool {
    match (new, old) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some(new), Some(old)) => !new.is_subset(old),
    }
}

/// The validity of a webhook secret. The secret itself is stored separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecretValidity {
    /// The id, which identifies the secret among the webhook's secrets.
    pub id: WebhookSecretId,
    /// The time from which the secret is valid.
    pub created_at: Timestamp,
    /// The time from which the secret is invalid; `None` for the newest secret.
    pub ends_at: Option<Timestamp>,
}

/// A user's webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Webhook {
    /// The UUID that identifies the webhook in the API and in the storage keys of deliveries.
    pub id: WebhookId,
    /// The user who owns the webhook.
    pub person: UserId,
    /// The webhook's number among the user's webhooks, below [`Webhook::MAX`].
    pub slot: u8,
    /// The version of the webhook, which each update increments.
    pub version: u64,
    /// The time at which the webhook was created.
    pub created_at: Timestamp,
    /// The settings that the user can change.
    pub terms: WebhookSettings,
    /// The webhook's secrets, oldest first.
    pub secrets: Vec<SecretValidity>,
}

impl Webhook {
    /// The maximum number of a user's webhooks.
    pub const MAX: u8 = 10;
    /// The time for which a replaced secret still signs calls.
    pub const OVERLAP: Duration = Duration::DAY;
    /// The maximum number of valid secrets. Older secrets become invalid immediately.
    pub const MAX_SECRETS: usize = 3;

    /// Returns whether the webhook receives an event of this owner. Events before an ownership transfer go to the
    /// previous owner.
    pub fn receives_event(&self, owner: &UserId, kind: EventKind, agent: Option<AgentId>) -> bool {
        let terms = &self.terms;
        let of_kind = terms.kinds.as_ref().is_none_or(|kinds| kinds.contains(&kind));
        let of_agent = match (&terms.agents, agent) {
            (None, _) => true,
            (Some(agents), Some(agent)) => agents.contains(&agent),
            (Some(_), None) => false,
        };
        terms.enabled && self.person == *owner && of_kind && of_agent
    }

    /// Returns the secrets that sign calls at `now`, oldest first.
    pub fn signing_secrets(&self, now: Timestamp) -> impl Iterator<Item = WebhookSecretId> {
        let signs = move |term: &&SecretValidity| term.ends_at.is_none_or(|ends_at| now < ends_at);
        self.secrets.iter().filter(signs).map(|term| term.id)
    }

    /// Returns the next version of the webhook, with these settings.
    #[must_use]
    pub fn with_settings(self, settings: WebhookSettings) -> Self {
        Self {
            version: self.version.saturating_add(1),
            terms: settings,
            ..self
        }
    }

    /// Returns the webhook with a new secret, and the ids of the secrets that became invalid. Replaced secrets stay
    /// valid for [`Webhook::OVERLAP`].
    pub fn rotate_secret(self, new: WebhookSecretId, now: Timestamp) -> (Self, Vec<WebhookSecretId>) {
        let until = now.after(Self::OVERLAP);
        let mut kept = self.secrets.clone();
        kept.retain(|term| term.ends_at.is_none_or(|ends_at| now < ends_at));
        for term in &mut kept {
            term.ends_at = Some(term.ends_at.map_or(until, |ends_at| ends_at.min(until)));
        }
        kept.push(SecretValidity {
            id: new,
            created_at: now,
            ends_at: None,
        });
        let too_many = kept.len().saturating_sub(Self::MAX_SECRETS);
        kept.drain(..too_many);
        let is_ended = |term: &&SecretValidity| kept.iter().all(|other| other.id != term.id);
        let ended = self.secrets.iter().filter(is_ended).map(|term| term.id).collect();
        let rotated = Self {
            version: self.version.saturating_add(1),
            secrets: kept,
            ..self
        };
        (rotated, ended)
    }

    /// Returns the settings and the secrets' validity as fields for the audit log.
    pub fn audit_log_fields(&self) -> AuditFields {
        let terms = &self.terms;
        let kinds = terms.kinds.as_ref();
        let agents = terms.agents.as_ref();
        let secret = |term: &SecretValidity| {
            let result = json!({
                "created_at": term.created_at.to_string(),
                "ends_at": term.ends_at.map(|at| at.to_string()),
            });
            (format!("secrets/{}", term.id), result)
        };
        let fields = [
            ("url", json!(terms.url.to_string())),
            ("enabled", json!(terms.enabled)),
            ("content_type", json!(terms.content_type.name())),
            ("description", json!(terms.description)),
            (
                "kinds",
                kinds.map_or(Value::Null, |kinds| kinds.iter().map(|kind| kind.name()).collect()),
            ),
            (
                "agents",
                agents.map_or(Value::Null, |agents| agents.iter().map(ToString::to_string).collect()),
            ),
        ];
        let fields = fields.into_iter().map(|(name, value)| (name.to_owned(), value));
        fields.chain(self.secrets.iter().map(secret)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_secs(secs).unwrap()
    }

    fn agent(n: u128) -> AgentId {
        AgentId::from_uuid(Uuid::from_u128(n))
    }

    fn secret(n: u128) -> WebhookSecretId {
        WebhookSecretId::from_uuid(Uuid::from_u128(n))
    }

    fn ann() -> UserId {
        UserId::derive("https://issuer.example", "ann")
    }

    fn terms() -> WebhookSettings {
        WebhookSettings {
            url: WebhookUrl::parse("https://hooks.example/purser").unwrap(),
            description: None,
            kinds: None,
            agents: None,
            enabled: true,
            content_type: WebhookContentType::CloudEvents,
        }
    }

    fn webhook(terms: WebhookSettings) -> Webhook {
        Webhook {
            id: WebhookId::from_uuid(Uuid::nil()),
            person: ann(),
            slot: 0,
            version: 1,
            created_at: at(0),
            terms,
            secrets: vec![SecretValidity {
                id: secret(1),
                created_at: at(0),
                ends_at: None,
            }],
        }
    }

    #[test]
    fn webhook_urls_are_http_without_credentials() {
        for text in [
            "https://hooks.example/purser?a=b",
            "http://127.0.0.1:4030/",
            "https://[2001:db8::1]/",
        ] {
            assert!(WebhookUrl::parse(text).is_some(), "{text}");
        }
        let long = format!("https://hooks.example/{}", "a".repeat(2_048));
        for text in [
            "",
            "hooks.example",
            "ftp://a.example",
            "https://a@b.example",
            "https://a:b@c.example",
            "https://a.example/#b",
            &long,
        ] {
            assert!(WebhookUrl::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn webhooks_receive_only_selected_events_of_their_owner() {
        let (asked, frozen) = (EventKind::ApprovalAsked, EventKind::AgentFrozen);
        let bob = UserId::derive("https://issuer.example", "bob");
        let kinds = |kinds: &[EventKind]| Some(kinds.iter().copied().collect());
        let all = webhook(terms());
        let some = webhook(WebhookSettings {
            kinds: kinds(&[asked]),
            agents: Some([agent(1)].into()),
            ..terms()
        });
        let off = webhook(WebhookSettings {
            enabled: false,
            ..terms()
        });
        let rows = [
            (&all, ann(), asked, Some(agent(1)), true),
            (&all, ann(), frozen, None, true),
            (&all, bob.clone(), asked, Some(agent(1)), false),
            (&some, ann(), asked, Some(agent(1)), true),
            (&some, ann(), asked, Some(agent(2)), false),
            (&some, ann(), asked, None, false),
            (&some, ann(), frozen, Some(agent(1)), false),
            (&some, bob, asked, Some(agent(1)), false),
            (&off, ann(), asked, Some(agent(1)), false),
        ];
        for (index, (webhook, owner, kind, agent, wanted)) in rows.into_iter().enumerate() {
            assert_eq!(webhook.receives_event(&owner, kind, agent), wanted, "row {index}");
        }
    }

    #[test]
    fn webhook_settings_reach_further_with_a_new_url_or_more_events_or_agents() {
        let some = WebhookSettings {
            kinds: Some([EventKind::ApprovalAsked].into()),
            agents: Some([agent(1)].into()),
            ..terms()
        };
        let with = |change: fn(&mut WebhookSettings)| {
            let mut terms = some.clone();
            change(&mut terms);
            terms
        };
        let wider = [
            with(|terms| terms.url = WebhookUrl::parse("https://other.example/").unwrap()),
            with(|terms| terms.kinds = None),
            with(|terms| terms.agents = None),
            with(|terms| terms.agents = Some([agent(2)].into())),
            with(|terms| terms.kinds = Some([EventKind::ApprovalAsked, EventKind::AgentFrozen].into())),
        ];
        for terms in wider {
            assert!(terms.widens(&some), "{terms:?}");
        }
        let off = with(|terms| terms.enabled = false);
        assert!(some.widens(&off));
        for terms in [
            off,
            with(|terms| terms.description = Some("mine".to_owned())),
            with(|terms| terms.content_type = WebhookContentType::Json),
            some.clone(),
        ] {
            assert!(!terms.widens(&some), "{terms:?}");
        }
        assert!(!some.widens(&terms()));
    }

    #[test]
    fn rotated_webhook_secrets_keep_signing_for_one_day() {
        let (rotated, ended) = webhook(terms()).rotate_secret(secret(2), at(1_000));
        assert_eq!((rotated.version, ended), (2, vec![]));
        let signing = |webhook: &Webhook, secs| webhook.signing_secrets(at(secs)).collect::<Vec<_>>();
        assert_eq!(signing(&rotated, 1_000), [secret(1), secret(2)]);
        assert_eq!(signing(&rotated, 1_000 + 86_399), [secret(1), secret(2)]);
        assert_eq!(signing(&rotated, 1_000 + 86_400), [secret(2)]);
        // A rotation never extends the validity of a secret.
        let (rotated, ended) = rotated.rotate_secret(secret(3), at(2_000));
        assert_eq!(ended, []);
        assert_eq!(signing(&rotated, 1_000 + 86_400), [secret(2), secret(3)]);
        let (rotated, ended) = rotated.rotate_secret(secret(4), at(3_000));
        assert_eq!(ended, [secret(1)]);
        assert_eq!(signing(&rotated, 3_000), [secret(2), secret(3), secret(4)]);
        let (_, ended) = rotated.rotate_secret(secret(5), at(200_000));
        assert_eq!(ended, [secret(2), secret(3)]);
    }

    #[test]
    fn empty_webhook_selections_are_rejected() {
        let paths = |terms: WebhookSettings| {
            terms
                .validation_errors()
                .into_iter()
                .map(|problem| problem.path)
                .collect::<Vec<_>>()
        };
        assert!(paths(terms()).is_empty());
        let nothing = WebhookSettings {
            kinds: Some(BTreeSet::new()),
            agents: Some((0..101).map(agent).collect()),
            ..terms()
        };
        assert_eq!(paths(nothing), ["/kinds", "/agents"]);
    }
}
