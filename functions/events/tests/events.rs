//! The tables' streams are published and counted once, despite failures, repetitions and reordering.

#![expect(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test stops where its ground is missing"
)]

use aws_sdk_dynamodb::types::AttributeValue;
use purser_api::{Boot, Clock, Env};
use purser_domain::{
    Agent, AgentStatus, ApprovalId, ApprovalResolution, Counted, Day, Event, EventKind, FreezeTarget, NextPricing,
    OperatorFreeze, OperatorName, OperatorReason, PersonId, SettlementId, SettlementState, Timestamp, TransactionId,
    UsageCount, UsageTotals,
};
use purser_events::Events;
use purser_store::{
    ApprovalDecision, Change, Claim, Ledger, Moved, Recount, Recounted, Reminder, ReminderKind, SequenceNumber, Shard,
    Uncounted, UsageTable,
};
use purser_testkit::{
    CATALOG, DECISIONS, Emulator, EventBus, Fate, Fault, LEDGER, Moment, Proxy, ProxyConfig, Streams, USAGE,
    authorize::{Answer, Request, authorize},
    client, counting, environment,
    invariants::scan,
    sample,
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering::SeqCst};
use std::time;
use tokio::sync::Notify;

const BUS: &str = "purser";
/// The number of calls after which a fault has ended in every test.
const TRIES: u32 = 5;
const TIME: time::Duration = time::Duration::from_secs(30);
/// The shard of each table's stream, in tests with one shard.
const SHARD: &str = "shardId-00000001";

/// The function, a database with streams and a bus, each behind a proxy; and the stores that write the tables.
struct World {
    emulator: Emulator,
    ledger: Ledger,
    streams: Streams,
    bus: EventBus,
    proxies: [Proxy; 2],
    events: Events,
    usage: UsageTable,
    /// The function's clock, in microseconds.
    clock: Arc<AtomicI64>,
}

fn owner() -> PersonId {
    PersonId::of("https://issuer.example", "ann")
}

fn at(secs: u32) -> Timestamp {
    sample::start().after(sample::secs(secs))
}

/// The agent of every world.
fn agent(version: u64, status: AgentStatus) -> Agent {
    Agent {
        owner: owner().to_string(),
        version,
        status,
        ..sample::agent(1, Vec::new())
    }
}

impl World {
    /// Starts a world with an agent of [`owner`], which may spend 1,000 a day and needs an approval above 100.
    async fn start() -> Self {
        let (emulator, streams) = Emulator::with_streams().await;
        let bus = EventBus::new(BUS);
        let proxies = [
            Proxy::start(emulator.url.clone(), ProxyConfig::default()).await,
            Proxy::start(bus.serve().await, ProxyConfig::default()).await,
        ];
        let clock = Arc::new(AtomicI64::new(at(3_600).micros()));
        let variables = environment(&proxies[0].url, "http://127.0.0.1:9").chain([
            ("EVENTBRIDGE_ENDPOINT", proxies[1].url.clone()),
            ("EVENT_BUS", BUS.to_owned()),
            ("STACK", "test".to_owned()),
            ("NETWORK", "base-sepolia".to_owned()),
        ]);
        let env: Env = variables.collect();
        let events = Events::boot(Boot::new(env, Clock::still(Arc::clone(&clock)))).unwrap();
        let world = Self {
            ledger: emulator.ledger(),
            usage: UsageTable::new(emulator.client.clone(), USAGE),
            emulator,
            streams,
            bus,
            proxies,
            events,
            clock,
        };
        let created = agent(1, AgentStatus::Active);
        world.ledger.create_agent(&created, &sample::audit()).await.unwrap();
        let enabled = sample::enabled(sample::service_id(1), 1_000, 100);
        let agent = sample::agent_id(1);
        world
            .ledger
            .put_policy(agent, &enabled, &sample::audit())
            .await
            .unwrap();
        world
    }

    async fn pay(&self, amount: u64, key: &str) -> Answer {
        let request = Request::new(sample::agent_id(1), sample::service_id(1), amount, key);
        authorize(&self.ledger, &request, at(0)).await.unwrap()
    }

    async fn paid(&self, amount: u64, key: &str) -> SettlementId {
        match self.pay(amount, key).await {
            Answer::Allowed(id) => id,
            other => panic!("{other:?}"),
        }
    }

    async fn confirm(&self, id: SettlementId, byte: u8, now: Timestamp) {
        let settlement = self.ledger.settlement(sample::agent_id(1), id).await.unwrap().unwrap();
        let transfer = sample::transfer(&settlement, sample::tx_hash(byte));
        let confirmed = self.ledger.confirm(&settlement, &transfer, Claim::Transaction, now);
        confirmed.await.unwrap();
    }

    async fn take_back(&self, id: SettlementId) {
        let settlement = self.ledger.settlement(sample::agent_id(1), id).await.unwrap().unwrap();
        let decision = TransactionId::at(at(20), getrandom::u64().unwrap().to_be_bytes());
        let gone = sample::transfer_gone(&settlement);
        let moved = self.ledger.revert_confirmation(&settlement, &gone, decision, at(20));
        assert!(matches!(moved.await.unwrap(), Moved::Done(_)));
    }

    async fn release(&self, id: SettlementId) {
        let settlement = self.ledger.settlement(sample::agent_id(1), id).await.unwrap().unwrap();
        let unusable = sample::unusable(&settlement);
        let moved = self.ledger.release(&settlement, &unusable);
        assert!(matches!(moved.await.unwrap(), Moved::Done(_)));
    }

