//! Operations that list, create, update and remove webhooks, rotate webhook secrets, and list deliveries.
//!
//! This module creates webhook secrets, and only the response to the creating request contains a secret. Secrets are
//! stored encrypted, and this function cannot decrypt them. `functions/webhooks` makes the calls. For tests and
//! repeated deliveries, this module sends ids to `functions/webhooks`.

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
    pub(crate) async fn list_webhooks(&self, person: &Caller) -> Result<Vec<OwnWebhook>> {
        let webhooks = self.webhooks.list_webhooks(&person.id).await?;
        let ids: Vec<WebhookId> = webhooks.iter().map(|webhook| webhook.id).collect();
        let (gone, mut failed) = tokio::try_join!(
            self.webhooks.read_gone(&webhooks),
            self.webhooks.list_failed_calls(&ids)
        )?;
        let listed = webhooks.into_iter().map(|webhook| OwnWebhook {
            gone_at: gone.get(&webhook.id).copied(),
            failed: failed
                .remove(&webhook.id)
                .filter(|calls| calls.version == webhook.version),
            webhook,
        });
        Ok(listed.collect())
    }

    /// Reads the user's webhook with this id. If the webhook does not exist or belongs to another user, the error is
    /// `not_found`.
    pub(crate) async fn read_own_webhook(&self, person: &Caller, id: WebhookId) -> Result<OwnWebhook> {
        let mut webhooks = self.list_webhooks(person).await?;
        let place = webhooks.iter().position(|own| own.webhook.id == id);
        require_id(place.map(|place| webhooks.swap_remove(place)))
    }

    /// Creates a webhook. Requires a recent sign-in, because a stolen session could otherwise receive all later events.
    ///
    /// `if_match` is the slot for the webhook. If another webhook has taken the slot, no webhook is created, so that a
    /// form that is submitted twice creates only one webhook.
    pub(crate) async fn create_webhook(
        &self,
        person: &Caller,
        terms: WebhookSettings,
        if_match: Option<u8>,
    ) -> Result<IssuedWebhook> {
        let act = Act::new(AuditKind::WebhookCreated);
        self.audit_rejection(
            &person.acting,
            &act,
            self.store_new_webhook(person, &act, terms, if_match),
        )
        .await
    }

    async fn store_new_webhook(
        &self,
        person: &Caller,
        act: &Act,
        terms: WebhookSettings,
        if_match: Option<u8>,
    ) -> Result<IssuedWebhook> {
        let mut backoff = Backoff::new();
        loop {
            self.check_url(&terms.url)?;
            let now = self.now();
            self.limits.require_recent_sign_in(person.signed_in_at, now)?;
            let slot = self.find_free_slot(person, if_match).await?;
            let id = WebhookId::from_uuid(self.random_uuid()?);
            let (secret, stored) = self.new_webhook_secret(person, id).await?;
            let webhook = Webhook {
                id,
                person: person.id.clone(),
                slot,
                version: 1,
                created_at: now,
                terms: terms.clone(),
                secrets: vec![SecretValidity {
                    id: stored.id,
                    created_at: now,
                    ends_at: None,
                }],
            };
            let changes = AuditChanges::between(None, Some(webhook.audit_members()));
            let entry = self.audit_entry(&person.acting, &act.clone().with_object(&webhook.id), changes)?;
            match self.webhooks.create_webhook(&webhook, &stored, &entry).await? {
                UpdateResult::Stored => {
                    info!(person = %person.id, webhook.id = %webhook.id, "webhook.created");
                    return Ok(issued_webhook(webhook, &secret));
                }
                // Another request has taken the slot.
                UpdateResult::Conflict => backoff.wait_for_retry().await?,
            }
        }
    }

    async fn find_free_slot(&self, person: &Caller, if_match: Option<u8>) -> Result<u8> {
        let webhooks = self.webhooks.list_webhooks(&person.id).await?;
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
        person: &Caller,
        own: OwnWebhook,
        if_match: Precondition,
        terms: &WebhookSettings,
        resumes: bool,
    ) -> Result<OwnWebhook> {
        let act = Act::new(AuditKind::WebhookEdited).with_object(&own.webhook.id);
        let edit = |old: &OwnWebhook| {
            self.check_url(&terms.url)?;
            if terms.reach_further_than(&old.webhook.terms) {
                self.limits.require_recent_sign_in(person.signed_in_at, self.now())?;
            }
            if *terms == old.webhook.terms && !(resumes && old.gone_at.is_some()) {
                return Ok(Change::None(old.clone()));
            }
            Ok(Change::Edited(old.webhook.clone().with_settings(terms.clone())))
        };
        match self.change_webhook(person, own, if_match, &act, edit).await? {
            Change::None(own) => Ok(own),
            Change::Edited(webhook) => Ok(webhook.into()),
            Change::Rotated(..) | Change::Removed => Err(Error::internal("editing a webhook", "it is another change")),
        }
    }

    /// Replaces a webhook's secret. The old secret also signs calls for one more day. Requires a recent sign-in.
    pub(crate) async fn rotate_webhook_secret(
        &self,
        person: &Caller,
        own: OwnWebhook,
        if_match: Precondition,
    ) -> Result<IssuedWebhook> {
        let act = Act::new(AuditKind::WebhookSecretRotated).with_object(&own.webhook.id);
        let rotated = async {
            self.limits.require_recent_sign_in(person.signed_in_at, self.now())?;
            let (secret, stored) = self.new_webhook_secret(person, own.webhook.id).await?;
            let rotate = |old: &OwnWebhook| {
                let (next, ended) = old.webhook.clone().rotate_secret(stored.id, self.now());
                Ok(Change::Rotated(next, stored.clone(), ended))
            };
            Ok((
                secret,
                self.store_webhook_change(person, own, if_match, &act, rotate).await?,
            ))
        };
        match self.audit_rejection(&person.acting, &act, rotated).await? {
            (secret, Change::Rotated(webhook, ..)) => Ok(issued_webhook(webhook, &secret)),
            (_, Change::None(_) | Change::Edited(_) | Change::Removed) => {
                Err(Error::internal("rotating a secret", "it is another change"))
            }
        }
    }

    /// Removes a webhook and drops its pending deliveries. Does not require a recent sign-in.
    pub(crate) async fn remove_webhook(&self, person: &Caller, own: OwnWebhook, if_match: Precondition) -> Result<()> {
        let act = Act::new(AuditKind::WebhookRemoved).with_object(&own.webhook.id);
        self.change_webhook(person, own, if_match, &act, |_| Ok(Change::Removed))
            .await?;
        Ok(())
    }

    async fn change_webhook(
        &self,
        person: &Caller,
        own: OwnWebhook,
        if_match: Precondition,
        act: &Act,
        change: impl Fn(&OwnWebhook) -> Result<Change>,
    ) -> Result<Change> {
        let changed = self.store_webhook_change(person, own, if_match, act, change);
        self.audit_rejection(&person.acting, act, changed).await
    }

    /// Applies a change. After a conflict, tries again while `if_match` matches the stored version.
    async fn store_webhook_change(
        &self,
        person: &Caller,
        mut own: OwnWebhook,
        if_match: Precondition,
        act: &Act,
        change: impl Fn(&OwnWebhook) -> Result<Change>,
    ) -> Result<Change> {
        let mut backoff = Backoff::new();
        loop {
            let webhook = &own.webhook;
            if_match.check_version(webhook.version)?;
            let changed = change(&own)?;
            let after = changed.next_version().map(Webhook::audit_members);
            let told = AuditChanges::between(Some(webhook.audit_members()), after);
            let entry = self.audit_entry(&person.acting, act, told)?;
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
                    info!(person = %person.id, webhook.id = %webhook.id, kind = act.kind.name(), "webhook.changed");
                    return Ok(changed);
                }
                UpdateResult::Conflict => backoff.wait_for_retry().await?,
            }
            own = self.read_own_webhook(person, webhook.id).await?;
        }
    }

    /// Requests a test event for a webhook, regardless of its event kinds. Returns the delivery's id.
    pub(crate) async fn test_webhook(&self, person: &Caller, own: &OwnWebhook) -> Result<DeliveryId> {
        let webhook = own.webhook.id;
        let request = self.webhook_request(person, webhook, None)?;
        let event = test_event(self.event_source.clone(), &person.id, webhook, request.id);
        let event = event.map_err(|problem| Error::internal("making a test event", problem))?;
        self.webhook_requests.send(&request).await?;
        Ok(Delivery::new(webhook, &event).id)
    }

    /// Requests that a delivery is sent again, even if it succeeded.
    pub(crate) async fn redeliver(&self, person: &Caller, own: &OwnWebhook, delivery: DeliveryId) -> Result<()> {
        let webhook = own.webhook.id;
        if self.webhooks.read_delivery_by_id(webhook, delivery).await?.is_none() {
            return Err(ErrorKind::NotFound.into());
        }
        let request = self.webhook_request(person, webhook, Some(delivery))?;
        self.webhook_requests.send(&request).await
    }

    fn webhook_request(
        &self,
        person: &Caller,
        webhook: WebhookId,
        again: Option<DeliveryId>,
    ) -> Result<WebhookRequest> {
        Ok(WebhookRequest {
            person: person.id.clone(),
            webhook,
            id: DeliveryId::new_at(self.now(), self.entropy.random_bytes()?),
            again,
        })
    }

    /// Lists a webhook's deliveries, latest event first.
    pub(crate) async fn list_deliveries(
        &self,
        own: &OwnWebhook,
        slice: PageRequest<Uuid>,
    ) -> Result<Page<Delivery, Uuid>> {
        self.webhooks.read_delivery_page(own.webhook.id, slice).await
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
    async fn new_webhook_secret(
        &self,
        person: &Caller,
        webhook: WebhookId,
    ) -> Result<(WebhookSecret, NewWebhookSecret)> {
        let id = WebhookSecretId::from_uuid(self.random_uuid()?);
        let secret = WebhookSecret::from_random(self.entropy.random_bytes()?);
        let of = SecretOf::Webhook {
            person: person.id.clone(),
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
