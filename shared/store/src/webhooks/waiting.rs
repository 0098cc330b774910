//! Markers of a user's deliveries that wait for their next attempt. They are stored by user, so that recreating a
//! webhook does not reset the limit.

use crate::{
    codec::attribute::{Attribute as _, encode_text},
    codec::fault::store_error,
    codec::item::Draft,
    codec::key::{self, Key},
    codec::table::{delete_item, put_request},
    transact::was_applied,
    webhooks::table::WebhooksTable,
};
use aws_sdk_dynamodb::types::Select;
use purser_domain::{Delivery, DeliveryId, Duration, Result, Timestamp, UserId};

/// The lifetime of a marker: longer than the at most seven pauses of up to six hours.
const RETENTION: Duration = Duration::from_secs_u32(3 * 86_400);

impl WebhooksTable {
    /// Marks a delivery as waiting for the next attempt. Returns `false` for a new marker if the user has
    /// [`Delivery::MAX_WAITING`] waiting deliveries. Concurrent calls may slightly exceed this limit.
    pub async fn try_mark_delivery_waiting(&self, user: &UserId, id: DeliveryId, now: Timestamp) -> Result<bool> {
        let is_full = self.count_waiting_deliveries(user, now).await? >= Delivery::MAX_WAITING;
        let row = Draft::new(&Key::waiting_delivery(user, id)).with("ttl", &now.after(RETENTION).secs());
        let put = put_request(&self.db, &self.table, row.into_item())
            .set_condition_expression(is_full.then(|| "attribute_exists(pk)".to_owned()));
        was_applied(put.send().await, "recording a waiting delivery")
    }

    /// Removes the marker of a delivery that no longer waits.
    pub async fn remove_waiting_delivery(&self, user: &UserId, id: DeliveryId) -> Result<()> {
        delete_item(
            &self.db,
            &self.table,
            &Key::waiting_delivery(user, id),
            "clearing a waiting delivery",
        )
        .await
    }

    /// Returns the number of a user's waiting deliveries. Counting stops at [`Delivery::MAX_WAITING`].
    async fn count_waiting_deliveries(&self, user: &UserId, now: Timestamp) -> Result<u32> {
        let (mut count, mut from) = (0_u32, None);
        loop {
            let query = self
                .db
                .query()
                .table_name(&*self.table)
                .select(Select::Count)
                .key_condition_expression("pk = :pk")
                // TTL may delete expired rows days later, so the filter excludes expired rows.
                .filter_expression("#ttl > :now")
                .expression_attribute_names("#ttl", "ttl")
                .expression_attribute_values(":pk", encode_text(&key::webhooks::waiting_deliveries_partition(user)))
                .expression_attribute_values(":now", now.secs().write())
                .set_exclusive_start_key(from);
            let response = query.send().await.map_err(store_error("counting waiting deliveries"))?;
            count = count.saturating_add(u32::try_from(response.count()).unwrap_or(0));
            from = response.last_evaluated_key;
            if from.is_none() || count >= Delivery::MAX_WAITING {
                return Ok(count);
            }
        }
    }
}
