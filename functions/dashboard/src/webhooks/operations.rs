//! Operations on webhooks, their secrets and their deliveries.
//!
//! Only the response that creates a secret contains the secret, which only the Lambda function `webhooks` can decrypt.

use crate::agents::owned::require_id;
use crate::caller::Caller;
use crate::state::People;
use purser_api::{Precondition, WebhookRequest};
use purser_domain::{
    Act, AuditChanges, AuditKind, Delivery, DeliveryId, Error, ErrorKind, FailedCalls, Result, SecretOf,
    SecretValidity, Timestamp, ValidationError, Webhook, WebhookId, WebhookSecret, WebhookSecretId, WebhookSettings,
    WebhookUrl, test_event,
};
use purser_store::{Backoff, NewWebhookSecret, Page, PageRequest, UpdateResult};
use tracing::info;
use uuid::Uuid;

/// A user's webhook, with the delivery state.
#[derive(Clone, Debug)]
pub(crate) struct OwnWebhook {
    pub(crate) webhook: Webhook,
    /// When deliveries stopped, after a 410 (Gone) or after too many failed calls.
    pub(crate) gone_at: Option<Timestamp>,
    /// The failed calls since the last success or update, whichever is later. `None` if no call failed.
    pub(crate) failed: Option<FailedCalls>,
}

/// A webhook with the newest secret. It does not implement `Debug`, so that the secret can't be logged.
pub(crate) struct IssuedWebhook {
    pub(crate) own: OwnWebhook,
    /// The secret as `whsec_…`, which the user configures in the webhook receiver.
    pub(crate) secret: String,
}

enum Change {
    /// The webhook already has the requested values, so nothing is written.
    None,
    Edited(Webhook),
    /// Stores this version and the new secret, and deletes the expired secrets.
    Rotated(Webhook, NewWebhookSecret, Vec<WebhookSecretId>),
    Removed,
}

impl Change {
    const fn updated_webhook(&self) -> Option<&Webhook> {
        match self {
            Self::Edited(next) | Self::Rotated(next, ..) => Some(next),
            Self::None | Self::Removed => None,
        }
    }
}

impl From<Webhook> for OwnWebhook {
    /// A webhook that was just stored has no failed calls, and deliveries are not stopped.
    fn from(webhook: Webhook) -> Self {
        Self {
            webhook,
            gone_at: None,
            failed: None,
        }
    }
}

impl People {
    /// Oldest first.
    pub(crate) async fn list_webhooks(&self, user: &Caller) -> Result<Vec<OwnWebhook>> {
        let webhooks = self.webhooks.list_webhooks(&user.id).await?;
        let ids: Vec<WebhookId> = webhooks.iter().map(|webhook| webhook.id).collect();
        let (deleted, mut failed) = tokio::try_join!(
            self.webhooks.read_410_response_times(&webhooks),
            self.webhooks.list_failed_calls(&ids)
        )?;
        let listed = webhooks.into_iter().map(|webhook| OwnWebhook {
            gone_at: deleted.get(&webhook.id).copied(),
            failed: failed
                .remove(&webhook.id)
                .filter(|calls| calls.version == webhook.version),
            webhook,
        });
        Ok(listed.collect())
    }

    /// Returns `not_found` if the user has no webhook with this id.
    pub(crate) async fn read_own_webhook(&self, user: &Caller, id: WebhookId) -> Result<OwnWebhook> {
        let mut webhooks = self.list_webhooks(user).await?;
        let index = webhooks.iter().position(|own| own.webhook.id == id);
        require_id(index.map(|index| webhooks.swap_remove(index)))
    }

    /// Requires a recent sign-in. `if_match` is the slot of the new webhook. Returns a version conflict if
    /// the slot has a webhook, so a repeated request creates no second webhook.
    pub(crate) async fn create_webhook(
        &self,
        user: &Caller,
        settings: WebhookSettings,
        if_match: Option<u8>,
    ) -> Result<IssuedWebhook> {
        let action = Act::new(AuditKind::WebhookCreated);
        self.audit_rejection(
            &user.acting,
            &action,
            self.store_new_webhook(user, &action, settings, if_match),
        )
        .await
    }

    async fn store_new_webhook(
        &self,
        user: &Caller,
        action: &Act,
        settings: WebhookSettings,
        if_match: Option<u8>,
    ) -> Result<IssuedWebhook> {
        let mut backoff = Backoff::new();
        loop {
            self.check_url(&settings.url)?;
            let now = self.now();
            self.limits.require_recent_sign_in(user.signed_in_at, now)?;
            let slot = self.find_free_webhook_slot(user, if_match).await?;
            let id = WebhookId::from_uuid(self.random_uuid()?);
            let (secret, stored) = self.create_webhook_secret(user, id).await?;
            let webhook = Webhook {
                id,
                person: user.id.clone(),
                slot,
                version: 1,
                created_at: now,
                terms: settings.clone(),
                secrets: vec![SecretValidity {
                    id: stored.id,
                    created_at: now,
                    ends_at: None,
                }],
            };
            let changes = AuditChanges::between(None, Some(webhook.audit_log_fields()));
            let entry = self.audit_entry(&user.acting, &action.clone().with_object(&webhook.id), changes)?;
            match self.webhooks.create_webhook(&webhook, &stored, &entry).await? {
                UpdateResult::Stored => {
                    info!(person = %user.id, webhook.id = %webhook.id, "webhook.created");
                    return Ok(issued_webhook(webhook.into(), &secret));
                }
                // A concurrent request has created a webhook in this slot.
                UpdateResult::Conflict => backoff.wait_for_retry().await?,
            }
        }
    }

