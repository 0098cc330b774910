//! Reads, updates and tests a user's notification settings.
//!
//! The Lambda function `notices` sends all notifications. Only `notices` can decrypt the URL of an incoming webhook.

use crate::caller::Caller;
use crate::state::People;
use purser_api::{MailClaim, NotificationRequest, NotificationSource, Precondition};
use purser_domain::{
    Act, AuditChanges, AuditKind, ChannelSettings, DeliveryId, EndedChannel, Error, EventKind, NoticeChannel,
    NoticeUrlId, NotificationPreferences, NotificationSettings, Result, SecretOf, SlackDestination, Timestamp, UserId,
    ValidationError, WebhookUrl,
};
use purser_store::{Backoff, NewNotificationUrl, UpdateResult};
use std::collections::BTreeMap;
use tracing::{info, warn};
use uuid::Uuid;

/// A user's notification settings, with the channels whose delivery failed.
#[derive(Clone, Debug)]
pub(crate) struct OwnNotificationSettings {
    pub(crate) settings: NotificationSettings,
    /// The channels that are unused because delivery failed permanently.
    pub(crate) ended: BTreeMap<NoticeChannel, EndedChannel>,
}

#[derive(Clone, Debug)]
pub(crate) struct NotificationSettingsUpdate {
    pub(crate) mail: ChannelSettings,
    /// The incoming webhook. `None` removes the stored incoming webhook.
    pub(crate) slack: Option<SlackUpdate>,
}

#[derive(Clone, Debug)]
pub(crate) struct SlackUpdate {
    /// `None` keeps the stored URL.
    pub(crate) url: Option<WebhookUrl>,
    pub(crate) terms: ChannelSettings,
}

impl People {
    /// A verified mail address in the user's token replaces the stored address.
    pub(crate) async fn read_notification_settings(&self, user: &Caller) -> Result<OwnNotificationSettings> {
        let mut settings = self.webhooks.read_notification_settings(&user.id).await?;
        if let MailClaim::Verified(address) = &user.mail {
            settings.address = Some(address.clone());
        }
        let ended = self.webhooks.list_ended_channels(&settings).await?;
        Ok(OwnNotificationSettings { settings, ended })
    }

    /// Stores the issuer's claim about the mail address. Errors are only logged, because the next sign-in retries.
    pub(crate) async fn try_store_mail_address(&self, user: &UserId, claim: &MailClaim, signed_in_at: Timestamp) {
        let address = match claim {
            MailClaim::Verified(address) => Some(address),
            MailClaim::Unverified => None,
            MailClaim::Absent => return,
        };
        match self.webhooks.try_store_mail_address(user, address, signed_in_at).await {
            Ok(true) => info!(person = %user, "notices.address_kept"),
            Ok(false) => {}
            Err(error) => warn!(cause = %error, "notices.address_not_kept"),
        }
    }

    /// Sending more notifications to an incoming webhook requires a recent sign-in.
    pub(crate) async fn update_notification_settings(
        &self,
        user: &Caller,
        owned_settings: OwnNotificationSettings,
        if_match: Precondition,
        update: &NotificationSettingsUpdate,
    ) -> Result<OwnNotificationSettings> {
        self.try_store_mail_address(&user.id, &user.mail, user.signed_in_at)
            .await;
        let action = Act::new(AuditKind::NoticesEdited);
        let updated = self.store_notification_settings(user, owned_settings.settings, if_match, &action, update);
        let settings = self.audit_rejection(&user.acting, &action, updated).await?;
        let ended = self.webhooks.list_ended_channels(&settings).await?;
        Ok(OwnNotificationSettings { settings, ended })
    }