    /// Makes payments with every result, one of them confirmed twice; one block; and one escalation that is approved
    /// and used.
    async fn live(&self) {
        let confirmed = self.paid(10, "confirmed").await;
        self.confirm(confirmed, 1, at(10)).await;
        let released = self.paid(20, "released").await;
        self.release(released).await;
        let taken_back = self.paid(30, "taken back").await;
        self.confirm(taken_back, 2, at(11)).await;
        self.take_back(taken_back).await;
        self.confirm(taken_back, 2, at(30)).await;
        self.paid(40, "open").await;
        assert_eq!(self.pay(5_000, "blocked").await, Answer::Blocked);
        let Answer::Waits(approval) = self.pay(150, "asked").await else {
            panic!()
        };
        let ruling = ApprovalResolution {
            at: at(40),
            by: owner().to_string(),
            note: Some("no body of mine".to_owned()),
        };
        let audit = sample::audit();
        let decided = self
            .ledger
            .resolve_approval(approval, ApprovalDecision::Approve, &ruling, &audit);
        decided.await.unwrap();
        let retry = Request {
            approval: Some(approval),
            ..Request::new(sample::agent_id(1), sample::service_id(1), 150, "asked")
        };
        let used = authorize(&self.ledger, &retry, at(50)).await.unwrap();
        assert!(matches!(used, Answer::Allowed(_)), "{used:?}");
    }

    async fn call(&self, event: Value) -> Option<Value> {
        self.events.call(&event, TIME).await.ok()
    }

    /// Passes a batch to the function as the counting mapping does.
    async fn count(&self, shard: &str, batch: &[Value]) -> Option<Value> {
        self.call(counting(batch, shard)).await
    }

    /// Passes a batch to the function as both mappings do; returns the answer to the publishing mapping.
    async fn pass(&self, batch: &[Value]) -> Option<Value> {
        self.count(SHARD, batch).await?;
        self.call(json!({"Records": batch})).await
    }

    async fn deliver(&self) -> usize {
        self.streams.deliver(TRIES, |event| self.call(event)).await
    }

    /// All records of the streams so far.
    fn records(&self) -> Vec<Vec<Value>> {
        let batches = std::iter::from_fn(|| Some(self.streams.next_batches()).filter(|batches| !batches.is_empty()));
        batches.flatten().collect()
    }

    /// The published events without duplicates, in the order of the bus.
    fn told(&self) -> Vec<Event> {
        let mut seen = BTreeSet::new();
        let mut events = Vec::new();
        for entry in self.bus.taken() {
            let event = Event::parse(entry.detail.to_string().as_bytes()).expect("one of our events");
            assert_eq!(
                (entry.source.as_str(), entry.detail_type.as_str()),
                ("purser:test", event.kind().name())
            );
            if seen.insert(event.id()) {
                events.push(event);
            }
        }
        events
    }

    fn kinds(&self) -> BTreeMap<&'static str, usize> {
        let mut kinds = BTreeMap::new();
        for event in self.told() {
            *kinds.entry(event.kind().name()).or_default() += 1;
        }
        kinds
    }

    async fn sums(&self) -> UsageTotals {
        let (first, last) = (Day::of(at(0)).minus(1), Day::of(at(0)).plus(1));
        let days = self.usage.by_day(&owner(), first, last).await.unwrap();
        let both = self.usage.by_agent_and_service(&owner(), first, last).await;
        let (by_agent, by_service) = both.unwrap();
        let total = |sums: Vec<UsageTotals>| sums.into_iter().fold(UsageTotals::default(), UsageTotals::plus);
        let sums = total(days.into_iter().map(|(_, sums, _)| sums).collect());
        assert_eq!(total(by_agent.into_values().collect()), sums);
        assert_eq!(total(by_service.into_values().collect()), sums);
        sums
    }

    /// Asserts that the published and counted sums equal those of the ledger.
    async fn assert_told_and_counted(&self) {
        let settlements = self.ledger.settlements(sample::agent_id(1), None, 100).await.unwrap();
        let units = |is: fn(&SettlementState) -> bool| -> u64 {
            let those = settlements.iter().filter(|settlement| is(&settlement.state));
            those.map(|settlement| settlement.terms.amount.units()).sum()
        };
        let sums = self.sums().await;
        assert_eq!(sums.authorized.units(), units(|_| true));
        assert_eq!(
            sums.released.units(),
            units(|state| matches!(state, SettlementState::Expired))
        );
        let standing = sums.confirmed.minus(sums.taken_back).unwrap();
        assert_eq!(
            standing.units(),
            units(|state| matches!(state, SettlementState::Confirmed { .. }))
        );
        assert_eq!(sums.taken_back.units(), 30);
        assert_eq!((sums.allowed, sums.blocked, sums.escalated), (5, 1, 1));
        let expected = [
            (EventKind::AgentCreated, 1),
            (EventKind::KeyCreated, 1),
            (EventKind::PolicyChanged, 1),
            (EventKind::PaymentAuthorized, 5),
            (EventKind::PaymentConfirmed, 3),
            (EventKind::PaymentReleased, 1),
            (EventKind::PaymentTakenBack, 1),
            (EventKind::PaymentRefused, 1),
            (EventKind::PaymentEscalated, 1),
            (EventKind::ApprovalAsked, 1),
            (EventKind::ApprovalDecided, 1),
            (EventKind::ApprovalUsed, 1),
        ];
        let expected: BTreeMap<_, _> = expected.map(|(kind, count)| (kind.name(), count)).into();
        assert_eq!(self.kinds(), expected);
    }
}

