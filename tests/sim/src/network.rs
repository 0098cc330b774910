//! The network between the functions and their dependencies, with time, tables and chain.
//!
//! [`Link::pass`] delays each call, so that only the plan determines the order of calls. It also applies the faults of
//! a step. A sent call continues without its sender, and may take effect after the sender gave up or died.

use crate::chain::{Chain, Logs, View};
use crate::coverage::Coverage;
use crate::kms::{self, Kms};
use crate::laws;
use crate::modelled::Modelled;
use crate::plan::{FIRST_ENDPOINT, Fault, KMS, SECOND_ENDPOINT, Silence, WORKERS};
use crate::queues::Queues;
use crate::stored::{StoredState, same};
use crate::tables::{DECISIONS, Key, LEDGER, THROTTLE, Tables, written};
use crate::telling::{Facts, record_of};
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::body::SdkBody;
use purser_chain::{ChainError, Exchange, NODE_TIMEOUT, Node};
use purser_testkit::Rng;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep};

/// Time, tables and chain of a run.
pub(crate) struct World {
    pub(crate) tables: Tables,
    pub(crate) chain: Mutex<Chain>,
    pub(crate) record: Mutex<Record>,
    pub(crate) secrets: BTreeMap<&'static str, String>,
    kms: Kms,
    pub(crate) queues: Queues,
    began: Instant,
    /// The start time of the run, plus the time that the plan skipped, in microseconds since 1970.
    epoch: AtomicI64,
    clocks: [(Arc<AtomicI64>, i64); WORKERS],
}

/// What is recorded during a run.
#[derive(Default)]
pub(crate) struct Record {
    /// The current rows.
    pub(crate) stored: StoredState,
    /// The states since the beginning of the round, oldest first.
    pub(crate) moments: Vec<Moment>,
    /// The violations found so far.
    pub(crate) complaints: Vec<String>,
    pub(crate) coverage: Coverage,
    pub(crate) events: Vec<Event>,
    pub(crate) known: laws::KnownFacts,
    /// The model that makes the same transitions; `None` once the run is too large for the model.
    pub(crate) modelled: Option<Modelled>,
    /// The number of storage calls without a response, by the agents that a call may concern.
    flying: BTreeMap<Concern, usize>,
    /// The number of calls by API key or address, and by the minute on the called process's clock.
    pub(crate) calls: BTreeMap<(String, i64), usize>,
    /// By step, the number of faults in writes that count calls or payments. A repeated write counts twice.
    pub(crate) miscounted: BTreeMap<usize, usize>,
    /// The throttled partition.
    pub(crate) busy: Option<Busy>,
    /// The records of the tables' streams, oldest first.
    pub(crate) stream: Vec<Value>,
    /// The events and sums that the functions must publish.
    pub(crate) facts: Facts,
    /// The entries that the event bus accepted, including duplicates.
    pub(crate) told: Vec<Value>,
    pub(crate) bus: Bus,
    held: BTreeSet<(String, Key)>,
    /// The idempotency tokens of committed transactions.
    made: BTreeSet<String>,
}

/// A throttled partition, which accepts one call a second.
pub(crate) struct Busy {
    /// The prefix of the partition key.
    pub(crate) pk: String,
    /// The end of the throttling, in microseconds since 1970.
    pub(crate) until: i64,
    /// The second in which the partition accepted its last call.
    pub(crate) last: i64,
}

/// The agents that a storage call may concern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Concern {
    /// The agents of one owner.
    Owner(u8),
    Everybody,
    /// No agent, because the call counts calls or records the use of an API key.
    Counter,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Bus {
    #[default]
    Up,
    /// The event bus responds to each call with 500.
    Down,
    /// The event bus rejects every n-th entry of a call.
    RefusesEach(usize),
}

/// A stored state, and when it began.
#[derive(Clone)]
pub(crate) struct Moment {
    pub(crate) stored: StoredState,
    /// The step that wrote the state.
    pub(crate) step: usize,
}

/// A call in the run's trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) at: i64,
    pub(crate) step: usize,
    pub(crate) worker: usize,
    pub(crate) call: u8,
    pub(crate) what: String,
    pub(crate) fault: Option<Fault>,
    pub(crate) status: u16,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            at,
            step,
            worker,
            call,
            what,
            fault,
            status,
        } = self;
        write!(f, "{at} step {step} on {worker}, call {call}: {what} -> {status}")?;
        fault.map_or(Ok(()), |fault| write!(f, " {fault:?}"))
    }
}

