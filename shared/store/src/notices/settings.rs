//! Users' notification settings: one row per user, in one of sixteen shards, so that all users can be listed.

use crate::{
    audit::entry::AuditEntry,
    codec::attribute::Attribute,
    codec::backoff::Backoff,
    codec::fields::{fields, stored_as_map},
    codec::item::{Draft, Fields, Item, Unreadable, field},
    codec::key::{self, Key, notices},
    codec::ledger::UpdateResult,
    codec::table::{Query, delete_item, put_item, update_request},
    transact::{Transaction, TransactionOutcome, was_applied},
    webhooks::table::WebhooksTable,
};
use aws_sdk_dynamodb::types::builders::UpdateBuilder;
use purser_domain::{
    ChannelSettings, Ciphertext, EndedChannel, MailAddress, NoticeChannel, NoticeUrlId, NotificationPreferences,
    NotificationSettings, Result, SlackDestination, Timestamp, UserId,
};
use std::collections::BTreeMap;

/// The shards of users' notification settings. A user's shard is the first digit of the user's id.
pub const USER_SHARDS: [char; 16] = [
    '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f',
];

/// The URL of an incoming webhook, to be stored.
pub struct NewNotificationUrl {
    /// The id of the URL in the notification settings.
    pub id: NoticeUrlId,
    /// The encrypted URL. Anyone who has the URL can post messages to it.
    pub url: Ciphertext,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    Settings,
    Url,
    Audit,
}

impl WebhooksTable {
    /// Reads a user's notification settings, strongly consistent.
    pub async fn read_notification_settings(&self, user: &UserId) -> Result<NotificationSettings> {
        let item = self
            .get_item(&Key::notification_settings(user), "reading notification settings")
            .await?;
        match item {
            Some(item) => self.item_row(&item).read(),
            None => Ok(NotificationSettings::new(user.clone())),
        }
    }

    /// Reads up to `limit` users of a shard after `after` with their settings. An unreadable row is returned as an
    /// error.
    pub async fn read_recipients(
        &self,
        shard: char,
        after: Option<&UserId>,
        limit: u32,
    ) -> Result<Vec<(UserId, Result<NotificationSettings>)>> {
        // DynamoDB does not allow an empty key, so the first page starts after `#`, which sorts before every user id.
        let response = Query::new(&self.db, &self.table, notices::recipients_partition(shard))
            .after(after.map_or("#", UserId::as_str))
            .limit(limit)
            .send("listing notification recipients")
            .await?;
        let read = response.items().iter().map(|item| {
            let user =
                UserId::parse(key::sort_key_text(item)).ok_or_else(|| self.item_row(item).corrupt_error("sk"))?;
            let settings = self.item_row(item).read();
            Ok((user, settings))
        });
        read.collect()
    }

    /// Stores the mail address that the issuer reported at `signed_in_at`. Returns `false` if the stored report is
    /// newer.
    pub async fn try_store_mail_address(
        &self,
        user: &UserId,
        address: Option<&MailAddress>,
        signed_in_at: Timestamp,
    ) -> Result<bool> {
        const LATER: &str = "(attribute_not_exists(said) OR said < :at)";
        let update = update_request(&self.db, &self.table, &Key::notification_settings(user))
            .expression_attribute_values(":at", signed_in_at.write());
        let update = match address {
            Some(address) => update
                .update_expression("SET mail = :mail, said = :at")
                .condition_expression(LATER)
                .expression_attribute_values(":mail", address.write()),
            // No row is created for a user without a mail address.
            None => update
                .update_expression("SET said = :at REMOVE mail")
                .condition_expression(format!("attribute_exists(mail) AND {LATER}")),
        };
        was_applied(update.send().await, "storing a mail address")
    }

