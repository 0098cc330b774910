//! One delivery: the call, and what comes after it.
//!
//! The message stays in the queue while the delivery waits, hidden for the pause. The row is written after the call and
//! before the message is hidden or leaves: whatever is cut off in between, the message comes again, and the row says
//! whether the call was made. Two environments with the same message write the row once; the other reads it then.

use crate::{Message, Webhooks};
use purser_api::{AskedDelivery, DeliveryMessage, SqsRecord};
use purser_domain::{AfterCall, Attempt, Delivery, Due, Error, Event, EventKind, PersonId, Result, Timestamp, Webhook};
use tokio::time::Instant;

impl Webhooks {
    /// Does what a message of the queue of deliveries asks for.
    pub(crate) async fn deliver(&self, record: &SqsRecord, last_call: Instant) -> Result<Message> {
        let shared = &self.0;
        let message = DeliveryMessage::parse(&record.body)
            .ok_or_else(|| Error::internal("reading a delivery's message", "it has another form"))?;
        let webhooks = shared.table.of(&message.person).await?;
        let webhook = webhooks.into_iter().find(|webhook| webhook.id == message.webhook);
        // Removed since.
        let Some(webhook) = webhook else {
            return Ok(Message::Done);
        };
        let Some(delivery) = self.delivery(&webhook, &message.asked).await? else {
            return Ok(Message::Done);
        };
        let now = shared.clock.now();
        match delivery.due(now) {
            // One that was sent again, and has ended, may have waited before.
            Due::Over => {
                shared.table.wait_no_more(webhook.id, delivery.id).await?;
                return Ok(Message::Done);
            }
            Due::In(pause) => {
                shared.deliveries.hide(&record.receipt_handle, pause).await?;
                return Ok(Message::Stays);
            }
            Due::Now => {}
        }
        if !self.is_wanted(&webhook, &delivery).await? {
            return self.give_up(delivery, now).await;
        }
        if Instant::now() > last_call {
            return Ok(Message::Stays);
        }
        self.call(record, &webhook, delivery).await
    }

    /// The delivery that a message is of, as far as it is; `None` if there is none to send again.
    async fn delivery(&self, webhook: &Webhook, asked: &AskedDelivery) -> Result<Option<Delivery>> {
        let table = &self.0.table;
        match asked {
            AskedDelivery::Event(event) => {
                let new = Delivery::new(webhook.id, event);
                let known = table.delivery(webhook.id, new.id).await?;
                Ok(Some(known.unwrap_or(new)))
            }
            AskedDelivery::Again { delivery, request } => {
                let known = table.delivery(webhook.id, *delivery).await?;
                Ok(known.map(|known| known.asked(Some(*request))))
            }
        }
    }

    /// Whether the webhook is to be called, as it is now: it may have been edited since the event. What its person asked
    /// for by hand is sent whatever it says of kinds, agents and being enabled; another's event is never sent.
    async fn is_wanted(&self, webhook: &Webhook, delivery: &Delivery) -> Result<bool> {
        let event = Event::parse(delivery.event.as_bytes());
        let event = event.map_err(|problem| Error::internal("reading a delivery's event", problem))?;
        let owner: Option<&PersonId> = event.owner();
        let Some(owner) = owner.filter(|owner| **owner == webhook.person) else {
            return Ok(false);
        };
        if delivery.request.is_some() || event.kind() == EventKind::WebhookTest {
            return Ok(true);
        }
        let is_gone = !self.0.table.gone(std::slice::from_ref(webhook)).await?.is_empty();
        Ok(!is_gone && webhook.wants(owner, event.kind(), event.agent()))
    }

    async fn give_up(&self, delivery: Delivery, now: Timestamp) -> Result<Message> {
        tracing::info!(
            webhook.id = %delivery.webhook,
            delivery.id = %delivery.id,
            event.id = %delivery.event_id,
            "webhook.not_wanted"
        );
        let (webhook, id) = (delivery.webhook, delivery.id);
        let has_waited = delivery.attempts > 0 || delivery.request.is_some();
        if !self.0.table.put_delivery(&delivery.given_up(), now).await? {
            return Ok(Message::Stays);
        }
        if has_waited {
            self.0.table.wait_no_more(webhook, id).await?;
        }
        Ok(Message::Done)
    }

    /// After its first call a delivery waits for the next, if not too many of its webhook do: else it is given up.
    async fn waits(&self, delivery: Delivery, after: AfterCall, now: Timestamp) -> Result<(Delivery, AfterCall)> {
        let is_first = delivery.attempts == 1 && matches!(after, AfterCall::Again(_));
        if !is_first || self.0.table.wait(&delivery, now).await? {
            return Ok((delivery, after));
        }
        tracing::warn!(webhook.id = %delivery.webhook, "webhook.too_many_wait");
        Ok((delivery.without_another(), AfterCall::GivenUp { gone: false }))
    }

    async fn call(&self, record: &SqsRecord, webhook: &Webhook, delivery: Delivery) -> Result<Message> {
        let shared = &self.0;
        let began = shared.clock.now();
        let ids: Vec<_> = webhook.signing(began).collect();
        let secrets = shared.table.secrets(webhook.id, &ids).await?;
        let began = shared.clock.now();
        let url = &webhook.terms.url;
        let Some(called) = shared.caller.call(url, &delivery, &secrets, began).await else {
            // Removed, or its secret replaced, since it was read: when the message comes again, that is seen.
            tracing::warn!(webhook.id = %webhook.id, "webhook.without_secret");
            return Ok(Message::Stays);
        };
        let ended = shared.clock.now();
        let attempt = Attempt {
            at: began,
            took: ended.since(began),
            result: called.result,
        };
        let [jitter] = shared.entropy.bytes()?;
        let (delivery, after) = delivery.called(attempt, called.asked, jitter);
        let (delivery, after) = self.waits(delivery, after, ended).await?;
        log(&delivery, attempt, after);
        // First, so that no end between the two leaves a webhook that is called again and again.
        if after == (AfterCall::GivenUp { gone: true }) {
            shared.table.note_gone(webhook, ended).await?;
        }
        if !shared.table.put_delivery(&delivery, ended).await? {
            // The same message was worked on elsewhere: its row is read when this one comes again.
            return Ok(Message::Stays);
        }
        match after {
            AfterCall::Delivered | AfterCall::GivenUp { .. } => {
                if delivery.attempts > 1 || delivery.request.is_some() {
                    shared.table.wait_no_more(webhook.id, delivery.id).await?;
                }
                Ok(Message::Done)
            }
            AfterCall::Again(pause) => {
                shared.deliveries.hide(&record.receipt_handle, pause).await?;
                Ok(Message::Stays)
            }
        }
    }
}

/// One line for each call. Neither URL nor answer: a URL may hold a secret of its person's.
fn log(delivery: &Delivery, attempt: Attempt, after: AfterCall) {
    let outcome = match after {
        AfterCall::Delivered => "delivered",
        AfterCall::Again(_) => "failed",
        AfterCall::GivenUp { .. } => "given_up",
    };
    tracing::info!(
        webhook.id = %delivery.webhook,
        delivery.id = %delivery.id,
        event.id = %delivery.event_id,
        event.kind = delivery.kind.name(),
        attempt = delivery.attempts,
        call.result = %attempt.result,
        latency_ms = attempt.took.millis(),
        outcome,
        "webhook.called"
    );
}