/// Usage is counted once, too.
#[tokio::test]
async fn each_fact_is_published_once_without_secrets() {
    let world = World::start().await;
    world.live().await;
    assert_eq!(world.deliver().await, 0);
    world.assert_told_and_counted().await;
    assert!(world.told().iter().all(|event| event.owner() == Some(&owner())));
    let text = format!("{:?}", world.bus.taken());
    // The digest of the sample's key, in Base64 and in hexadecimal; and texts that a person wrote for the agent.
    for secret in ["CQkJCQkJ", "09090909", "no body of mine", "lab.example"] {
        assert!(!text.contains(secret), "{secret}");
    }
    let (first, last) = (Day::of(at(0)), Day::of(at(0)));
    let days = world.usage.by_day(&owner(), first, last).await.unwrap();
    let reasons = &days[0].2;
    let expected = [("amount_exceeds_per_call_limit", 1), ("approval_required", 1)];
    assert_eq!(
        *reasons,
        expected.map(|(error, count)| (error.to_owned(), count)).into()
    );
}

/// Batches are doubled, reordered and replayed.
#[tokio::test]
async fn repeated_batches_publish_the_same_event_ids() {
    let world = World::start().await;
    world.live().await;
    let batches = world.records();
    for batch in &batches {
        world.count(SHARD, batch).await.unwrap();
    }
    // The last table's batches first; each batch twice, then its records one by one.
    for batch in batches.iter().rev() {
        let doubled: Vec<&Value> = batch.iter().chain(batch).collect();
        world.call(json!({"Records": doubled})).await.unwrap();
    }
    for record in batches.iter().flatten().rev() {
        world.call(json!({"Records": [record]})).await.unwrap();
    }
    world.assert_told_and_counted().await;
}

/// Replays use other batch boundaries, and one comes three days later.
#[tokio::test]
async fn replayed_records_of_a_shard_are_counted_once() {
    let world = World::start().await;
    world.live().await;
    let batches = world.records();
    for batch in &batches {
        world.call(json!({"Records": batch})).await.unwrap();
        // Single records, then groups of three from the middle, then doubled, then the whole batch.
        for record in batch {
            world.count(SHARD, std::slice::from_ref(record)).await.unwrap();
        }
        for records in batch[batch.len() / 2..].chunks(3) {
            world.count(SHARD, records).await.unwrap();
        }
        let doubled: Vec<Value> = batch.iter().chain(batch).cloned().collect();
        for records in [&doubled, batch] {
            let answer = world.count(SHARD, records).await.unwrap();
            assert_eq!(answer, json!({"state": {}, "batchItemFailures": []}));
        }
    }
    world.assert_told_and_counted().await;
    // Much later, the checkpoints still exist.
    world.clock.store(at(3 * 86_400).micros(), SeqCst);
    for batch in &batches {
        world.count(SHARD, batch).await.unwrap();
    }
    world.assert_told_and_counted().await;
}

/// A window may end without records, and reading a checkpoint is useless if nothing is counted.
#[tokio::test]
async fn a_window_that_ends_without_records_counts_nothing() {
    let world = World::start().await;
    world.live().await;
    let mut event = counting(&world.records()[0], SHARD);
    event["Records"] = json!([]);
    event["isFinalInvokeForWindow"] = json!(true);
    let answer = world.call(event).await.unwrap();
    assert_eq!(answer, json!({"state": {}, "batchItemFailures": []}));
    assert_eq!(world.sums().await, UsageTotals::default());
}

/// The parent shard is replayed after its children have started.
#[tokio::test]
async fn records_of_split_shards_are_counted_once() {
    let world = World::start().await;
    world.live().await;
    for batch in world.records() {
        world.call(json!({"Records": batch})).await.unwrap();
        let (parent, after) = batch.split_at(batch.len() / 2);
        let mut children = [Vec::new(), Vec::new()];
        for (index, record) in after.iter().enumerate() {
            children[index % 2].push(record.clone());
        }
        let [one, other] = &children;
        // The answer for the parent is lost, so it is delivered again after its children have begun.
        world.count("parent", parent).await.unwrap();
        for (child, records) in [("other", other), ("one", one), ("one", one)] {
            if !records.is_empty() {
                world.count(child, records).await.unwrap();
            }
            if !parent.is_empty() {
                world.count("parent", parent).await.unwrap();
                world.count("parent", &parent[parent.len() / 2..]).await.unwrap();
            }
        }
    }
    world.assert_told_and_counted().await;
}

#[tokio::test]
async fn batches_at_once_are_counted_once() {
    let world = World::start().await;
    world.live().await;
    let batches = world.records();
    let published = json!({"Records": batches.concat()});
    let counted = batches.iter().map(|batch| counting(batch, SHARD));
    let calls = counted
        .chain([published])
        .cycle()
        .take(4 * (batches.len() + 1))
        .map(|event| {
            let events = world.events.clone();
            tokio::spawn(async move { events.call(&event, TIME).await.unwrap() })
        });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap();
    }
    world.assert_told_and_counted().await;
}