impl World {
    pub(crate) fn new(
        chain: Chain,
        secrets: BTreeMap<&'static str, String>,
        epoch: i64,
        skews: [i32; WORKERS],
    ) -> Arc<Self> {
        let clock = |skew: i32| (Arc::new(AtomicI64::new(epoch)), i64::from(skew) * 1_000_000);
        Arc::new(Self {
            tables: Tables::new(),
            chain: Mutex::new(chain),
            record: Mutex::new(Record {
                modelled: Some(Modelled::default()),
                ..Record::default()
            }),
            secrets,
            kms: Kms::new(epoch.unsigned_abs()),
            queues: Queues::new(epoch),
            began: Instant::now(),
            epoch: AtomicI64::new(epoch),
            clocks: skews.map(clock),
        })
    }

    pub(crate) fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().expect("not poisoned")
    }

    pub(crate) fn chain(&self) -> MutexGuard<'_, Chain> {
        self.chain.lock().expect("not poisoned")
    }

    /// Returns the time in microseconds since 1970, without clock skew.
    pub(crate) fn now(&self) -> i64 {
        let now = self.epoch_now();
        for (clock, skew) in &self.clocks {
            clock.store(now + skew, SeqCst);
        }
        self.queues.set_time(now);
        self.chain()
            .advance(u64::try_from(now / 1_000_000).expect("after the epoch"));
        now
    }

    fn epoch_now(&self) -> i64 {
        let elapsed = i64::try_from(self.began.elapsed().as_micros()).expect("hours");
        self.epoch.load(SeqCst) + elapsed
    }

    fn now_secs(&self) -> i64 {
        self.epoch_now() / 1_000_000
    }

    pub(crate) fn advance_clock(&self, micros: i64) {
        self.epoch.fetch_add(micros.max(0), SeqCst);
        self.now();
    }

    pub(crate) fn clock(&self, worker: usize) -> Arc<AtomicI64> {
        Arc::clone(&self.clocks[worker].0)
    }

    pub(crate) fn clock_of(&self, worker: usize) -> i64 {
        self.now() + self.clocks[worker].1
    }

    pub(crate) fn skew(&self, worker: usize) -> i64 {
        self.clocks[worker].1
    }

    pub(crate) fn complain(&self, what: impl Into<String>) {
        self.record().complaints.push(what.into());
    }

    pub(crate) fn count(&self, what: impl Into<String>) {
        self.record().coverage.count(what);
    }

    /// Executes a storage call, and checks the changes.
    fn carry_out(
        &self,
        step: usize,
        worker: usize,
        operation: &str,
        body: &[u8],
        keys: &[(String, Key)],
    ) -> (u16, Vec<u8>) {
        let answer = self.tables.call(operation, body);
        if answer.0 == 200 && !keys.is_empty() {
            self.look(step, worker, keys);
        }
        answer
    }

    /// Responds to `PutEvents`.
    fn put_events(&self, body: &[u8]) -> (u16, Vec<u8>) {
        let request: Value = serde_json::from_slice(body).expect("the SDK writes JSON");
        let mut record = self.record();
        let each = match record.bus {
            Bus::Up => usize::MAX,
            Bus::Down => return (500, of_bus("InternalException")),
            Bus::RefusesEach(each) => each,
        };
        let mut answers = Vec::new();
        for (number, entry) in (1..).zip(request["Entries"].as_array().into_iter().flatten()) {
            let refused = usize::is_multiple_of(number, each);
            answers.push(if refused {
                json!({"ErrorCode": "ThrottlingException"})
            } else {
                let detail = entry["Detail"].as_str().expect("a text");
                record.told.push(serde_json::from_str(detail).expect("JSON"));
                json!({"EventId": number.to_string()})
            });
        }
        assert!((1..=10).contains(&answers.len()), "at most ten entries");
        (200, json!({"Entries": answers}).to_string().into_bytes())
    }

    /// Returns whether a call is for a throttled partition that has already accepted a call in this second.
    fn is_busy(&self, call: &Call) -> bool {
        let (Call::Table { operation, body }, now) = (call, self.epoch_now()) else {
            return false;
        };
        let mut record = self.record();
        let Some(busy) = record.busy.as_mut().filter(|busy| now < busy.until) else {
            return false;
        };
        let is_meant = std::str::from_utf8(body).is_ok_and(|body| body.contains(&busy.pk));
        // The SDK repeats the unprocessed keys of a `BatchGetItem`, but not single keys of a `TransactGetItems`.
        if !is_meant || operation == "TransactGetItems" {
            return false;
        }
        let is_over = busy.last == now / 1_000_000;
        busy.last = now / 1_000_000;
        if is_over {
            record.coverage.count("throttled by a busy partition");
        }
        is_over
    }

    fn look(&self, step: usize, worker: usize, keys: &[(String, Key)]) {
        self.look_at_webhooks(keys);
        self.look_at_notices(step, worker, keys);
        if keys
            .iter()
            .all(|(table, _)| ![LEDGER, DECISIONS].contains(&table.as_str()))
        {
            return;
        }
        let skew = self.skew(worker);
        let mut record = self.record();
        let before = record.stored.clone();
        let after = before.refreshed(&self.tables, keys);
        let mut seen = BTreeSet::new();
        let is_changed = |(table, key): &(String, Key)| match table.as_str() {
            LEDGER => !same(before.ledger.get(key), after.ledger.get(key)),
            DECISIONS => !same(before.decisions.get(key), after.decisions.get(key)),
            _ => false,
        };
        let keys = keys.iter().filter(|key| seen.insert(*key) && is_changed(key));
        let keys: Vec<(String, Key)> = keys.cloned().collect();
        if keys.is_empty() {
            return;
        }
        let chain = self.chain();
        let mut found = laws::of_change((&before, &after), &keys, &record.known, &chain, step, skew);
        found.extend(laws::of_state(&after));
        for what in laws::noteworthy(&before, &after) {
            record.coverage.count(what);
        }
        drop(chain);
        match record
            .modelled
            .as_mut()
            .map(|model| model.follow(&before, &after, &keys))
        {
            Some(Some(differences)) => found.extend(differences),
            Some(None) => {
                record.modelled = None;
                record.coverage.count("too big for the model");
            }
            None => {}
        }
        record.complaints.extend(found);
        record.known.note(&before, &after);
        record.pass_on(&keys, &before, &after, self.now_secs());
        record.stored = after.clone();
        record.moments.push(Moment { stored: after, step });
    }
}

