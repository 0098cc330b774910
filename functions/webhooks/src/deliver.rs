//! Processes one delivery: makes the call and stores the result.
//!
//! A run makes the call, writes the delivery's row, schedules the next call, and deletes the queue message, in this
//! order. If a run stops earlier, the queue message is received again and finds the call's result in the row. Therefore
//! one delivery may have two queue messages at the same time. Before each retry, a run claims the call in the row, so
//! that two runs do not make the same call. The first call is not claimed, which saves a write for each delivery.

use crate::{CALL_TIMEOUT, Webhooks};
use purser_api::{
    DeliveryMessage, DeliveryOf, MessageResult, NotificationRequest, NotificationSource, SqsRecord, WebhookRequest,
};
use purser_domain::{
    AfterCall, Attempt, Delivery, Due, Duration, Error, Event, EventKind, FailedCalls, FailureStage, Result, SecretOf,
    Timestamp, UserId, Webhook, WebhookId, WebhookSecret, WebhookSecretId, test_event,
};
use tokio::time::Instant;

/// How long a run's claim on a webhook call lasts: longer than a run of the Lambda function `webhooks`.
const CLAIM: Duration = Duration::from_secs_u32(60);
const _: () = assert!(CALL_TIMEOUT.as_secs() < 60, "a claim outlives its call");

impl Webhooks {
    /// Makes the webhook call that a message in the delivery queue names.
    pub(crate) async fn process_delivery(&self, record: &SqsRecord, last_call: Instant) -> Result<MessageResult> {
        let message: DeliveryMessage = record.parse_message()?;
        let (id, new) = match &message.of {
            DeliveryOf::Event(event) => {
                let new = Delivery::new(message.webhook, event);
                (new.id, Some(new))
            }
            DeliveryOf::Stored(id) => (*id, None),
        };
        let Some(webhook) = self.read_webhook(&message.person, message.webhook).await? else {
            // The delivery of a removed webhook is no longer pending.
            self.0.table.remove_waiting_delivery(&message.person, id).await?;
            return Ok(MessageResult::Done);
        };
        match self.0.table.read_delivery_by_id(webhook.id, id).await?.or(new) {
            Some(delivery) => self.make_call_if_due(&webhook, delivery, last_call).await,
            None => Ok(MessageResult::Done),
        }
    }

    /// Makes a webhook call that a user requested. The event is never read from the request, because the Lambda
    /// function `people` sends the request and could change the event.
    pub(crate) async fn process_requested_delivery(
        &self,
        record: &SqsRecord,
        last_call: Instant,
    ) -> Result<MessageResult> {
        let request: WebhookRequest = record.parse_message()?;
        let Some(webhook) = self.read_webhook(&request.person, request.webhook).await? else {
            return Ok(MessageResult::Done);
        };
        let delivery = if let Some(id) = request.again {
            let known = self.0.table.read_delivery_by_id(webhook.id, id).await?;
            known.map(|known| known.with_redelivery_request(Some(request.id)))
        } else {
            let event = test_event(self.0.event_source.clone(), &request.person, webhook.id, request.id);
            let event = event.map_err(|error| Error::internal("building a test event", error))?;
            let new = Delivery::new(webhook.id, &event);
            Some(
                self.0
                    .table
                    .read_delivery_by_id(webhook.id, new.id)
                    .await?
                    .unwrap_or(new),
            )
        };
        match delivery {
            Some(delivery) => self.make_call_if_due(&webhook, delivery, last_call).await,
            None => Ok(MessageResult::Done),
        }
    }

    async fn read_webhook(&self, user: &UserId, id: WebhookId) -> Result<Option<Webhook>> {
        let webhooks = self.0.table.list_webhooks(user).await?;
        Ok(webhooks.into_iter().find(|webhook| webhook.id == id))
    }

