//! Passes the stream records of a run to the functions `events` and `history`, with faults, duplicates and replays.
//!
//! The published events must equal those that [`Facts`] computes from the written rows. The catalog's events are left
//! out (`functions/stream/tests` covers them).

use crate::journaled;
use crate::network::Bus;
use crate::plan::{Fault, OWNERS, Silence, WORKERS, owner_of};
use crate::run::Run;
use crate::stored::StoredState;
use crate::tables::{DECISIONS, Item, Key, LEDGER, USAGE, text};
use purser_domain::{Event, UserId};
use purser_testkit::{Rng, journal_event};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::timeout;

/// The timeout of the function.
const TIME: Duration = Duration::from_secs(55);
const HOUR: i64 = 3_600_000_000;
/// The maximum number of records in a batch. It is small, so that a run has several batches.
const BATCH: u64 = 30;

const NAMES: [&str; OWNERS as usize] = ["ann", "bob", "cid", "dan"];

/// Returns an agent's initial owner.
pub(crate) fn owner(agent: u8) -> UserId {
    person(owner_of(agent))
}

pub(crate) fn person(owner: u8) -> UserId {
    UserId::derive("https://issuer.sim", NAMES[usize::from(owner)])
}

/// The events that the writes so far must cause.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// The number of events by type and by the subject's id.
    told: BTreeMap<(&'static str, String), usize>,
}

impl Facts {
    /// Adds the expected events of a row's change.
    pub(crate) fn note(&mut self, table: &str, key: &Key, before: &StoredState, after: &StoredState) {
        let rows = |stored: &StoredState| match table {
            LEDGER => stored.ledger.get(key).cloned(),
            _ => stored.decisions.get(key).cloned(),
        };
        let (old, Some(new)) = (rows(before), rows(after)) else {
            return;
        };
        let state = |name| old.as_ref().map(|old| text(old, name).to_owned());
        let (prefix, agent) = key.0.split_once('#').unwrap_or_default();
        match (table, prefix) {
            (LEDGER, "S") => {
                let kind = match (state("rs").as_deref(), text(&new, "rs")) {
                    (None, _) => "authorized",
                    (Some("authorized" | "expired"), "confirmed") => "confirmed",
                    (Some("authorized"), "expired") => "released",
                    _ => return,
                };
                let is_payout = text(&new, "kind") == "payout";
                self.tell(named(if is_payout { "payout" } else { "payment" }, kind), &key.1);
            }
            (LEDGER, "AP") => {
                let kind = match (state("st").as_deref(), text(&new, "st")) {
                    (None, _) => "asked",
                    (Some("pending"), "approved" | "rejected") => "decided",
                    (Some("approved"), "executed") => "used",
                    _ => return,
                };
                self.tell(named("approval", kind), text(&new, "txid"));
            }
            (LEDGER, "A") if old.is_none() => self.tell("purser.agent.created.v1", agent),
            (DECISIONS, _) if old.is_none() => {
                let kind = match text(&new, "result") {
                    "block" => "refused",
                    "escalate" => "escalated",
                    "take_back" => "taken_back",
                    other => panic!("no decision: {other}"),
                };
                let is_payout = text(&new, "svc").is_empty();
                self.tell(named(if is_payout { "payout" } else { "payment" }, kind), &key.1);
            }
            _ => {}
        }
    }

    fn tell(&mut self, kind: &'static str, id: &str) {
        *self.told.entry((kind, id.to_owned())).or_default() += 1;
    }
}

fn named(what: &str, kind: &str) -> &'static str {
    let all = purser_domain::EventKind::ALL.iter();
    let wanted = format!("purser.{what}.{kind}.v1");
    all.map(|kind| kind.name())
        .find(|name| *name == wanted)
        .expect("a kind of events")
}

/// Returns the stream record of a change.
pub(crate) fn record_of(table: &str, number: usize, secs: i64, old: Option<&Item>, new: Option<&Item>) -> Value {
    json!({
        "eventSourceARN": format!("arn:aws:dynamodb:sim:123456789012:table/{table}/stream/2026-11-21T00:00:00.000"),
        "dynamodb": {
            "ApproximateCreationDateTime": secs, "SequenceNumber": format!("{number:021}"),
            "OldImage": old, "NewImage": new,
        },
    })
}

fn place_of(record: &Value) -> &str {
    record["dynamodb"]["SequenceNumber"].as_str().expect("a place")
}

