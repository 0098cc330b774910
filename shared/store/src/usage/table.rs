//! Counting usage, and reading the sums.
//!
//! Invariant: each record is counted once. A transaction adds to the sums and advances the shard's checkpoint past the
//! counted records, on the condition that the checkpoint has not changed since these records were chosen.

use crate::{
    codec::{
        attribute::{Attribute, Item},
        backoff::Backoff,
        fault::{Fault, failed},
        item::Row,
        key::{self as keys, Key},
    },
    transact::{MOST_ACTIONS, Transaction, TransactionOutcome},
    usage::{
        checkpoint::{ALL, Checkpoint, Part, SequenceNumber, Shard},
        key,
    },
};
use aws_sdk_dynamodb::{
    Client,
    types::builders::{ConditionCheckBuilder, UpdateBuilder},
};
use purser_domain::{
    AgentId, Amount, Counted, Day, Duration, Error, PersonId, Result, ServiceId, Timestamp, UsageCount, UsageTotals,
};
use std::{collections::BTreeMap, sync::Arc};

/// The usage table.
#[derive(Clone, Debug)]
pub struct UsageTable {
    pub(super) db: Client,
    pub(super) table: Arc<str>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    /// The check that no recount is in progress.
    NoRecount,
    Checkpoint,
    Sums,
}

/// The time for which a checkpoint is kept after its last advance. A stream keeps its records for a day.
const CHECKPOINT_KEPT: Duration = Duration::from_secs_u32(7 * 86_400);

/// The maximum number of rows of sums in one transaction, in addition to the checkpoint and the check for a recount.
const MOST_ROWS: usize = MOST_ACTIONS - 2;

/// The numbers to add to a row, by attribute.
pub(super) type Sums = BTreeMap<String, u64>;

/// Sums by the partition and sort key of their row.
pub(super) type Rows = BTreeMap<(String, String), Sums>;

/// The records of each part of a shard, in order.
type Parts<'a> = BTreeMap<Part, BTreeMap<&'a SequenceNumber, &'a UsageCount>>;

impl UsageTable {
    /// The usage table with this name.
    pub fn new(db: Client, table: impl Into<Arc<str>>) -> Self {
        Self {
            db,
            table: table.into(),
        }
    }

    /// Counts the records of a shard that were not counted before: one read unit, and for each transaction four write
    /// units plus two for each row.
    ///
    /// `counts` must contain every counted record of the shard up to `end` that was not in an earlier call.
    pub async fn count(
        &self,
        shard: &Shard,
        counts: &[(SequenceNumber, UsageCount)],
        end: &SequenceNumber,
        now: Timestamp,
    ) -> Result<()> {
        let mut parts = Parts::new();
        for (place, count) in counts {
            parts.entry(Part::of(count.agent)).or_default().insert(place, count);
        }
        let mut checkpoint = self.checkpoint(shard).await?;
        let mut backoff = Backoff::new();
        loop {
            parts.retain(|part, records| {
                records.retain(|place, _| checkpoint.of(*part).is_none_or(|last| *place > last));
                !records.is_empty()
            });
            let (rows, taken) = Self::choose(&parts);
            if taken.is_empty() {
                return Ok(());
            }
            let mut transaction = Transaction::new();
            transaction.check(Role::NoRecount, self.no_recount())?;
            let is_all = parts.len() == taken.len()
                && parts
                    .values()
                    .zip(&taken)
                    .all(|(records, (_, to))| records.keys().next_back() == Some(to));
            let mut advance = self.advancing(shard, &checkpoint, &taken, is_all.then_some(end));
            advance = advance.expression_attribute_values(":ttl", now.after(CHECKPOINT_KEPT).secs().write());
            transaction.update(Role::Checkpoint, advance)?;
            for ((pk, sk), sums) in rows {
                transaction.update(Role::Sums, self.adding(&Key { pk, sk }, &sums))?;
            }
            match transaction.send_until_known(&self.db, &mut backoff).await? {
                TransactionOutcome::Committed => {
                    for (part, to) in taken {
                        checkpoint.advance(part, to.clone());
                    }
                }
                TransactionOutcome::Refused(refusal) if refusal.names(Role::NoRecount) => {
                    return Err(Error::temporarily_unavailable(
                        "counting usage",
                        Fault::new("a recount is in progress"),
                    ));
                }
                // Some records were counted concurrently, or by this same transaction if its response was lost.
                TransactionOutcome::Refused(refusal) => {
                    checkpoint = match refusal.met(Role::Checkpoint) {
                        Some(item) => Checkpoint::read(Row::new(&self.table, item), item)?,
                        None => self.checkpoint(shard).await?,
                    };
                }
            }
        }
    }

    /// The checkpoint of a shard, strongly consistent.
    pub async fn checkpoint(&self, shard: &Shard) -> Result<Checkpoint> {
        let get = self
            .db
            .get_item()
            .table_name(&*self.table)
            .set_key(Some(key::checkpoint(shard).attributes()))
            .consistent_read(true);
        let item = get.send().await.map_err(failed("reading a checkpoint"))?.item;
        let Some(item) = item else {
            return Ok(Checkpoint::default());
        };
        Checkpoint::read(Row::new(&self.table, &item), &item)
    }

