//! Backtests that run in the background: a row for each backtest, and a marker for each unfinished backtest. The marker
//! is written before the row. A row is replaced only if it has the version that was read, so a repeated run adds no
//! agent twice.

use crate::{
    audit::entry::AuditEntry,
    codec::{
        attribute::{Attribute, Item},
        backoff::Backoff,
        fields::fields,
        item::{Draft, Row},
        key::{Key, sort_key_text},
        table::{Query, delete_item, get_item, put_item, put_request},
    },
    transact::{Transaction, was_applied},
    usage::{
        day::{PACKED, compress_json, unpack_item},
        key,
        table::UsageTable,
    },
};
use aws_sdk_dynamodb::{
    primitives::Blob,
    types::{AttributeValue, builders::PutBuilder},
};
use purser_domain::{BacktestId, BacktestRun, Duration, Result, TestedLimits, Timestamp, UserId};

const RETENTION: Duration = Duration::from_secs_u32(30 * 86_400);
/// The age at which a marker without a backtest's row is removed, because the write of the row has certainly failed.
const MAX_MARKER_AGE: Duration = Duration::from_secs_u32(600);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    Run,
    Audit,
}

const READING: &str = "reading a backtest";
const WRITING: &str = "writing a backtest";

/// A backtest that may be unfinished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingBacktest {
    /// The user who requested the backtest.
    pub owner: UserId,
    /// The backtest's id, from the sort key of the marker.
    pub id: BacktestId,
    created_at: Timestamp,
}

impl WaitingBacktest {
    /// Returns whether the marker is more than ten minutes old, so that a missing backtest row was never written.
    pub fn is_overdue(&self, now: Timestamp) -> bool {
        now.since(self.created_at) > MAX_MARKER_AGE
    }
}

impl UsageTable {
    /// Stores a new backtest with the audit row. Takes some seven write units, and more per kilobyte.
    pub async fn put_backtest(&self, run: &BacktestRun, audit: &AuditEntry) -> Result<()> {
        let marker = Draft::new(&Key::waiting_backtest(run.id))
            .with("owner", &run.owner)
            .with("t", &run.created_at)
            .with("ttl", &run.created_at.after(RETENTION).secs());
        put_item(&self.db, &self.table, marker.into_item(), WRITING).await?;
        let put = PutBuilder::default()
            .table_name(&*self.table)
            .set_item(Some(backtest_run_item(run)?))
            .condition_expression(AuditEntry::IS_NEW);
        let mut transaction = Transaction::new();
        transaction.add_put(Role::Run, put)?;
        transaction.add_audit_rows(Role::Audit, audit)?;
        // The ids of the backtest and of the audit row are random. If a row exists already, an earlier attempt has
        // written both rows, and the response to that attempt was lost.
        transaction.send_until_outcome(&self.db, &mut Backoff::new()).await?;
        Ok(())
    }

    /// Stores the next version of a backtest. Returns `false` if the previous version is not stored.
    pub async fn try_replace_backtest(&self, run: &BacktestRun) -> Result<bool> {
        let put = put_request(&self.db, &self.table, backtest_run_item(run)?)
            .condition_expression("ver = :before")
            .expression_attribute_values(":before", run.version.saturating_sub(1).write());
        was_applied(put.send().await, WRITING)
    }

    /// Reads a user's backtest, strongly consistent.
    pub async fn read_backtest(&self, owner: &UserId, id: BacktestId) -> Result<Option<BacktestRun>> {
        let item = get_item(&self.db, &self.table, &Key::backtest(owner, id), READING).await?;
        item.map(|item| self.read_run(owner, &item)).transpose()
    }

    /// Reads a user's newest backtests, up to `limit`, newest first.
    pub async fn read_backtests(&self, owner: &UserId, limit: u32) -> Result<Vec<BacktestRun>> {
        let answer = Query::new(&self.db, &self.table, key::backtests_partition(owner))
            .newest_page(None, limit)
            .send(READING)
            .await?;
        let items = answer.items().iter();
        items.map(|item| self.read_run(owner, item)).collect()
    }

    /// Reads up to `limit` backtests that may be unfinished, oldest first. An unreadable marker is an error.
    pub async fn read_waiting_backtests(&self, limit: u32) -> Result<Vec<Result<WaitingBacktest>>> {
        let answer = Query::new(&self.db, &self.table, key::BACKTESTS)
            .consistent()
            .limit(limit)
            .send(READING)
            .await?;
        let markers = answer.items().iter().map(|item| {
            let row = Row::new(&self.table, item);
            Ok(WaitingBacktest {
                owner: row.get("owner")?,
                id: BacktestId::parse(sort_key_text(item)).ok_or_else(|| row.corrupt_error("sk"))?,
                created_at: row.get("t")?,
            })
        });
        Ok(markers.collect())
    }

    /// Removes the marker of a backtest.
    pub async fn end_backtest(&self, id: BacktestId) -> Result<()> {
        delete_item(&self.db, &self.table, &Key::waiting_backtest(id), WRITING).await
    }

    fn read_run(&self, owner: &UserId, item: &Item) -> Result<BacktestRun> {
        let row = Row::new(&self.table, item);
        Ok(BacktestRun {
            id: BacktestId::parse(sort_key_text(item)).ok_or_else(|| row.corrupt_error("sk"))?,
            owner: owner.clone(),
            version: row.get("ver")?,
            created_at: row.get("t")?,
            from: row.get("from")?,
            to: row.get("to")?,
            terms: row.read()?,
            agents: row.get("agents")?,
            estimated: row.get("est")?,
            done: row.get("done")?,
            left_out: row.get("left")?,
            partial: row.get("part")?,
            result: unpack_item(row, item)?,
        })
    }
}

fields! {
    TestedLimits { rules: "rules" optional, status: "st" optional, policies: "policies" }
}

fn backtest_run_item(run: &BacktestRun) -> Result<Item> {
    let packed = compress_json(&run.result)?;
    let row = Draft::new(&Key::backtest(&run.owner, run.id))
        .with("ver", &run.version)
        .with("t", &run.created_at)
        .with("from", &run.from)
        .with("to", &run.to)
        .with_fields(&run.terms)
        .with("agents", &run.agents)
        .with("est", &run.estimated)
        .with("done", &run.done)
        .with("left", &run.left_out)
        .with("part", &run.partial)
        .with("ttl", &run.created_at.after(RETENTION).secs())
        .with_value(PACKED, AttributeValue::B(Blob::new(packed)));
    Ok(row.into_item())
}