/// Returns all stream records in batches of one table.
fn batches_of(records: &[Value], rng: &mut Rng) -> Vec<Vec<Value>> {
    let mut batches = Vec::new();
    for table in [LEDGER, DECISIONS] {
        let is_its = |record: &&Value| {
            let arn = record["eventSourceARN"].as_str().expect("an ARN");
            arn.contains(&format!("/{table}/"))
        };
        let of_table: Vec<Value> = records.iter().filter(is_its).cloned().collect();
        let mut rest = of_table.as_slice();
        while !rest.is_empty() {
            let size = rng.below(BATCH).saturating_add(1);
            let (batch, after) = rest.split_at(rest.len().min(usize::try_from(size).expect("small")));
            batches.push(batch.to_vec());
            rest = after;
        }
    }
    batches
}

/// A stream shard, which `history` must get in order.
struct Shard {
    id: String,
    table: &'static str,
    is_parent: bool,
    records: Vec<Value>,
    /// The number of processed records.
    done: usize,
    /// The number of consecutive failed calls.
    failed: u32,
}

/// Returns the records of each table by shard: a parent shard, and two child shards with half of the agents each.
fn shards_of(records: &[Value], rng: &mut Rng) -> Vec<Shard> {
    let mut shards = Vec::new();
    for table in [LEDGER, DECISIONS] {
        let is_its = |record: &&Value| {
            let arn = record["eventSourceARN"].as_str().expect("an ARN");
            arn.contains(&format!("/{table}/"))
        };
        let of_table: Vec<Value> = records.iter().filter(is_its).cloned().collect();
        let end = rng.index(of_table.len() + 1);
        let (parent, after) = of_table.split_at(end);
        let (one, other) = after.iter().cloned().partition(|record: &Value| {
            let pk = record["dynamodb"]["NewImage"]["pk"]["S"].as_str().unwrap_or_default();
            pk.bytes().fold(0_u8, u8::wrapping_add).is_multiple_of(2)
        });
        for (name, mut records) in [("parent", parent.to_vec()), ("one", one), ("other", other)] {
            if table == LEDGER && !records.is_empty() {
                let place = rng.index(records.len());
                records.insert(place, poison(0));
            }
            shards.push(Shard {
                id: format!("shardId-{table}-{name}"),
                table,
                is_parent: name == "parent",
                records,
                done: 0,
                failed: 0,
            });
        }
    }
    shards
}

/// Returns a record that can't be parsed: a settlement without attributes.
fn poison(number: usize) -> Value {
    let image = json!({"pk": {"S": format!("S#{}", crate::people::agent_id(0))}, "sk": {"S": "poison"}});
    let mut record = record_of(LEDGER, number, 1_795_219_200, None, None);
    record["dynamodb"]["NewImage"] = image;
    record
}

/// Draws a fault of a call to storage, queues or KMS.
pub(crate) fn fault(rng: &mut Rng) -> Fault {
    let silence = *rng.pick(&[Silence::Broken, Silence::Error, Silence::Nothing]);
    let millis = u16::try_from(rng.below(5_000)).expect("small");
    *rng.pick(&[
        Fault::CrashBefore,
        Fault::CrashAfter,
        Fault::LostRequest(silence),
        Fault::LostAnswer(silence),
        Fault::Late(millis),
        Fault::Conflict,
        Fault::Throttled,
        Fault::Slow(millis),
    ])
}

impl Run {
    /// Passes the run's stream records to `events`, and checks the published events.
    pub(crate) async fn tell(&self, seed: u64, step: usize) {
        let mut rng = Rng::from_seed(seed ^ 5);
        let records = self.world.record().stream.clone();
        let mut batches = batches_of(&records, &mut rng);
        let poisoned: Vec<Value> = (1..3).map(|number| poison(records.len() + number)).collect();
        for record in &poisoned {
            let batch = rng.index(batches.len());
            let place = rng.index(batches[batch].len());
            batches[batch].insert(place, record.clone());
        }
        for _ in 0..8 {
            self.set_bus(*rng.pick(&[Bus::Up, Bus::Up, Bus::Down, Bus::RefusesEach(3)]));
            let [one, other] = [(); 2].map(|()| self.any_call(&batches, &mut rng));
            if rng.one_in(3) {
                tokio::join!(self.deliver(step, 0, one), self.deliver(step, 1, other));
            } else {
                self.deliver(step, rng.index(WORKERS), one).await;
            }
        }
        self.landed().await;
        self.fold(step, shards_of(&records, &mut rng), &mut rng).await;
        self.as_a_mapping(step, &batches, &mut rng).await;
        self.set_bus(Bus::Up);
        for _ in 0..2 {
            let again = self.any_call(&batches, &mut rng);
            self.deliver(step, 2, again).await;
        }
        self.expire(step, &mut rng).await;
        self.landed().await;
        for what in self.compared(&poisoned) {
            self.world.complain(what);
        }
    }

