//! At the end of a run the records of the tables' streams are passed to `events`. First they are published duplicated,
//! out of order and replayed, with faults in the calls and a bus that is down; then once more, as a mapping does, until
//! every batch is done. They are counted shard by shard, in order, with faults, replays and reshards.
//!
//! The events and sums must then equal those of the writes themselves, which [`Facts`] notes by a second, simpler
//! reading of the rows as they are written.
//!
//! The catalog is not published here: `functions/events/tests` covers it.

use crate::network::Bus;
use crate::plan::{Fault, Silence, WORKERS};
use crate::run::Run;
use crate::stored::StoredState;
use crate::tables::{DECISIONS, Item, Key, LEDGER, USAGE, number, text};
use dynoxide::types::AttributeValue;
use purser_domain::{Day, Event, PersonId, Timestamp};
use purser_testkit::{Rng, counting};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::timeout;

/// The timeout of the function.
const TIME: Duration = Duration::from_secs(55);
/// An hour, in microseconds.
const HOUR: i64 = 3_600_000_000;
/// The maximum number of records in a batch: small, so that a run's writes need several batches.
const BATCH: u64 = 30;

/// The owner of every agent.
pub(crate) fn owner() -> PersonId {
    PersonId::of("https://issuer.sim", "ann")
}

/// Sums by attribute.
type Sums = BTreeMap<String, u64>;

/// The expected events and sums of all writes so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// The number of events, by type and by the id of the subject.
    told: BTreeMap<(&'static str, String), usize>,
    /// The sums added to the rows of the usage table.
    counted: BTreeMap<Key, Sums>,
}

impl Facts {
    /// Notes the meaning of a row's change.
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
        let amount = number(&new, "amt").unsigned_abs();
        match (table, prefix) {
            (LEDGER, "S") => {
                let (kind, units, count) = match (state("rs").as_deref(), text(&new, "rs")) {
                    (None, _) => ("authorized", "au", "an"),
                    (Some("authorized" | "expired"), "confirmed") => ("confirmed", "cu", "cn"),
                    (Some("authorized"), "expired") => ("released", "ru", "rn"),
                    _ => return,
                };
                self.tell(named("payment", kind), &key.1);
                let sums = [(units.to_owned(), amount), (count.to_owned(), 1)];
                self.count(agent, text(&new, "svc"), number(&new, "t"), &sums);
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
            (DECISIONS, _) if old.is_none() => self.note_decision(agent, &key.1, &new, amount, after),
            _ => {}
        }
    }

    fn note_decision(&mut self, agent: &str, id: &str, row: &Item, amount: u64, after: &StoredState) {
        let why = format!("why_{}", text(row, "error"));
        let (kind, at, sums) = match text(row, "result") {
            "block" => ("refused", number(row, "t"), [("bn".to_owned(), 1), (why, 1)]),
            "escalate" => ("escalated", number(row, "t"), [("en".to_owned(), 1), (why, 1)]),
            "take_back" => {
                let settlement = after.settlement(agent, text(row, "sid")).expect("a settlement");
                let sums = [("tu".to_owned(), amount), ("tn".to_owned(), 1)];
                ("taken_back", number(settlement, "t"), sums)
            }
            other => panic!("no decision: {other}"),
        };
        self.tell(named("payment", kind), id);
        self.count(agent, text(row, "svc"), at, &sums);
    }

    fn tell(&mut self, kind: &'static str, id: &str) {
        *self.told.entry((kind, id.to_owned())).or_default() += 1;
    }

    fn count(&mut self, agent: &str, service: &str, at: i64, sums: &[(String, u64)]) {
        let day = Day::of(Timestamp::from_micros(at).expect("an instant"));
        let of_owner = format!("O#{}", owner());
        // The partition is chosen by the last digit but one of the agent's id.
        let digits: Vec<u32> = agent.chars().filter_map(|digit| digit.to_digit(16)).collect();
        let part = digits[digits.len() - 2] % 4;
        let rows = [
            (of_owner.clone(), format!("D#{day}")),
            (format!("{of_owner}#{part}"), format!("P#{day}#{agent}#{service}")),
        ];
        for row in rows {
            let row = self.counted.entry(row).or_default();
            for (name, more) in sums {
                *row.entry(name.clone()).or_default() += more;
            }
        }
    }

    /// The sum of an attribute over all days.
    fn sum(&self, name: &str) -> u64 {
        let days = self.counted.iter().filter(|((_, sk), _)| sk.starts_with("D#"));
        days.filter_map(|(_, sums)| sums.get(name)).sum()
    }
}

fn named(what: &str, kind: &str) -> &'static str {
    let all = purser_domain::EventKind::ALL.iter();
    let wanted = format!("purser.{what}.{kind}.v1");
    all.map(|kind| kind.name())
        .find(|name| *name == wanted)
        .expect("a kind of events")
}

/// The stream record of a change.
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

/// All stream records, in batches by table.
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

/// Each table's records by shard: a first shard, and two child shards that continue with half of the agents each.
/// A parent comes before its children.
fn shards_of(records: &[Value], rng: &mut Rng) -> Vec<(String, Vec<Value>)> {
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
        for (shard, records) in [("parent", parent.to_vec()), ("one", one), ("other", other)] {
            if !records.is_empty() {
                shards.push((format!("shardId-{table}-{shard}"), records));
            }
        }
    }
    shards
}

/// An unreadable row: a settlement without its attributes. Its sequence number is unique.
fn poison(number: usize) -> Value {
    let image = json!({"pk": {"S": format!("S#{}", crate::people::agent_id(0))}, "sk": {"S": "poison"}});
    let mut record = record_of(LEDGER, number, 1_795_219_200, None, None);
    record["dynamodb"]["NewImage"] = image;
    record
}