impl Record {
    /// Returns the number of storage calls without a response.
    pub(crate) fn flying(&self) -> usize {
        self.flying.values().sum()
    }

    /// Returns the number of storage calls without a response that may concern this owner's agents; all of them for
    /// `None`.
    pub(crate) fn flying_beside(&self, owner: Option<u8>) -> usize {
        let concerns = |concern: &Concern| match (*concern, owner) {
            (Concern::Counter, _) => false,
            (Concern::Owner(one), Some(owner)) => one == owner,
            _ => true,
        };
        let flying = self.flying.iter().filter(|(concern, _)| concerns(concern));
        flying.map(|(_, count)| count).sum()
    }

    fn begin_flight(&mut self, concern: Concern) {
        *self.flying.entry(concern).or_default() += 1;
    }

    fn end_flight(&mut self, concern: Concern) {
        *self.flying.entry(concern).or_default() -= 1;
    }

    /// Adds the changed rows to the streams.
    fn pass_on(&mut self, keys: &[(String, Key)], before: &StoredState, after: &StoredState, secs: i64) {
        for (table, key) in keys {
            let of = |stored: &StoredState| match table.as_str() {
                LEDGER => stored.ledger.get(key).cloned(),
                _ => stored.decisions.get(key).cloned(),
            };
            let (old, new) = (of(before), of(after));
            let record = record_of(table, self.stream.len(), secs, old.as_deref(), new.as_deref());
            self.stream.push(record);
            self.facts.note(table, key, before, after);
        }
    }
}

/// The step that a process is working on.
#[derive(Default)]
struct Errand {
    step: usize,
    pace: u16,
    faults: Vec<(u8, Fault)>,
    calls: u8,
    /// The balances that the step has read from the chain.
    balances: Vec<u64>,
    faults_seen: Vec<Fault>,
}

/// The faults and the balances in the calls of a step.
#[derive(Debug, Default)]
pub(crate) struct FaultsSeen {
    pub(crate) faults: Vec<Fault>,
    pub(crate) balances: Vec<u64>,
}

/// The connection from one process to its dependencies.
pub(crate) struct Link {
    pub(crate) world: Arc<World>,
    pub(crate) worker: usize,
    errand: Mutex<Errand>,
    crash: Notify,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Link({})", self.worker)
    }
}

/// What the caller of a call gets.
enum Reply {
    Answer(u16, Vec<u8>),
    Broken,
    /// No response.
    Silent,
}

