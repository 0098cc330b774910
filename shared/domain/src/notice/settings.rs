//! A user's notification settings: the channels, and the event kinds for each channel.

use crate::{
    EventKind, Fingerprint, MailAddress, Members, NoticeUrlId, PersonId, Problem, Timestamp, catalog::service::named,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;

named! {
    /// A channel to a user.
    NoticeChannel {
        /// A mail to the address that the user's identity provider verified.
        Mail = "mail",
        /// A message to a Slack incoming webhook.
        Slack = "slack",
    }

    /// Why a channel is disabled until the user changes it.
    NoticeEnd {
        /// The mail service rejects mail to the address.
        MailRefused = "mail_refused",
        /// The incoming webhook no longer exists.
        WebhookGone = "webhook_gone",
    }
}

/// The event kinds that a channel sends by default.
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

/// The settings of one channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelTerms {
    /// Whether the channel is enabled.
    pub enabled: bool,
    /// The event kinds. `None` stands for [`DEFAULT_NOTICES`].
    pub kinds: Option<BTreeSet<EventKind>>,
}

/// Enabled, with the default kinds.
impl Default for ChannelTerms {
    fn default() -> Self {
        Self {
            enabled: true,
            kinds: None,
        }
    }
}

impl ChannelTerms {
    /// Returns the event kinds of the channel.
    pub fn kinds(&self) -> BTreeSet<EventKind> {
        self.kinds.clone().unwrap_or_else(|| DEFAULT_NOTICES.into())
    }

    /// Returns whether an event of this kind is sent. A test event is always sent, because the user requested it.
    fn wants(&self, kind: EventKind) -> bool {
        self.enabled && (kind == EventKind::WebhookTest || self.kinds().contains(&kind))
    }

    fn audit(&self) -> Value {
        let kinds: Vec<_> = self.kinds().iter().map(|kind| kind.name()).collect();
        json!({"enabled": self.enabled, "kinds": kinds})
    }
}

/// A user's Slack incoming webhook. The URL is a secret and is stored separately.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlackPlace {
    /// The id of the URL.
    pub url: NoticeUrlId,
    /// The host of the URL, so that the user can recognize the webhook.
    pub host: String,
}

/// The notification settings that a user can change, without the mail address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NoticeTerms {
    /// The settings of the mail channel.
    pub mail: ChannelTerms,
    /// The settings of the Slack channel, if there is a webhook.
    pub slack: Option<(SlackPlace, ChannelTerms)>,
}

impl NoticeTerms {
    /// Returns whether these settings may send notifications to somebody else that the old settings do not send. Only
    /// the Slack channel counts, because mail goes to the user.
    pub fn widen(&self, old: &Self) -> bool {
        let Some((place, terms)) = &self.slack else {
            return false;
        };
        let Some((old_place, old_terms)) = &old.slack else {
            return true;
        };
        place != old_place || terms.enabled && !old_terms.enabled || !terms.kinds().is_subset(&old_terms.kinds())
    }

    /// Returns the validation errors.
    pub fn problems(&self) -> Vec<Problem> {
        let channels = [
            ("/mail/kinds", Some(&self.mail)),
            ("/slack/kinds", self.slack.as_ref().map(|(_, terms)| terms)),
        ];
        let empty = channels.into_iter().filter(|(_, terms)| {
            let kinds = terms.and_then(|terms| terms.kinds.as_ref());
            kinds.is_some_and(BTreeSet::is_empty)
        });
        let message = "must have at least one kind; leave it out for the usual ones, or switch the channel off";
        empty.map(|(path, _)| Problem::at(path, message)).collect()
    }
}

/// A user's notification settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoticeSettings {
    /// The user.
    pub person: PersonId,
    /// The number of updates.
    pub version: u64,
    /// The mail address, once the identity provider has verified it.
    pub address: Option<MailAddress>,
    /// The settings that the user can change.
    pub terms: NoticeTerms,
}

/// A channel that was disabled because of its current destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedChannel {
    /// The destination ([`NoticeSettings::place`]). The channel is enabled again if the destination changes.
    pub place: Fingerprint,
    /// The reason.
    pub reason: NoticeEnd,
    /// The time at which the channel was disabled.
    pub at: Timestamp,
}

impl NoticeSettings {
    /// Creates the default settings of a user.
    pub fn new(person: PersonId) -> Self {
        Self {
            person,
            version: 0,
            address: None,
            terms: NoticeTerms::default(),
        }
    }

    /// Returns the channels on which an event of this kind is sent.
    pub fn wanting(&self, kind: EventKind) -> impl Iterator<Item = NoticeChannel> {
        let channels = NoticeChannel::ALL.iter().copied();
        channels.filter(move |channel| self.terms_of(*channel).is_some_and(|terms| terms.wants(kind)))
    }

    /// Returns the settings of a channel, if the channel has a destination.
    pub fn terms_of(&self, channel: NoticeChannel) -> Option<&ChannelTerms> {
        match channel {
            NoticeChannel::Mail => self.address.as_ref().map(|_| &self.terms.mail),
            NoticeChannel::Slack => self.terms.slack.as_ref().map(|(_, terms)| terms),
        }
    }

