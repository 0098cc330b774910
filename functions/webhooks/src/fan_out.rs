//! One event: which of its owner's webhooks are to be called with it.

use crate::{Message, Webhooks, batch::Record};
use purser_api::{AskedDelivery, DeliveryMessage};
use purser_domain::{Error, Event, Result};
use serde::Deserialize;
use serde_json::value::RawValue;

/// An event as the bus passes it on: ours is its `detail` (user guide, "Amazon `EventBridge` events").
#[derive(Deserialize)]
struct FromBus<'a> {
    #[serde(borrow)]
    detail: &'a RawValue,
}

impl Webhooks {
    /// Sends a message for each webhook of the owner that wants the event. A repeated event sends them again, under the
    /// same deliveries.
    pub(crate) async fn fan_out(&self, record: &Record) -> Result<Message> {
        let event = read(&record.body)?;
        // What is nobody's, such as a freeze of the deployment, calls nobody.
        let Some(owner) = event.owner() else {
            return Ok(Message::Done);
        };
        let mut webhooks = self.0.table.of(owner).await?;
        webhooks.retain(|webhook| webhook.wants(owner, event.kind(), event.agent()));
        if webhooks.is_empty() {
            return Ok(Message::Done);
        }
        let gone = self.0.table.gone(&webhooks).await?;
        webhooks.retain(|webhook| !gone.contains_key(&webhook.id));
        for webhook in &webhooks {
            let message = DeliveryMessage {
                person: owner.clone(),
                webhook: webhook.id,
                asked: AskedDelivery::Event(event.clone()),
            };
            self.0.deliveries.send(&message).await?;
        }
        Ok(Message::Done)
    }
}

fn read(body: &str) -> Result<Event> {
    const DOING: &str = "reading an event from the bus";
    let from_bus: FromBus<'_> =
        serde_json::from_str(body).map_err(|_| Error::internal(DOING, "it has another form"))?;
    Event::parse(from_bus.detail.get().as_bytes()).map_err(|problem| Error::internal(DOING, problem))
}