enum Call {
    Table {
        operation: String,
        body: Vec<u8>,
    },
    Chain {
        endpoint: u8,
        method: &'static str,
        params: Value,
    },
    Bus {
        body: Vec<u8>,
    },
    /// A withdrawal for the facilitator.
    Settle {
        body: Vec<u8>,
    },
    Kms {
        operation: String,
        body: Vec<u8>,
    },
    /// A mail from the function `notices`.
    Mail {
        body: Vec<u8>,
    },
    /// A call to SQS or KMS from the function `webhooks` or `notices`.
    Webhooks {
        operation: String,
        body: Vec<u8>,
    },
}

impl Call {
    fn name(&self) -> &str {
        match self {
            Self::Table { operation, .. } | Self::Kms { operation, .. } | Self::Webhooks { operation, .. } => operation,
            Self::Chain { method, .. } => method,
            Self::Bus { .. } => "PutEvents",
            Self::Mail { .. } => "SendEmail",
            Self::Settle { .. } => "settle",
        }
    }
}

impl Link {
    pub(crate) fn new(world: &Arc<World>, worker: usize) -> Arc<Self> {
        Arc::new(Self {
            world: Arc::clone(world),
            worker,
            errand: Mutex::default(),
            crash: Notify::new(),
        })
    }

    fn errand(&self) -> MutexGuard<'_, Errand> {
        self.errand.lock().expect("not poisoned")
    }

    /// Assigns the later calls of the process to this step.
    pub(crate) fn begin(&self, step: usize, pace: u16, faults: Vec<(u8, Fault)>) {
        *self.errand() = Errand {
            step,
            pace,
            faults,
            ..Errand::default()
        };
    }

    /// Adds a fault to the step, which skips `skipped` calls and then fails `length` calls.
    pub(crate) fn strike(&self, fault: Fault, skipped: u8, length: u8) {
        let mut errand = self.errand();
        let first = errand.calls.saturating_add(skipped);
        let calls = first..first.saturating_add(length);
        errand.faults.extend(calls.map(|call| (call, fault)));
    }

    /// Ends the step. Returns the faults that occurred and the balances that were read.
    pub(crate) fn end(&self) -> FaultsSeen {
        let Errand {
            balances, faults_seen, ..
        } = std::mem::take(&mut *self.errand());
        FaultsSeen {
            faults: faults_seen,
            balances,
        }
    }

    /// Waits until the process is killed.
    pub(crate) async fn crashed(&self) {
        self.crash.notified().await;
    }

    async fn pass(self: Arc<Self>, call: Call) -> Reply {
        let (step, number, pace, fault) = {
            let mut errand = self.errand();
            let number = errand.calls;
            errand.calls = number.saturating_add(1);
            let place = match call {
                Call::Chain { endpoint: 0, .. } => Some(FIRST_ENDPOINT),
                Call::Chain { .. } => Some(SECOND_ENDPOINT),
                Call::Kms { .. } => Some(KMS),
                Call::Table { .. }
                | Call::Bus { .. }
                | Call::Settle { .. }
                | Call::Mail { .. }
                | Call::Webhooks { .. } => None,
            };
            let is_of_chain = matches!(call, Call::Chain { .. });
            let is_aside = self.world.chain().has_aside();
            let meant = |fault: &Fault| match fault {
                Fault::SideBlocks => is_of_chain && is_aside,
                Fault::NoLogs | Fault::TooManyLogs => {
                    matches!(
                        call,
                        Call::Chain {
                            method: "eth_getLogs",
                            ..
                        }
                    )
                }
                fault => is_of_chain || !fault.is_of_chain(),
            };
            let fault = errand
                .faults
                .iter()
                .find(|(at, fault)| (*at == number && number < KMS || Some(*at) == place) && meant(fault))
                .map(|(_, fault)| *fault);
            let fault = fault.or_else(|| self.world.is_busy(&call).then_some(Fault::Throttled));
            errand.faults_seen.extend(fault);
            match (&call, fault) {
                (Call::Kms { .. }, Some(_)) => self.world.count("fault of KMS"),
                (Call::Table { operation, body }, Some(_)) if is_of_counter(operation, body) => {
                    *self.world.record().miscounted.entry(errand.step).or_default() += 1;
                }
                _ => {}
            }
            (errand.step, number, errand.pace, fault)
        };
        let mut rng = Rng::from_seed(u64::from(pace) << 8 | u64::from(number));
        let mut on_its_way = |most: u64| Duration::from_millis(if pace == 0 { 0 } else { rng.below(most) });
        let [mut to, hold, back] = [on_its_way(6), on_its_way(4), on_its_way(3)];
        let send = |to| self.send(&call, step, fault, [to, hold, back]);
        let reply = match fault {
            Some(Fault::CrashBefore) => self.die().await,
            Some(Fault::CrashAfter) => {
                let _heard = send(to).await;
                self.die().await
            }
            Some(Fault::LostRequest(silence)) => {
                sleep(to + back).await;
                lost(silence, &call)
            }
            Some(Fault::LostAnswer(silence)) => {
                let _unheard = send(to).await;
                lost(silence, &call)
            }
            Some(Fault::Late(millis)) => {
                drop(send(Duration::from_millis(millis.into())));
                Reply::Silent
            }
            Some(Fault::Conflict) if !self.was_made(&call) => {
                sleep(to + back).await;
                conflict(&call)
            }
            Some(Fault::Throttled) => {
                sleep(to + back).await;
                throttled(&call)
            }
            Some(
                Fault::Slow(_)
                | Fault::OldHead(_)
                | Fault::OtherChain
                | Fault::SideBlocks
                | Fault::NoLogs
                | Fault::TooManyLogs
                | Fault::Conflict,
            )
            | None => {
                if let Some(Fault::Slow(millis)) = fault {
                    to += Duration::from_millis(millis.into());
                }
                match send(to).await {
                    Ok((status, body)) => Reply::Answer(status, body),
                    Err(_) => Reply::Broken,
                }
            }
        };
        let status = match &reply {
            Reply::Answer(status, _) => *status,
            Reply::Broken => 1,
            Reply::Silent => 2,
        };
        let event = Event {
            at: self.world.now(),
            step,
            worker: self.worker,
            call: number,
            what: call.name().to_owned(),
            fault,
            status,
        };
        self.world.record().events.push(event);
        reply
    }

    /// Returns whether the call repeats a committed transaction, which always succeeds (DynamoDB API reference,
    /// `ClientRequestToken`).
    fn was_made(&self, call: &Call) -> bool {
        let Call::Table { operation, body } = call else {
            return false;
        };
        let token = token_of(operation, &serde_json::from_slice(body).expect("the SDK writes JSON"));
        token.is_some_and(|token| self.world.record().made.contains(&token))
    }

    async fn die(&self) -> Reply {
        self.crash.notify_one();
        Reply::Silent
    }

    /// Sends a call, which continues even if its sender ends.
    fn send(
        self: &Arc<Self>,
        call: &Call,
        step: usize,
        fault: Option<Fault>,
        [to, hold, back]: [Duration; 3],
    ) -> oneshot::Receiver<(u16, Vec<u8>)> {
        let (sender, receiver) = oneshot::channel();
        let link = Arc::clone(self);
        match call {
            Call::Table { operation, body } => {
                let concern = {
                    let mut record = self.world.record();
                    let owner = record.known.owner_of_step(step).map(Concern::Owner);
                    let concern = if is_of_counter(operation, body) {
                        Concern::Counter
                    } else {
                        owner.unwrap_or(Concern::Everybody)
                    };
                    record.begin_flight(concern);
                    concern
                };
                let (operation, body) = (operation.clone(), body.clone());
                tokio::spawn(async move {
                    pause(to).await;
                    let answer = link.arrive(step, &operation, &body, hold).await;
                    pause(back).await;
                    link.world.record().end_flight(concern);
                    // The sender may have given up.
                    let _ = sender.send(answer);
                });
            }
            Call::Bus { body } => {
                self.world.record().begin_flight(Concern::Everybody);
                let body = body.clone();
                tokio::spawn(async move {
                    pause(to).await;
                    let answer = link.world.put_events(&body);
                    pause(back).await;
                    link.world.record().end_flight(Concern::Everybody);
                    let _ = sender.send(answer);
                });
            }
            Call::Settle { body } => {
                let body = body.clone();
                tokio::spawn(async move {
                    pause(to).await;
                    let answer = link.world.submit_payout(&body);
                    pause(back).await;
                    let _ = sender.send(answer);
                });
            }
            Call::Kms { operation, body } => {
                let (operation, body) = (operation.clone(), body.clone());
                tokio::spawn(async move {
                    pause(to).await;
                    let answer = link.world.kms.answer(&operation, &body);
                    pause(back).await;
                    let _ = sender.send(answer);
                });
            }
            Call::Mail { body } => {
                self.world.record().begin_flight(Concern::Everybody);
                let body = body.clone();
                tokio::spawn(async move {
                    pause(to).await;
                    let answer = link.world.mail(step, link.worker, &body);
                    link.after_a_mail(step);
                    pause(answer.after + back).await;
                    link.world.record().end_flight(Concern::Everybody);
                    let _ = sender.send((answer.status, answer.body));
                });
            }
            Call::Webhooks { operation, body } => {
                self.world.record().begin_flight(Concern::Everybody);
                let (operation, body) = (operation.clone(), body.clone());
                tokio::spawn(async move {
                    pause(to).await;
                    link.world.now();
                    let answer = link.world.queues.answer(&operation, &body);
                    pause(back).await;
                    link.world.record().end_flight(Concern::Everybody);
                    let _ = sender.send(answer);
                });
            }
            Call::Chain { method, params, .. } => {
                let (method, params) = (*method, params.clone());
                tokio::spawn(async move {
                    pause(to).await;
                    let answer = link.ask(step, method, &params, fault);
                    pause(back).await;
                    let _ = sender.send(answer);
                });
            }
        }
        receiver
    }

    /// Begins the fault that follows the first mail of an invocation.
    fn after_a_mail(&self, step: usize) {
        let strike = self.world.queues.mailroom().strike(step);
        if let Some((fault, skipped, length)) = strike
            && self.errand().step == step
        {
            self.strike(fault, skipped, length);
        }
    }

    /// Executes a storage call, unless it conflicts with a transaction.
    async fn arrive(&self, step: usize, operation: &str, body: &[u8], hold: Duration) -> (u16, Vec<u8>) {
        let world = &self.world;
        if !matches!(
            operation,
            "PutItem" | "UpdateItem" | "DeleteItem" | "TransactWriteItems"
        ) {
            world.now();
            return world.carry_out(step, self.worker, operation, body, &[]);
        }
        let request: Value = serde_json::from_slice(body).expect("the SDK writes JSON");
        let keys = written(operation, &request);
        let token = token_of(operation, &request);
        if token.as_ref().is_some_and(|token| world.record().made.contains(token)) {
            world.now();
            return world.carry_out(step, self.worker, operation, body, &keys);
        }
        let taken: Vec<bool> = {
            let record = world.record();
            keys.iter().map(|key| record.held.contains(key)).collect()
        };
        if taken.contains(&true) {
            world.count("met another transaction");
            return if operation == "TransactWriteItems" {
                cancelled(&taken)
            } else {
                conflicted()
            };
        }
        if operation == "TransactWriteItems" {
            world.record().held.extend(keys.iter().cloned());
            pause(hold).await;
        }
        world.now();
        let answer = world.carry_out(step, self.worker, operation, body, &keys);
        if operation == "TransactWriteItems" {
            let mut record = world.record();
            record.held.retain(|key| !keys.contains(key));
            if answer.0 == 200 {
                record.made.extend(token);
            }
        }
        answer
    }

    fn ask(&self, step: usize, method: &'static str, params: &Value, fault: Option<Fault>) -> (u16, Vec<u8>) {
        self.world.now();
        let view = View {
            behind: match fault {
                Some(Fault::OldHead(blocks)) => blocks.into(),
                _ => 0,
            },
            is_aside: fault == Some(Fault::SideBlocks),
            logs: match fault {
                Some(Fault::NoLogs) => Logs::Omitted,
                Some(Fault::TooManyLogs) => Logs::TooMany,
                _ => Logs::Told,
            },
        };
        if view.is_aside {
            self.world.record().known.aside.insert(step);
        }
        let answer = if fault == Some(Fault::OtherChain) && method == "eth_chainId" {
            Ok("0x1".into())
        } else {
            self.world.chain().answer(method, params, view)
        };
        // A result of a single word is a balance. Results of a multicall are longer.
        if let (Ok(Value::String(word)), "eth_call") = (&answer, method)
            && let Some(Ok(balance)) = word.get(50..66).map(|digits| u64::from_str_radix(digits, 16))
            && word.len() == 66
        {
            let mut errand = self.errand();
            // The call may belong to an earlier step that did not wait for it.
            if errand.step == step {
                errand.balances.push(balance);
            }
        }
        let reply = match answer {
            Ok(result) => json!({"jsonrpc": "2.0", "id": 1, "result": result}),
            Err(code) => json!({"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": "no"}}),
        };
        (200, reply.to_string().into_bytes())
    }

    fn secrets(&self, body: &[u8]) -> (u16, Vec<u8>) {
        let request: Value = serde_json::from_slice(body).expect("the SDK writes JSON");
        let ids = request["SecretIdList"].as_array().expect("ids").iter();
        let values = ids.map(|id| {
            let secret = &self.world.secrets[id.as_str().expect("an id")];
            json!({"ARN": id, "Name": id, "SecretString": secret})
        });
        let reply = json!({"SecretValues": values.collect::<Vec<_>>()});
        (200, reply.to_string().into_bytes())
    }
}

