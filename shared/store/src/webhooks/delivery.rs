//! Deliveries. Each row records the results of the attempts so far, so that a repeated message does not repeat a
//! successful call. Nothing else of a response is stored.

use crate::{
    codec::attribute::{Attribute, text},
    codec::fault::store_error,
    codec::item::{Draft, Item},
    codec::key::{self, Key},
    page::{Filter, Page, PageRequest, page},
    transact::was_made,
    webhooks::table::WebhooksTable,
};
use purser_domain::{
    Attempt, CallResult, Delivery, DeliveryId, DeliveryState, Duration, EventId, EventKind, Result, Timestamp,
    WebhookId,
};
use uuid::Uuid;

/// The lifetime of a delivery in seconds: 30 days.
const KEPT_SECS: u64 = 30 * 86_400;

impl WebhooksTable {
    /// Reads a delivery, strongly consistent.
    pub async fn delivery(&self, webhook: WebhookId, id: DeliveryId) -> Result<Option<Delivery>> {
        let item = self.get(&Key::delivery(webhook, id), "reading a delivery").await?;
        item.map(|item| self.read_delivery(webhook, &item)).transpose()
    }

    /// Stores a delivery if the previous version is stored or, for the first version, if nothing is stored. Returns
    /// whether it was stored.
    pub async fn put_delivery(&self, delivery: &Delivery, now: Timestamp) -> Result<bool> {
        let put = self
            .db
            .put_item()
            .table_name(&*self.table)
            .set_item(Some(write_delivery(delivery, now)));
        let put = match delivery.version.saturating_sub(1) {
            0 => put.condition_expression("attribute_not_exists(pk)"),
            old => put
                .condition_expression("ver = :old")
                .expression_attribute_values(":old", old.write()),
        };
        was_made(put.send().await, "writing a delivery")
    }

    /// Reads a page of a webhook's deliveries, latest event first.
    pub async fn deliveries(&self, webhook: WebhookId, slice: PageRequest<Uuid>) -> Result<Page<Delivery, Uuid>> {
        let place = |delivery: &Delivery| delivery.id.uuid();
        let read = |before, count| self.read_deliveries(webhook, before, count);
        page(slice, 1, None::<fn(&Delivery) -> Filter>, place, read).await
    }

    async fn read_deliveries(&self, webhook: WebhookId, before: Option<Uuid>, limit: u32) -> Result<Vec<Delivery>> {
        let query = self.db.query().table_name(&*self.table);
        let query = key::newest(query, key::webhooks::deliveries(webhook), before, limit);
        let answer = query.send().await.map_err(store_error("listing deliveries"))?;
        let items = answer.items().iter();
        items.map(|item| self.read_delivery(webhook, item)).collect()
    }

    pub(crate) fn read_delivery(&self, webhook: WebhookId, item: &Item) -> Result<Delivery> {
        let row = self.row(item);
        let named = |name: &'static str| row.get::<String>(name);
        let last = match row.get_optional("called")? {
            None => None,
            Some(at) => Some(Attempt {
                at,
                took: row
                    .get_optional::<u32>("ms")?
                    .map(Duration::from_millis_u32)
                    .ok_or_else(|| row.corrupt("ms"))?,
                result: CallResult::parse(&named("result")?).ok_or_else(|| row.corrupt("result"))?,
            }),
        };
        Ok(Delivery {
            id: DeliveryId::parse(key::sort_key(item)).ok_or_else(|| row.corrupt("sk"))?,
            webhook,
            event_id: EventId::parse(&named("eid")?).ok_or_else(|| row.corrupt("eid"))?,
            kind: EventKind::from_name(&named("kind")?).ok_or_else(|| row.corrupt("kind"))?,
            event: row.get("event")?,
            state: DeliveryState::from_name(&named("st")?).ok_or_else(|| row.corrupt("st"))?,
            attempts: row.get("n")?,
            last,
            next_at: row.get_optional("next")?,
            request: row.get_optional("req")?,
            version: row.get("ver")?,
        })
    }
}

pub(crate) fn write_delivery(delivery: &Delivery, now: Timestamp) -> Item {
    let last = delivery.last.as_ref();
    let millis = last.map(|last| u32::try_from(last.took.millis()).unwrap_or(u32::MAX));
    Draft::new(&Key::delivery(delivery.webhook, delivery.id))
        .with("eid", &delivery.event_id.to_string())
        .with_value("kind", text(delivery.kind.name()))
        .with("event", &delivery.event)
        .with_value("st", text(delivery.state.name()))
        .with("n", &delivery.attempts)
        .with_optional("called", last.map(|last| &last.at))
        .with_optional("ms", millis.as_ref())
        .with_optional("result", last.map(|last| last.result.to_string()).as_ref())
        .with_optional("next", delivery.next_at.as_ref())
        .with_optional("req", delivery.request.as_ref())
        .with("ver", &delivery.version)
        .with("ttl", &now.secs().saturating_add(KEPT_SECS))
        .into_item()
}