    async fn find_free_webhook_slot(&self, user: &Caller, if_match: Option<u8>) -> Result<u8> {
        let webhooks = self.webhooks.list_webhooks(&user.id).await?;
        let taken = if_match.and_then(|if_match| webhooks.iter().find(|webhook| webhook.slot == if_match));
        if let Some(Webhook { version, .. }) = taken {
            return Err(ErrorKind::VersionConflict { version: *version }.into());
        }
        if let Some(if_match) = if_match.filter(|if_match| *if_match < Webhook::MAX) {
            return Ok(if_match);
        }
        let mut slots = 0..Webhook::MAX;
        let free = slots.find(|slot| webhooks.iter().all(|webhook| webhook.slot != *slot));
        free.ok_or_else(|| {
            let message = format!("a person has at most {} webhooks; remove one first", Webhook::MAX);
            Error::invalid(vec![ValidationError::at_path("", message)])
        })
    }

    /// Requires a recent sign-in if `settings` allow calls that the stored settings do not allow. With
    /// `resumes`, an unchanged webhook resumes stopped deliveries.
    pub(crate) async fn update_webhook(
        &self,
        user: &Caller,
        owned_webhook: OwnWebhook,
        if_match: Precondition,
        settings: &WebhookSettings,
        resumes: bool,
    ) -> Result<OwnWebhook> {
        let action = Act::new(AuditKind::WebhookEdited).with_object(&owned_webhook.webhook.id);
        let update = |old: &OwnWebhook| {
            self.check_url(&settings.url)?;
            if settings.widens(&old.webhook.terms) {
                self.limits.require_recent_sign_in(user.signed_in_at, self.now())?;
            }
            if *settings == old.webhook.terms && !(resumes && old.gone_at.is_some()) {
                return Ok(Change::None);
            }
            Ok(Change::Edited(old.webhook.clone().with_settings(settings.clone())))
        };
        self.change_webhook(user, owned_webhook, if_match, &action, update)
            .await
    }

    /// The old secret also signs calls for one more day. Requires a recent sign-in.
    pub(crate) async fn rotate_webhook_secret(
        &self,
        user: &Caller,
        owned_webhook: OwnWebhook,
        if_match: Precondition,
    ) -> Result<IssuedWebhook> {
        let action = Act::new(AuditKind::WebhookSecretRotated).with_object(&owned_webhook.webhook.id);
        let rotated = async {
            self.limits.require_recent_sign_in(user.signed_in_at, self.now())?;
            let (secret, stored) = self.create_webhook_secret(user, owned_webhook.webhook.id).await?;
            let rotate = |old: &OwnWebhook| {
                let (next, ended) = old.webhook.clone().rotate_secret(stored.id, self.now());
                Ok(Change::Rotated(next, stored.clone(), ended))
            };
            let rotated = self.store_webhook_change(user, owned_webhook, if_match, &action, rotate);
            Ok(issued_webhook(rotated.await?, &secret))
        };
        self.audit_rejection(&user.acting, &action, rotated).await
    }

    /// Removes a webhook and the pending deliveries. Requires no recent sign-in.
    pub(crate) async fn remove_webhook(
        &self,
        user: &Caller,
        owned_webhook: OwnWebhook,
        if_match: Precondition,
    ) -> Result<()> {
        let action = Act::new(AuditKind::WebhookRemoved).with_object(&owned_webhook.webhook.id);
        self.change_webhook(user, owned_webhook, if_match, &action, |_| Ok(Change::Removed))
            .await?;
        Ok(())
    }

    async fn change_webhook(
        &self,
        user: &Caller,
        owned_webhook: OwnWebhook,
        if_match: Precondition,
        action: &Act,
        change: impl Fn(&OwnWebhook) -> Result<Change>,
    ) -> Result<OwnWebhook> {
        let changed = self.store_webhook_change(user, owned_webhook, if_match, action, change);
        self.audit_rejection(&user.acting, action, changed).await
    }

