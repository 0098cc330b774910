//! A user's notification settings: the channels, and the event kinds per channel.

use crate::{
    AuditFields, Event, EventKind, Fingerprint, MailAddress, NoticeUrlId, Timestamp, UserId, ValidationError,
    catalog::service::named, notice::pending::notified_kind,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;

named! {
    /// A channel through which a user is notified.
    NoticeChannel {
        /// A mail to the address that the user's identity provider verified.
        Mail = "mail",
        /// A message to a Slack incoming webhook.
        Slack = "slack",
    }

    /// Why a channel was disabled. An update of the settings or a new destination enables it again.
    NoticeEnd {
        /// The mail service rejects mail to the address.
        MailRefused = "mail_refused",
        /// The incoming webhook no longer exists.
        WebhookGone = "webhook_gone",
    }
}

/// The kinds of events that a channel sends unless the user chooses other kinds.
pub const DEFAULT_NOTICES: [EventKind; 8] = [
    EventKind::ApprovalAsked,
    EventKind::AgentFrozen,
    EventKind::OwnerFrozen,
    EventKind::DeploymentFrozen,
    EventKind::ServicePayeeChanged,
    EventKind::ServiceChangeDelayed,
    EventKind::WalletLow,
    EventKind::WebhookFailing,
];

/// A channel's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelSettings {
    /// Whether the channel is enabled.
    pub enabled: bool,
    /// The event kinds that the channel sends; `None` for [`DEFAULT_NOTICES`].
    pub kinds: Option<BTreeSet<EventKind>>,
}

/// The channel is enabled and sends the default kinds.
impl Default for ChannelSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            kinds: None,
        }
    }
}

impl ChannelSettings {
    /// Returns the event kinds that the user selected for the channel, or the default kinds.
    pub fn event_kinds(&self) -> BTreeSet<EventKind> {
        self.kinds.clone().unwrap_or_else(|| DEFAULT_NOTICES.into())
    }

    /// Returns whether an event of this kind is sent. A test event always is, because the user requested it.
    fn includes_kind(&self, kind: EventKind) -> bool {
        self.enabled && (kind == EventKind::WebhookTest || self.event_kinds().contains(&kind))
    }

    fn audit_value(&self) -> Value {
        let kinds: Vec<_> = self.event_kinds().iter().map(|kind| kind.name()).collect();
        json!({"enabled": self.enabled, "kinds": kinds})
    }
}

/// A user's Slack incoming webhook. The secret URL is stored separately.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlackDestination {
    /// The id under which the secret URL is stored.
    pub url: NoticeUrlId,
    /// The host of the URL, so that the user can recognize the webhook.
    pub host: String,
}

/// The notification settings that a user can change. The mail address comes from the identity provider.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NotificationPreferences {
    /// The settings of the mail channel, which sends only to a verified address.
    pub mail: ChannelSettings,
    /// The Slack webhook and the channel's settings, if the user set a webhook.
    pub slack: Option<(SlackDestination, ChannelSettings)>,
}

impl NotificationPreferences {
    /// Returns whether these settings may notify somebody new. Only a Slack webhook can, because mail goes to the user.
    pub fn may_notify_more_than(&self, old: &Self) -> bool {
        let Some((place, terms)) = &self.slack else {
            return false;
        };
        let Some((old_place, old_terms)) = &old.slack else {
            return true;
        };
        place != old_place
            || terms.enabled && !old_terms.enabled
            || !terms.event_kinds().is_subset(&old_terms.event_kinds())
    }

    /// Returns a validation error for each channel that has an empty list of event kinds.
    pub fn validation_errors(&self) -> Vec<ValidationError> {
        let channels = [
            ("/mail/kinds", Some(&self.mail)),
            ("/slack/kinds", self.slack.as_ref().map(|(_, terms)| terms)),
        ];
        let empty = channels.into_iter().filter(|(_, terms)| {
            let kinds = terms.and_then(|terms| terms.kinds.as_ref());
            kinds.is_some_and(BTreeSet::is_empty)
        });
        let message = "must have at least one kind; leave it out for the usual ones, or switch the channel off";
        empty.map(|(path, _)| ValidationError::at_path(path, message)).collect()
    }
}

