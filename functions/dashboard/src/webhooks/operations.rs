//! Operations that list, create, update and remove webhooks, rotate webhook secrets, and list deliveries.
//!
//! This module creates webhook secrets. Only the response to the request that creates a secret contains the secret.
//! Secrets are stored encrypted, and the dashboard cannot decrypt secrets. The function `webhooks` sends the calls to
//! webhook receivers. For a test or a repeated delivery, this module only asks `webhooks` to send the call.

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

/// A user's webhook, with its delivery state.
#[derive(Clone, Debug)]
pub(crate) struct OwnWebhook {
    pub(crate) webhook: Webhook,
    /// When deliveries were stopped, because the webhook receiver responded 410 (Gone) or calls failed for too long.
    pub(crate) gone_at: Option<Timestamp>,
    /// The failed calls since the last successful call and the last update.
    pub(crate) failed: Option<FailedCalls>,
}

/// A webhook with its newest secret. The type does not implement `Debug`, so that the secret cannot be logged.
pub(crate) struct IssuedWebhook {
    pub(crate) own: OwnWebhook,
    /// The secret as `whsec_…`, which the user configures in the webhook receiver.
    pub(crate) secret: String,
}

/// A change to a stored webhook.
enum Change {
    /// No change, because the webhook already has the requested values.
    None(OwnWebhook),
    /// Store this version.
    Edited(Webhook),
    /// Store this version and its new secret, and delete the expired secrets.
    Rotated(Webhook, NewWebhookSecret, Vec<WebhookSecretId>),
    /// Delete the webhook.
    Removed,
}

impl Change {
    const fn next_version(&self) -> Option<&Webhook> {
        match self {
            Self::Edited(next) | Self::Rotated(next, ..) => Some(next),
            Self::None(_) | Self::Removed => None,
        }
    }
}

impl From<Webhook> for OwnWebhook {
    /// Wraps a webhook that was just written. Failed calls from before the write no longer count.
    fn from(webhook: Webhook) -> Self {
        Self {
            webhook,
            gone_at: None,
            failed: None,
        }
    }
}

impl People {
    /// Lists the user's webhooks, oldest first.
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

    /// Reads the user's webhook with this id. If the webhook does not exist or belongs to another user, the error is
    /// `not_found`.
    pub(crate) async fn read_own_webhook(&self, user: &Caller, id: WebhookId) -> Result<OwnWebhook> {
        let mut webhooks = self.list_webhooks(user).await?;
        let index = webhooks.iter().position(|own| own.webhook.id == id);
        require_id(index.map(|index| webhooks.swap_remove(index)))
    }