async fn pause(length: Duration) {
    if length.is_zero() {
        tokio::task::yield_now().await;
    } else {
        sleep(length).await;
    }
}

fn lost(silence: Silence, call: &Call) -> Reply {
    match (silence, call) {
        (Silence::Broken, _) => Reply::Broken,
        (Silence::Nothing, _) => Reply::Silent,
        (Silence::Error, Call::Chain { .. } | Call::Settle { .. }) => Reply::Answer(503, Vec::new()),
        (Silence::Error, Call::Bus { .. } | Call::Mail { .. } | Call::Webhooks { .. }) => {
            Reply::Answer(500, of_bus("InternalException"))
        }
        (Silence::Error, Call::Kms { .. }) => of_kms(500, "KMSInternalException"),
        (Silence::Error, Call::Table { .. }) => of_error(500, "InternalServerError", "the simulation lost it"),
    }
}

/// Returns whether a call counts calls or records the use of an API key.
fn is_of_counter(operation: &str, body: &[u8]) -> bool {
    matches!(operation, "UpdateItem" | "PutItem")
        && std::str::from_utf8(body).is_ok_and(|body| body.contains(&format!("\"TableName\":\"{THROTTLE}\"")))
}

/// Returns the idempotency token of a transaction.
fn token_of(operation: &str, request: &Value) -> Option<String> {
    let token = request["ClientRequestToken"].as_str();
    token.filter(|_| operation == "TransactWriteItems").map(str::to_owned)
}

