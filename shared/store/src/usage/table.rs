//! Counting, and reading what was counted.
//!
//! Always true: an event counts once. Its marker and all that it adds are one transaction, and the marker must be absent.
//! Markers expire after 30 days; a stream keeps its records for one.

use crate::{
    codec::{
        attribute::{Attribute, Item},
        backoff::Backoff,
        fault::failed,
        item::{Draft, Row},
        key::{self as keys, Key},
        transact::{Known, MOST_ACTIONS, Transaction},
    },
    usage::key,
};
use aws_sdk_dynamodb::{
    Client,
    types::builders::{PutBuilder, UpdateBuilder},
};
use purser_domain::{
    AgentId, Amount, Counted, Day, Duration, PersonId, Result, ServiceId, Timestamp, UsageCount, UsageTotals,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// The usage table.
#[derive(Clone, Debug)]
pub struct UsageTable {
    pub(super) db: Client,
    pub(super) table: Arc<str>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    /// The marker of the n-th event of the transaction.
    Marker(usize),
    Sums,
}

/// How long it is known that an event was counted.
const MARKED_FOR: Duration = Duration::from_secs_u32(30 * 86_400);
/// How long sums by hour are kept.
const HOURS_KEPT: Duration = Duration::from_secs_u32(2 * 86_400);

/// What one event adds to is five rows at most, and its marker.
const ROWS_OF_ONE: usize = 6;

/// What a row gets: numbers by attribute.
type Sums = BTreeMap<String, u64>;

impl UsageTable {
    /// The usage table of this name.
    pub fn new(db: Client, table: impl Into<Arc<str>>) -> Self {
        Self {
            db,
            table: table.into(),
        }
    }

    /// Counts each of these events that was not counted before.
    pub async fn count(&self, counts: &[UsageCount], now: Timestamp) -> Result<()> {
        let mut seen = BTreeSet::new();
        let mut rest: Vec<&UsageCount> = counts.iter().filter(|count| seen.insert(count.event)).collect();
        let mut backoff = Backoff::new();
        while !rest.is_empty() {
            let (transaction, taken) = self.counting(&rest, now)?;
            match transaction.send_until_known(&self.db, &mut backoff).await? {
                Known::Committed => {
                    rest.drain(..taken.min(rest.len()));
                }
                // Those were counted before, perhaps by this same transaction, whose answer was lost.
                Known::Refused(refusal) => {
                    let mut index = 0_usize;
                    rest.retain(|_| {
                        let known = index < taken && refusal.names(Role::Marker(index));
                        index = index.saturating_add(1);
                        !known
                    });
                }
            }
        }
        Ok(())
    }

    /// A transaction that counts the first of these, and how many those are.
    fn counting(&self, counts: &[&UsageCount], now: Timestamp) -> Result<(Transaction<Role>, usize)> {
        let mut transaction = Transaction::new();
        let mut rows: BTreeMap<(String, String), Sums> = BTreeMap::new();
        let mut taken = 0_usize;
        for count in counts {
            let used = transaction.len().saturating_add(rows.len());
            if used.saturating_add(ROWS_OF_ONE) > MOST_ACTIONS {
                break;
            }
            transaction.put(Role::Marker(taken), self.marker(count, now))?;
            for row in self.rows_of(count, now) {
                let sums = rows.entry((row.pk, row.sk)).or_default();
                for (name, more) in added(&count.what) {
                    let sum = sums.entry(name).or_default();
                    *sum = sum.saturating_add(more);
                }
            }
            taken = taken.saturating_add(1);
        }
        for ((pk, sk), sums) in rows {
            transaction.update(Role::Sums, self.adding(&Key { pk, sk }, &sums, now))?;
        }
        Ok((transaction, taken))
    }

    fn marker(&self, count: &UsageCount, now: Timestamp) -> PutBuilder {
        let marker = Draft::of(&key::marker(count.event)).with("ttl", &now.after(MARKED_FOR).secs());
        PutBuilder::default()
            .table_name(&*self.table)
            .set_item(Some(marker.into_item()))
            .condition_expression("attribute_not_exists(pk)")
    }

    /// The rows that an event adds to.
    #[expect(clippy::unused_self, reason = "the table's rows")]
    fn rows_of(&self, count: &UsageCount, now: Timestamp) -> Vec<Key> {
        let UsageCount {
            owner,
            agent,
            service,
            decided_at,
            ..
        } = count;
        let day = Day::of(*decided_at);
        let mut rows = vec![
            key::owner_day(owner, day),
            key::owner_agent(owner, day, *agent),
            key::owner_service(owner, day, *service),
            key::agent_day(*agent, day, *service),
        ];
        if now.since(*decided_at) < HOURS_KEPT {
            rows.push(key::agent_hour(*agent, *decided_at, *service));
        }
        rows
    }

    fn adding(&self, row: &Key, sums: &Sums, now: Timestamp) -> UpdateBuilder {
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
        let add = format!("ADD {}", parts.join(", "));
        if row.sk.starts_with("H#") {
            update
                .update_expression(format!("{add} SET #ttl = :ttl"))
                .expression_attribute_names("#ttl", "ttl")
                .expression_attribute_values(":ttl", now.after(HOURS_KEPT).secs().write())
        } else {
            update.update_expression(add)
        }
    }

    /// An owner's sums of each day from the first to the last, where anything was counted; with the reasons of refusals.
    /// One unit for 4 KB, which is some 30 days.
    pub async fn by_day(&self, owner: &PersonId, first: Day, last: Day) -> Result<Vec<(Day, UsageTotals, Reasons)>> {
        let items = self.owned(owner, key::BY_DAY, first, last).await?;
        let days = items.iter().map(|item| {
            let row = Row::new(&self.table, item);
            let (day, _) = key::parse_owned(keys::sort_key(item)).ok_or_else(|| row.corrupt("sk"))?;
            Ok((day, read_totals(row)?, read_reasons(item)))
        });
        days.collect()
    }

    /// An owner's sums of these days by agent: one unit for 4 KB, which is some 20 agents on one day.
    pub async fn by_agent(&self, owner: &PersonId, first: Day, last: Day) -> Result<BTreeMap<AgentId, UsageTotals>> {
        self.summed(owner, key::BY_AGENT, first, last, AgentId::parse).await
    }

    /// The same by service.
    pub async fn by_service(
        &self,
        owner: &PersonId,
        first: Day,
        last: Day,
    ) -> Result<BTreeMap<ServiceId, UsageTotals>> {
        self.summed(owner, key::BY_SERVICE, first, last, ServiceId::parse).await
    }

    async fn summed<T: Ord>(
        &self,
        owner: &PersonId,
        kind: &str,
        first: Day,
        last: Day,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<BTreeMap<T, UsageTotals>> {
        let mut sums: BTreeMap<T, UsageTotals> = BTreeMap::new();
        for item in self.owned(owner, kind, first, last).await? {
            let row = Row::new(&self.table, &item);
            let of = key::parse_owned(keys::sort_key(&item)).and_then(|(_, id)| parse(id));
            let sum = sums.entry(of.ok_or_else(|| row.corrupt("sk"))?).or_default();
            *sum = sum.plus(read_totals(row)?);
        }
        Ok(sums)
    }

    /// An owner's rows of one kind. Eventually consistent: what is counted is behind the payments anyway.
    async fn owned(&self, owner: &PersonId, kind: &str, first: Day, last: Day) -> Result<Vec<Item>> {
        let query = self
            .db
            .query()
            .table_name(&*self.table)
            .key_condition_expression("pk = :pk AND sk BETWEEN :first AND :last")
            .expression_attribute_values(":pk", key::owner_partition(owner).write())
            .expression_attribute_values(":first", format!("{kind}{first}").write())
            // `~` sorts after every character of a key.
            .expression_attribute_values(":last", format!("{kind}{last}~").write());
        let items = query.into_paginator().items().send();
        let items: Result<Vec<Item>, _> = items.collect().await;
        items.map_err(failed("reading usage"))
    }
}

/// How often each `error` was answered.
pub type Reasons = BTreeMap<String, u64>;

/// The prefix of the attributes that count reasons.
const REASON: &str = "why_";

/// What a count adds, by attribute.
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
