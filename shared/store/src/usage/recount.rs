//! The recount of usage from the ledger and the decisions.
//!
//! While the row of a recount exists, nothing else is counted, because each counting transaction checks that it is
//! absent. So the checkpoints don't move, and separate the changes that are already counted from those that are not. A
//! recount writes the sums as of the checkpoints: for a settlement with uncounted changes it uses the image before the
//! first of them, for any other the row itself. Afterwards counting continues from the checkpoints.
//!
//! Each write checks that this run still holds the recount, and replaces sums instead of adding to them. So an
//! interrupted recount can be resumed after the last saved owner.
//!
//! One case can't be reconstructed from the ledger: a payment that was released, confirmed late, reverted, released and
//! confirmed late again counts as released once.

use crate::{
    codec::{
        attribute::{Attribute, Item},
        backoff::Backoff,
        fault::{Fault, failed},
        item::{Draft, Row, member},
        key as keys,
        ledger::Ledger,
    },
    payments::decision::read_decision,
    reconcile::outflows::WalletPart,
    stream::change::Change,
    transact::{MOST_ACTIONS, Transaction, TransactionOutcome, was_made},
    usage::{
        checkpoint::{Checkpoint, SequenceNumber},
        key,
        table::{Rows, UsageTable, add, rows_of, sums_item},
    },
};
use aws_sdk_dynamodb::{
    Client,
    types::builders::{ConditionCheckBuilder, DeleteBuilder, PutBuilder},
};
use purser_domain::{
    AgentId, Counted, Day, DecisionResult, Error, LoggedDecision, PersonId, Result, Settlement, SettlementId,
    SettlementState, Timestamp, TransactionId, UsageCount,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The partition and sort key of a row.
type RowKey = (String, String);

/// The changes of settlements and decisions that are not counted yet.
#[derive(Debug, Default)]
pub struct Uncounted {
    /// The sequence number of each settlement's first such change, and the image before it.
    settlements: HashMap<RowKey, (SequenceNumber, Option<Item>)>,
    /// The sequence numbers of those changes that revert a confirmation.
    reverts: HashMap<RowKey, BTreeSet<SequenceNumber>>,
    decisions: HashMap<RowKey, Item>,
}

impl Uncounted {
    /// Adds a record of a shard with this checkpoint if it is not counted yet. Records may be added in any order. A
    /// record that can't be read is left out, as it is not counted later either.
    pub fn add(&mut self, ledger: &Ledger, checkpoint: &Checkpoint, change: &Change) {
        let Some(image) = change.new.as_ref().or(change.old.as_ref()) else {
            return;
        };
        let (Some(place), Some(agent)) = (SequenceNumber::parse(&change.sequence), keys::agent_of(image)) else {
            return;
        };
        if change.is_none() || checkpoint.has(agent, &place) {
            return;
        }
        let row = key_of(image);
        if ledger
            .decisions_table()
            .is_ok_and(|decisions| decisions == change.table)
        {
            if change.old.is_none() {
                self.decisions.insert(row, image.clone());
            }
        } else if row.0 == keys::settlement_partition(agent) {
            if is_revert(change) {
                self.reverts.entry(row.clone()).or_default().insert(place.clone());
            }
            let first = self.settlements.get(&row).is_none_or(|(first, _)| place < *first);
            if first {
                self.settlements.insert(row, (place, change.old.clone()));
            }
        }
    }
}

fn key_of(item: &Item) -> RowKey {
    (keys::partition_key(item).to_owned(), keys::sort_key(item).to_owned())
}

fn is_revert(change: &Change) -> bool {
    let state = |image: &Option<Item>| image.as_ref().and_then(|image| member::<String>(image, "rs"));
    let is = |image, name| state(image).is_some_and(|state| state == name);
    is(&change.old, "confirmed") && is(&change.new, "authorized")
}

/// A recount in progress.
#[derive(Debug)]
pub struct Recount {
    usage: UsageTable,
    ledger: Ledger,
    /// The id of this run. Another run that takes over the recount has another id; then this run fails.
    id: String,
    /// The first and the last day.
    pub days: (Day, Day),
    /// The last owner whose sums are saved.
    after: Option<String>,
}

/// The result of a recount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recounted {
    /// The number of owners whose sums were written.
    pub owners: u64,
    /// The number of rows of settlements and decisions that can't be read and are not counted.
    pub unreadable: u64,
}

