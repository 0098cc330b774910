//! Webhooks: one row each, in one of ten slots of the owner's partition, so that concurrent requests can't create more.
//!
//! Only `people` writes them. The function `webhooks` marks a webhook as gone in a separate row. The marker applies to
//! the version that was called, so after any update the webhook is called again.

use crate::{
    audit::entry::AuditEntry,
    codec::attribute::Attribute,
    codec::backoff::Backoff,
    codec::fault::store_error,
    codec::item::{Draft, Item, member, optional_member},
    codec::key::{Key, webhooks as key},
    codec::ledger::{EditResult, get_all},
    transact::{Transaction, TransactionOutcome},
    webhooks::secret::NewWebhookSecret,
    webhooks::table::WebhooksTable,
};
use aws_sdk_dynamodb::types::AttributeValue;
use purser_domain::{
    PersonId, Result, SecretTerm, Timestamp, Webhook, WebhookContentType, WebhookId, WebhookSecretId, WebhookTerms,
    WebhookUrl,
};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    Webhook,
    Secret,
    Ended,
    Audit,
}

impl WebhooksTable {
    /// Reads a user's webhooks, oldest first, strongly consistent.
    pub async fn list_webhooks(&self, person: &PersonId) -> Result<Vec<Webhook>> {
        let items = self
            .db
            .query()
            .table_name(&*self.table)
            .consistent_read(true)
            .key_condition_expression("pk = :pk")
            .expression_attribute_values(":pk", key::partition(person).write())
            .into_paginator()
            .items()
            .send();
        let items: Result<Vec<Item>, _> = items.collect().await;
        let items = items.map_err(store_error("listing webhooks"))?;
        let read = items.iter().map(|item| self.read_webhook(person, item));
        let mut webhooks = read.collect::<Result<Vec<_>>>()?;
        webhooks.sort_by_key(|webhook| (webhook.created_at, webhook.id));
        Ok(webhooks)
    }

    /// Stores a new webhook with its secret, if its slot is free.
    pub async fn create(&self, webhook: &Webhook, secret: &NewWebhookSecret, audit: &AuditEntry) -> Result<EditResult> {
        let put = self
            .put(write_webhook(webhook))
            .condition_expression("attribute_not_exists(pk)");
        let mut transaction = Transaction::new();
        transaction.put(Role::Webhook, put)?;
        transaction.put_unseen(Role::Secret, self.put(secret.item(webhook.id)))?;
        self.send(transaction, audit).await
    }

    /// Stores the next version of a webhook, if the previous version is stored.
    pub async fn edit(&self, webhook: &Webhook, audit: &AuditEntry) -> Result<EditResult> {
        let mut transaction = Transaction::new();
        transaction.put(Role::Webhook, self.put(write_webhook(webhook)).next_of(webhook))?;
        self.send(transaction, audit).await
    }

    /// Stores the next version of a webhook with a new secret, and removes the ended secrets.
    pub async fn rotate(
        &self,
        webhook: &Webhook,
        secret: &NewWebhookSecret,
        ended: &[WebhookSecretId],
        audit: &AuditEntry,
    ) -> Result<EditResult> {
        let mut transaction = Transaction::new();
        transaction.put(Role::Webhook, self.put(write_webhook(webhook)).next_of(webhook))?;
        transaction.put_unseen(Role::Secret, self.put(secret.item(webhook.id)))?;
        for id in ended {
            transaction.delete(Role::Ended, self.delete(&Key::webhook_secret(webhook.id, *id)))?;
        }
        self.send(transaction, audit).await
    }

    /// Removes a webhook and its secrets, if this version is stored. The deliveries stay until they expire.
    pub async fn remove(&self, webhook: &Webhook, audit: &AuditEntry) -> Result<EditResult> {
        let delete = self
            .delete(&Key::webhook(&webhook.person, webhook.slot))
            .condition_expression("id = :id AND ver = :ver")
            .expression_attribute_values(":id", webhook.id.write())
            .expression_attribute_values(":ver", webhook.version.write());
        let mut transaction = Transaction::new();
        transaction.delete(Role::Webhook, delete)?;
        for term in &webhook.secrets {
            transaction.delete(Role::Ended, self.delete(&Key::webhook_secret(webhook.id, term.id)))?;
        }
        self.send(transaction, audit).await
    }

    async fn send(&self, mut transaction: Transaction<Role>, audit: &AuditEntry) -> Result<EditResult> {
        transaction.audit(Role::Audit, audit)?;
        match transaction.send_until_known(&self.db, &mut Backoff::new()).await? {
            TransactionOutcome::Committed => Ok(EditResult::Stored),
            // The audit row exists, so an attempt whose response was lost has made the change.
            TransactionOutcome::Refused(refusal) if refusal.names(Role::Audit) => Ok(EditResult::Stored),
            TransactionOutcome::Refused(_) => Ok(EditResult::Conflict),
        }
    }

