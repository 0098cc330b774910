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
        key::sort_key_text,
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
use purser_domain::{
    AgentId, Amount, BacktestId, BacktestResult, BacktestRun, ChangedDecisionExample, ChangedDecisionKind,
    ChangedDecisions, DecisionResult, Differences, Duration, Result, ServiceId, TestedLimits, Timestamp, TransactionId,
    UserId,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

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
    /// Returns whether the marker is more than ten minutes old. A row that is still missing was never written.
    pub fn may_start_run(&self, now: Timestamp) -> bool {
        now.since(self.created_at) > MAX_MARKER_AGE
    }
}

impl UsageTable {
    /// Stores a new backtest with the audit row. Takes some seven write units, and more per kilobyte.
    pub async fn put_backtest(&self, run: &BacktestRun, audit: &AuditEntry) -> Result<()> {
        let marker = Draft::new(&key::waiting_backtest_key(run.id))
            .with("owner", &run.owner)
            .with("t", &run.created_at)
            .with("ttl", &run.created_at.after(RETENTION).secs());
        put_item(&self.db, &self.table, marker.into_item(), WRITING).await?;
        let put = PutBuilder::default()
            .table_name(&*self.table)
            .set_item(Some(write_run(run)?))
            .condition_expression(AuditEntry::IS_NEW);
        let mut transaction = Transaction::new();
        transaction.add_put(Role::Run, put)?;
        transaction.add_audit_rows(Role::Audit, audit)?;
        // Both ids are random, so only an earlier attempt whose response was lost can have written the rows.
        transaction.send_until_known(&self.db, &mut Backoff::new()).await?;
        Ok(())
    }

    /// Stores the next version of a backtest. Returns `false` if the previous version is not stored.
    pub async fn try_replace_backtest(&self, run: &BacktestRun) -> Result<bool> {
        let put = put_request(&self.db, &self.table, write_run(run)?)
            .condition_expression("ver = :before")
            .expression_attribute_values(":before", run.version.saturating_sub(1).write());
        was_applied(put.send().await, WRITING)
    }

    /// Reads a user's backtest, strongly consistent.
    pub async fn read_backtest(&self, owner: &UserId, id: BacktestId) -> Result<Option<BacktestRun>> {
        let item = get_item(&self.db, &self.table, &key::backtest_key(owner, id), READING).await?;
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
        delete_item(&self.db, &self.table, &key::waiting_backtest_key(id), WRITING).await
    }

    fn read_run(&self, owner: &UserId, item: &Item) -> Result<BacktestRun> {
        let row = Row::new(&self.table, item);
        let stored: StoredResult = unpack_item(row, item)?;
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
            result: stored.parse().ok_or_else(|| row.corrupt_error(PACKED))?,
        })
    }
}

fields! {
    TestedLimits { rules: "rules" optional, status: "st" optional, policies: "policies" }
}

fn write_run(run: &BacktestRun) -> Result<Item> {
    let packed = compress_json(&StoredResult::new(&run.result))?;
    let row = Draft::new(&key::backtest_key(&run.owner, run.id))
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

/// A backtest's result, in the JSON form in which the row stores the result.
#[derive(Serialize, Deserialize)]
struct StoredResult {
    decisions: u64,
    untested: u64,
    authorized: u64,
    declined: StoredDifferences,
    approved: StoredDifferences,
}

#[derive(Serialize, Deserialize)]
struct StoredDifferences {
    counts: Vec<(String, String, u64)>,
    flips: Vec<StoredFlips>,
    reasons: u64,
    saved: u64,
    added: u64,
}

#[derive(Serialize, Deserialize)]
struct StoredFlips {
    from: String,
    to: String,
    why: String,
    n: u64,
    amt: u64,
    agent: String,
    txid: String,
    t: i64,
    svc: String,
    of: u64,
}

impl StoredResult {
    fn new(result: &BacktestResult) -> Self {
        Self {
            decisions: result.decisions,
            untested: result.untested,
            authorized: result.authorized,
            declined: StoredDifferences::new(&result.if_declined),
            approved: StoredDifferences::new(&result.if_approved),
        }
    }

    fn parse(self) -> Option<BacktestResult> {
        Some(BacktestResult {
            decisions: self.decisions,
            untested: self.untested,
            authorized: self.authorized,
            if_declined: self.declined.parse()?,
            if_approved: self.approved.parse()?,
        })
    }
}

impl StoredDifferences {
    fn new(differences: &Differences) -> Self {
        let name = |result: DecisionResult| result.name().to_owned();
        let counts = differences.counts.iter();
        let flips = differences.flips.iter().map(|(kind, flips)| StoredFlips {
            from: name(kind.recorded),
            to: name(kind.tested),
            why: kind.reason.clone(),
            n: flips.count,
            amt: flips.amount,
            agent: flips.example.agent.to_string(),
            txid: flips.example.transaction.to_string(),
            t: flips.example.at.micros(),
            svc: flips.example.service.to_string(),
            of: flips.example.amount.units(),
        });
        Self {
            counts: counts
                .map(|((from, to), count)| (name(*from), name(*to), *count))
                .collect(),
            flips: flips.collect(),
            reasons: differences.other_reasons,
            saved: differences.saved,
            added: differences.added,
        }
    }

    fn parse(self) -> Option<Differences> {
        let result = DecisionResult::from_name;
        let counts = self.counts.iter();
        let counts = counts.map(|(from, to, count)| Some(((result(from)?, result(to)?), *count)));
        let flips = self.flips.into_iter().map(|stored| {
            let kind = ChangedDecisionKind {
                recorded: result(&stored.from)?,
                tested: result(&stored.to)?,
                reason: stored.why,
            };
            let example = ChangedDecisionExample {
                agent: AgentId::parse(&stored.agent)?,
                transaction: TransactionId::parse(&stored.txid)?,
                at: Timestamp::from_micros(stored.t)?,
                service: ServiceId::parse(&stored.svc)?,
                amount: Amount::from_units(stored.of)?,
            };
            let flips = ChangedDecisions {
                count: stored.n,
                amount: stored.amt,
                example,
            };
            Some((kind, flips))
        });
        Some(Differences {
            counts: counts.collect::<Option<BTreeMap<_, _>>>()?,
            flips: flips.collect::<Option<BTreeMap<_, _>>>()?,
            other_reasons: self.reasons,
            saved: self.saved,
            added: self.added,
        })
    }
}
