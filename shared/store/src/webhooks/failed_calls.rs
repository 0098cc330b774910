//! The failed calls of webhooks. The function `webhooks` can't delete rows, so a success replaces the row by a row
//! without failed calls.

use crate::{
    codec::attribute::Attribute as _,
    codec::fields::fields,
    codec::item::{Draft, Item, Row},
    codec::key::Key,
    codec::ledger::get_all_items,
    codec::table::put_request,
    transact::was_applied,
    webhooks::table::WebhooksTable,
};
use purser_domain::{Duration, FailedCalls, Result, Timestamp, Webhook, WebhookId};
use std::collections::BTreeMap;

/// The lifetime of a row after the last change: 30 days.
const RETENTION: Duration = Duration::from_secs_u32(30 * 86_400);
const WRITING: &str = "recording a webhook's failed calls";

impl WebhooksTable {
    /// Reads the failed calls of these webhooks since their last successful call, strongly consistent.
    pub async fn list_failed_calls(&self, ids: &[WebhookId]) -> Result<BTreeMap<WebhookId, FailedCalls>> {
        let keys = ids.iter().map(|id| Key::failed_calls(*id));
        let item_keys = keys.clone().map(|key| key.attributes()).collect();
        let items = get_all_items(&self.db, &self.table, item_keys, true, "reading webhooks' failed calls").await?;
        let mut failed = BTreeMap::new();
        for (id, key) in ids.iter().zip(keys) {
            let Some(item) = items.iter().find(|item| key.is_key_of(item)) else {
                continue;
            };
            failed.extend(read_failed_calls(self.item_row(item))?.map(|calls| (*id, calls)));
        }
        Ok(failed)
    }

    /// Stores a webhook's failed calls in place of `old`. Also replaces a row of an earlier version of the webhook.
    /// Returns `false` if another call has changed the row.
    pub async fn put_failed_calls(
        &self,
        webhook: WebhookId,
        calls: &FailedCalls,
        old: Option<&FailedCalls>,
        now: Timestamp,
    ) -> Result<bool> {
        let old = old
            .filter(|old| old.version == calls.version)
            .map_or(0, |old| old.count);
        let put = put_request(&self.db, &self.table, write_failed_calls(webhook, calls, now));
        let put = put
            .condition_expression("attribute_not_exists(pk) OR ver < :ver OR (ver = :ver AND n = :old)")
            .expression_attribute_values(":ver", calls.version.write())
            .expression_attribute_values(":old", old.write());
        was_applied(put.send().await, WRITING)
    }

    /// Records a webhook's successful call, which removes the failed calls.
    pub async fn clear_failed_calls(&self, webhook: &Webhook, now: Timestamp) -> Result<()> {
        let row = Draft::new(&Key::failed_calls(webhook.id))
            .with("ver", &webhook.version)
            .with("n", &0_u64)
            .with("ttl", &now.after(RETENTION).secs());
        let put = put_request(&self.db, &self.table, row.into_item());
        was_applied(put.send().await, WRITING)?;
        Ok(())
    }
}

/// Decodes failed calls. Returns `None` if a call succeeded afterwards.
pub(crate) fn read_failed_calls(row: Row<'_>) -> Result<Option<FailedCalls>> {
    if row.get::<u64>("n")? == 0 {
        Ok(None)
    } else {
        row.read().map(Some)
    }
}

fields! {
    FailedCalls {
        version: "ver",
        since: "since",
        count: "n",
        last: "result",
        stage: "stage",
        reached_at: "t",
        notified: "told",
    }
}

pub(crate) fn write_failed_calls(webhook: WebhookId, calls: &FailedCalls, now: Timestamp) -> Item {
    let row = Draft::new(&Key::failed_calls(webhook)).with_fields(calls);
    row.with("ttl", &now.after(RETENTION).secs()).into_item()
}
