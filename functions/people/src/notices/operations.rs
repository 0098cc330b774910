//! Reads, updates and tests a user's notification settings.
//!
//! The URL of an incoming webhook is stored encrypted, and this function cannot decrypt it. `functions/notices` sends
//! the notifications, including tests, which this module requests.

use crate::caller::Caller;
use crate::state::People;
use purser_api::{MailClaim, NoticeOf, NoticeRequest, Precondition};
use purser_domain::{
    Act, AuditChanges, AuditKind, ChannelTerms, DeliveryId, EndedChannel, Error, EventKind, NoticeChannel,
    NoticeSettings, NoticeTerms, NoticeUrlId, PersonId, Problem, Result, SecretOf, SlackPlace, Timestamp, WebhookUrl,
};
use purser_store::{Backoff, EditResult, NewNoticeUrl};
use std::collections::BTreeMap;
use tracing::{info, warn};
use uuid::Uuid;

/// A user's notification settings, with the channels whose delivery failed.
#[derive(Clone, Debug)]
pub(crate) struct OwnNotices {
    pub(crate) settings: NoticeSettings,
    /// The channels that are unused because delivery failed permanently.
    pub(crate) ended: BTreeMap<NoticeChannel, EndedChannel>,
}

/// An update of the notification settings.
#[derive(Clone, Debug)]
pub(crate) struct NoticesEdit {
    pub(crate) mail: ChannelTerms,
    /// The incoming webhook. `None` removes the stored incoming webhook.
    pub(crate) slack: Option<SlackEdit>,
}

/// An update of the incoming webhook.
#[derive(Clone, Debug)]
pub(crate) struct SlackEdit {
    /// The new URL. `None` keeps the stored URL.
    pub(crate) url: Option<WebhookUrl>,
    pub(crate) terms: ChannelTerms,
}

impl People {
    /// Reads the user's notification settings. The mail address is the address from the user's token if the token
    /// contains a verified address.
    pub(crate) async fn notices(&self, person: &Caller) -> Result<OwnNotices> {
        let mut settings = self.webhooks.notices_of(&person.id).await?;
        if let MailClaim::Verified(address) = &person.mail {
            settings.address = Some(address.clone());
        }
        let ended = self.webhooks.list_ended_channels(&settings).await?;
        Ok(OwnNotices { settings, ended })
    }

    /// Stores the identity provider's claim about the user's mail address at `said_at`: a new address, or an address
    /// that is no longer verified. A failure is only logged, because the next sign-in repeats the claim.
    pub(crate) async fn keep_mail_address(&self, person: &PersonId, mail: &MailClaim, said_at: Timestamp) {
        let address = match mail {
            MailClaim::Verified(address) => Some(address),
            MailClaim::Unverified => None,
            MailClaim::Absent => return,
        };
        match self.webhooks.keep_address(person, address, said_at).await {
            Ok(true) => info!(%person, "notices.address_kept"),
            Ok(false) => {}
            Err(error) => warn!(cause = %error, "notices.address_not_kept"),
        }
    }

    /// Replaces the settings. An update that sends more notifications to an incoming webhook requires a recent sign-in.
    pub(crate) async fn edit_notices(
        &self,
        person: &Caller,
        own: OwnNotices,
        if_match: Precondition,
        edit: &NoticesEdit,
    ) -> Result<OwnNotices> {
        self.keep_mail_address(&person.id, &person.mail, person.signed_in_at)
            .await;
        let act = Act::new(AuditKind::NoticesEdited);
        let edited = self.store_notices(person, own.settings, if_match, &act, edit);
        let settings = self.audit_rejection(&person.acting, &act, edited).await?;
        let ended = self.webhooks.list_ended_channels(&settings).await?;
        Ok(OwnNotices { settings, ended })
    }