fn fault(rng: &mut Rng) -> Fault {
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
    /// Passes the run's writes to `events`, and compares the outcome.
    pub(crate) async fn tell(&self, seed: u64, step: usize) {
        let mut rng = Rng::of(seed ^ 5);
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
        self.count(step, shards_of(&records, &mut rng), &mut rng).await;
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

    /// A random batch, possibly doubled or reversed, with faults.
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

    /// Calls the function with a batch. Returns the records to repeat: all of them if the function was killed or
    /// failed.
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
        // Discards a kill that came after its step had ended.
        tokio::select! {
            biased;
            () = link.crashed() => {}
            () = std::future::ready(()) => {}
        }
        link.begin(step, 7, faults);
        let answer = tokio::select! {
            biased;
            () = link.crashed() => None,
            answer = timeout(TIME, events.call(event, TIME)) => Some(answer),
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
        if undisturbed && what != "done" && self.world.record().flying == 0 {
            self.world.complain(format!("{name} ended without cause: {what}"));
        }
        answer
    }

    /// Passes each stream in order, and each batch until it is done.
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

    /// Passes each shard as a counting mapping does: in order, with retries on failure. A retried batch may begin
    /// earlier, end elsewhere, and overlap with the call before. When all is done, every shard is repeated once.
    async fn count(&self, step: usize, mut shards: Vec<(String, Vec<Value>)>, rng: &mut Rng) {
        for (shard, records) in &mut shards {
            if shard.contains(LEDGER) {
                let place = rng.index(records.len());
                records.insert(place, poison(0));
            }
            let (mut done, mut failed) = (0, 0);
            while done < records.len() {
                let begin = if rng.one_in(4) { rng.index(done + 1) } else { done };
                let size = 1 + usize::try_from(rng.below(BATCH)).expect("small");
                let end = records.len().min(done + size);
                let event = counting(&records[begin..end], shard);
                let faults = match failed {
                    0..3 => (0..rng.below(3)).map(|_| (rng.small(9), fault(rng))).collect(),
                    _ => Vec::new(),
                };
                let answer = if rng.one_in(4) {
                    let (one, other) = tokio::join!(
                        self.call_events(step, 0, &event, faults, "Count"),
                        self.call_events(step, 1, &event, Vec::new(), "Count"),
                    );
                    one.or(other)
                } else {
                    self.call_events(step, 0, &event, faults, "Count").await
                };
                if answer.is_some() {
                    (done, failed) = (end, 0);
                } else {
                    failed += 1;
                    self.landed().await;
                }
            }
        }
        self.landed().await;
        for (shard, records) in &shards {
            self.call_events(step, 0, &counting(records, shard), Vec::new(), "Count")
                .await;
        }
    }

    /// Sweeps after every approval has ended: first with a fault, and then without.
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

    /// The differences between what was published and counted and what was written.
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
        let is_sum = |key: &Key| key.0.starts_with("O#");
        let counted: BTreeMap<Key, Sums> = usage
            .iter()
            .filter(|(key, _)| is_sum(key))
            .map(|(key, row)| (key.clone(), sums_in(row)))
            .collect();
        if counted != record.facts.counted {
            found.push(format!(
                "counted was {counted:?}, and happened {:?}",
                record.facts.counted
            ));
        }
        let aside: BTreeSet<String> = usage
            .keys()
            .filter(|(pk, _)| pk == "ASIDE")
            .filter_map(|(_, sk)| sk.split_once('#').map(|(_, place)| place.to_owned()))
            .collect();
        let poisoned: BTreeSet<String> = poisoned.iter().map(|record| place_of(record).to_owned()).collect();
        if aside != poisoned {
            found.push(format!("set aside was {aside:?}, and could not be read {poisoned:?}"));
        }
        found.extend(of_the_ledger(&record.stored, &record.facts));
        found
    }
}

/// The difference, if any, between the counted sums and those that the ledger shows at the end.
fn of_the_ledger(stored: &StoredState, facts: &Facts) -> Option<String> {
    let units = |is: &dyn Fn(&str) -> bool| -> u64 {
        let those = stored.settlements().filter(|(_, _, row)| is(text(row, "rs")));
        those.map(|(_, _, row)| number(row, "amt").unsigned_abs()).sum()
    };
    let ledger = (units(&|_| true), units(&|state| state == "confirmed"));
    let sums = (facts.sum("au"), facts.sum("cu") - facts.sum("tu"));
    (ledger != sums).then(|| format!("the ledger has {ledger:?}, what happened sums to {sums:?}"))
}

/// The id of an event's subject as in [`Facts`]; `None` for an event that [`Facts`] does not note.
fn id_of(event: &Event) -> Option<String> {
    let member = |name| event.data().get_text(name).map(str::to_owned);
    let name = event.kind().name();
    match name {
        "purser.payment.authorized.v1" | "purser.payment.confirmed.v1" | "purser.payment.released.v1" => {
            member("settlement_id")
        }
        "purser.agent.created.v1" => Some(event.subject().to_string()),
        _ if name.starts_with("purser.payment.") || name.starts_with("purser.approval.") => member("transaction_id"),
        _ => None,
    }
}

fn sums_in(row: &Item) -> Sums {
    let numbers = row.iter().filter_map(|(name, value)| match value {
        AttributeValue::N(digits) => Some((name.clone(), digits.parse().expect("a number"))),
        _ => None,
    });
    numbers.collect()
}