/// The rows read for an owner's agents.
struct Read {
    owner: PersonId,
    agents: Vec<AgentId>,
    settlements: Vec<(AgentId, Item)>,
    decisions: Vec<(AgentId, Item)>,
}

/// The number of rows in memory from which on sums are written, some 50 MB.
const MOST_HELD: usize = 20_000;
const DOING: &str = "recounting usage";

impl Recount {
    /// Begins a recount of these days, or takes over a recount in progress and continues with that recount's days.
    pub async fn begin(
        usage: UsageTable,
        ledger: Ledger,
        days: (Day, Day),
        id: String,
        now: Timestamp,
    ) -> Result<Self> {
        let (first, last) = days;
        let row = Draft::of(&key::recount())
            .with("id", &id)
            .with("first", &first.to_string())
            .with("last", &last.to_string())
            .with("t", &now);
        let put = usage
            .db
            .put_item()
            .table_name(&*usage.table)
            .set_item(Some(row.into_item()))
            .condition_expression("attribute_not_exists(pk)");
        if was_made(put.send().await, DOING)? {
            let after = None;
            return Ok(Self {
                usage,
                ledger,
                id,
                days,
                after,
            });
        }
        let get = usage
            .db
            .get_item()
            .table_name(&*usage.table)
            .set_key(Some(key::recount().attributes()))
            .consistent_read(true);
        let item = get.send().await.map_err(failed(DOING))?.item.unwrap_or_default();
        let row = Row::new(&usage.table, &item);
        let before: String = row.get("id")?;
        let day = |name| Day::parse(&row.get::<String>(name)?).ok_or_else(|| row.corrupt(name));
        let (days, after) = ((day("first")?, day("last")?), row.get_optional("after")?);
        let take = usage
            .db
            .update_item()
            .table_name(&*usage.table)
            .set_key(Some(key::recount().attributes()))
            .update_expression("SET id = :id")
            .condition_expression("id = :before")
            .expression_attribute_values(":id", id.write())
            .expression_attribute_values(":before", before.write());
        if !was_made(take.send().await, DOING)? {
            return Err(another());
        }
        Ok(Self {
            usage,
            ledger,
            id,
            days,
            after,
        })
    }

    /// Recounts the days, and lets counting continue.
    ///
    /// `read_streams` adds the records of all shards after their checkpoints. It is called after the tables were read,
    /// and returns once the streams contain everything written until then.
    pub async fn run(mut self, mut read_streams: impl AsyncFnMut(&mut Uncounted) -> Result<()>) -> Result<Recounted> {
        let mut done = Recounted::default();
        let mut uncounted = Uncounted::default();
        let (mut held, mut size) = (Vec::new(), 0_usize);
        let mut owners = self.owners().await?.into_iter().peekable();
        while let Some((owner, agents)) = owners.next() {
            if self.after.as_ref().is_some_and(|after| owner.to_string() <= *after) {
                continue;
            }
            let read = self.read(owner, agents).await?;
            size = size
                .saturating_add(read.settlements.len())
                .saturating_add(read.decisions.len());
            held.push(read);
            if size < MOST_HELD && owners.peek().is_some() {
                continue;
            }
            read_streams(&mut uncounted).await?;
            for read in held.drain(..) {
                let rows = self.sums(&read, &uncounted, &mut done.unreadable);
                self.replace(&read.owner, rows).await?;
                done.owners = done.owners.saturating_add(1);
                self.after = Some(read.owner.to_string());
            }
            self.save().await?;
            size = 0;
        }
        self.end().await?;
        Ok(done)
    }

    /// All owners with their agents, in order of id.
    async fn owners(&self) -> Result<BTreeMap<PersonId, Vec<AgentId>>> {
        let all = WalletPart { index: 0, of: 1 };
        let wallets: Result<Vec<_>> = self.ledger.wallets(all).await?.into_iter().collect();
        let agents: BTreeSet<AgentId> = wallets?.into_iter().map(|(_, agent)| agent).collect();
        let owners = self.ledger.owners(&agents).await?;
        let mut found: BTreeMap<PersonId, Vec<AgentId>> = BTreeMap::new();
        for agent in agents {
            if let Some(owner) = owners.of(agent) {
                found.entry(owner).or_default().push(agent);
            }
        }
        Ok(found)
    }