/// A batch changes more rows than a transaction can write. Each is counted once, even if the batch is repeated after
/// its first transactions.
#[tokio::test]
async fn batches_beyond_the_transaction_limit_are_counted_once() {
    let world = World::start().await;
    let shard = Shard {
        table: LEDGER.to_owned(),
        id: SHARD.to_owned(),
    };
    let owner_of = |n: u64| PersonId::of("https://issuer.example", &format!("owner {}", n % 150));
    let counts: Vec<_> = (1..=600_u64)
        .map(|n| {
            let count = UsageCount {
                owner: owner_of(n),
                agent: sample::agent_id(u128::from(n % 150)),
                service: sample::service_id(1),
                decided_at: at(0),
                what: Counted::Authorized(sample::units(n)),
            };
            (SequenceNumber::parse(&n.to_string()).unwrap(), count)
        })
        .collect();
    let table = UsageTable::new(client(&world.proxies[0].url), USAGE);
    let now = at(3_600);
    // Killed after each of its transactions in turn, until all are counted.
    let mut killed = 0;
    loop {
        let (mut is_done, kill) = (false, Arc::new(Notify::new()));
        let told = Arc::clone(&kill);
        let counter = Arc::new(AtomicUsize::new(0));
        world.proxies[0].follow(move |step| {
            let is_answer = matches!(step.moment, Moment::CarriedOut) && step.call.starts_with("TransactWriteItems");
            if is_answer && counter.fetch_add(1, SeqCst) == 0 {
                told.notify_one();
                return Fate::Silence;
            }
            Fate::PassOn
        });
        tokio::select! {
            () = kill.notified() => killed += 1,
            done = table.count(&shard, &counts, &counts[599].0, now) => {
                done.unwrap();
                is_done = true;
            }
        }
        if is_done {
            break;
        }
    }
    assert!(killed > 3, "{killed} transactions");
    let day = Day::of(at(0));
    for n in 0..150 {
        let days = world.usage.by_day(&owner_of(n), day, day).await.unwrap();
        let expected: u64 = (1..=600).filter(|other| other % 150 == n).sum();
        assert_eq!(days[0].1.authorized.units(), expected, "{n}");
        let both = world.usage.by_agent_and_service(&owner_of(n), day, day).await;
        let (agents, _) = both.unwrap();
        assert_eq!(
            agents.into_values().map(|sums| sums.allowed).collect::<Vec<_>>(),
            [4],
            "{n}"
        );
    }
}

/// Kills the function at the n-th moment of its calls, and delivers everything again.
#[tokio::test]
async fn events_survive_a_kill_at_any_step() {
    let mut killed_at = 0;
    loop {
        let world = World::start().await;
        world.live().await;
        let (moments, kill) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        for proxy in &world.proxies {
            let (moments, kill) = (Arc::clone(&moments), Arc::clone(&kill));
            proxy.follow(move |_| {
                if moments.fetch_add(1, SeqCst) == killed_at {
                    kill.notify_one();
                    return Fate::Silence;
                }
                Fate::PassOn
            });
        }
        let batches = world.records();
        let mut was_killed = false;
        for batch in &batches {
            tokio::select! {
                () = kill.notified() => was_killed = true,
                answer = world.pass(batch) => assert!(answer.is_some()),
            }
            if was_killed {
                break;
            }
        }
        for proxy in &world.proxies {
            proxy.behave();
        }
        // The repeated batches have other boundaries.
        for batch in batches {
            for records in batch.chunks(batch.len().div_ceil(2).max(1)) {
                let answer = world.pass(records).await.unwrap();
                assert_eq!(answer, json!({"batchItemFailures": []}));
            }
        }
        world.assert_told_and_counted().await;
        if !was_killed {
            break;
        }
        killed_at += 1;
    }
    assert!(killed_at > 10, "only {killed_at} moments");
}

/// The bus is down, refuses three entries or loses its responses.
#[tokio::test]
async fn all_events_are_published_after_bus_failures() {
    for fault in [Fault::Down, Fault::Refuses(3), Fault::LosesAnswers] {
        let world = World::start().await;
        world.live().await;
        world.bus.set_fault(fault);
        let batches = world.records();
        let mut failed = 0;
        for batch in &batches {
            let answer = world.call(json!({"Records": batch})).await.unwrap();
            failed += answer["batchItemFailures"].as_array().unwrap().len();
        }
        assert!(failed > 0, "{fault:?}");
        if fault == Fault::Down {
            assert_eq!(world.bus.taken(), []);
        }
        world.bus.set_fault(Fault::None);
        for batch in &batches {
            world.pass(batch).await.unwrap();
        }
        world.assert_told_and_counted().await;
    }
}

#[tokio::test]
async fn what_the_bus_refused_is_what_comes_again() {
    let world = World::start().await;
    world.live().await;
    world.bus.set_fault(Fault::Refuses(3));
    for batch in world.records() {
        world.count(SHARD, &batch).await.unwrap();
        let mut rest = batch;
        // Each call publishes two more entries and repeats none.
        loop {
            let answer = world.call(json!({"Records": rest})).await.unwrap();
            let Some(first) = answer["batchItemFailures"][0]["itemIdentifier"].as_str() else {
                break;
            };
            let place = |record: &Value| record["dynamodb"]["SequenceNumber"].as_str() == Some(first);
            let index = rest.iter().position(place).unwrap();
            assert!(index > 0, "it goes on");
            rest.drain(..index);
        }
    }
    world.assert_told_and_counted().await;
}

/// While writes fail, nothing is published or counted.
#[tokio::test]
async fn a_database_failure_delays_events_and_counts() {
    let world = World::start().await;
    world.live().await;
    let batches = world.records();
    world.proxies[0].follow(|step| match step.moment {
        Moment::Arrived if step.call.starts_with("TransactWriteItems") || step.call.starts_with("PutItem") => {
            Fate::Answer(400, json!({"__type": "AccessDenied"}))
        }
        Moment::Arrived | Moment::CarriedOut => Fate::PassOn,
    });
    let settlements = batches.iter().max_by_key(|batch| batch.len()).unwrap();
    assert!(world.call(json!({"Records": settlements})).await.is_none());
    assert_eq!(world.bus.taken(), [], "an approval's end is remembered first");
    assert!(world.count(SHARD, settlements).await.is_none());
    world.proxies[0].behave();
    assert_eq!(world.sums().await, UsageTotals::default());
    for batch in &batches {
        world.pass(batch).await.unwrap();
    }
    world.assert_told_and_counted().await;
}

