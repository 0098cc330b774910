//! Reminders of events that happen without a write, and quarantined changes.

use crate::{
    codec::{
        attribute::Item,
        item::{Draft, Row},
        key::{self as keys, Key},
        table::{Query, delete_item, put_item},
    },
    stream::approvals::certain_expiry_cutoff,
    usage::{key, reminder::Reminder, table::UsageTable},
};
use purser_domain::{Duration, Error, Result, Timestamp};

/// The cursor of a page of reminders.
#[derive(Clone, Debug)]
pub struct ReminderCursor(Item);

/// One page of the stored reminders, with the cursor of the next page.
#[derive(Debug)]
pub struct Reminders {
    /// The reminders, oldest first.
    pub found: Vec<Reminder>,
    /// The error of the last row with an unreadable key, if any.
    pub unreadable: Option<Error>,
    /// The cursor of the next page; `None` after the last page.
    pub next: Option<ReminderCursor>,
}

/// A change that could not be published. Contains the row's key, but no values of the row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuarantinedRow {
    /// The name of the DynamoDB table that contains the row.
    pub table: String,
    /// The sequence number of the stream record in the shard.
    pub sequence: String,
    /// The partition key and the sort key of the row, separated by a space. Keys contain only ids and hashes.
    pub key: String,
    /// A description of what could not be read.
    pub problem: String,
}

/// The lifetime of reminders and quarantined changes.
const RETENTION: Duration = Duration::from_secs_u32(90 * 86_400);

impl UsageTable {
    /// Stores a reminder. Storing the reminder again changes nothing.
    pub async fn store_reminder(&self, reminder: Reminder) -> Result<()> {
        let row = Draft::new(&key::reminder_key(reminder)).with("ttl", &reminder.at.after(RETENTION).secs());
        put_item(&self.db, &self.table, row.into_item(), "writing a reminder").await
    }

    /// Reads up to `max_rows` reminders after `after`, oldest first, whose events have certainly happened by `now`.
    pub async fn read_reminders(
        &self,
        now: Timestamp,
        after: Option<ReminderCursor>,
        max_rows: u32,
    ) -> Result<Reminders> {
        let response = Query::new(&self.db, &self.table, key::REMINDERS)
            .until(key::reminder_key_upper_bound(certain_expiry_cutoff(now)))
            .consistent()
            .start_after(after.map(|place| place.0))
            .limit(max_rows)
            .send("listing due reminders")
            .await?;
        let mut page = Reminders {
            found: Vec::new(),
            unreadable: None,
            next: response.last_evaluated_key().cloned().map(ReminderCursor),
        };
        for item in response.items() {
            match key::parse_reminder(keys::sort_key_text(item)) {
                Some(reminder) => page.found.push(reminder),
                None => page.unreadable = Some(Row::new(&self.table, item).corrupt_error("sk")),
            }
        }
        Ok(page)
    }

    /// Removes a reminder, if the reminder exists.
    pub async fn remove_reminder(&self, reminder: Reminder) -> Result<()> {
        delete_item(
            &self.db,
            &self.table,
            &key::reminder_key(reminder),
            "deleting a reminder",
        )
        .await
    }

    /// Stores a change that could not be published, for an operator to examine.
    pub async fn quarantine_row(&self, quarantined_row: &QuarantinedRow, now: Timestamp) -> Result<()> {
        let row = Draft::new(&Key::quarantined_row(&quarantined_row.table, &quarantined_row.sequence))
            .with("key", &quarantined_row.key)
            .with("problem", &quarantined_row.problem)
            .with("t", &now)
            .with("ttl", &now.after(RETENTION).secs());
        put_item(&self.db, &self.table, row.into_item(), "setting a stream record aside").await
    }
}