    /// Stores the next version of a user's notification settings, with a new webhook URL. Removes the replaced URL.
    pub async fn update_notification_settings(
        &self,
        next: &NotificationSettings,
        new_url: Option<&NewNotificationUrl>,
        old_url: Option<NoticeUrlId>,
        audit: &AuditEntry,
    ) -> Result<UpdateResult> {
        let before = next.version.saturating_sub(1);
        let update = UpdateBuilder::default()
            .table_name(&*self.table)
            .set_key(Some(Key::notification_settings(&next.person).attributes()))
            .update_expression("SET ver = :ver, terms = :terms")
            .expression_attribute_values(":ver", next.version.write())
            .expression_attribute_values(":terms", next.terms.write());
        let update = match before {
            0 => update.condition_expression("attribute_not_exists(ver)"),
            before => update
                .condition_expression("ver = :old")
                .expression_attribute_values(":old", before.write()),
        };
        let mut transaction = Transaction::new();
        transaction.add_update(Role::Settings, update)?;
        if let Some(NewNotificationUrl { id, url }) = new_url {
            let url = Draft::new(&Key::notification_url(&next.person, *id)).with("c", url);
            transaction.add_put_without_returned_item(Role::Url, self.put_item(url.into_item()))?;
        }
        if let Some(old_url) = old_url {
            transaction.add_delete(
                Role::Url,
                self.item_deletion(&Key::notification_url(&next.person, old_url)),
            )?;
        }
        transaction.add_audit_rows(Role::Audit, audit)?;
        match transaction.send_until_outcome(&self.db, &mut Backoff::new()).await? {
            TransactionOutcome::Committed => Ok(UpdateResult::Stored),
            // If the audit row exists already, an earlier attempt has stored the change, and the response to that
            // attempt was lost.
            TransactionOutcome::Refused(rejection) if rejection.has_failed(Role::Audit) => Ok(UpdateResult::Stored),
            TransactionOutcome::Refused(_) => Ok(UpdateResult::Conflict),
        }
    }

    /// Reads the encrypted URL of a user's incoming webhook; `None` if it was replaced or removed.
    pub async fn read_notification_url(&self, user: &UserId, id: NoticeUrlId) -> Result<Option<Ciphertext>> {
        let item = self
            .get_item(
                &Key::notification_url(user, id),
                "reading the URL of a notification channel",
            )
            .await?;
        item.map(|item| self.item_row(&item).get("c")).transpose()
    }

    /// Records that a notification channel can no longer deliver messages.
    pub async fn record_ended_channel(
        &self,
        user: &UserId,
        channel: NoticeChannel,
        ended_channel: &EndedChannel,
    ) -> Result<()> {
        put_item(
            &self.db,
            &self.table,
            ended_channel_item(user, channel, ended_channel),
            "recording an ended notification channel",
        )
        .await
    }

    /// Reads the user's channels that can no longer deliver messages to the current address or URL.
    pub async fn list_ended_channels(
        &self,
        settings: &NotificationSettings,
    ) -> Result<BTreeMap<NoticeChannel, EndedChannel>> {
        let response = Query::new(
            &self.db,
            &self.table,
            notices::ended_channels_partition(&settings.person),
        )
        .consistent()
        .send("reading ended notification channels")
        .await?;
        let mut ended = BTreeMap::new();
        for item in response.items() {
            let row = self.item_row(item);
            let channel = NoticeChannel::from_name(key::sort_key_text(item)).ok_or_else(|| row.corrupt_error("sk"))?;
            let found: EndedChannel = row.read()?;
            if found.place == settings.destination_fingerprint(channel) {
                ended.insert(channel, found);
            }
        }
        Ok(ended)
    }

    /// Removes the record that a channel can no longer deliver messages, after it has delivered a message again.
    pub async fn remove_ended_channel(&self, user: &UserId, channel: NoticeChannel) -> Result<()> {
        delete_item(
            &self.db,
            &self.table,
            &Key::ended_channel(user, channel),
            "removing the record of an ended notification channel",
        )
        .await
    }
}

fields! {
    NotificationSettings {
        person: sk(UserId::parse),
        version: "ver" or_default,
        address: "mail" optional,
        terms: "terms" or_default,
    }

    NotificationPreferences { mail: "mail", slack: "slack" optional }

    SlackDestination { url: "url", host: "host" }

    ChannelSettings { enabled: "on", kinds: "kinds" optional }

    EndedChannel { place: "place", reason: "why", at: "t" }
}

/// The destination is stored together with the channel's settings.
impl Fields for (SlackDestination, ChannelSettings) {
    fn write_to(&self, draft: Draft) -> Draft {
        draft.with_fields(&self.0).with("terms", &self.1)
    }

    fn read_from(item: &Item) -> Result<Self, Unreadable> {
        Ok((Fields::read_from(item)?, field(item, "terms")?))
    }
}

stored_as_map! { NotificationPreferences, ChannelSettings, (SlackDestination, ChannelSettings) }

pub(crate) fn ended_channel_item(user: &UserId, channel: NoticeChannel, ended_channel: &EndedChannel) -> Item {
    Draft::new(&Key::ended_channel(user, channel))
        .with_fields(ended_channel)
        .into_item()
}