    /// Returns a random batch with faults. It may be repeated or reversed.
    fn any_call(&self, batches: &[Vec<Value>], rng: &mut Rng) -> (Vec<Value>, Vec<(u8, Fault)>) {
        let mut batch = rng.pick(batches).clone();
        if rng.one_in(4) {
            batch.reverse();
        }
        if rng.one_in(4) {
            batch.extend(batch.clone());
        }
        let faults = (0..rng.below(3)).map(|_| (rng.small(9), fault(rng))).collect();
        (batch, faults)
    }

    fn set_bus(&self, bus: Bus) {
        self.world.record().bus = bus;
    }

    /// Calls `events` with a batch. Returns the records that must be repeated.
    async fn deliver(&self, step: usize, worker: usize, call: (Vec<Value>, Vec<(u8, Fault)>)) -> Vec<Value> {
        let (batch, faults) = call;
        let event = json!({"Records": batch});
        let Some(answer) = self.call_events(step, worker, &event, faults, "Tell").await else {
            return batch;
        };
        let failed = answer["batchItemFailures"][0]["itemIdentifier"].as_str();
        let Some(failed) = failed else {
            return Vec::new();
        };
        let first = batch.iter().position(|record| place_of(record) == failed);
        batch[first.expect("a place of the batch")..].to_vec()
    }

    async fn call_events(
        &self,
        step: usize,
        worker: usize,
        event: &Value,
        faults: Vec<(u8, Fault)>,
        name: &str,
    ) -> Option<Value> {
        let (link, events) = self.events_on(worker);
        // A kill that comes after the end of its step has no effect.
        tokio::select! {
            biased;
            () = link.crashed() => {}
            () = std::future::ready(()) => {}
        }
        link.begin(step, 7, faults);
        let answer = tokio::select! {
            biased;
            () = link.crashed() => None,
            answer = timeout(TIME, async {
                match event.get("shardId") {
                    Some(_) => self.history_on(worker).handle_event(event).await,
                    None => events.handle_event(event, TIME).await,
                }
            }) => Some(answer),
        };
        let faults_seen = self.ended(worker);
        let (answer, what) = match answer {
            None => (None, "crashed"),
            Some(Err(_)) => (None, "out of time"),
            Some(Ok(Err(_))) => (None, "failed"),
            Some(Ok(Ok(answer))) if answer["batchItemFailures"][0].is_object() => (Some(answer), "in part"),
            Some(Ok(Ok(answer))) => (Some(answer), "done"),
        };
        self.world.count(format!("{name} {what}"));
        let undisturbed = faults_seen.faults.is_empty() && self.world.record().bus == Bus::Up;
        if undisturbed && what != "done" && self.world.record().flying() == 0 {
            self.world.complain(format!("{name} ended without cause: {what}"));
        }
        answer
    }

    /// Passes each stream in order to `events`, and repeats each batch until it is processed.
    async fn as_a_mapping(&self, step: usize, batches: &[Vec<Value>], rng: &mut Rng) {
        for batch in batches {
            let mut rest = batch.clone();
            if rng.one_in(4) {
                self.set_bus(Bus::Down);
                rest = self.deliver(step, 0, (rest, Vec::new())).await;
                self.world.advance_clock(HOUR);
            }
            self.set_bus(Bus::Up);
            rest = self.deliver(step, 0, (rest, Vec::new())).await;
            if !rest.is_empty() {
                self.world.complain(format!("{} records are not done", rest.len()));
            }
        }
    }