fn conflict(call: &Call) -> Reply {
    match call {
        Call::Chain { .. } | Call::Settle { .. } => Reply::Answer(429, Vec::new()),
        Call::Bus { .. } => Reply::Answer(400, of_bus("ConcurrentModificationException")),
        Call::Kms { .. } => of_kms(500, "KeyUnavailableException"),
        Call::Mail { .. } | Call::Webhooks { .. } => lost(Silence::Error, call),
        Call::Table { operation, body } => match operation.as_str() {
            "TransactWriteItems" => {
                let request: Value = serde_json::from_slice(body).expect("the SDK writes JSON");
                let mut taken = vec![false; request["TransactItems"].as_array().map_or(0, Vec::len)];
                if let Some(first) = taken.first_mut() {
                    *first = true;
                }
                let (status, body) = cancelled(&taken);
                Reply::Answer(status, body)
            }
            "PutItem" | "UpdateItem" | "DeleteItem" => {
                let (status, body) = conflicted();
                Reply::Answer(status, body)
            }
            // A read never conflicts with a transaction, so the read fails with 500 instead.
            _ => lost(Silence::Error, call),
        },
    }
}

fn throttled(call: &Call) -> Reply {
    match call {
        Call::Chain { .. } | Call::Settle { .. } => Reply::Answer(429, Vec::new()),
        Call::Mail { .. } => Reply::Answer(429, of_bus("TooManyRequestsException")),
        Call::Bus { .. } | Call::Webhooks { .. } => Reply::Answer(400, of_bus("ThrottlingException")),
        Call::Kms { .. } => of_kms(400, "ThrottlingException"),
        // A throttled `BatchGetItem` leaves its keys unprocessed.
        Call::Table { operation, body } if operation == "BatchGetItem" => {
            let request: Value = serde_json::from_slice(body).expect("the SDK writes JSON");
            let answer = json!({"Responses": {}, "UnprocessedKeys": request["RequestItems"]});
            Reply::Answer(200, answer.to_string().into_bytes())
        }
        Call::Table { .. } => of_error(400, "ProvisionedThroughputExceededException", "too fast"),
    }
}