    /// Returns the webhook after the change, or the removed webhook. Retries after a conflict, as long as `if_match`
    /// matches the stored version.
    async fn store_webhook_change(
        &self,
        user: &Caller,
        mut owned_webhook: OwnWebhook,
        if_match: Precondition,
        action: &Act,
        change: impl Fn(&OwnWebhook) -> Result<Change>,
    ) -> Result<OwnWebhook> {
        let mut backoff = Backoff::new();
        loop {
            let webhook = &owned_webhook.webhook;
            if_match.check_version(webhook.version)?;
            let changed = change(&owned_webhook)?;
            let after = changed.updated_webhook().map(Webhook::audit_log_fields);
            let result = AuditChanges::between(Some(webhook.audit_log_fields()), after);
            let entry = self.audit_entry(&user.acting, action, result)?;
            let table = &self.webhooks;
            let stored = match &changed {
                Change::None => return Ok(owned_webhook),
                Change::Edited(next) => table.update_webhook(next, &entry).await?,
                Change::Rotated(next, secret, ended) => {
                    table.rotate_webhook_secret(next, secret, ended, &entry).await?
                }
                Change::Removed => table.remove_webhook(webhook, &entry).await?,
            };
            match stored {
                UpdateResult::Stored => {
                    info!(person = %user.id, webhook.id = %webhook.id, kind = action.kind.name(), "webhook.changed");
                    return Ok(changed
                        .updated_webhook()
                        .cloned()
                        .map_or(owned_webhook, OwnWebhook::from));
                }
                UpdateResult::Conflict => backoff.wait_for_retry().await?,
            }
            owned_webhook = self.read_own_webhook(user, webhook.id).await?;
        }
    }

    /// Requests a test event, regardless of the webhook's event kinds. Returns the delivery's id.
    pub(crate) async fn test_webhook(&self, user: &Caller, owned_webhook: &OwnWebhook) -> Result<DeliveryId> {
        let webhook = owned_webhook.webhook.id;
        let request = self.webhook_request(user, webhook, None)?;
        let event = test_event(self.event_source.clone(), &user.id, webhook, request.id);
        let event = event.map_err(|error| Error::internal("building a test event", error))?;
        self.webhook_requests.send(&request).await?;
        Ok(Delivery::new(webhook, &event).id)
    }

    /// Requests that a delivery is sent again, even if it succeeded.
    pub(crate) async fn redeliver(
        &self,
        user: &Caller,
        owned_webhook: &OwnWebhook,
        delivery: DeliveryId,
    ) -> Result<()> {
        let webhook = owned_webhook.webhook.id;
        if self.webhooks.read_delivery_by_id(webhook, delivery).await?.is_none() {
            return Err(ErrorKind::NotFound.into());
        }
        let request = self.webhook_request(user, webhook, Some(delivery))?;
        self.webhook_requests.send(&request).await
    }

    fn webhook_request(
        &self,
        user: &Caller,
        webhook: WebhookId,
        repeated_delivery: Option<DeliveryId>,
    ) -> Result<WebhookRequest> {
        Ok(WebhookRequest {
            person: user.id.clone(),
            webhook,
            id: DeliveryId::new_at(self.now(), self.entropy.random_bytes()?),
            again: repeated_delivery,
        })
    }

    /// Lists a webhook's deliveries, latest event first.
    pub(crate) async fn list_deliveries(
        &self,
        owned_webhook: &OwnWebhook,
        page_request: PageRequest<Uuid>,
    ) -> Result<Page<Delivery, Uuid>> {
        self.webhooks
            .read_delivery_page(owned_webhook.webhook.id, page_request)
            .await
    }

    /// Rejects a URL that [`People::may_call`] does not permit.
    fn check_url(&self, url: &WebhookUrl) -> Result<()> {
        if self.may_call(url) {
            return Ok(());
        }
        Err(Error::invalid(vec![ValidationError::at_path(
            "/url",
            "must be an https URL of the public internet",
        )]))
    }

    /// Does not resolve the host name, so the IP address is checked again before each call.
    pub(crate) fn may_call(&self, url: &WebhookUrl) -> bool {
        let hosts = &self.webhook_hosts;
        hosts.contains(url.url()) || url.is_https() && hosts.may_call(url.url())
    }

    /// Returns the plain text for the user and the encrypted secret for the store.
    async fn create_webhook_secret(
        &self,
        user: &Caller,
        webhook: WebhookId,
    ) -> Result<(WebhookSecret, NewWebhookSecret)> {
        let id = WebhookSecretId::from_uuid(self.random_uuid()?);
        let secret = WebhookSecret::from_random(self.entropy.random_bytes()?);
        let of = SecretOf::Webhook {
            person: user.id.clone(),
            webhook,
            secret: id,
        };
        let stored = NewWebhookSecret {
            id,
            secret: self.secrets_key.encrypt(&of, secret.as_bytes()).await?,
        };
        Ok((secret, stored))
    }
}

fn issued_webhook(webhook: OwnWebhook, secret: &WebhookSecret) -> IssuedWebhook {
    IssuedWebhook {
        own: webhook,
        secret: secret.to_standard_text().to_string(),
    }
}