/// A user's stored notification settings, with the mail address that the identity provider has verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotificationSettings {
    /// The user who receives the notifications.
    pub person: UserId,
    /// The version of the settings, which each update increments.
    pub version: u64,
    /// The mail address, if the identity provider has verified it.
    pub address: Option<MailAddress>,
    /// The channels and event kinds, which the user can change.
    pub terms: NotificationPreferences,
}

/// A channel that was disabled because the current destination failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedChannel {
    /// The failed destination ([`NotificationSettings::destination_fingerprint`]). Another destination enables the
    /// channel again.
    pub place: Fingerprint,
    /// Why the destination failed permanently.
    pub reason: NoticeEnd,
    /// The time at which the channel was disabled.
    pub at: Timestamp,
}

impl NotificationSettings {
    /// Creates the default settings of a user.
    pub fn new(user: UserId) -> Self {
        Self {
            person: user,
            version: 0,
            address: None,
            terms: NotificationPreferences::default(),
        }
    }

    /// Returns the channels through which an event is sent.
    pub fn channels_for_event(&self, event: &Event) -> impl Iterator<Item = NoticeChannel> {
        self.channels_for_any([event.kind(), notified_kind(event)])
    }

    /// Returns the channels through which an event of this kind is sent.
    pub fn channels_for(&self, kind: EventKind) -> impl Iterator<Item = NoticeChannel> {
        self.channels_for_any([kind, kind])
    }

    fn channels_for_any(&self, kinds: [EventKind; 2]) -> impl Iterator<Item = NoticeChannel> {
        let channels = NoticeChannel::ALL.iter().copied();
        channels.filter(move |channel| {
            self.channel_settings(*channel)
                .is_some_and(|terms| kinds.iter().any(|kind| terms.includes_kind(*kind)))
        })
    }

    /// Returns a channel's settings, if the channel has a destination.
    pub fn channel_settings(&self, channel: NoticeChannel) -> Option<&ChannelSettings> {
        match channel {
            NoticeChannel::Mail => self.address.as_ref().map(|_| &self.terms.mail),
            NoticeChannel::Slack => self.terms.slack.as_ref().map(|(_, terms)| terms),
        }
    }

    /// Returns a fingerprint of the channel's destination and the settings version. A change enables a disabled channel
    /// again.
    pub fn destination_fingerprint(&self, channel: NoticeChannel) -> Fingerprint {
        let place = match channel {
            NoticeChannel::Mail => self.address.as_ref().map(|address| address.as_str().to_owned()),
            NoticeChannel::Slack => self.terms.slack.as_ref().map(|(place, _)| place.url.to_string()),
        };
        Fingerprint::for_text(&json!([channel.name(), self.version, place]).to_string())
    }

    /// Returns the next version of the settings, with these preferences.
    #[must_use]
    pub fn with_settings(self, preferences: NotificationPreferences) -> Self {
        Self {
            version: self.version.saturating_add(1),
            terms: preferences,
            ..self
        }
    }