fn of_error(status: u16, kind: &str, message: &str) -> Reply {
    let (status, body) = error(status, kind, message);
    Reply::Answer(status, body)
}

fn error(status: u16, kind: &str, message: &str) -> (u16, Vec<u8>) {
    let body = json!({"__type": format!("com.amazonaws.dynamodb.v20120810#{kind}"), "message": message});
    (status, body.to_string().into_bytes())
}

fn of_kms(status: u16, kind: &str) -> Reply {
    let (status, body) = kms::failed(status, kind);
    Reply::Answer(status, body)
}

fn of_bus(kind: &str) -> Vec<u8> {
    json!({"__type": kind, "message": "no"}).to_string().into_bytes()
}

fn conflicted() -> (u16, Vec<u8>) {
    error(
        400,
        "TransactionConflictException",
        "Transaction is ongoing for the item",
    )
}

fn cancelled(taken: &[bool]) -> (u16, Vec<u8>) {
    let reason = |taken: &bool| json!({"Code": if *taken { "TransactionConflict" } else { "None" }});
    let body = json!({
        "__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
        "Message": "Transaction cancelled",
        "CancellationReasons": taken.iter().map(reason).collect::<Vec<_>>(),
    });
    (400, body.to_string().into_bytes())
}

#[derive(Clone, Debug)]
pub(crate) struct Wire(pub(crate) Arc<Link>);