    async fn read(&self, owner: PersonId, agents: Vec<AgentId>) -> Result<Read> {
        let (first, last) = (self.days.0.start(), self.days.1.plus(1).start());
        let (mut settlements, mut decisions) = (Vec::new(), Vec::new());
        let db = &self.ledger.db;
        for agent in &agents {
            let ids = (
                SettlementId::at(first, [0; 8]).to_string(),
                SettlementId::at(last, [0; 8]).to_string(),
            );
            let found = rows_between(db, &self.ledger.table, keys::settlement_partition(*agent), ids).await?;
            settlements.extend(found.into_iter().map(|item| (*agent, item)));
            // Decisions are read without an upper bound, because a confirmation of these days may have been reverted
            // later.
            let ids = (TransactionId::at(first, [0; 8]).to_string(), "~".to_owned());
            let table = self.ledger.decisions_table()?;
            let found = rows_between(db, table, keys::decision_partition(*agent), ids).await?;
            decisions.extend(found.into_iter().map(|item| (*agent, item)));
        }
        Ok(Read {
            owner,
            agents,
            settlements,
            decisions,
        })
    }

    /// The sums of an owner up to the checkpoints.
    fn sums(&self, read: &Read, uncounted: &Uncounted, unreadable: &mut u64) -> Rows {
        let (first, last) = self.days;
        let mut rows = Rows::new();
        let mut count = |agent, service, decided_at, what| {
            let count = UsageCount {
                owner: read.owner.clone(),
                agent,
                service,
                decided_at,
                what,
            };
            if (first..=last).contains(&Day::of(decided_at)) {
                add(&mut rows, rows_of(&count), &count.what);
            }
        };
        // The number of reverted confirmations, by settlement.
        let mut reverted: HashMap<SettlementId, u64> = HashMap::new();
        let known: BTreeSet<RowKey> = read.decisions.iter().map(|(_, item)| key_of(item)).collect();
        let later = uncounted.decisions.iter().filter(|(key, _)| !known.contains(key));
        let later = later.filter_map(|(_, item)| Some((keys::agent_of(item)?, item)));
        let all = read.decisions.iter().map(|(agent, item)| (*agent, item)).chain(later);
        for (agent, item) in all.filter(|(agent, _)| read.agents.contains(agent)) {
            let is_counted = !uncounted.decisions.contains_key(&key_of(item));
            match read_decision(agent, Row::new("", item), item) {
                Ok(LoggedDecision::Refused(refusal)) if is_counted => {
                    let what = match refusal.result {
                        DecisionResult::Escalate => Counted::Escalated(refusal.error),
                        _ => Counted::Blocked(refusal.error),
                    };
                    count(agent, refusal.service, refusal.at, what);
                }
                Ok(LoggedDecision::ConfirmationReverted(revert)) => {
                    let times = reverted.entry(revert.settlement).or_default();
                    *times = times.saturating_add(1);
                    if let (true, Some(service)) = (is_counted, revert.service) {
                        let decided_at = revert.settlement.authorized_at();
                        count(agent, service, decided_at, Counted::TakenBack(revert.amount));
                    }
                }
                Ok(_) => {}
                Err(_) => *unreadable = unreadable.saturating_add(1),
            }
        }
        for (agent, item) in &read.settlements {
            let key = key_of(item);
            let image = match uncounted.settlements.get(&key) {
                Some((_, before)) => before.as_ref(),
                None => Some(item),
            };
            let Some(image) = image else { continue };
            let Ok(settlement) = self.ledger.read_settlement(*agent, image) else {
                *unreadable = unreadable.saturating_add(1);
                continue;
            };
            let later = uncounted.reverts.get(&key).map_or(0, BTreeSet::len);
            let times = reverted.get(&settlement.terms.id).copied().unwrap_or_default();
            let before = times.saturating_sub(u64::try_from(later).unwrap_or(u64::MAX));
            if let Some(purchase) = settlement.terms.purchase() {
                for what in counted_of(&settlement, before) {
                    count(*agent, purchase.service, settlement.terms.authorized_at, what);
                }
            }
        }
        rows
    }