    /// Returns the fields for the audit log. They contain neither the mail address nor the webhook's URL.
    pub fn audit_log_fields(&self) -> AuditFields {
        let slack = self.terms.slack.as_ref();
        let fields = [
            ("mail", self.terms.mail.audit_value()),
            ("slack", slack.map_or(Value::Null, |(_, terms)| terms.audit_value())),
            ("slack_host", json!(slack.map(|(place, _)| &place.host))),
            ("slack_url", json!(slack.map(|(place, _)| place.url.to_string()))),
        ];
        fields.map(|(name, value)| (name.to_owned(), value)).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn ann() -> UserId {
        UserId::derive("https://issuer.example", "ann")
    }

    fn slack(n: u128, terms: ChannelSettings) -> NotificationPreferences {
        let place = SlackDestination {
            url: NoticeUrlId::from_uuid(Uuid::from_u128(n)),
            host: "hooks.example".to_owned(),
        };
        NotificationPreferences {
            slack: Some((place, terms)),
            ..NotificationPreferences::default()
        }
    }

    fn kinds(kinds: &[EventKind]) -> ChannelSettings {
        ChannelSettings {
            enabled: true,
            kinds: Some(kinds.iter().copied().collect()),
        }
    }

    #[test]
    fn email_is_enabled_by_default_for_the_default_event_kinds() {
        let nobody = NotificationSettings::new(ann());
        assert_eq!(nobody.channels_for(EventKind::ApprovalAsked).count(), 0);
        let ann = NotificationSettings {
            address: MailAddress::parse("ann@example.com"),
            ..nobody
        };
        for kind in EventKind::ALL.iter().copied() {
            let is_usual = DEFAULT_NOTICES.contains(&kind) || kind == EventKind::WebhookTest;
            assert_eq!(
                ann.channels_for(kind).eq([NoticeChannel::Mail]),
                is_usual,
                "{}",
                kind.name()
            );
        }
    }

    #[test]
    fn each_notification_channel_selects_its_own_event_kinds() {
        let frozen = kinds(&[EventKind::AgentFrozen]);
        let both = NotificationSettings {
            address: MailAddress::parse("ann@example.com"),
            ..NotificationSettings::new(ann()).with_settings(slack(1, frozen))
        };
        assert!(
            both.channels_for(EventKind::AgentFrozen)
                .eq([NoticeChannel::Mail, NoticeChannel::Slack])
        );
        assert!(both.channels_for(EventKind::ApprovalAsked).eq([NoticeChannel::Mail]));
        let mut off = both;
        off.terms.mail.enabled = false;
        assert!(off.channels_for(EventKind::AgentFrozen).eq([NoticeChannel::Slack]));
        assert!(off.channels_for(EventKind::WebhookTest).eq([NoticeChannel::Slack]));
    }

    #[test]
    fn new_recipients_or_kinds_widen_notification_settings() {
        let frozen = || kinds(&[EventKind::AgentFrozen]);
        let old = slack(1, frozen());
        let off = slack(
            1,
            ChannelSettings {
                enabled: false,
                ..frozen()
            },
        );
        let wider = [
            slack(2, frozen()),
            slack(1, ChannelSettings::default()),
            slack(1, kinds(&[EventKind::AgentFrozen, EventKind::KeyCreated])),
        ];
        for terms in &wider {
            assert!(terms.may_notify_more_than(&old), "{terms:?}");
        }
        assert!(old.may_notify_more_than(&off) && old.may_notify_more_than(&NotificationPreferences::default()));
        for terms in [off, old.clone(), NotificationPreferences::default()] {
            assert!(!terms.may_notify_more_than(&old), "{terms:?}");
        }
    }

    #[test]
    fn changed_preferences_or_addresses_change_the_destination_fingerprint() {
        let settings = NotificationSettings {
            address: MailAddress::parse("ann@example.com"),
            ..NotificationSettings::new(ann())
        };
        let place = settings.destination_fingerprint(NoticeChannel::Mail);
        assert_eq!(settings.clone().destination_fingerprint(NoticeChannel::Mail), place);
        let moved = NotificationSettings {
            address: MailAddress::parse("b@example.com"),
            ..settings.clone()
        };
        let edited = settings.with_settings(NotificationPreferences::default());
        for other in [moved, edited] {
            assert_ne!(other.destination_fingerprint(NoticeChannel::Mail), place);
        }
    }

    #[test]
    fn audit_rows_of_notification_settings_contain_no_email_address() {
        let settings = NotificationSettings {
            address: MailAddress::parse("ann@example.com"),
            ..NotificationSettings::new(ann()).with_settings(slack(1, kinds(&[])))
        };
        let told = format!("{:?}", settings.audit_log_fields());
        assert!(!told.contains("ann@") && told.contains("hooks.example"));
        let paths = settings
            .terms
            .validation_errors()
            .into_iter()
            .map(|problem| problem.path);
        assert_eq!(paths.collect::<Vec<_>>(), ["/slack/kinds"]);
    }
}