    async fn make_call_if_due(
        &self,
        webhook: &Webhook,
        mut delivery: Delivery,
        last_call: Instant,
    ) -> Result<MessageResult> {
        let shared = &self.0;
        let now = shared.clock.now();
        match delivery.next_call_due(now) {
            // An ended delivery that a user requested again may still be counted as pending.
            Due::Over => {
                shared
                    .table
                    .remove_waiting_delivery(&webhook.person, delivery.id)
                    .await?;
                return Ok(MessageResult::Done);
            }
            Due::In(_) => {
                self.pause_delivery(webhook, &delivery, now).await?;
                return Ok(MessageResult::Done);
            }
            Due::Now => {}
        }
        if !self.may_send_delivery(webhook, &delivery).await? {
            return self.give_up_delivery(webhook, delivery, now).await;
        }
        if Instant::now() > last_call {
            return Ok(MessageResult::Stays);
        }
        if delivery.attempts > 0 {
            delivery = delivery.claim_until(now.after(CLAIM));
            if !shared.table.put_delivery_if_unchanged(&delivery, now).await? {
                return Ok(MessageResult::Stays);
            }
        }
        self.send_delivery_and_record_attempt(webhook, delivery).await
    }

    /// Returns whether the webhook's current settings still allow the delivery. A call that the user requested ignores
    /// the webhook's kinds, agents and state. Never allows the delivery of another user's event.
    async fn may_send_delivery(&self, webhook: &Webhook, delivery: &Delivery) -> Result<bool> {
        let event = Event::parse(delivery.event.as_bytes());
        let event = event.map_err(|error| Error::internal("reading a delivery's event", error))?;
        let owner: Option<&UserId> = event.owner();
        let Some(owner) = owner.filter(|owner| **owner == webhook.person) else {
            return Ok(false);
        };
        if delivery.request.is_some() || event.kind() == EventKind::WebhookTest {
            return Ok(true);
        }
        let is_gone = !self
            .0
            .table
            .read_410_response_times(std::slice::from_ref(webhook))
            .await?
            .is_empty();
        Ok(!is_gone && webhook.receives_event(owner, event.kind(), event.agent()))
    }

    async fn give_up_delivery(&self, webhook: &Webhook, delivery: Delivery, now: Timestamp) -> Result<MessageResult> {
        tracing::info!(
            webhook.id = %delivery.webhook,
            delivery.id = %delivery.id,
            event.id = %delivery.event_id,
            "webhook.not_wanted"
        );
        let id = delivery.id;
        let has_waited = delivery.attempts > 0 || delivery.request.is_some();
        if !self
            .0
            .table
            .put_delivery_if_unchanged(&delivery.mark_failed(), now)
            .await?
        {
            return Ok(MessageResult::Stays);
        }
        if has_waited {
            self.0.table.remove_waiting_delivery(&webhook.person, id).await?;
        }
        Ok(MessageResult::Done)
    }

    /// Counts a delivery as pending after the first failed call. If the user already has the maximum number of pending
    /// deliveries, marks the delivery as failed, without a retry.
    async fn mark_delivery_pending_or_failed(
        &self,
        webhook: &Webhook,
        delivery: Delivery,
        after: AfterCall,
        now: Timestamp,
    ) -> Result<(Delivery, AfterCall)> {
        let is_first = delivery.attempts == 1 && matches!(after, AfterCall::Again(_));
        if !is_first
            || self
                .0
                .table
                .try_mark_delivery_waiting(&webhook.person, delivery.id, now)
                .await?
        {
            return Ok((delivery, after));
        }
        tracing::warn!(webhook.id = %delivery.webhook, "webhook.too_many_wait");
        Ok((delivery.mark_failed_without_retry(), AfterCall::GivenUp { gone: false }))
    }

    async fn decrypt_secrets(&self, webhook: &Webhook, ids: &[WebhookSecretId]) -> Result<Vec<WebhookSecret>> {
        let mut secrets = Vec::new();
        for (id, ciphertext) in self.0.table.read_secrets(webhook.id, ids).await? {
            let of = SecretOf::Webhook {
                person: webhook.person.clone(),
                webhook: webhook.id,
                secret: id,
            };
            let bytes = self.0.key.decrypt(&of, &ciphertext).await?;
            let bytes = bytes.as_slice().try_into();
            let secret =
                bytes.map_err(|_| Error::internal("reading a webhook's secret", "the secret has a wrong length"))?;
            secrets.push(WebhookSecret::from_random(secret));
        }
        Ok(secrets)
    }