    /// Returns the fingerprint of a channel's destination and the settings version. A disabled channel is enabled again
    /// by an update or by a new destination.
    pub fn place(&self, channel: NoticeChannel) -> Fingerprint {
        let place = match channel {
            NoticeChannel::Mail => self.address.as_ref().map(|address| address.as_str().to_owned()),
            NoticeChannel::Slack => self.terms.slack.as_ref().map(|(place, _)| place.url.to_string()),
        };
        Fingerprint::for_text(&json!([channel.name(), self.version, place]).to_string())
    }

    /// Returns the next version, with these settings.
    #[must_use]
    pub fn with_terms(self, terms: NoticeTerms) -> Self {
        Self {
            version: self.version.saturating_add(1),
            terms,
            ..self
        }
    }

    /// Returns the fields for the audit log, without the mail address and the webhook's secret URL.
    pub fn audit_members(&self) -> Members {
        let slack = self.terms.slack.as_ref();
        let members = [
            ("mail", self.terms.mail.audit()),
            ("slack", slack.map_or(Value::Null, |(_, terms)| terms.audit())),
            ("slack_host", json!(slack.map(|(place, _)| &place.host))),
            ("slack_url", json!(slack.map(|(place, _)| place.url.to_string()))),
        ];
        members.map(|(name, value)| (name.to_owned(), value)).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn ann() -> PersonId {
        PersonId::derive("https://issuer.example", "ann")
    }

    fn slack(n: u128, terms: ChannelTerms) -> NoticeTerms {
        let place = SlackPlace {
            url: NoticeUrlId::from_uuid(Uuid::from_u128(n)),
            host: "hooks.example".to_owned(),
        };
        NoticeTerms {
            slack: Some((place, terms)),
            ..NoticeTerms::default()
        }
    }

    fn kinds(kinds: &[EventKind]) -> ChannelTerms {
        ChannelTerms {
            enabled: true,
            kinds: Some(kinds.iter().copied().collect()),
        }
    }

    /// Without an address no mail is sent.
    #[test]
    fn email_is_enabled_by_default_for_usual_kinds() {
        let nobody = NoticeSettings::new(ann());
        assert_eq!(nobody.wanting(EventKind::ApprovalAsked).count(), 0);
        let ann = NoticeSettings {
            address: MailAddress::parse("ann@example.com"),
            ..nobody
        };
        for kind in EventKind::ALL.iter().copied() {
            let is_usual = DEFAULT_NOTICES.contains(&kind) || kind == EventKind::WebhookTest;
            assert_eq!(ann.wanting(kind).eq([NoticeChannel::Mail]), is_usual, "{}", kind.name());
        }
    }

    /// A disabled channel receives no events.
    #[test]
    fn each_channel_selects_its_own_event_kinds() {
        let frozen = kinds(&[EventKind::AgentFrozen]);
        let both = NoticeSettings {
            address: MailAddress::parse("ann@example.com"),
            ..NoticeSettings::new(ann()).with_terms(slack(1, frozen))
        };
        assert!(
            both.wanting(EventKind::AgentFrozen)
                .eq([NoticeChannel::Mail, NoticeChannel::Slack])
        );
        assert!(both.wanting(EventKind::ApprovalAsked).eq([NoticeChannel::Mail]));
        let mut off = both;
        off.terms.mail.enabled = false;
        assert!(off.wanting(EventKind::AgentFrozen).eq([NoticeChannel::Slack]));
        assert!(off.wanting(EventKind::WebhookTest).eq([NoticeChannel::Slack]));
    }

    #[test]
    fn new_recipients_or_kinds_widen_notice_terms() {
        let frozen = || kinds(&[EventKind::AgentFrozen]);
        let old = slack(1, frozen());
        let off = slack(
            1,
            ChannelTerms {
                enabled: false,
                ..frozen()
            },
        );
        let wider = [
            slack(2, frozen()),
            slack(1, ChannelTerms::default()),
            slack(1, kinds(&[EventKind::AgentFrozen, EventKind::KeyCreated])),
        ];
        for terms in &wider {
            assert!(terms.widen(&old), "{terms:?}");
        }
        assert!(old.widen(&off) && old.widen(&NoticeTerms::default()));
        for terms in [off, old.clone(), NoticeTerms::default()] {
            assert!(!terms.widen(&old), "{terms:?}");
        }
    }

    #[test]
    fn edits_and_new_addresses_reset_an_ended_channel() {
        let settings = NoticeSettings {
            address: MailAddress::parse("ann@example.com"),
            ..NoticeSettings::new(ann())
        };
        let place = settings.place(NoticeChannel::Mail);
        assert_eq!(settings.clone().place(NoticeChannel::Mail), place);
        let moved = NoticeSettings {
            address: MailAddress::parse("b@example.com"),
            ..settings.clone()
        };
        let edited = settings.with_terms(NoticeTerms::default());
        for other in [moved, edited] {
            assert_ne!(other.place(NoticeChannel::Mail), place);
        }
    }

    /// The audit fields contain the host of the webhook. Settings without any event kind are rejected.
    #[test]
    fn audit_entries_contain_no_email_address() {
        let settings = NoticeSettings {
            address: MailAddress::parse("ann@example.com"),
            ..NoticeSettings::new(ann()).with_terms(slack(1, kinds(&[])))
        };
        let told = format!("{:?}", settings.audit_members());
        assert!(!told.contains("ann@") && told.contains("hooks.example"));
        let paths = settings.terms.problems().into_iter().map(|problem| problem.path);
        assert_eq!(paths.collect::<Vec<_>>(), ["/slack/kinds"]);
    }
}