    /// Replaces the owner's sums of these days with `rows`.
    async fn replace(&self, owner: &PersonId, rows: Rows) -> Result<()> {
        let mut writes: Vec<Write> = Vec::new();
        for key in self.usage.sums_between(owner, self.days).await? {
            if !rows.contains_key(&key) {
                writes.push(Write::Remove(key));
            }
        }
        for (key, sums) in rows {
            writes.push(Write::Put(sums_item(key, &sums)));
        }
        // The check takes one action.
        for writes in writes.chunks(MOST_ACTIONS.saturating_sub(1)) {
            let mut transaction = Transaction::new();
            transaction.check(Role::Mine, self.mine())?;
            for write in writes {
                match write {
                    Write::Put(item) => transaction.put(
                        Role::Sums,
                        PutBuilder::default()
                            .table_name(&*self.usage.table)
                            .set_item(Some(item.clone())),
                    )?,
                    Write::Remove((pk, sk)) => {
                        let key = keys::Key {
                            pk: pk.clone(),
                            sk: sk.clone(),
                        };
                        let delete = DeleteBuilder::default()
                            .table_name(&*self.usage.table)
                            .set_key(Some(key.attributes()));
                        transaction.delete(Role::Sums, delete)?;
                    }
                }
            }
            match transaction
                .send_until_known(&self.usage.db, &mut Backoff::new())
                .await?
            {
                TransactionOutcome::Committed => {}
                TransactionOutcome::Refused(_) => return Err(another()),
            }
        }
        Ok(())
    }

    fn mine(&self) -> ConditionCheckBuilder {
        ConditionCheckBuilder::default()
            .table_name(&*self.usage.table)
            .set_key(Some(key::recount().attributes()))
            .condition_expression("id = :id")
            .expression_attribute_values(":id", self.id.write())
    }

    async fn save(&self) -> Result<()> {
        let update = self
            .usage
            .db
            .update_item()
            .table_name(&*self.usage.table)
            .set_key(Some(key::recount().attributes()))
            .update_expression("SET #after = :after")
            .condition_expression("id = :id")
            .expression_attribute_names("#after", "after")
            .expression_attribute_values(":after", self.after.clone().unwrap_or_default().write())
            .expression_attribute_values(":id", self.id.write());
        if was_made(update.send().await, DOING)? {
            Ok(())
        } else {
            Err(another())
        }
    }

    async fn end(&self) -> Result<()> {
        let delete = self
            .usage
            .db
            .delete_item()
            .table_name(&*self.usage.table)
            .set_key(Some(key::recount().attributes()))
            .condition_expression("id = :id OR attribute_not_exists(pk)")
            .expression_attribute_values(":id", self.id.write());
        if was_made(delete.send().await, DOING)? {
            Ok(())
        } else {
            Err(another())
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    /// The check that this run still holds the recount.
    Mine,
    Sums,
}

enum Write {
    Put(Item),
    Remove(RowKey),
}

fn another() -> Error {
    Error::temporarily_unavailable(DOING, Fault::new("another run has taken it over"))
}

/// The counts of a settlement with `reverted` reverted confirmations.
fn counted_of(settlement: &Settlement, reverted: u64) -> Vec<Counted> {
    let amount = settlement.terms.amount;
    let mut counted = vec![Counted::Authorized(amount)];
    let is_confirmed = matches!(settlement.state, SettlementState::Confirmed { .. });
    for _ in 0..reverted.saturating_add(u64::from(is_confirmed)) {
        counted.push(Counted::Confirmed(amount));
    }
    // A settlement that was confirmed after its release counts from another time.
    let was_released = settlement.counted_at != settlement.terms.authorized_at;
    let is_released = matches!(settlement.state, SettlementState::Expired);
    for _ in 0..u64::from(was_released).saturating_add(u64::from(is_released)) {
        counted.push(Counted::Released(amount));
    }
    counted
}

/// The rows of a partition from one sort key up to another, strongly consistent.
async fn rows_between(db: &Client, table: &str, pk: String, (from, to): (String, String)) -> Result<Vec<Item>> {
    let query = db
        .query()
        .table_name(table)
        .key_condition_expression("pk = :pk AND sk BETWEEN :first AND :last")
        .expression_attribute_values(":pk", pk.write())
        .expression_attribute_values(":first", from.write())
        .expression_attribute_values(":last", to.write())
        .consistent_read(true);
    let items: Result<Vec<Item>, _> = query.into_paginator().items().send().collect().await;
    items.map_err(failed(DOING))
}