impl HttpClient for Wire {
    fn http_connector(&self, _: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

impl HttpConnector for Wire {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let link = Arc::clone(&self.0);
        let target = request.headers().get("x-amz-target").unwrap_or_default();
        // Every AWS service here except SES gets the operation in the header `x-amz-target`.
        let (service, operation) = target.split_once('.').unwrap_or(("SES", "SendEmail"));
        let body = request.body().bytes().expect("a body in memory").to_vec();
        let (service, operation) = (service.to_owned(), operation.to_owned());
        HttpConnectorFuture::new(async move {
            let reply = match service.as_str() {
                "secretsmanager" => {
                    let (status, body) = link.secrets(&body);
                    Reply::Answer(status, body)
                }
                "SES" => link.pass(Call::Mail { body }).await,
                "AWSEvents" => link.pass(Call::Bus { body }).await,
                "AmazonSQS" => link.pass(Call::Webhooks { operation, body }).await,
                "TrentService" if operation == "Decrypt" => link.pass(Call::Webhooks { operation, body }).await,
                "TrentService" => link.pass(Call::Kms { operation, body }).await,
                _ => link.pass(Call::Table { operation, body }).await,
            };
            match reply {
                Reply::Answer(status, body) => {
                    let status = status.try_into().expect("a status");
                    Ok(HttpResponse::new(status, SdkBody::from(body)))
                }
                Reply::Broken => Err(ConnectorError::io("the simulation broke the connection".into())),
                Reply::Silent => std::future::pending().await,
            }
        })
    }
}

#[derive(Debug)]
pub(crate) struct ToFacilitator(pub(crate) Arc<Link>);

impl HttpConnector for ToFacilitator {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let link = Arc::clone(&self.0);
        let body = request.body().bytes().expect("a body in memory").to_vec();
        HttpConnectorFuture::new(async move {
            match link.pass(Call::Settle { body }).await {
                Reply::Answer(status, body) => {
                    let status = status.try_into().expect("a status");
                    Ok(HttpResponse::new(status, SdkBody::from(body)))
                }
                Reply::Broken => Err(ConnectorError::io("the simulation broke the connection".into())),
                Reply::Silent => std::future::pending().await,
            }
        })
    }
}

/// One of the node's two endpoints, as a process reaches it.
pub(crate) struct SimNode(pub(crate) Arc<Link>, pub(crate) u8);

impl Node for SimNode {
    fn send_rpc_request<'a>(&'a self, method: &'static str, request: &'a Value) -> Exchange<'a> {
        let call = Call::Chain {
            endpoint: self.1,
            method,
            params: request["params"].clone(),
        };
        let link = Arc::clone(&self.0);
        Box::pin(async move {
            let unreachable = |why: &'static str| ChainError::Unreachable {
                method,
                source: why.into(),
            };
            let reply = tokio::time::timeout(NODE_TIMEOUT, async {
                match link.pass(call).await {
                    Reply::Silent => std::future::pending().await,
                    reply => reply,
                }
            });
            match reply.await {
                Ok(Reply::Answer(200, body)) => Ok(body),
                Ok(Reply::Answer(status, _)) => Err(ChainError::Status { method, status }),
                Ok(Reply::Broken | Reply::Silent) => Err(unreachable("the connection broke")),
                Err(_) => Err(unreachable("no answer in time")),
            }
        })
    }
}
