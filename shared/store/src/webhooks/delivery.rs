//! Deliveries of events to webhooks. A delivery's row contains the result of each attempt, so that a duplicate queue
//! message does not cause a second successful call.

use crate::{
    codec::fields::fields,
    codec::item::{Draft, Fields, Item, Unreadable, field},
    codec::key::{self, Key},
    codec::table::{Query, put_request_if_version},
    page::{Filter, Page, PageRequest, read_page},
    transact::was_applied,
    webhooks::table::WebhooksTable,
};
use purser_domain::{Attempt, Delivery, DeliveryId, Duration, Result, Timestamp, WebhookId};
use uuid::Uuid;

/// The lifetime of a delivery in seconds: 30 days.
const RETENTION_SECS: u64 = 30 * 86_400;

impl WebhooksTable {
    /// Reads a delivery, strongly consistent.
    pub async fn read_delivery_by_id(&self, webhook: WebhookId, id: DeliveryId) -> Result<Option<Delivery>> {
        let item = self.get_item(&Key::delivery(webhook, id), "reading a delivery").await?;
        item.map(|item| self.item_row(&item).read()).transpose()
    }

    /// Stores the next version of a delivery. Returns `false` if the previous version is not stored.
    pub async fn put_delivery_if_unchanged(&self, delivery: &Delivery, now: Timestamp) -> Result<bool> {
        let put = put_request_if_version(
            &self.db,
            &self.table,
            write_delivery(delivery, now),
            delivery.version.saturating_sub(1),
        );
        was_applied(put.send().await, "writing a delivery")
    }

    /// Reads a page of a webhook's deliveries, latest event first.
    pub async fn read_delivery_page(
        &self,
        webhook: WebhookId,
        page_request: PageRequest<Uuid>,
    ) -> Result<Page<Delivery, Uuid>> {
        let place = |delivery: &Delivery| delivery.id.uuid();
        let read = |before, count| self.read_deliveries(webhook, before, count);
        read_page(page_request, 1, None::<fn(&Delivery) -> Filter>, place, read).await
    }

    async fn read_deliveries(&self, webhook: WebhookId, before: Option<Uuid>, limit: u32) -> Result<Vec<Delivery>> {
        let response = Query::new(&self.db, &self.table, key::webhooks::deliveries_partition(webhook))
            .newest_page(before, limit)
            .send("listing deliveries")
            .await?;
        let items = response.items().iter();
        items.map(|item| self.item_row(item).read()).collect()
    }
}

fields! {
    Delivery {
        id: sk(DeliveryId::parse),
        webhook: pk(key::webhooks::parse_webhook),
        event_id: "eid",
        kind: "kind",
        event: "event",
        state: "st",
        attempts: "n",
        last: part_if("called"),
        next_at: "next" optional,
        request: "req" optional,
        version: "ver",
    }
}

/// The duration is stored in milliseconds.
impl Fields for Attempt {
    fn write_to(&self, draft: Draft) -> Draft {
        let millis = u32::try_from(self.took.millis()).unwrap_or(u32::MAX);
        draft
            .with("called", &self.at)
            .with("ms", &millis)
            .with("result", &self.result)
    }

    fn read_from(item: &Item) -> Result<Self, Unreadable> {
        Ok(Self {
            at: field(item, "called")?,
            took: Duration::from_millis_u32(field(item, "ms")?),
            result: field(item, "result")?,
        })
    }
}

pub(crate) fn write_delivery(delivery: &Delivery, now: Timestamp) -> Item {
    Draft::new(&Key::delivery(delivery.webhook, delivery.id))
        .with_fields(delivery)
        .with("ttl", &now.secs().saturating_add(RETENTION_SECS))
        .into_item()
}