/// All other rows are published and counted.
#[tokio::test]
async fn an_unreadable_row_is_set_aside() {
    let world = World::start().await;
    let text = |text: &str| AttributeValue::S(text.to_owned());
    for (table, pk) in [
        (LEDGER, format!("S#{}", sample::agent_id(1))),
        (DECISIONS, format!("A#{}", sample::agent_id(1))),
    ] {
        let put = world.emulator.client.put_item().table_name(table);
        put.item("pk", text(&pk))
            .item("sk", text("poison"))
            .send()
            .await
            .unwrap();
    }
    let put = world.emulator.client.put_item().table_name(CATALOG);
    put.item("pk", text("SVC#poison")).send().await.unwrap();
    world.live().await;
    assert_eq!(world.deliver().await, 0);
    let poisoned = json!({"Records": [{"eventSourceARN": "arn:aws:sqs:us-east-1:1:queue"}]});
    assert_eq!(world.call(poisoned).await.unwrap(), json!({"batchItemFailures": []}));
    let aside = scan(&world.emulator.client, USAGE, None).await;
    let aside = aside.iter().filter(|item| item["pk"] == text("ASIDE"));
    let keys: BTreeSet<&str> = aside.map(|item| item["key"].as_s().unwrap().as_str()).collect();
    let agent = sample::agent_id(1);
    let (settlement, decision) = (format!("S#{agent} poison"), format!("A#{agent} poison"));
    assert_eq!(keys, ["", &settlement, &decision, "SVC#poison"].into());
    // Deletes the unreadable rows, so that the ledger can be compared.
    for (table, pk) in [(LEDGER, format!("S#{agent}")), (DECISIONS, format!("A#{agent}"))] {
        let delete = world.emulator.client.delete_item().table_name(table);
        delete
            .key("pk", text(&pk))
            .key("sk", text("poison"))
            .send()
            .await
            .unwrap();
    }
    world.assert_told_and_counted().await;
}

/// It is published once no payment can be written under the approval.
#[tokio::test]
async fn only_unused_approvals_publish_an_expiry_event() {
    let world = World::start().await;
    world.live().await;
    let Answer::Waits(unused) = world.pay(160, "unused").await else {
        panic!()
    };
    assert_eq!(world.deliver().await, 0);
    let end = world.ledger.approval(unused).await.unwrap().unwrap().expires_at;
    let expired = || -> Vec<Event> {
        let told = world.told().into_iter();
        told.filter(|event| event.kind() == EventKind::ApprovalExpired)
            .collect()
    };
    // A payment may still be written when the approval ends, so the event is published only once none can be written.
    for (after, count) in [(0, 0), (119, 0), (120, 1), (121, 1)] {
        world.clock.store(end.after(sample::secs(after)).micros(), SeqCst);
        world
            .bus
            .set_fault(if after == 120 { Fault::LosesAnswers } else { Fault::None });
        let swept = world.events.call(&json!({"detail": "{}"}), TIME).await;
        assert_eq!(swept.is_err(), after == 120, "{after}");
        assert_eq!(expired().len(), count, "{after}");
    }
    let told = expired();
    assert_eq!(
        told[0].data().get_text("approval_id"),
        Some(unused.to_string().as_str())
    );
    assert_eq!(told[0].data().get_text("was"), Some("pending"));
    assert_eq!(told[0].time(), end);
    let before = world.bus.taken().len();
    world.events.sweep(TIME).await.unwrap();
    assert_eq!(world.bus.taken().len(), before, "it is looked at once");
}

/// There are more unreadable reminders than a page has: invalid keys and invalid approvals.
#[tokio::test]
async fn unreadable_reminders_do_not_block_others() {
    let world = World::start().await;
    world.live().await;
    let Answer::Waits(unused) = world.pay(160, "unused").await else {
        panic!()
    };
    assert_eq!(world.deliver().await, 0);
    let text = |text: String| AttributeValue::S(text);
    for n in 0..60_u32 {
        let approval = ApprovalId::of_lineage(&"7".repeat(24), n).unwrap();
        let reminder = Reminder {
            of: ReminderKind::Expiry(approval),
            at: at(n),
        };
        world.usage.remind(reminder).await.unwrap();
        let (pk, sk) = (format!("AP#{}", approval.lineage()), format!("{n:010}"));
        let put = world.emulator.client.put_item().table_name(LEDGER);
        put.item("pk", text(pk)).item("sk", text(sk)).send().await.unwrap();
        let put = world.emulator.client.put_item().table_name(USAGE);
        let put = put.item("pk", text("REMINDERS".to_owned()));
        put.item("sk", text(format!("{n:016}#poison"))).send().await.unwrap();
    }
    let end = world.ledger.approval(unused).await.unwrap().unwrap().expires_at;
    world.clock.store(end.after(sample::secs(120)).micros(), SeqCst);
    let expired = || {
        let told = world.told().into_iter();
        told.filter(|event| event.kind() == EventKind::ApprovalExpired).count()
    };
    for _ in 0..2 {
        assert!(
            world.events.sweep(TIME).await.is_err(),
            "it is not passed over in silence"
        );
        assert_eq!(expired(), 1);
    }
}