    /// Applies the update. After a conflict, retries while `if_match` holds for the stored version.
    async fn store_notices(
        &self,
        person: &Caller,
        mut settings: NoticeSettings,
        if_match: Precondition,
        act: &Act,
        edit: &NoticesEdit,
    ) -> Result<NoticeSettings> {
        let mut backoff = Backoff::new();
        loop {
            if_match.holds(settings.version)?;
            let (terms, new) = self.new_terms(&settings, edit)?;
            if terms.widen(&settings.terms) {
                self.limits.recently(person.signed_in_at, self.now())?;
            }
            let new = self.encrypt_url(person, new).await?;
            let url_of = |terms: &NoticeTerms| terms.slack.as_ref().map(|(place, _)| place.url);
            let old = url_of(&settings.terms).filter(|old| url_of(&terms) != Some(*old));
            let next = settings.clone().with_terms(terms);
            let changes = AuditChanges::between(Some(settings.audit_members()), Some(next.audit_members()));
            let entry = self.entry(&person.acting, act, changes)?;
            match self.webhooks.edit_notices(&next, new.as_ref(), old, &entry).await? {
                EditResult::Stored => {
                    info!(person = %person.id, "notices.edited");
                    return Ok(next);
                }
                EditResult::Conflict => backoff.wait().await?,
            }
            settings = self.webhooks.notices_of(&person.id).await?;
        }
    }

    /// Encrypts a new URL for the store.
    async fn encrypt_url(
        &self,
        person: &Caller,
        new: Option<(NoticeUrlId, &WebhookUrl)>,
    ) -> Result<Option<NewNoticeUrl>> {
        let Some((id, url)) = new else { return Ok(None) };
        let of = SecretOf::NoticeUrl {
            person: person.id.clone(),
            url: id,
        };
        let url = self.secrets_key.encrypt(&of, url.to_string().as_bytes()).await?;
        Ok(Some(NewNoticeUrl { id, url }))
    }

    /// Returns the settings after the update, and the new URL with its id, if any.
    fn new_terms<'a>(
        &self,
        present: &NoticeSettings,
        edit: &'a NoticesEdit,
    ) -> Result<(NoticeTerms, Option<(NoticeUrlId, &'a WebhookUrl)>)> {
        let mut problems = Vec::new();
        let mut new = None;
        let slack = match &edit.slack {
            None => None,
            Some(SlackEdit { url: None, terms }) => {
                let place = present.terms.slack.as_ref().map(|(place, _)| place.clone());
                if place.is_none() {
                    problems.push(Problem::at("/slack/url", "is required: none is stored yet"));
                }
                place.map(|place| (place, terms.clone()))
            }
            Some(SlackEdit { url: Some(url), terms }) => {
                if !self.may_call(url) {
                    problems.push(Problem::at("/slack/url", "must be an https URL of the public internet"));
                }
                let id = NoticeUrlId::from_uuid(self.random_uuid()?);
                new = Some((id, url));
                let host = url.url().host_str().unwrap_or_default().to_owned();
                Some((SlackPlace { url: id, host }, terms.clone()))
            }
        };
        let terms = NoticeTerms {
            mail: edit.mail.clone(),
            slack,
        };
        problems.extend(terms.problems());
        if problems.is_empty() {
            Ok((terms, new))
        } else {
            Err(Error::invalid(problems))
        }
    }

    /// Requests a test notification for the enabled channels, which is sent together with pending notifications.
    /// Returns these channels.
    pub(crate) async fn test_notices(&self, person: &Caller) -> Result<Vec<NoticeChannel>> {
        self.keep_mail_address(&person.id, &person.mail, person.signed_in_at)
            .await;
        let settings = self.webhooks.notices_of(&person.id).await?;
        let kind = EventKind::WebhookTest;
        let on = settings
            .wanting(kind)
            .filter(|channel| self.mails || *channel != NoticeChannel::Mail);
        let on: Vec<NoticeChannel> = on.collect();
        if on.is_empty() {
            return Ok(on);
        }
        let request = NoticeRequest {
            person: person.id.clone(),
            of: NoticeOf::Test(DeliveryId::at(self.now(), self.entropy.bytes()?)),
        };
        self.notice_requests.send(&request).await?;
        Ok(on)
    }

    /// Generates a random UUID (version 4).
    pub(crate) fn random_uuid(&self) -> Result<Uuid> {
        Ok(uuid::Builder::from_random_bytes(self.entropy.bytes()?).into_uuid())
    }
}