    /// Records that the endpoint responded 410 (Gone) to a call of this version of a webhook.
    pub async fn note_gone(&self, webhook: &Webhook, at: Timestamp) -> Result<()> {
        let gone = Draft::new(&Key::webhook_gone(webhook.id))
            .with("ver", &webhook.version)
            .with("t", &at);
        let put = self
            .db
            .put_item()
            .table_name(&*self.table)
            .set_item(Some(gone.into_item()));
        put.send()
            .await
            .map_err(store_error("recording that a webhook is gone"))?;
        Ok(())
    }

    /// Reads which of these webhooks are marked as gone in their current version, with the time of the marker, strongly
    /// consistent.
    pub async fn find_gone(&self, webhooks: &[Webhook]) -> Result<BTreeMap<WebhookId, Timestamp>> {
        const DOING: &str = "reading which webhooks are gone";
        let keys = webhooks.iter().map(|webhook| Key::webhook_gone(webhook.id));
        let wanted = keys.clone().map(|key| key.attributes()).collect();
        let items = get_all(&self.db, &self.table, wanted, true, DOING).await?;
        let mut gone = BTreeMap::new();
        for (webhook, key) in webhooks.iter().zip(keys) {
            let Some(item) = items.iter().find(|item| key.is_of(item)) else {
                continue;
            };
            let row = self.row(item);
            if row.get::<u64>("ver")? == webhook.version {
                gone.insert(webhook.id, row.get("t")?);
            }
        }
        Ok(gone)
    }

    pub(crate) fn read_webhook(&self, person: &PersonId, item: &Item) -> Result<Webhook> {
        let row = self.row(item);
        let url: String = row.get("url")?;
        // Rows of earlier versions have no content type.
        let content_type = match row.get_optional::<String>("ctype")? {
            None => WebhookContentType::CloudEvents,
            Some(name) => WebhookContentType::from_name(&name).ok_or_else(|| row.corrupt("ctype"))?,
        };
        Ok(Webhook {
            id: row.get("id")?,
            person: person.clone(),
            slot: key::slot(item).ok_or_else(|| row.corrupt("sk"))?,
            version: row.get("ver")?,
            created_at: row.get("created")?,
            terms: WebhookTerms {
                url: WebhookUrl::parse(&url).ok_or_else(|| row.corrupt("url"))?,
                description: row.get_optional("words")?,
                kinds: row.get_optional("kinds")?,
                agents: row.get_optional("agents")?,
                enabled: row.get("on")?,
                content_type,
            },
            secrets: row.get("secrets")?,
        })
    }
}

/// Adds the condition that a put replaces the previous version.
trait ExpectVersion {
    fn next_of(self, webhook: &Webhook) -> Self;
}

impl ExpectVersion for aws_sdk_dynamodb::types::builders::PutBuilder {
    fn next_of(self, webhook: &Webhook) -> Self {
        self.condition_expression("id = :id AND ver = :old")
            .expression_attribute_values(":id", webhook.id.write())
            .expression_attribute_values(":old", webhook.version.saturating_sub(1).write())
    }
}

pub(crate) fn write_webhook(webhook: &Webhook) -> Item {
    let terms = &webhook.terms;
    Draft::new(&Key::webhook(&webhook.person, webhook.slot))
        .with("id", &webhook.id)
        .with("ver", &webhook.version)
        .with("created", &webhook.created_at)
        .with("url", &terms.url.to_string())
        .with_optional("words", terms.description.as_ref())
        .with_optional("kinds", terms.kinds.as_ref())
        .with_optional("agents", terms.agents.as_ref())
        .with("on", &terms.enabled)
        .with("ctype", &terms.content_type.name().to_owned())
        .with("secrets", &webhook.secrets)
        .into_item()
}

impl Attribute for SecretTerm {
    fn write(&self) -> AttributeValue {
        let term = Draft::new_map()
            .with("id", &self.id)
            .with("created", &self.created_at)
            .with_optional("ends", self.ends_at.as_ref());
        AttributeValue::M(term.into_item())
    }

    fn read(value: &AttributeValue) -> Option<Self> {
        let map = value.as_m().ok()?;
        Some(Self {
            id: member(map, "id")?,
            created_at: member(map, "created")?,
            ends_at: optional_member(map, "ends")?,
        })
    }
}

impl Attribute for BTreeSet<purser_domain::EventKind> {
    fn write(&self) -> AttributeValue {
        AttributeValue::Ss(self.iter().map(|kind| kind.name().to_owned()).collect())
    }

    fn read(value: &AttributeValue) -> Option<Self> {
        let names = value.as_ss().ok()?.iter();
        names.map(|name| purser_domain::EventKind::from_name(name)).collect()
    }
}
