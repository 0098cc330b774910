//! The rate limit of a user's notification channel: the time from which the next message may be sent.

use crate::{
    codec::attribute::Item, codec::fields::fields, codec::item::Draft, codec::key::Key,
    codec::table::put_request_if_version, transact::was_applied, webhooks::table::WebhooksTable,
};
use purser_domain::{NoticeChannel, NotificationPace, Result, Timestamp, UserId};

/// How long a row is kept after the last write, in seconds: longer than the row of a waiting event.
const RETENTION_SECS: u64 = 7 * 86_400;

impl WebhooksTable {
    /// Reads the rate limit of a user's notification channel, strongly consistent.
    pub async fn read_notification_pace(&self, user: &UserId, channel: NoticeChannel) -> Result<NotificationPace> {
        let item = self
            .get_item(
                &Key::notification_pace(user, channel),
                "reading a notification rate limit",
            )
            .await?;
        let Some(item) = item else {
            return Ok(NotificationPace::default());
        };
        self.item_row(&item).read()
    }

    /// Stores the next version of a channel's rate limit. Returns `false` if another run has stored it first.
    pub async fn put_pace_if_unchanged(
        &self,
        user: &UserId,
        channel: NoticeChannel,
        pace: &NotificationPace,
        now: Timestamp,
    ) -> Result<bool> {
        let put = put_request_if_version(
            &self.db,
            &self.table,
            write_pace(user, channel, pace, now),
            pace.version.saturating_sub(1),
        );
        was_applied(put.send().await, "writing a notification rate limit")
    }
}

fields! {
    NotificationPace { version: "ver", next_at: "next", failed: "failed", place: "place" optional, waker: "waker" optional }
}

pub(crate) fn write_pace(user: &UserId, channel: NoticeChannel, pace: &NotificationPace, now: Timestamp) -> Item {
    let row = Draft::new(&Key::notification_pace(user, channel)).with_fields(pace);
    row.with("ttl", &now.secs().saturating_add(RETENTION_SECS)).into_item()
}