/// The former owner learns only that the agent was handed over.
#[tokio::test]
async fn events_after_a_handover_reach_the_new_owner() {
    let world = World::start().await;
    let before = world.paid(10, "before").await;
    assert_eq!(world.deliver().await, 0);
    let new_owner = PersonId::of("https://issuer.example", "bob");
    let agent = Agent {
        owner: new_owner.to_string(),
        ..agent(2, AgentStatus::Active)
    };
    world.ledger.put_agent(&agent, &sample::audit()).await.unwrap();
    world.confirm(before, 1, at(10)).await;
    world.paid(20, "after").await;
    assert_eq!(world.deliver().await, 0);
    let told = world.told();
    let of = |kind: EventKind| -> Vec<&Event> { told.iter().filter(|event| event.kind() == kind).collect() };
    let owners = |kind| -> Vec<&PersonId> { of(kind).into_iter().filter_map(Event::owner).collect() };
    assert_eq!(owners(EventKind::PaymentAuthorized), [&owner(), &new_owner]);
    assert_eq!(owners(EventKind::PaymentConfirmed), [&new_owner]);
    assert_eq!(owners(EventKind::AgentAccepted), [&new_owner]);
    assert_eq!(owners(EventKind::AgentHandedOver), [&owner()]);
    let handed_over = of(EventKind::AgentHandedOver)[0].to_json().to_string();
    assert!(!handed_over.contains(new_owner.as_str()));
}

/// A freeze of the deployment has no owner, and the operator's reason is not published.
#[tokio::test]
async fn freeze_events_reach_the_affected_owner() {
    let world = World::start().await;
    for (version, status) in [(2, AgentStatus::Frozen), (3, AgentStatus::Active)] {
        let agent = agent(version, status);
        world.ledger.put_agent(&agent, &sample::audit()).await.unwrap();
    }
    let targets = [
        FreezeTarget::Agent(sample::agent_id(1)),
        FreezeTarget::Owner(owner()),
        FreezeTarget::Deployment,
    ];
    for target in targets {
        let freeze = OperatorFreeze {
            target: target.clone(),
            reason: OperatorReason::parse("a reason of operators").unwrap(),
            by: OperatorName::parse("op").unwrap(),
            at: at(0),
            end_asked_by: None,
        };
        // Writing the same freeze again publishes no new event.
        for _ in 0..2 {
            world.ledger.freeze(&freeze, &sample::audit()).await.unwrap();
        }
        world.ledger.unfreeze(&target, &sample::audit()).await.unwrap();
    }
    assert_eq!(world.deliver().await, 0);
    let told = world.told();
    let freezes = told.iter().filter(|event| event.kind().name().contains("frozen"));
    let by = |event: &Event| event.data().get_text("by").map(str::to_owned);
    let freezes: Vec<_> = freezes
        .map(|event| (event.kind(), by(event), event.owner().is_some()))
        .collect();
    let by = |who: &str| Some(who.to_owned());
    let mut expected = vec![
        (EventKind::AgentFrozen, by("owner"), true),
        (EventKind::AgentUnfrozen, by("owner"), true),
        (EventKind::AgentFrozen, by("operator"), true),
        (EventKind::AgentUnfrozen, by("operator"), true),
        (EventKind::OwnerFrozen, None, true),
        (EventKind::OwnerUnfrozen, None, true),
        (EventKind::DeploymentFrozen, None, false),
        (EventKind::DeploymentUnfrozen, None, false),
    ];
    expected.sort();
    let mut freezes = freezes;
    freezes.sort();
    assert_eq!(freezes, expected);
    assert!(!format!("{told:?}").contains("a reason of operators"));
}

/// An edit of the name publishes nothing; a service that is no longer curated is closed.
#[tokio::test]
async fn catalog_edits_publish_openings_payees_and_prices() {
    let world = World::start().await;
    let catalog = world.emulator.catalog();
    let mut service = sample::service(sample::service_id(2), "shop");
    let put = async |service: &purser_domain::Service| {
        catalog.put(service, &sample::audit()).await.unwrap();
    };
    put(&service).await;
    let edit = |service: &mut purser_domain::Service, change: &dyn Fn(&mut purser_domain::Operation)| {
        service.version += 1;
        service.operations.iter_mut().for_each(change);
    };
    let pay_to = |byte: u8| {
        move |operation: &mut purser_domain::Operation| {
            let payment = operation.payment.as_mut().unwrap();
            payment.pay_to = sample::wallet(byte);
        }
    };
    edit(&mut service, &pay_to(0xe1));
    put(&service).await;
    edit(&mut service, &|operation| operation.max_price = Some(sample::units(7)));
    put(&service).await;
    service.version += 1;
    service.name = "another name".to_owned();
    put(&service).await;
    service.version += 1;
    service.curated = false;
    put(&service).await;
    assert_eq!(world.deliver().await, 0);
    let told = world.told();
    let of_services: Vec<EventKind> = told
        .iter()
        .filter(|event| event.data().get_text("slug") == Some("shop"))
        .map(Event::kind)
        .collect();
    assert_eq!(
        of_services,
        [
            EventKind::ServiceOpened,
            EventKind::ServicePayeeChanged,
            EventKind::ServicePriceChanged,
            EventKind::ServiceClosed,
        ]
    );
    assert!(
        told.iter()
            .filter(|event| event.data().get_text("slug").is_some())
            .all(|event| event.owner().is_none())
    );
}