    /// Records the result of a webhook call. After a failed call, returns the webhook's [`FailureStage`].
    async fn record_call_result(&self, webhook: &Webhook, call: Attempt, attempt: u32) -> Result<Option<FailureStage>> {
        let shared = &self.0;
        let now = shared.clock.now();
        let old = shared.table.list_failed_calls(&[webhook.id]).await?.remove(&webhook.id);
        if call.result.is_success() {
            if old.is_some() {
                shared.table.clear_failed_calls(webhook, now).await?;
            }
            return Ok(None);
        }
        let mut calls = FailedCalls::with_failed_call(old.clone(), webhook.version, call, attempt);
        let stage = calls.stage;
        // After a failed write, the concurrent call that wrote the record requests the notification.
        let is_stored = shared
            .table
            .put_failed_calls(webhook.id, &calls, old.as_ref(), now)
            .await?;
        if is_stored && calls.notified < stage {
            tracing::warn!(webhook.id = %webhook.id, stage = stage.name(), "webhook.failing");
            let (user, of) = (webhook.person.clone(), NotificationSource::Webhook(webhook.id));
            shared
                .notice_requests
                .send(&NotificationRequest { person: user, of })
                .await?;
            // `notified` is updated after the request for a notification, so an interrupted run repeats the request.
            let stored = calls.clone();
            calls.notified = stage;
            shared
                .table
                .put_failed_calls(webhook.id, &calls, Some(&stored), now)
                .await?;
        }
        Ok(Some(stage))
    }

    async fn send_delivery_and_record_attempt(&self, webhook: &Webhook, delivery: Delivery) -> Result<MessageResult> {
        let shared = &self.0;
        let start = shared.clock.now();
        let ids: Vec<_> = webhook.signing_secrets(start).collect();
        let secrets = self.decrypt_secrets(webhook, &ids).await?;
        let start = shared.clock.now();
        let Some(result) = shared
            .caller
            .call_webhook(&webhook.terms, &delivery, &secrets, start)
            .await
        else {
            // The webhook was removed or the secret was replaced in the meantime. The message stays in the queue.
            tracing::warn!(webhook.id = %webhook.id, "webhook.without_secret");
            return Ok(MessageResult::Stays);
        };
        let ended = shared.clock.now();
        let attempt = Attempt {
            at: start,
            took: ended.since(start),
            result: result.result,
        };
        let [jitter] = shared.entropy.random_bytes()?;
        let (delivery, after) = delivery.record_attempt(attempt, result.asked, jitter);
        let (delivery, after) = self
            .mark_delivery_pending_or_failed(webhook, delivery, after, ended)
            .await?;
        log_delivery_attempt(&delivery, attempt, after);
        // The failed call is recorded before the delivery's row is written. Otherwise, runs that stop between the two
        // writes could call a failing webhook endlessly.
        if self.record_call_result(webhook, attempt, delivery.attempts).await? == Some(FailureStage::Disabled) {
            shared.table.record_410_response(webhook, ended).await?;
        }
        if !shared.table.put_delivery_if_unchanged(&delivery, ended).await? {
            // Another run processed the same queue message. The message stays in the queue, and the next run reads the
            // delivery's row again.
            return Ok(MessageResult::Stays);
        }
        match after {
            AfterCall::Delivered | AfterCall::GivenUp { .. } => {
                if delivery.attempts > 1 || delivery.request.is_some() {
                    shared
                        .table
                        .remove_waiting_delivery(&webhook.person, delivery.id)
                        .await?;
                }
                Ok(MessageResult::Done)
            }
            AfterCall::Again(_) => {
                self.pause_delivery(webhook, &delivery, ended).await?;
                Ok(MessageResult::Done)
            }
        }
    }
}

/// Logs a call without the URL and the response, because a URL may contain a user's secret.
fn log_delivery_attempt(delivery: &Delivery, attempt: Attempt, after: AfterCall) {
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