    /// Chooses the records that the next transaction counts. Returns its rows, and the last record of each part in it.
    /// Whole parts are preferred, because a split part writes its owners' rows twice.
    fn choose<'a>(parts: &Parts<'a>) -> (Rows, Vec<(Part, &'a SequenceNumber)>) {
        let (mut rows, mut taken) = (Rows::new(), Vec::new());
        for (part, records) in parts {
            let mut with = rows.clone();
            let mut last = None;
            for (place, count) in records {
                let keys = rows_of(count);
                let new = keys.iter().filter(|key| !with.contains_key(key)).count();
                if with.len().saturating_add(new) > MOST_ROWS {
                    break;
                }
                add(&mut with, keys, &count.what);
                last = Some(*place);
            }
            let is_whole = last == records.keys().next_back().copied();
            if let (Some(last), true) = (last, is_whole || taken.is_empty()) {
                rows = with;
                taken.push((*part, last));
                if !is_whole {
                    break;
                }
            }
        }
        (rows, taken)
    }

    /// The update that advances these parts of a checkpoint, if they are unchanged since they were read.
    fn advancing(
        &self,
        shard: &Shard,
        from: &Checkpoint,
        to: &[(Part, &SequenceNumber)],
        all: Option<&SequenceNumber>,
    ) -> UpdateBuilder {
        let mut update = UpdateBuilder::default()
            .table_name(&*self.table)
            .set_key(Some(key::checkpoint(shard).attributes()))
            .expression_attribute_names("#ttl", "ttl");
        let (mut sets, mut conditions) = (vec!["#ttl = :ttl".to_owned()], Vec::new());
        for (part, place) in to {
            let name = part.name();
            sets.push(format!("{name} = :to_{name}"));
            update = update.expression_attribute_values(format!(":to_{name}"), place.to_string().write());
            if let Some(before) = from.of(*part) {
                conditions.push(format!("{name} = :from_{name}"));
                update = update.expression_attribute_values(format!(":from_{name}"), before.to_string().write());
            } else {
                conditions.push(format!("attribute_not_exists({name})"));
            }
        }
        if let Some(all) = all {
            sets.push(format!("{ALL} = :all"));
            update = update.expression_attribute_values(":all", all.to_string().write());
        }
        update
            .update_expression(format!("SET {}", sets.join(", ")))
            .condition_expression(conditions.join(" AND "))
    }

    fn no_recount(&self) -> ConditionCheckBuilder {
        ConditionCheckBuilder::default()
            .table_name(&*self.table)
            .set_key(Some(key::recount().attributes()))
            .condition_expression("attribute_not_exists(pk)")
    }

    fn adding(&self, row: &Key, sums: &Sums) -> UpdateBuilder {
        let mut update = UpdateBuilder::default()
            .table_name(&*self.table)
            .set_key(Some(row.attributes()));
        let mut parts = Vec::new();
        for (index, (name, sum)) in sums.iter().enumerate() {
            parts.push(format!("#n{index} :n{index}"));
            update = update
                .expression_attribute_names(format!("#n{index}"), name)
                .expression_attribute_values(format!(":n{index}"), sum.write());
        }
        update.update_expression(format!("ADD {}", parts.join(", ")))
    }

    /// The keys of an owner's rows for these days.
    pub(super) async fn sums_between(
        &self,
        owner: &PersonId,
        (first, last): (Day, Day),
    ) -> Result<Vec<(String, String)>> {
        let mut parts = vec![(key::owner_partition(owner), key::BY_DAY)];
        parts.extend(key::agent_partitions(owner).map(|partition| (partition, key::BY_AGENT)));
        let mut found = Vec::new();
        for (partition, kind) in parts {
            let items = self.owned(partition, kind, first, last).await?;
            found.extend(
                items
                    .iter()
                    .map(|item| (keys::partition_key(item).to_owned(), keys::sort_key(item).to_owned())),
            );
        }
        Ok(found)
    }

    /// An owner's sums for each day from `first` to `last` on which anything was counted, with the reasons of refusals.
    /// Half a read unit per 4 KB, which is some 30 days.
    pub async fn by_day(&self, owner: &PersonId, first: Day, last: Day) -> Result<Vec<(Day, UsageTotals, Reasons)>> {
        let items = self
            .owned(key::owner_partition(owner), key::BY_DAY, first, last)
            .await?;
        let days = items.iter().map(|item| {
            let row = Row::new(&self.table, item);
            let (day, _) = key::parse_owned(keys::sort_key(item)).ok_or_else(|| row.corrupt("sk"))?;
            Ok((day, read_totals(row)?, read_reasons(item)))
        });
        days.collect()
    }

    /// An owner's sums of these days by agent, and by service: half a read unit per 4 KB in each of the four
    /// partitions. 4 KB hold some 15 rows, one for each day, agent and service.
    pub async fn by_agent_and_service(
        &self,
        owner: &PersonId,
        first: Day,
        last: Day,
    ) -> Result<(BTreeMap<AgentId, UsageTotals>, BTreeMap<ServiceId, UsageTotals>)> {
        let [a, b, c, d] =
            key::agent_partitions(owner).map(|partition| self.owned(partition, key::BY_AGENT, first, last));
        let (a, b, c, d) = tokio::try_join!(a, b, c, d)?;
        let (mut agents, mut services) = (BTreeMap::new(), BTreeMap::new());
        for item in [a, b, c, d].iter().flatten() {
            let row = Row::new(&self.table, item);
            let of = key::parse_owned(keys::sort_key(item)).and_then(|(_, of)| {
                let (agent, service) = of.split_once('#')?;
                Some((AgentId::parse(agent)?, ServiceId::parse(service)?))
            });
            let (agent, service) = of.ok_or_else(|| row.corrupt("sk"))?;
            let sums = read_totals(row)?;
            plus(&mut agents, agent, sums);
            plus(&mut services, service, sums);
        }
        Ok((agents, services))
    }

    /// The rows of one kind in a partition. Eventually consistent, because the sums lag behind the payments anyway.
    async fn owned(&self, partition: String, kind: &str, first: Day, last: Day) -> Result<Vec<Item>> {
        let query = self
            .db
            .query()
            .table_name(&*self.table)
            .key_condition_expression("pk = :pk AND sk BETWEEN :first AND :last")
            .expression_attribute_values(":pk", partition.write())
            .expression_attribute_values(":first", format!("{kind}{first}").write())
            // `~` sorts after every character of a key.
            .expression_attribute_values(":last", format!("{kind}{last}~").write());
        let items = query.into_paginator().items().send();
        let items: Result<Vec<Item>, _> = items.collect().await;
        items.map_err(failed("reading usage"))
    }
}

