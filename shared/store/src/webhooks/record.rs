//! Webhooks: one row each, in one of ten slots of the owner's partition, so that concurrent requests can't create more
//! than ten webhooks.

use crate::{
    audit::entry::AuditEntry,
    codec::attribute::Attribute,
    codec::backoff::Backoff,
    codec::fields::{fields, stored_as_map},
    codec::item::{Draft, Item},
    codec::key::{Key, parse_user, webhooks as key},
    codec::ledger::{UpdateResult, get_all_items},
    codec::table::{Query, put_item},
    transact::{Transaction, TransactionOutcome},
    webhooks::secret::NewWebhookSecret,
    webhooks::table::WebhooksTable,
};
use aws_sdk_dynamodb::types::AttributeValue;
use purser_domain::{Result, SecretValidity, Timestamp, UserId, Webhook, WebhookId, WebhookSecretId, WebhookSettings};
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
    pub async fn list_webhooks(&self, user: &UserId) -> Result<Vec<Webhook>> {
        let items = Query::new(&self.db, &self.table, key::webhooks_partition(user))
            .consistent()
            .collect("listing webhooks")
            .await?;
        let read = items.iter().map(|item| self.item_row(item).read());
        let mut webhooks = read.collect::<Result<Vec<Webhook>>>()?;
        webhooks.sort_by_key(|webhook| (webhook.created_at, webhook.id));
        Ok(webhooks)
    }

    /// Stores a new webhook with the secret, if the webhook's slot is free.
    pub async fn create_webhook(
        &self,
        webhook: &Webhook,
        secret: &NewWebhookSecret,
        audit: &AuditEntry,
    ) -> Result<UpdateResult> {
        let put = self
            .put_item(write_webhook(webhook))
            .condition_expression("attribute_not_exists(pk)");
        let mut transaction = Transaction::new();
        transaction.add_put(Role::Webhook, put)?;
        transaction.add_put_without_returned_item(Role::Secret, self.put_item(secret.to_item(webhook.id)))?;
        self.send_webhook_transaction(transaction, audit).await
    }

    /// Stores the next version of a webhook, if the previous version is stored.
    pub async fn update_webhook(&self, webhook: &Webhook, audit: &AuditEntry) -> Result<UpdateResult> {
        let mut transaction = Transaction::new();
        transaction.add_put(
            Role::Webhook,
            self.put_item(write_webhook(webhook)).with_version_check(webhook),
        )?;
        self.send_webhook_transaction(transaction, audit).await
    }

    /// Stores the next version of a webhook with a new secret, and removes the expired secrets.
    pub async fn rotate_webhook_secret(
        &self,
        webhook: &Webhook,
        secret: &NewWebhookSecret,
        ended_secrets: &[WebhookSecretId],
        audit: &AuditEntry,
    ) -> Result<UpdateResult> {
        let mut transaction = Transaction::new();
        transaction.add_put(
            Role::Webhook,
            self.put_item(write_webhook(webhook)).with_version_check(webhook),
        )?;
        transaction.add_put_without_returned_item(Role::Secret, self.put_item(secret.to_item(webhook.id)))?;
        for id in ended_secrets {
            transaction.add_delete(Role::Ended, self.item_deletion(&Key::webhook_secret(webhook.id, *id)))?;
        }
        self.send_webhook_transaction(transaction, audit).await
    }

    /// Removes a webhook and its secrets, if this version is stored. The deliveries stay until they expire.
    pub async fn remove_webhook(&self, webhook: &Webhook, audit: &AuditEntry) -> Result<UpdateResult> {
        let delete = self
            .item_deletion(&Key::webhook(&webhook.person, webhook.slot))
            .condition_expression("id = :id AND ver = :ver")
            .expression_attribute_values(":id", webhook.id.write())
            .expression_attribute_values(":ver", webhook.version.write());
        let mut transaction = Transaction::new();
        transaction.add_delete(Role::Webhook, delete)?;
        for term in &webhook.secrets {
            transaction.add_delete(
                Role::Ended,
                self.item_deletion(&Key::webhook_secret(webhook.id, term.id)),
            )?;
        }
        self.send_webhook_transaction(transaction, audit).await
    }

    async fn send_webhook_transaction(
        &self,
        mut transaction: Transaction<Role>,
        audit: &AuditEntry,
    ) -> Result<UpdateResult> {
        transaction.add_audit_rows(Role::Audit, audit)?;
        match transaction.send_until_outcome(&self.db, &mut Backoff::new()).await? {
            TransactionOutcome::Committed => Ok(UpdateResult::Stored),
            // If the audit row exists already, an earlier attempt has made the change, and the response to that attempt
            // was lost.
            TransactionOutcome::Refused(rejection) if rejection.has_failed(Role::Audit) => Ok(UpdateResult::Stored),
            TransactionOutcome::Refused(_) => Ok(UpdateResult::Conflict),
        }
    }

    /// Records that the endpoint responded 410 (Gone) to a call of this version of a webhook.
    pub async fn record_410_response(&self, webhook: &Webhook, at: Timestamp) -> Result<()> {
        let deleted = Draft::new(&Key::removed_webhook(webhook.id))
            .with("ver", &webhook.version)
            .with("t", &at);
        put_item(
            &self.db,
            &self.table,
            deleted.into_item(),
            "recording a webhook's 410 response",
        )
        .await
    }

    /// Reads when the endpoints of these webhooks responded 410 (Gone) to a call of the current version.
    pub async fn read_410_response_times(&self, webhooks: &[Webhook]) -> Result<BTreeMap<WebhookId, Timestamp>> {
        const OPERATION: &str = "reading webhooks' 410 responses";
        let keys = webhooks.iter().map(|webhook| Key::removed_webhook(webhook.id));
        let item_keys = keys.clone().map(|key| key.attributes()).collect();
        let items = get_all_items(&self.db, &self.table, item_keys, true, OPERATION).await?;
        let mut deleted = BTreeMap::new();
        for (webhook, key) in webhooks.iter().zip(keys) {
            let Some(item) = items.iter().find(|item| key.is_key_of(item)) else {
                continue;
            };
            let row = self.item_row(item);
            if row.get::<u64>("ver")? == webhook.version {
                deleted.insert(webhook.id, row.get("t")?);
            }
        }
        Ok(deleted)
    }
}

/// Adds a condition to a put, so that the webhook replaces only the previous version.
trait ExpectVersion {
    fn with_version_check(self, webhook: &Webhook) -> Self;
}

impl ExpectVersion for aws_sdk_dynamodb::types::builders::PutBuilder {
    fn with_version_check(self, webhook: &Webhook) -> Self {
        self.condition_expression("id = :id AND ver = :old")
            .expression_attribute_values(":id", webhook.id.write())
            .expression_attribute_values(":old", webhook.version.saturating_sub(1).write())
    }
}

fields! {
    Webhook {
        id: "id",
        person: pk(parse_user),
        slot: sk(key::parse_webhook_slot),
        version: "ver",
        created_at: "created",
        terms: part,
        secrets: "secrets",
    }

    WebhookSettings {
        url: "url",
        description: "words" optional,
        kinds: "kinds" optional,
        agents: "agents" optional,
        enabled: "on",
        content_type: "ctype",
    }

    SecretValidity { id: "id", created_at: "created", ends_at: "ends" optional }
}
stored_as_map! { SecretValidity }

pub(crate) fn write_webhook(webhook: &Webhook) -> Item {
    Draft::new(&Key::webhook(&webhook.person, webhook.slot))
        .with_fields(webhook)
        .into_item()
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
