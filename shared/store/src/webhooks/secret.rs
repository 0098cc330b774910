//! The secrets of webhooks: rows that are put and never change. `people`, which makes them, has no right to read one.

use crate::{
    codec::item::{Draft, Item},
    codec::key::Key,
    codec::ledger::get_all,
    webhooks::table::WebhooksTable,
};
use aws_sdk_dynamodb::{primitives::Blob, types::AttributeValue};
use purser_domain::{Result, WebhookId, WebhookSecret, WebhookSecretId};

/// A secret that is to be stored. It has no `Debug`.
pub struct NewWebhookSecret {
    /// Its id.
    pub id: WebhookSecretId,
    /// The secret.
    pub secret: WebhookSecret,
}

impl NewWebhookSecret {
    pub(crate) fn item(&self, webhook: WebhookId) -> Item {
        let bytes = AttributeValue::B(Blob::new(self.secret.as_bytes()));
        Draft::of(&Key::webhook_secret(webhook, self.id))
            .with_value("s", bytes)
            .into_item()
    }
}

impl WebhooksTable {
    /// These secrets of a webhook, in their order, strongly consistent. One that is not there has ended.
    pub async fn secrets(&self, webhook: WebhookId, ids: &[WebhookSecretId]) -> Result<Vec<WebhookSecret>> {
        const DOING: &str = "reading a webhook's secrets";
        let keys: Vec<Key> = ids.iter().map(|id| Key::webhook_secret(webhook, *id)).collect();
        let wanted = keys.iter().map(Key::attributes).collect();
        let items = get_all(&self.db, &self.table, wanted, true, DOING).await?;
        let found = keys.iter().filter_map(|key| items.iter().find(|item| key.is_of(item)));
        let read = found.map(|item| {
            let bytes = item.get("s").and_then(|value| value.as_b().ok());
            let bytes = bytes.and_then(|bytes| bytes.as_ref().try_into().ok());
            bytes
                .map(WebhookSecret::from_random)
                .ok_or_else(|| self.row(item).corrupt("s"))
        });
        read.collect()
    }
}