/// A service with an operation that pays another payee from this time on.
fn delayed(slug: &str, n: u128, from: Timestamp) -> purser_domain::Service {
    let mut service = sample::service(sample::service_id(n), slug);
    for operation in &mut service.operations {
        let mut payment = operation.payment.clone().unwrap();
        payment.pay_to = sample::wallet(0xe1);
        operation.next = Some(NextPricing {
            price_model: operation.price_model.clone(),
            max_price: operation.max_price,
            payment,
            from,
            by: OperatorName::parse("op").unwrap(),
        });
    }
    service
}

/// A withdrawn change is not published, and a later edit publishes no second event.
#[tokio::test]
async fn delayed_changes_are_published_once_effective() {
    let world = World::start().await;
    let catalog = world.emulator.catalog();
    let put = async |service: &purser_domain::Service| {
        catalog.put(service, &sample::audit()).await.unwrap();
    };
    // The stream's records have this machine's time.
    let now = Clock::system().now();
    let from = now.after(sample::secs(3_600));
    let next_of = |service: &purser_domain::Service| purser_domain::Service {
        version: service.version + 1,
        ..service.clone()
    };
    let shops = [("stays", 2), ("withdrawn", 3), ("edited", 4)].map(|(slug, n)| {
        let with = delayed(slug, n, from);
        let mut without = with.clone();
        without
            .operations
            .iter_mut()
            .for_each(|operation| operation.next = None);
        (without, with)
    });
    for (without, with) in &shops {
        put(without).await;
        put(&next_of(with)).await;
    }
    let withdrawn = next_of(&next_of(&shops[1].0));
    put(&withdrawn).await;
    assert_eq!(world.deliver().await, 0);
    let told = |kind: EventKind| -> Vec<Event> {
        let mut told = world.told();
        told.retain(|event| event.kind() == kind);
        told
    };
    assert_eq!(told(EventKind::ServiceChangeDelayed).len(), 3);
    assert_eq!(told(EventKind::ServiceChangeWithdrawn).len(), 1);
    for (after, count) in [(0, 0), (119, 0), (120, 2), (121, 2)] {
        world.clock.store(from.after(sample::secs(after)).micros(), SeqCst);
        world
            .bus
            .set_fault(if after == 120 { Fault::LosesAnswers } else { Fault::None });
        let swept = world.events.call(&json!({"detail": "{}"}), TIME).await;
        assert_eq!(swept.is_err(), after == 120, "{after}");
        assert_eq!(told(EventKind::ServicePayeeChanged).len(), count, "{after}");
    }
    // A later edit publishes the same event.
    let mut later = next_of(&next_of(&shops[2].1)).at(from);
    later.name = "another name".to_owned();
    put(&later).await;
    let mut batch = world.records().concat();
    for record in &mut batch {
        record["dynamodb"]["ApproximateCreationDateTime"] = json!(from.after(sample::secs(300)).secs());
    }
    let before = world.bus.taken().len();
    world.call(json!({"Records": batch})).await.unwrap();
    assert_eq!(world.bus.taken().len(), before + 1);
    let changed = told(EventKind::ServicePayeeChanged);
    let slugs: BTreeSet<_> = changed
        .iter()
        .filter_map(|event| event.data().get_text("slug"))
        .collect();
    assert_eq!((changed.len(), slugs), (2, ["edited", "stays"].into()));
    for event in &changed {
        assert_eq!(event.time(), from);
        let pay_to = event.data().get_text("pay_to").unwrap();
        assert_eq!(pay_to, sample::wallet(0xe1).to_string());
    }
}

#[tokio::test]
async fn checkpoints_expire_after_a_week_but_totals_remain() {
    let world = World::start().await;
    world.paid(10, "k").await;
    assert_eq!(world.deliver().await, 0);
    let rows = scan(&world.emulator.client, USAGE, None).await;
    let of = |prefix: &str| -> Vec<Option<u64>> {
        let rows = rows.iter().filter(|row| row["pk"].as_s().unwrap().starts_with(prefix));
        rows.map(|row| row.get("ttl")?.as_n().ok()?.parse().ok()).collect()
    };
    let now = Timestamp::from_micros(world.clock.load(SeqCst)).unwrap();
    assert_eq!(of("C#"), [Some(now.after(sample::secs(7 * 86_400)).secs())]);
    assert_eq!(
        of("O#"),
        [None, None],
        "the owner's day, and the agent's at the service"
    );
}

/// `events/events/ledger-stream.json` is a batch as a mapping passes it, for tools that call the built function. Its
/// agent is in no ledger, so a separately running function sets it aside; in this test its owner is known.
#[tokio::test]
async fn a_recorded_batch_is_told_as_it_was() {
    let recorded = include_str!("../../../events/events/ledger-stream.json");
    let recorded: Value = serde_json::from_str(recorded).unwrap();
    let world = World::start().await;
    let records = recorded["Records"].as_array().unwrap();
    assert_eq!(world.pass(records).await.unwrap(), json!({"batchItemFailures": []}));
    let kinds = [(EventKind::PaymentAuthorized, 1), (EventKind::PaymentConfirmed, 1)];
    assert_eq!(world.kinds(), kinds.map(|(kind, count)| (kind.name(), count)).into());
    assert_eq!(world.sums().await.confirmed, sample::units(10));
}

impl World {
    /// Recounts all days, as an operators' program that reads the streams does.
    async fn recount(
        &self,
        batches: &[Vec<Value>],
        table: &UsageTable,
        ledger: &Ledger,
    ) -> purser_domain::Result<Recounted> {
        let days = (Day::of(at(0)).minus(1), Day::of(at(0)).plus(1));
        let id = format!("{}", getrandom::u64().unwrap());
        let recount = Recount::begin(table.clone(), ledger.clone(), days, id, at(3_600)).await?;
        let read = async |uncounted: &mut Uncounted| {
            for record in batches.iter().flatten() {
                let Ok(change) = Change::parse(record) else { continue };
                let shard = Shard {
                    table: change.table.clone(),
                    id: SHARD.to_owned(),
                };
                uncounted.add(ledger, &table.checkpoint(&shard).await?, &change);
            }
            Ok(())
        };
        recount.run(read).await
    }

