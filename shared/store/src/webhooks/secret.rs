//! The secrets of webhooks, encrypted: rows that are put and never change.

use crate::{
    codec::item::{Draft, Item},
    codec::key::Key,
    codec::ledger::get_all,
    webhooks::table::WebhooksTable,
};
use purser_domain::{Ciphertext, Result, WebhookId, WebhookSecretId};

/// A secret that is to be stored.
#[derive(Clone, Debug)]
pub struct NewWebhookSecret {
    /// Its id.
    pub id: WebhookSecretId,
    /// The secret.
    pub secret: Ciphertext,
}

impl NewWebhookSecret {
    pub(crate) fn item(&self, webhook: WebhookId) -> Item {
        Draft::of(&Key::webhook_secret(webhook, self.id))
            .with("c", &self.secret)
            .into_item()
    }
}

impl WebhooksTable {
    /// These secrets of a webhook, in their order, strongly consistent. A missing one has ended.
    pub async fn secrets(
        &self,
        webhook: WebhookId,
        ids: &[WebhookSecretId],
    ) -> Result<Vec<(WebhookSecretId, Ciphertext)>> {
        const DOING: &str = "reading a webhook's secrets";
        let keys: Vec<Key> = ids.iter().map(|id| Key::webhook_secret(webhook, *id)).collect();
        let wanted = keys.iter().map(Key::attributes).collect();
        let items = get_all(&self.db, &self.table, wanted, true, DOING).await?;
        let found = ids.iter().zip(&keys);
        let found = found.filter_map(|(id, key)| Some((*id, items.iter().find(|item| key.is_of(item))?)));
        found.map(|(id, item)| Ok((id, self.row(item).get("c")?))).collect()
    }
}
