//! Long pauses of deliveries, stored as rows. Hidden queue messages would use up SQS's limit of 120,000 in-flight
//! messages, which all webhooks share. The rows have no `ttl`, because only the scheduled run removes them.

use crate::{
    codec::fields::fields,
    codec::item::{Draft, Item},
    codec::key::{self, Key},
    codec::table::{Query, delete_item, put_item},
    webhooks::table::WebhooksTable,
};
use purser_domain::{DeliveryId, Result, Timestamp, UserId, WebhookId};

/// The pause of a delivery before the next attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    /// The owner of the webhook.
    pub person: UserId,
    /// The webhook to call.
    pub webhook: WebhookId,
    /// The delivery whose next attempt waits for the end of the pause.
    pub delivery: DeliveryId,
    /// The time at which the next attempt is due.
    pub ends_at: Timestamp,
}

impl Pause {
    fn row_key(&self) -> Key {
        Key::pause(&self.person, self.ends_at, self.delivery)
    }
}

impl WebhooksTable {
    /// Stores a pause. Storing the pause again changes nothing.
    pub async fn store_delivery_pause(&self, pause: &Pause) -> Result<()> {
        put_item(&self.db, &self.table, write_pause(pause), "writing a webhook's pause").await
    }

    /// Reads up to `limit` pauses of a shard after the key `after` that end before `until`, earliest first, with their
    /// keys. An unreadable row is returned as an error.
    pub async fn read_delivery_pauses(
        &self,
        shard: char,
        after: Option<&str>,
        until: Timestamp,
        limit: u32,
    ) -> Result<Vec<(String, Result<Pause>)>> {
        // `!` sorts before every character of a key, so the range excludes only `after` itself.
        let response = Query::new(&self.db, &self.table, key::webhooks::pauses_partition(shard))
            .range(
                after.map_or("#".to_owned(), |after| format!("{after}!")),
                until.to_string(),
            )
            .limit(limit)
            .send("listing webhooks' pauses")
            .await?;
        let read = |item| (key::sort_key_text(item).to_owned(), self.item_row(item).read());
        Ok(response.items().iter().map(read).collect())
    }

    /// Removes the row of a delivery's pause after the pause has ended.
    pub async fn remove_delivery_pause(&self, pause: &Pause) -> Result<()> {
        delete_item(&self.db, &self.table, &pause.row_key(), "ending a webhook's pause").await
    }
}

fields! {
    Pause { person: "person", webhook: "hook", delivery: "delivery", ends_at: "t" }
}

pub(crate) fn write_pause(pause: &Pause) -> Item {
    Draft::new(&pause.row_key()).with_fields(pause).into_item()
}
