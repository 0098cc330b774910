//! What of telling is still to do: approvals that will have expired, and rows that could not be read.

use crate::{
    codec::{
        attribute::Attribute as _,
        fault::failed,
        item::{Draft, Row},
        key as keys,
    },
    stream::approvals::certain_until,
    usage::{key, table::UsageTable},
};
use purser_domain::{ApprovalId, Duration, Result, Timestamp};

/// That an approval will have expired, unless it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expiry {
    /// The approval.
    pub approval: ApprovalId,
    /// When it ends.
    pub end: Timestamp,
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
    /// Remembers to look at an approval when it has ended. The same again changes nothing.
    pub async fn expect_expiry(&self, expiry: Expiry) -> Result<()> {
        let row = Draft::of(&key::expiry(expiry.end, expiry.approval)).with("ttl", &expiry.end.after(KEPT).secs());
        let put = self
            .db
            .put_item()
            .table_name(&*self.table)
            .set_item(Some(row.into_item()));
        put.send().await.map_err(failed("remembering an approval"))?;
        Ok(())
    }

    /// The first approvals that are over for certain at `now`, at most `most`.
    pub async fn expiries(&self, now: Timestamp, most: u32) -> Result<Vec<Expiry>> {
        let query = self
            .db
            .query()
            .table_name(&*self.table)
            .key_condition_expression("pk = :pk AND sk <= :until")
            .expression_attribute_values(":pk", key::EXPIRIES.to_owned().write())
            .expression_attribute_values(":until", key::expiries_until(certain_until(now)).write())
            .consistent_read(true)
            .limit(i32::try_from(most).unwrap_or(i32::MAX));
        let answer = query.send().await.map_err(failed("finding expired approvals"))?;
        let expiries = answer.items().iter().map(|item| {
            let found = key::parse_expiry(keys::sort_key(item));
            let (end, approval) = found.ok_or_else(|| Row::new(&self.table, item).corrupt("sk"))?;
            Ok(Expiry { approval, end })
        });
        expiries.collect()
    }

    /// Forgets an approval that was looked at.
    pub async fn forget_expiry(&self, expiry: Expiry) -> Result<()> {
        let row = key::expiry(expiry.end, expiry.approval);
        let delete = self
            .db
            .delete_item()
            .table_name(&*self.table)
            .set_key(Some(row.attributes()));
        delete.send().await.map_err(failed("forgetting an approval"))?;
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