    /// Retries after a conflict, as long as `if_match` matches the stored version.
    async fn store_notification_settings(
        &self,
        user: &Caller,
        mut settings: NotificationSettings,
        if_match: Precondition,
        action: &Act,
        update: &NotificationSettingsUpdate,
    ) -> Result<NotificationSettings> {
        let mut backoff = Backoff::new();
        loop {
            if_match.check_version(settings.version)?;
            let (terms, new) = self.updated_settings(&settings, update)?;
            if terms.may_notify_more_than(&settings.terms) {
                self.limits.require_recent_sign_in(user.signed_in_at, self.now())?;
            }
            let new = self.encrypt_webhook_url(user, new).await?;
            let url_of = |terms: &NotificationPreferences| terms.slack.as_ref().map(|(destination, _)| destination.url);
            let old = url_of(&settings.terms).filter(|old| url_of(&terms) != Some(*old));
            let next = settings.clone().with_settings(terms);
            let changes = AuditChanges::between(Some(settings.audit_log_fields()), Some(next.audit_log_fields()));
            let entry = self.audit_entry(&user.acting, action, changes)?;
            match self
                .webhooks
                .update_notification_settings(&next, new.as_ref(), old, &entry)
                .await?
            {
                UpdateResult::Stored => {
                    info!(person = %user.id, "notices.edited");
                    return Ok(next);
                }
                UpdateResult::Conflict => backoff.wait_for_retry().await?,
            }
            settings = self.webhooks.read_notification_settings(&user.id).await?;
        }
    }

    async fn encrypt_webhook_url(
        &self,
        user: &Caller,
        new: Option<(NoticeUrlId, &WebhookUrl)>,
    ) -> Result<Option<NewNotificationUrl>> {
        let Some((id, url)) = new else { return Ok(None) };
        let of = SecretOf::NoticeUrl {
            person: user.id.clone(),
            url: id,
        };
        let url = self.secrets_key.encrypt(&of, url.to_string().as_bytes()).await?;
        Ok(Some(NewNotificationUrl { id, url }))
    }

    /// Returns the settings after the update, and the id and the URL of a new incoming webhook.
    fn updated_settings<'a>(
        &self,
        current: &NotificationSettings,
        update: &'a NotificationSettingsUpdate,
    ) -> Result<(NotificationPreferences, Option<(NoticeUrlId, &'a WebhookUrl)>)> {
        let mut errors = Vec::new();
        let mut new = None;
        let slack = match &update.slack {
            None => None,
            Some(SlackUpdate { url: None, terms }) => {
                let destination = current.terms.slack.as_ref().map(|(destination, _)| destination.clone());
                if destination.is_none() {
                    errors.push(ValidationError::at_path(
                        "/slack/url",
                        "is required: none is stored yet",
                    ));
                }
                destination.map(|destination| (destination, terms.clone()))
            }
            Some(SlackUpdate { url: Some(url), terms }) => {
                if !self.may_call(url) {
                    errors.push(ValidationError::at_path(
                        "/slack/url",
                        "must be an https URL of the public internet",
                    ));
                }
                let id = NoticeUrlId::from_uuid(self.random_uuid()?);
                new = Some((id, url));
                let host = url.url().host_str().unwrap_or_default().to_owned();
                Some((SlackDestination { url: id, host }, terms.clone()))
            }
        };
        let terms = NotificationPreferences {
            mail: update.mail.clone(),
            slack,
        };
        errors.extend(terms.validation_errors());
        if errors.is_empty() {
            Ok((terms, new))
        } else {
            Err(Error::invalid(errors))
        }
    }

    /// Requests a test notification, and returns the enabled channels. Pending notifications are sent with it.
    pub(crate) async fn request_test_notification(&self, user: &Caller) -> Result<Vec<NoticeChannel>> {
        self.try_store_mail_address(&user.id, &user.mail, user.signed_in_at)
            .await;
        let settings = self.webhooks.read_notification_settings(&user.id).await?;
        let kind = EventKind::WebhookTest;
        let on = settings
            .channels_for(kind)
            .filter(|channel| self.mails || *channel != NoticeChannel::Mail);
        let on: Vec<NoticeChannel> = on.collect();
        if on.is_empty() {
            return Ok(on);
        }
        let request = NotificationRequest {
            person: user.id.clone(),
            of: NotificationSource::Test(DeliveryId::new_at(self.now(), self.entropy.random_bytes()?)),
        };
        self.notice_requests.send(&request).await?;
        Ok(on)
    }

    /// Generates a random UUID (version 4).
    pub(crate) fn random_uuid(&self) -> Result<Uuid> {
        Ok(uuid::Builder::from_random_bytes(self.entropy.random_bytes()?).into_uuid())
    }
}
