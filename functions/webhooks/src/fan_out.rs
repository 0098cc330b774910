//! Selects the webhooks of an event's owner that are called for this event.

use crate::Webhooks;
use purser_api::{DeliveryMessage, DeliveryOf, MessageResult, SqsRecord};
use purser_domain::Result;

impl Webhooks {
    /// Sends a message for each of the owner's webhooks that receive the event. A repeated event has the same
    /// deliveries.
    pub(crate) async fn fan_out(&self, record: &SqsRecord) -> Result<MessageResult> {
        let event = record.parse_event()?;
        // An event without an owner calls no webhook, for example a freeze of the deployment.
        let Some(owner) = event.owner() else {
            return Ok(MessageResult::Done);
        };
        let mut webhooks = self.0.table.list_webhooks(owner).await?;
        webhooks.retain(|webhook| webhook.receives_event(owner, event.kind(), event.agent()));
        if webhooks.is_empty() {
            return Ok(MessageResult::Done);
        }
        let deleted = self.0.table.read_410_response_times(&webhooks).await?;
        webhooks.retain(|webhook| !deleted.contains_key(&webhook.id));
        for webhook in &webhooks {
            let message = DeliveryMessage {
                person: owner.clone(),
                webhook: webhook.id,
                of: DeliveryOf::Event(event.clone()),
            };
            self.0.deliveries.send(&message, None).await?;
        }
        Ok(MessageResult::Done)
    }
}
