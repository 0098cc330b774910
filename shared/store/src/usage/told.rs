//! What of telling is still to do: what will have happened without a write, and rows that could not be read.

use crate::{
    codec::{
        attribute::{Attribute as _, Item},
        fault::failed,
        item::{Draft, Row},
        key as keys,
    },
    stream::approvals::certain_until,
    usage::{key, table::UsageTable},
};
use purser_domain::{ApprovalId, Duration, Error, Result, ServiceId, Timestamp};

/// When to look at a row for what happens to it without a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reminder {
    /// What to look at.
    pub of: Awaited,
    /// When it happens, unless something else does before.
    pub at: Timestamp,
}

/// What happens without a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// An approval expires, unless it is used.
    Expiry(ApprovalId),
    /// A service's delayed payees and prices take effect, unless they are withdrawn.
    Pricing(ServiceId),
}

/// The position of a reminder in its partition, after which the next page begins.
#[derive(Clone, Debug)]
pub struct ReminderPlace(Item);

/// A page of reminders.
#[derive(Debug)]
pub struct Reminders {
    /// The reminders, oldest first.
    pub found: Vec<Reminder>,
    /// The error of the last row whose key can't be read, if there is one.
    pub unreadable: Option<Error>,
    /// Where the next page begins; `None` after the last one.
    pub next: Option<ReminderPlace>,
}

/// A row whose change could not be told: where it is, and nothing of what it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetAside {
    /// The table.
    pub table: String,
    /// The record's place in its shard.
    pub sequence: String,
    /// The row's key.
    pub key: String,
    /// What could not be read.
    pub problem: String,
}

/// How long it is kept what was to do.
const KEPT: Duration = Duration::from_secs_u32(90 * 86_400);

impl UsageTable {
    /// Remembers to look at a row. The same again changes nothing.
    pub async fn remind(&self, reminder: Reminder) -> Result<()> {
        let row = Draft::of(&key::reminder(reminder)).with("ttl", &reminder.at.after(KEPT).secs());
        let put = self
            .db
            .put_item()
            .table_name(&*self.table)
            .set_item(Some(row.into_item()));
        put.send().await.map_err(failed("remembering what will happen"))?;
        Ok(())
    }

    /// A page of up to `most` reminders of what has happened for certain by `now`, oldest first, after the place `after`.
    pub async fn reminders(&self, now: Timestamp, after: Option<ReminderPlace>, most: u32) -> Result<Reminders> {
        let query = self
            .db
            .query()
            .table_name(&*self.table)
            .key_condition_expression("pk = :pk AND sk <= :until")
            .expression_attribute_values(":pk", key::REMINDERS.to_owned().write())
            .expression_attribute_values(":until", key::reminders_until(certain_until(now)).write())
            .consistent_read(true)
            .set_exclusive_start_key(after.map(|place| place.0))
            .limit(i32::try_from(most).unwrap_or(i32::MAX));
        let answer = query.send().await.map_err(failed("finding what has happened"))?;
        let mut page = Reminders {
            found: Vec::new(),
            unreadable: None,
            next: answer.last_evaluated_key().cloned().map(ReminderPlace),
        };
        for item in answer.items() {
            match key::parse_reminder(keys::sort_key(item)) {
                Some(reminder) => page.found.push(reminder),
                None => page.unreadable = Some(Row::new(&self.table, item).corrupt("sk")),
            }
        }
        Ok(page)
    }

    /// Forgets what was looked at.
    pub async fn forget(&self, reminder: Reminder) -> Result<()> {
        let delete = self
            .db
            .delete_item()
            .table_name(&*self.table)
            .set_key(Some(key::reminder(reminder).attributes()));
        delete.send().await.map_err(failed("forgetting what has happened"))?;
        Ok(())
    }

    /// Sets a row aside, for people.
    pub async fn set_aside(&self, aside: &SetAside, now: Timestamp) -> Result<()> {
        let row = Draft::of(&key::set_aside(&aside.table, &aside.sequence))
            .with("key", &aside.key)
            .with("problem", &aside.problem)
            .with("t", &now)
            .with("ttl", &now.after(KEPT).secs());
        let put = self
            .db
            .put_item()
            .table_name(&*self.table)
            .set_item(Some(row.into_item()));
        put.send().await.map_err(failed("setting a row aside"))?;
        Ok(())
    }
}