    /// All stored sums.
    async fn stored_sums(&self) -> BTreeMap<(String, String), BTreeMap<String, AttributeValue>> {
        let rows = scan(&self.emulator.client, USAGE, None).await.into_iter();
        let text =
            |row: &std::collections::HashMap<String, AttributeValue>, name: &str| row[name].as_s().unwrap().clone();
        let rows = rows.map(|row| ((text(&row, "pk"), text(&row, "sk")), row.into_iter().collect()));
        rows.filter(|((pk, _), _): &((String, String), BTreeMap<_, _>)| pk.starts_with("O#"))
            .collect()
    }

    /// Corrupts the sums: removes every other row, and adds one that belongs to nothing.
    async fn spoil(&self) {
        for ((pk, sk), _) in self.stored_sums().await.into_iter().step_by(2) {
            let delete = self.emulator.client.delete_item().table_name(USAGE);
            let delete = delete.key("pk", AttributeValue::S(pk)).key("sk", AttributeValue::S(sk));
            delete.send().await.unwrap();
        }
        let put = self.emulator.client.put_item().table_name(USAGE);
        let put = put.item("pk", AttributeValue::S(format!("O#{}", owner())));
        let put = put.item("sk", AttributeValue::S(format!("D#{}", Day::of(at(0)).minus(1))));
        put.item("an", AttributeValue::N("7".to_owned())).send().await.unwrap();
    }
}

#[tokio::test]
async fn a_recount_matches_counting_from_any_position() {
    let world = World::start().await;
    world.live().await;
    let batches = world.records();
    for batch in &batches {
        world.count(SHARD, batch).await.unwrap();
    }
    let expected = world.stored_sums().await;
    let longest = batches.iter().map(Vec::len).max().unwrap();
    for counted in 0..=longest {
        let world = World::start().await;
        world.live().await;
        let batches = world.records();
        for batch in &batches {
            let first = &batch[..counted.min(batch.len())];
            if !first.is_empty() {
                world.count(SHARD, first).await.unwrap();
                world.call(json!({"Records": first})).await.unwrap();
            }
        }
        world.spoil().await;
        let done = world.recount(&batches, &world.usage, &world.ledger).await.unwrap();
        assert_eq!(
            done,
            Recounted {
                owners: 1,
                unreadable: 0
            }
        );
        for batch in &batches {
            world.pass(batch).await.unwrap();
        }
        world.assert_told_and_counted().await;
        assert_eq!(world.stored_sums().await.len(), expected.len(), "{counted}");
    }
}

/// Counting is suspended until the recount ends.
#[tokio::test]
async fn a_killed_recount_resumes_and_suspends_counting() {
    let mut killed_at = 0;
    loop {
        let world = World::start().await;
        world.live().await;
        let batches = world.records();
        for batch in &batches {
            world.call(json!({"Records": batch})).await.unwrap();
            world.count(SHARD, &batch[..=batch.len() / 2]).await.unwrap();
        }
        world.spoil().await;
        let proxied = client(&world.proxies[0].url);
        let ledger = Ledger::new(proxied.clone(), LEDGER.to_owned(), DECISIONS.to_owned());
        let table = UsageTable::new(proxied, USAGE);
        let (moments, kill) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let told = Arc::clone(&kill);
        world.proxies[0].follow(move |_| {
            if moments.fetch_add(1, SeqCst) == killed_at {
                told.notify_one();
                return Fate::Silence;
            }
            Fate::PassOn
        });
        let was_killed = tokio::select! {
            () = kill.notified() => true,
            done = world.recount(&batches, &table, &ledger) => done.is_err(),
        };
        world.proxies[0].behave();
        let rows = scan(&world.emulator.client, USAGE, None).await;
        let in_progress = rows.iter().any(|row| row["pk"].as_s().unwrap() == "RECOUNT");
        let settlements = batches.iter().max_by_key(|batch| batch.len()).unwrap();
        assert_eq!(
            world.count(SHARD, settlements).await.is_none(),
            in_progress,
            "{killed_at}"
        );
        if was_killed {
            world.recount(&batches, &world.usage, &world.ledger).await.unwrap();
        }
        for batch in &batches {
            world.count(SHARD, batch).await.unwrap();
        }
        world.assert_told_and_counted().await;
        if !was_killed {
            break;
        }
        killed_at += 1;
    }
    assert!(killed_at > 10, "only {killed_at} moments");
}

/// Another run has taken the recount over, so further writes of this one are refused.
#[tokio::test]
async fn a_recount_that_was_taken_over_writes_nothing() {
    let world = World::start().await;
    world.live().await;
    let batches = world.records();
    let days = (Day::of(at(0)), Day::of(at(0)));
    let begin = |id: &str| {
        Recount::begin(
            world.usage.clone(),
            world.ledger.clone(),
            days,
            id.to_owned(),
            at(3_600),
        )
    };
    let first = begin("first").await.unwrap();
    let second = begin("second").await.unwrap();
    let nothing = async |_: &mut Uncounted| Ok(());
    assert!(first.run(nothing).await.is_err());
    assert_eq!(world.stored_sums().await, BTreeMap::new());
    second.run(nothing).await.unwrap();
    assert!(!world.stored_sums().await.is_empty());
    drop(batches);
}
