//! Users' notification settings: one row for each user, in one of sixteen shards, so that all can be listed in pages.
//!
//! Only `people` writes the settings. The mail address comes from the issuer and is not a change by the user, so it has
//! no version. The function `notices` records ended channels in separate rows. A URL is stored once, encrypted;
//! `people`, which stores the URL, can't decrypt it.

use crate::{
    audit::entry::AuditEntry,
    codec::attribute::Attribute,
    codec::backoff::Backoff,
    codec::fault::store_error,
    codec::fields::{fields, stored_as_map},
    codec::item::{Draft, Fields, Item, Unreadable, field},
    codec::key::{self, Key, notices},
    codec::ledger::EditResult,
    transact::{Transaction, TransactionOutcome, was_made},
    webhooks::table::WebhooksTable,
};
use aws_sdk_dynamodb::types::builders::UpdateBuilder;
use purser_domain::{
    ChannelTerms, Ciphertext, EndedChannel, MailAddress, NoticeChannel, NoticeSettings, NoticeTerms, NoticeUrlId,
    PersonId, Result, SlackPlace, Timestamp,
};
use std::collections::BTreeMap;

/// The shards of users' rows.
pub const PERSON_PARTS: [char; 16] = [
    '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f',
];

/// The URL of an incoming webhook, to be stored.
pub struct NewNoticeUrl {
    /// The id of the URL.
    pub id: NoticeUrlId,
    /// The URL, encrypted because anyone who has the URL can post to it.
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
    pub async fn notices_of(&self, person: &PersonId) -> Result<NoticeSettings> {
        let item = self.get(&Key::notice_settings(person), "reading notices").await?;
        match item {
            Some(item) => self.row(&item).read(),
            None => Ok(NoticeSettings::new(person.clone())),
        }
    }

    /// Reads up to `limit` users of a shard after `after`, in order, with their settings. Each row with unreadable
    /// settings is a separate error.
    pub async fn recipients(
        &self,
        part: char,
        after: Option<&PersonId>,
        limit: u32,
    ) -> Result<Vec<(PersonId, Result<NoticeSettings>)>> {
        let query = self
            .db
            .query()
            .table_name(&*self.table)
            .key_condition_expression("pk = :pk AND sk > :after")
            .expression_attribute_values(":pk", notices::recipients(part).write())
            // `#` sorts before every id. A key can't be empty.
            .expression_attribute_values(":after", after.map_or("#", PersonId::as_str).to_owned().write())
            .limit(i32::try_from(limit).unwrap_or(i32::MAX));
        let answer = query
            .send()
            .await
            .map_err(store_error("listing the recipients of notices"))?;
        let read = answer.items().iter().map(|item| {
            let person = PersonId::parse(key::sort_key(item)).ok_or_else(|| self.row(item).corrupt("sk"))?;
            let settings = self.row(item).read();
            Ok((person, settings))
        });
        read.collect()
    }

    /// Stores the address that the issuer reported as verified at `said_at`, or removes the stored address if the
    /// issuer reported none. Returns whether this report is newer than the stored one.
    pub async fn keep_address(
        &self,
        person: &PersonId,
        address: Option<&MailAddress>,
        said_at: Timestamp,
    ) -> Result<bool> {
        const LATER: &str = "(attribute_not_exists(said) OR said < :at)";
        let update = self
            .db
            .update_item()
            .table_name(&*self.table)
            .set_key(Some(Key::notice_settings(person).attributes()))
            .expression_attribute_values(":at", said_at.write());
        let update = match address {
            Some(address) => update
                .update_expression("SET mail = :mail, said = :at")
                .condition_expression(LATER)
                .expression_attribute_values(":mail", address.write()),
            // No row is created for a user without an address.
            None => update
                .update_expression("SET said = :at REMOVE mail")
                .condition_expression(format!("attribute_exists(mail) AND {LATER}")),
        };
        was_made(update.send().await, "keeping a mail address")
    }

