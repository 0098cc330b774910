//! The encrypted secrets of webhooks. A secret's row never changes.

use crate::{
    codec::item::{Draft, Item},
    codec::key::Key,
    codec::ledger::get_all_items,
    webhooks::table::WebhooksTable,
};
use purser_domain::{Ciphertext, Result, WebhookId, WebhookSecretId};

/// A secret that is stored with a new webhook, or with a webhook's next version.
#[derive(Clone, Debug)]
pub struct NewWebhookSecret {
    /// The id that the webhook's record contains instead of the secret.
    pub id: WebhookSecretId,
    /// The secret, encrypted with the KMS key for webhook secrets.
    pub secret: Ciphertext,
}

impl NewWebhookSecret {
    pub(crate) fn to_item(&self, webhook: WebhookId) -> Item {
        Draft::new(&Key::webhook_secret(webhook, self.id))
            .with("c", &self.secret)
            .into_item()
    }
}

impl WebhooksTable {
    /// Reads these secrets of a webhook, in the order of `ids`, strongly consistent. Skips removed secrets.
    pub async fn read_secrets(
        &self,
        webhook: WebhookId,
        ids: &[WebhookSecretId],
    ) -> Result<Vec<(WebhookSecretId, Ciphertext)>> {
        const OPERATION: &str = "reading a webhook's secrets";
        let keys: Vec<Key> = ids.iter().map(|id| Key::webhook_secret(webhook, *id)).collect();
        let item_keys = keys.iter().map(Key::attributes).collect();
        let items = get_all_items(&self.db, &self.table, item_keys, true, OPERATION).await?;
        let found = ids.iter().zip(&keys);
        let found = found.filter_map(|(id, key)| Some((*id, items.iter().find(|item| key.is_key_of(item))?)));
        found
            .map(|(id, item)| Ok((id, self.item_row(item).get("c")?)))
            .collect()
    }
}