    /// Creates a webhook. Requires a recent sign-in, because a stolen session could otherwise receive all later events.
    ///
    /// Each of a user's webhooks has its own slot: a number below [`Webhook::MAX`]. `if_match` is the slot for the new
    /// webhook. If another webhook already has this slot, no webhook is created. Therefore a form that is submitted
    /// twice creates only one webhook.
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
            let slot = self.find_free_slot(user, if_match).await?;
            let id = WebhookId::from_uuid(self.random_uuid()?);
            let (secret, stored) = self.new_webhook_secret(user, id).await?;
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
                    return Ok(issued_webhook(webhook, &secret));
                }
                // Another request has taken the slot.
                UpdateResult::Conflict => backoff.wait_for_retry().await?,
            }
        }
    }

    async fn find_free_slot(&self, user: &Caller, if_match: Option<u8>) -> Result<u8> {
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

    /// Replaces a webhook's settings. A new URL, more events or enabling the webhook requires a recent sign-in. An
    /// update without changes writes nothing, unless deliveries were stopped and `resumes` is true: in that case,
    /// deliveries resume.
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
            if settings.reach_further_than(&old.webhook.terms) {
                self.limits.require_recent_sign_in(user.signed_in_at, self.now())?;
            }
            if *settings == old.webhook.terms && !(resumes && old.gone_at.is_some()) {
                return Ok(Change::None(old.clone()));
            }
            Ok(Change::Edited(old.webhook.clone().with_settings(settings.clone())))
        };
        match self
            .change_webhook(user, owned_webhook, if_match, &action, update)
            .await?
        {
            Change::None(own) => Ok(own),
            Change::Edited(webhook) => Ok(webhook.into()),
            Change::Rotated(..) | Change::Removed => Err(Error::internal("editing a webhook", "it is another change")),
        }
    }

    /// Replaces a webhook's secret. The old secret also signs calls for one more day. Requires a recent sign-in.
    pub(crate) async fn rotate_webhook_secret(
        &self,
        user: &Caller,
        owned_webhook: OwnWebhook,
        if_match: Precondition,
    ) -> Result<IssuedWebhook> {
        let action = Act::new(AuditKind::WebhookSecretRotated).with_object(&owned_webhook.webhook.id);
        let rotated = async {
            self.limits.require_recent_sign_in(user.signed_in_at, self.now())?;
            let (secret, stored) = self.new_webhook_secret(user, owned_webhook.webhook.id).await?;
            let rotate = |old: &OwnWebhook| {
                let (next, ended) = old.webhook.clone().rotate_secret(stored.id, self.now());
                Ok(Change::Rotated(next, stored.clone(), ended))
            };
            Ok((
                secret,
                self.store_webhook_change(user, owned_webhook, if_match, &action, rotate)
                    .await?,
            ))
        };
        match self.audit_rejection(&user.acting, &action, rotated).await? {
            (secret, Change::Rotated(webhook, ..)) => Ok(issued_webhook(webhook, &secret)),
            (_, Change::None(_) | Change::Edited(_) | Change::Removed) => {
                Err(Error::internal("rotating a secret", "it is another change"))
            }
        }
    }

    /// Removes a webhook and drops its pending deliveries. Does not require a recent sign-in.
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
    ) -> Result<Change> {
        let changed = self.store_webhook_change(user, owned_webhook, if_match, action, change);
        self.audit_rejection(&user.acting, action, changed).await
    }

    /// Applies a change. After a conflict, tries again while `if_match` matches the stored version.
    async fn store_webhook_change(
        &self,
        user: &Caller,
        mut owned_webhook: OwnWebhook,
        if_match: Precondition,
        action: &Act,
        change: impl Fn(&OwnWebhook) -> Result<Change>,
    ) -> Result<Change> {
        let mut backoff = Backoff::new();
        loop {
            let webhook = &owned_webhook.webhook;
            if_match.check_version(webhook.version)?;
            let changed = change(&owned_webhook)?;
            let after = changed.next_version().map(Webhook::audit_log_fields);
            let result = AuditChanges::between(Some(webhook.audit_log_fields()), after);
            let entry = self.audit_entry(&user.acting, action, result)?;
            let table = &self.webhooks;
            let stored = match &changed {
                Change::None(_) => return Ok(changed),
                Change::Edited(next) => table.update_webhook(next, &entry).await?,
                Change::Rotated(next, secret, ended) => {
                    table.rotate_webhook_secret(next, secret, ended, &entry).await?
                }
                Change::Removed => table.remove_webhook(webhook, &entry).await?,
            };
            match stored {
                UpdateResult::Stored => {
                    info!(person = %user.id, webhook.id = %webhook.id, kind = action.kind.name(), "webhook.changed");
                    return Ok(changed);
                }
                UpdateResult::Conflict => backoff.wait_for_retry().await?,
            }
            owned_webhook = self.read_own_webhook(user, webhook.id).await?;
        }
    }

    /// Requests a test event for a webhook, regardless of its event kinds. Returns the delivery's id.
    pub(crate) async fn test_webhook(&self, user: &Caller, owned_webhook: &OwnWebhook) -> Result<DeliveryId> {
        let webhook = owned_webhook.webhook.id;
        let request = self.webhook_request(user, webhook, None)?;
        let event = test_event(self.event_source.clone(), &user.id, webhook, request.id);
        let event = event.map_err(|error| Error::internal("making a test event", error))?;
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

    /// Whether webhooks may call this URL. This check does not resolve the host name, so the IP address is checked
    /// again before each call.
    pub(crate) fn may_call(&self, url: &WebhookUrl) -> bool {
        let hosts = &self.webhook_hosts;
        hosts.contains(url.url()) || url.is_https() && hosts.may_call(url.url())
    }

    /// Creates a webhook secret. Returns the plain text for the user and the encrypted secret for the store.
    async fn new_webhook_secret(&self, user: &Caller, webhook: WebhookId) -> Result<(WebhookSecret, NewWebhookSecret)> {
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

fn issued_webhook(webhook: Webhook, secret: &WebhookSecret) -> IssuedWebhook {
    IssuedWebhook {
        own: webhook.into(),
        secret: secret.to_standard_text().to_string(),
    }
}