fn plus<T: Ord>(totals: &mut BTreeMap<T, UsageTotals>, of: T, sums: UsageTotals) {
    let total = totals.entry(of).or_default();
    *total = total.plus(sums);
}

/// The number of refusals with each `error`.
pub type Reasons = BTreeMap<String, u64>;

/// The prefix of the attributes that count reasons.
const REASON: &str = "why_";

/// A row of sums, as a recount writes it.
pub(super) fn sums_item((pk, sk): (String, String), sums: &Sums) -> Item {
    let mut item = Key { pk, sk }.attributes();
    item.extend(sums.iter().map(|(name, sum)| (name.clone(), sum.write())));
    item
}

/// The rows that a count adds to, by partition and sort key.
pub(super) fn rows_of(count: &UsageCount) -> Vec<(String, String)> {
    let UsageCount {
        owner,
        agent,
        service,
        decided_at,
        ..
    } = count;
    let day = Day::of(*decided_at);
    let rows = [
        key::owner_day(owner, day),
        key::owner_agent(owner, day, *agent, *service),
    ];
    rows.into_iter().map(|row| (row.pk, row.sk)).collect()
}

/// Adds a count to each of these rows.
pub(super) fn add(rows: &mut Rows, keys: Vec<(String, String)>, what: &Counted) {
    for key in keys {
        let sums = rows.entry(key).or_default();
        for (name, more) in added(what) {
            let sum = sums.entry(name).or_default();
            *sum = sum.saturating_add(more);
        }
    }
}

/// The numbers that a count adds, by attribute.
fn added(what: &Counted) -> Vec<(String, u64)> {
    let amount =
        |units: &str, count: &str, amount: &Amount| vec![(units.to_owned(), amount.units()), (count.to_owned(), 1)];
    match what {
        Counted::Authorized(units) => amount("au", "an", units),
        Counted::Confirmed(units) => amount("cu", "cn", units),
        Counted::Released(units) => amount("ru", "rn", units),
        Counted::TakenBack(units) => amount("tu", "tn", units),
        Counted::Blocked(error) => vec![("bn".to_owned(), 1), (format!("{REASON}{error}"), 1)],
        Counted::Escalated(error) => vec![("en".to_owned(), 1), (format!("{REASON}{error}"), 1)],
    }
}

fn read_totals(row: Row<'_>) -> Result<UsageTotals> {
    let count = |name| row.get_optional::<u64>(name).map(Option::unwrap_or_default);
    let units = |name| count(name).map(|units| Amount::from_units(units).unwrap_or(Amount::MAX));
    Ok(UsageTotals {
        authorized: units("au")?,
        confirmed: units("cu")?,
        released: units("ru")?,
        taken_back: units("tu")?,
        allowed: count("an")?,
        blocked: count("bn")?,
        escalated: count("en")?,
    })
}

fn read_reasons(item: &Item) -> Reasons {
    let reasons = item.iter().filter_map(|(name, value)| {
        let error = name.strip_prefix(REASON)?;
        Some((error.to_owned(), u64::read(value)?))
    });
    reasons.collect()
}