    /// Passes the shards to `history`, each in order and a child after its parent. Retries may overlap with earlier
    /// calls, and in the end every shard is repeated once.
    async fn fold(&self, step: usize, mut shards: Vec<Shard>, rng: &mut Rng) {
        loop {
            let is_waiting = |shard: &Shard| shard.done < shard.records.len();
            let parents: BTreeSet<&str> = shards
                .iter()
                .filter(|shard| shard.is_parent && is_waiting(shard))
                .map(|shard| shard.table)
                .collect();
            let next: Vec<usize> = (0..shards.len())
                .filter(|index| {
                    let shard = &shards[*index];
                    is_waiting(shard) && (shard.is_parent || !parents.contains(shard.table))
                })
                .collect();
            if next.is_empty() {
                break;
            }
            let shard = &mut shards[*rng.pick(&next)];
            let begin = match rng.one_in(4) {
                true => rng.index(shard.done + 1),
                false => shard.done,
            };
            let size = 1 + usize::try_from(rng.below(BATCH)).expect("small");
            let end = shard.records.len().min(shard.done + size);
            let event = journal_event(&shard.records[begin..end], &shard.id);
            let faults = match shard.failed {
                0..3 => (0..rng.below(3)).map(|_| (rng.small(9), fault(rng))).collect(),
                _ => Vec::new(),
            };
            let answer = if rng.one_in(4) {
                let (one, other) = tokio::join!(
                    self.call_events(step, 0, &event, faults, "Fold"),
                    self.call_events(step, 1, &event, Vec::new(), "Fold"),
                );
                one.or(other)
            } else {
                self.call_events(step, 0, &event, faults, "Fold").await
            };
            if answer.is_some() {
                (shard.done, shard.failed) = (end, 0);
            } else {
                shard.failed += 1;
                self.landed().await;
            }
        }
        self.landed().await;
        for shard in shards.iter().filter(|shard| !shard.records.is_empty()) {
            let event = journal_event(&shard.records, &shard.id);
            self.call_events(step, 0, &event, Vec::new(), "Fold").await;
        }
    }

    /// Runs the sweep of expired approvals, first with a fault and then without.
    async fn expire(&self, step: usize, rng: &mut Rng) {
        self.world.advance_clock(3 * HOUR);
        let schedule = json!({"detail": "{}"});
        let faults = vec![(rng.small(5), fault(rng))];
        self.call_events(step, 1, &schedule, faults, "Sweep").await;
        self.landed().await;
        self.call_events(step, 1, &schedule, Vec::new(), "Sweep").await;
        let mut record = self.world.record();
        let unused: Vec<String> = record
            .stored
            .all("AP#", "")
            .filter(|(_, row)| ["pending", "approved"].contains(&text(row, "st")))
            .map(|(_, row)| text(row, "txid").to_owned())
            .collect();
        for transaction in unused {
            record.facts.tell(named("approval", "expired"), &transaction);
        }
    }

    /// Returns the differences between the writes and what was published.
    fn compared(&self, poisoned: &[Value]) -> Vec<String> {
        let record = self.world.record();
        let mut found = Vec::new();
        let mut seen = BTreeSet::new();
        let mut told: BTreeMap<(&'static str, String), usize> = BTreeMap::new();
        for detail in &record.told {
            let event = Event::parse(detail.to_string().as_bytes()).expect("one of our events");
            let id = id_of(&event);
            if let (true, Some(id)) = (seen.insert(event.id()), id) {
                *told.entry((event.kind().name(), id)).or_default() += 1;
            }
        }
        let all: BTreeSet<_> = told.keys().chain(record.facts.told.keys()).collect();
        for fact in all {
            let [is, should] = [&told, &record.facts.told].map(|facts| facts.get(fact).copied().unwrap_or(0));
            if is != should {
                found.push(format!(
                    "{} of {} was told {is} times and happened {should}",
                    fact.0, fact.1
                ));
            }
        }
        let usage = self.world.tables.rows(USAGE, None);
        found.extend(journaled::differences(&record.stored, &usage));
        let aside: BTreeSet<String> = usage
            .keys()
            .filter(|(pk, _)| pk == "ASIDE")
            .filter_map(|(_, sk)| sk.split_once('#').map(|(_, place)| place.to_owned()))
            .collect();
        let poisoned: BTreeSet<String> = poisoned.iter().map(|record| place_of(record).to_owned()).collect();
        if aside != poisoned {
            found.push(format!("set aside was {aside:?}, and could not be read {poisoned:?}"));
        }
        found
    }
}

/// Returns the id of an event's subject; `None` for an event that [`Facts`] leaves out.
fn id_of(event: &Event) -> Option<String> {
    let member = |name| event.data().find_text(name).map(str::to_owned);
    let name = event.kind().name();
    match name {
        "purser.payment.authorized.v1"
        | "purser.payment.confirmed.v1"
        | "purser.payment.released.v1"
        | "purser.payout.authorized.v1"
        | "purser.payout.confirmed.v1"
        | "purser.payout.released.v1" => member("settlement_id"),
        "purser.payout.taken_back.v1" => member("transaction_id"),
        "purser.agent.created.v1" => Some(event.subject().to_string()),
        _ if name.starts_with("purser.payment.") || name.starts_with("purser.approval.") => member("transaction_id"),
        _ => None,
    }
}
