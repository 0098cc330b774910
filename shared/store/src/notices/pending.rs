//! Events that wait to be sent on a notification channel. A marker for each event that was sent or need not be sent
//! prevents that the event is queued again. The marker of an approval request is written even if the decision of the
//! approval arrives first.

use crate::{
    codec::backoff::Backoff,
    codec::item::{Draft, Item},
    codec::key::{self, Key, notices},
    codec::table::Query,
    transact::{Transaction, TransactionOutcome},
    webhooks::table::WebhooksTable,
};
use aws_sdk_dynamodb::types::builders::{ConditionCheckBuilder, PutBuilder};
use purser_domain::{Event, NoticeChannel, Result, Timestamp, UserId};

/// The lifetime of a row, in seconds. Events that are older than a day are never sent.
const RETENTION_SECS: u64 = 2 * 86_400;
/// The maximum number of events per transaction. Each event takes two of the hundred writes (API reference).
const MAX_PER_TRANSACTION: usize = 50;

/// An event that waits to be sent on a notification channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The key that identifies the event on the channel.
    pub key: String,
    /// The event that the user will be notified of.
    pub event: Event,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    Waiting,
    Told,
}

impl WebhooksTable {
    /// Queues an event, unless it was sent or need not be sent. Returns whether the event is in the queue now.
    pub async fn try_enqueue_notification(
        &self,
        user: &UserId,
        channel: NoticeChannel,
        notification: &Waiting,
        now: Timestamp,
    ) -> Result<bool> {
        let row = Draft::new(&Key::waiting_notification(user, channel, &notification.key))
            .with("event", &notification.event.to_json().to_string())
            .with("ttl", &now.secs().saturating_add(RETENTION_SECS));
        let is_new = self
            .put_item(row.into_item())
            .condition_expression("attribute_not_exists(pk)");
        let is_untold = ConditionCheckBuilder::default()
            .table_name(&*self.table)
            .set_key(Some(
                Key::sent_notification(user, channel, &notification.key).attributes(),
            ))
            .condition_expression("attribute_not_exists(pk)");
        let mut transaction = Transaction::new();
        transaction.add_put(Role::Waiting, is_new)?;
        transaction.add_check(Role::Told, is_untold)?;
        match transaction.send_until_outcome(&self.db, &mut Backoff::new()).await? {
            TransactionOutcome::Committed => Ok(true),
            TransactionOutcome::Refused(rejection) => Ok(!rejection.has_failed(Role::Told)),
        }
    }

    /// Reads up to `limit` waiting events of a channel, by importance and then by age, strongly consistent. An
    /// unreadable event is returned as an error.
    pub async fn read_waiting_notifications(
        &self,
        user: &UserId,
        channel: NoticeChannel,
        limit: u32,
    ) -> Result<Vec<(String, Result<Event>)>> {
        let response = Query::new(&self.db, &self.table, notices::waiting_events_partition(user, channel))
            .consistent()
            .limit(limit)
            .send("reading pending notifications")
            .await?;
        let read = |item| (key::sort_key_text(item).to_owned(), self.read_waiting_event(item));
        Ok(response.items().iter().map(read).collect())
    }

    /// Removes events from the queue, and marks the events so that they are not queued again.
    pub async fn remove_waiting_notifications(
        &self,
        user: &UserId,
        channel: NoticeChannel,
        keys: &[String],
        now: Timestamp,
    ) -> Result<()> {
        for keys in keys.chunks(MAX_PER_TRANSACTION) {
            let mut transaction = Transaction::new();
            for key in keys {
                transaction
                    .add_put_without_returned_item(Role::Told, self.put_sent_notification(user, channel, key, now))?;
                transaction.add_delete(
                    Role::Waiting,
                    self.item_deletion(&Key::waiting_notification(user, channel, key)),
                )?;
            }
            // The transaction has no conditions, so no condition can fail.
            transaction.send_until_outcome(&self.db, &mut Backoff::new()).await?;
        }
        Ok(())
    }

    fn put_sent_notification(&self, user: &UserId, channel: NoticeChannel, key: &str, now: Timestamp) -> PutBuilder {
        let row = Draft::new(&Key::sent_notification(user, channel, key));
        self.put_item(row.with("ttl", &now.secs().saturating_add(RETENTION_SECS)).into_item())
    }

    fn read_waiting_event(&self, item: &Item) -> Result<Event> {
        let row = self.item_row(item);
        let event: String = row.get("event")?;
        Event::parse(event.as_bytes()).map_err(|_| row.corrupt_error("event"))
    }
}