    /// Stores the next version if the previous version is stored. Also stores a new URL, and removes the URL that it
    /// replaces.
    pub async fn edit_notices(
        &self,
        next: &NoticeSettings,
        new: Option<&NewNoticeUrl>,
        old: Option<NoticeUrlId>,
        audit: &AuditEntry,
    ) -> Result<EditResult> {
        let before = next.version.saturating_sub(1);
        let update = UpdateBuilder::default()
            .table_name(&*self.table)
            .set_key(Some(Key::notice_settings(&next.person).attributes()))
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
        transaction.update(Role::Settings, update)?;
        if let Some(NewNoticeUrl { id, url }) = new {
            let url = Draft::new(&Key::notice_url(&next.person, *id)).with("c", url);
            transaction.put_unseen(Role::Url, self.put(url.into_item()))?;
        }
        if let Some(old) = old {
            transaction.delete(Role::Url, self.delete(&Key::notice_url(&next.person, old)))?;
        }
        transaction.audit(Role::Audit, audit)?;
        match transaction.send_until_known(&self.db, &mut Backoff::new()).await? {
            TransactionOutcome::Committed => Ok(EditResult::Stored),
            // The audit row exists, so an attempt whose response was lost has stored the change.
            TransactionOutcome::Refused(refusal) if refusal.names(Role::Audit) => Ok(EditResult::Stored),
            TransactionOutcome::Refused(_) => Ok(EditResult::Conflict),
        }
    }

    /// Reads a user's encrypted URL, strongly consistent. `None` if the URL was replaced or removed.
    pub async fn notice_url(&self, person: &PersonId, id: NoticeUrlId) -> Result<Option<Ciphertext>> {
        let item = self
            .get(&Key::notice_url(person, id), "reading the address of a channel")
            .await?;
        item.map(|item| self.row(&item).get("c")).transpose()
    }

    /// Records that a channel can no longer deliver messages.
    pub async fn note_ended(&self, person: &PersonId, channel: NoticeChannel, ended: &EndedChannel) -> Result<()> {
        let put = self
            .db
            .put_item()
            .table_name(&*self.table)
            .set_item(Some(write_ended(person, channel, ended)));
        put.send()
            .await
            .map_err(store_error("recording that a channel has ended"))?;
        Ok(())
    }

    /// Reads the user's channels that can no longer deliver messages to the current address or URL, strongly
    /// consistent.
    pub async fn list_ended_channels(
        &self,
        settings: &NoticeSettings,
    ) -> Result<BTreeMap<NoticeChannel, EndedChannel>> {
        let query = self
            .db
            .query()
            .table_name(&*self.table)
            .consistent_read(true)
            .key_condition_expression("pk = :pk")
            .expression_attribute_values(":pk", notices::ended_channels(&settings.person).write());
        let answer = query
            .send()
            .await
            .map_err(store_error("reading which channels have ended"))?;
        let mut ended = BTreeMap::new();
        for item in answer.items() {
            let row = self.row(item);
            let channel = NoticeChannel::from_name(key::sort_key(item)).ok_or_else(|| row.corrupt("sk"))?;
            let found: EndedChannel = row.read()?;
            if found.place == settings.place(channel) {
                ended.insert(channel, found);
            }
        }
        Ok(ended)
    }

    /// Removes the marker of an ended channel, because the channel has delivered a message again.
    pub async fn revive_channel(&self, person: &PersonId, channel: NoticeChannel) -> Result<()> {
        let delete = self
            .db
            .delete_item()
            .table_name(&*self.table)
            .set_key(Some(Key::ended_channel(person, channel).attributes()));
        delete
            .send()
            .await
            .map_err(store_error("recording that a channel works"))?;
        Ok(())
    }
}

fields! {
    NoticeSettings {
        person: sk(PersonId::parse),
        version: "ver" or_default,
        address: "mail" optional,
        terms: "terms" or_default,
    }

    NoticeTerms { mail: "mail", slack: "slack" optional }

    SlackPlace { url: "url", host: "host" }

    ChannelTerms { enabled: "on", kinds: "kinds" optional }

    EndedChannel { place: "place", reason: "why", at: "t" }
}

/// The place is stored with its terms.
impl Fields for (SlackPlace, ChannelTerms) {
    fn write_to(&self, draft: Draft) -> Draft {
        draft.with_fields(&self.0).with("terms", &self.1)
    }

    fn read_from(item: &Item) -> Result<Self, Unreadable> {
        Ok((Fields::read_from(item)?, field(item, "terms")?))
    }
}

stored_as_map! { NoticeTerms, ChannelTerms, (SlackPlace, ChannelTerms) }

pub(crate) fn write_ended(person: &PersonId, channel: NoticeChannel, ended: &EndedChannel) -> Item {
    Draft::new(&Key::ended_channel(person, channel))
        .with_fields(ended)
        .into_item()
}
