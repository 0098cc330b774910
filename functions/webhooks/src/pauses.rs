//! Stores the pause before the next call of a delivery: as a delayed message if SQS supports the delay, otherwise as a
//! row.
//!
//! The sweep sends a message for each row whose pause ends, and then deletes the row. An interrupted sweep may send a
//! message twice but loses no message.

use crate::{RESERVED_TIME, Webhooks};
use purser_api::{DeliveriesQueue, DeliveryMessage, DeliveryOf, run_with_concurrency_limit};
use purser_domain::{Causes, Delivery, Duration, Result, Timestamp, Webhook};
use purser_store::{Pause, USER_SHARDS};
use tokio::time::Instant;

/// The time between two runs of the sweep, which sends the queue messages of all delayed deliveries that are due before
/// the next run.
const AHEAD: Duration = Duration::from_secs_u32(60);
const PAGE: u32 = 100;
const MAX_CONCURRENT: usize = 8;

impl Webhooks {
    /// Schedules the next call of a delivery for `delivery.next_at`. A repeated call adds no second row.
    pub(crate) async fn pause_delivery(&self, webhook: &Webhook, delivery: &Delivery, now: Timestamp) -> Result<()> {
        let ends_at = delivery.next_at.unwrap_or(now);
        let pause = Pause {
            person: webhook.person.clone(),
            webhook: webhook.id,
            delivery: delivery.id,
            ends_at,
        };
        if ends_at.since(now) > DeliveriesQueue::MAX_DELAY {
            self.0.table.store_delivery_pause(&pause).await
        } else {
            self.enqueue_delivery_after_pause(&pause, now).await
        }
    }

    async fn enqueue_delivery_after_pause(&self, pause: &Pause, now: Timestamp) -> Result<()> {
        let message = DeliveryMessage {
            person: pause.person.clone(),
            webhook: pause.webhook,
            of: DeliveryOf::Stored(pause.delivery),
        };
        let rest = (pause.ends_at > now).then(|| pause.ends_at.since(now));
        self.0.deliveries.send(&message, rest).await
    }

    /// Sends a message for each delivery whose pause ends within a minute, until `budget` is used up.
    pub async fn enqueue_due_paused_deliveries(&self, budget: std::time::Duration) {
        let now = Instant::now();
        let stop_at = now.checked_add(budget.saturating_sub(RESERVED_TIME)).unwrap_or(now);
        let parts = USER_SHARDS.into_iter().map(|part| {
            let webhooks = self.clone();
            async move {
                if let Err(error) = webhooks.enqueue_due_paused_deliveries_of_shard(part, stop_at).await {
                    tracing::error!(part = %part, cause = %Causes(&error), "webhook.sweep_failed");
                }
            }
        });
        run_with_concurrency_limit(USER_SHARDS.len(), parts).await;
    }

    async fn enqueue_due_paused_deliveries_of_shard(&self, shard: char, deadline: Instant) -> Result<()> {
        let mut after = None;
        while Instant::now() < deadline {
            let until = self.0.clock.now().after(AHEAD);
            let rows = self
                .0
                .table
                .read_delivery_pauses(shard, after.as_deref(), until, PAGE)
                .await?;
            let Some((last, _)) = rows.last() else {
                return Ok(());
            };
            after = Some(last.clone());
            let work = rows.into_iter().map(|(_, pause)| {
                let webhooks = self.clone();
                async move {
                    if let Err(error) = webhooks.enqueue_delivery_and_end_pause(pause).await {
                        tracing::error!(cause = %Causes(&error), "webhook.pause_failed");
                    }
                }
            });
            run_with_concurrency_limit(MAX_CONCURRENT, work).await;
        }
        Ok(())
    }

    async fn enqueue_delivery_and_end_pause(&self, pause: Result<Pause>) -> Result<()> {
        let pause = pause?;
        self.enqueue_delivery_after_pause(&pause, self.0.clock.now()).await?;
        self.0.table.remove_delivery_pause(&pause).await
    }
}
