//! The Lambda functions `events` and `history` with a database, the streams and an event bus, behind proxies.

use aws_sdk_dynamodb::types::AttributeValue;
use purser_api::{Boot, Clock, Env};
use purser_domain::{
    Agent, AgentStatus, Amount, ApprovalResolution, Day, Event, EventKind, HistoryEntry, Labels, SettlementId,
    Timestamp, TransactionId, UsageTotals, UserId,
};
use purser_store::{
    AgentLimit, ApprovalDecision, Claim, DaySums, Filter, HistoryPart, Ledger, Page, PageRequest, TransitionResult,
    UsageTable,
};
use purser_stream::{Events, History};
use purser_testkit::{
    DECISIONS, Emulator, EventBus, Fate, LEDGER, Proxy, ProxyConfig, Streams, USAGE,
    authorize::{Answer, Request, authorize},
    client, environment,
    invariants::scan,
    journal_event, sample,
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering::SeqCst};
use std::time;
use tokio::sync::Notify;
use uuid::Uuid;

const BUS: &str = "purser";
/// The number of calls after which each injected fault ends.
const TRIES: u32 = 5;
pub(crate) const TIME: time::Duration = time::Duration::from_secs(30);
/// The shard of each table's stream, in tests with one shard.
pub(crate) const SHARD: &str = "shardId-00000001";
/// The response to a batch that was aggregated.
pub(crate) const FOLDED: &str = r#"{"batchItemFailures":[],"state":{}}"#;

pub(crate) struct World {
    pub(crate) emulator: Emulator,
    pub(crate) ledger: Ledger,
    streams: Streams,
    pub(crate) bus: EventBus,
    pub(crate) proxies: [Proxy; 2],
    pub(crate) events: Events,
    pub(crate) history: History,
    pub(crate) usage: UsageTable,
    /// The function's clock, in microseconds.
    pub(crate) clock: Arc<AtomicI64>,
}

pub(crate) fn owner() -> UserId {
    UserId::derive("https://issuer.example", "ann")
}

pub(crate) fn at(secs: u32) -> Timestamp {
    sample::start().after(sample::secs(secs))
}

/// Returns the agent of every test.
pub(crate) fn agent(version: u64, status: AgentStatus) -> Agent {
    Agent {
        owner: owner().to_string(),
        version,
        status,
        ..sample::agent(1, Vec::new())
    }
}

impl World {
    /// Starts a database with an agent of [`owner`]. The agent may spend 1,000 a day and needs an approval above 100.
    pub(crate) async fn start() -> Self {
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
        let variables: Vec<_> = variables.collect();
        let env = || variables.iter().cloned().collect::<Env>();
        let boot = || Boot::new(env(), Clock::at_fixed_time(Arc::clone(&clock)));
        let (events, history) = (Events::boot(boot()).unwrap(), History::boot(boot()).unwrap());
        let world = Self {
            ledger: emulator.ledger(),
            usage: UsageTable::new(emulator.client.clone(), USAGE),
            emulator,
            streams,
            bus,
            proxies,
            events,
            history,
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

    pub(crate) async fn pay(&self, amount: u64, key: &str) -> Answer {
        self.pay_at(amount, key, at(0)).await
    }

    pub(crate) async fn pay_at(&self, amount: u64, key: &str, now: Timestamp) -> Answer {
        self.pay_service_at(1, amount, key, now).await
    }

    pub(crate) async fn pay_service_at(&self, service: u128, amount: u64, key: &str, now: Timestamp) -> Answer {
        let request = Request::new(sample::agent_id(1), sample::service_id(service), amount, key);
        authorize(&self.ledger, &request, now).await.unwrap()
    }

    pub(crate) async fn paid(&self, amount: u64, key: &str) -> SettlementId {
        self.paid_at(amount, key, at(0)).await
    }

    pub(crate) async fn paid_at(&self, amount: u64, key: &str, now: Timestamp) -> SettlementId {
        match self.pay_at(amount, key, now).await {
            Answer::Allowed(id) => id,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn confirm(&self, id: SettlementId, byte: u8, now: Timestamp) {
        let settlement = self
            .ledger
            .read_settlement_by_id(sample::agent_id(1), id)
            .await
            .unwrap()
            .unwrap();
        let transfer = sample::transfer(&settlement, sample::tx_hash(byte));
        let confirmed = self
            .ledger
            .confirm_settlement(&settlement, &transfer, Claim::Transaction, now);
        confirmed.await.unwrap();
    }

    pub(crate) async fn take_back(&self, id: SettlementId) {
        let settlement = self
            .ledger
            .read_settlement_by_id(sample::agent_id(1), id)
            .await
            .unwrap()
            .unwrap();
        let decision = TransactionId::new_at(at(20), getrandom::u64().unwrap().to_be_bytes());
        let gone = sample::transfer_gone(&settlement);
        let moved = self.ledger.revert_confirmation(&settlement, &gone, decision, at(20));
        assert!(matches!(moved.await.unwrap(), TransitionResult::Done(_)));
    }

    pub(crate) async fn release(&self, id: SettlementId) {
        let settlement = self
            .ledger
            .read_settlement_by_id(sample::agent_id(1), id)
            .await
            .unwrap()
            .unwrap();
        let unusable = sample::unusable(&settlement);
        let moved = self.ledger.release_hold(&settlement, &unusable);
        assert!(matches!(moved.await.unwrap(), TransitionResult::Done(_)));
    }

    /// Makes payments with every outcome, a blocked request, and an approval that is used.
    pub(crate) async fn live(&self) {
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

    /// Passes an event to the Lambda function that would receive it.
    pub(crate) async fn call(&self, event: Value) -> Option<Value> {
        match event.get("shardId") {
            Some(_) => self.history.handle_event(&event).await.ok(),
            None => self.events.handle_event(&event, TIME).await.ok(),
        }
    }

    /// Passes a batch to `history`, as the event source mapping does.
    pub(crate) async fn fold(&self, shard: &str, batch: &[Value]) -> Option<Value> {
        self.call(journal_event(batch, shard)).await
    }

    /// Passes a batch to both functions, as their event source mappings do, and returns the response of `events`.
    pub(crate) async fn pass(&self, batch: &[Value]) -> Option<Value> {
        self.fold(SHARD, batch).await?;
        self.call(json!({"Records": batch})).await
    }

    pub(crate) async fn deliver(&self) -> usize {
        self.streams.deliver(TRIES, |event| self.call(event)).await
    }

    /// Returns all records that the streams have not delivered yet, in batches.
    pub(crate) fn records(&self) -> Vec<Vec<Value>> {
        let batches = std::iter::from_fn(|| Some(self.streams.next_batches()).filter(|batches| !batches.is_empty()));
        batches.flatten().collect()
    }

    /// Returns the published events without duplicates, in the order of the bus.
    pub(crate) fn told(&self) -> Vec<Event> {
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

    pub(crate) fn kinds(&self) -> BTreeMap<&'static str, usize> {
        let mut kinds = BTreeMap::new();
        for event in self.told() {
            *kinds.entry(event.kind().name()).or_default() += 1;
        }
        kinds
    }

    /// Returns an unfiltered page of the owner's decision history.
    pub(crate) async fn page(&self, part: HistoryPart, before: Option<Uuid>, limit: u32) -> Page<HistoryEntry, Uuid> {
        let none = None::<fn(&HistoryEntry) -> Filter>;
        let slice = PageRequest { before, limit };
        self.usage.read_history_page(&owner(), part, slice, none).await.unwrap()
    }

    /// Returns the owner's decision history.
    pub(crate) async fn journal(&self, part: HistoryPart) -> Vec<HistoryEntry> {
        let page = self.page(part, None, 100).await;
        assert_eq!(page.next, None);
        page.items
    }

    /// Returns the owner's sums per day.
    pub(crate) async fn days(&self) -> BTreeMap<Day, DaySums> {
        let (first, last) = (
            Day::containing(at(0)).days_earlier(10),
            Day::containing(at(0)).days_later(10),
        );
        let days = self.usage.read_daily_sums(&owner(), first, last).await.unwrap();
        days.into_iter().collect()
    }

    /// Returns the owner's sums over all days. Asserts that the sums per agent have the same total.
    pub(crate) async fn sums(&self) -> UsageTotals {
        let (first, last) = (
            Day::containing(at(0)).days_earlier(10),
            Day::containing(at(0)).days_later(10),
        );
        let by_agent = self.usage.read_sums_by_agent(&owner(), first, last).await.unwrap();
        let total = |sums: Vec<UsageTotals>| sums.into_iter().fold(UsageTotals::default(), UsageTotals::plus);
        let sums = total(self.days().await.into_values().map(|sums| sums.total).collect());
        assert_eq!(total(by_agent.into_values().collect()), sums);
        sums
    }

    /// Asserts that each decision in the ledger has an entry in the decision history, and that the sums are correct.
    pub(crate) async fn assert_folded(&self) {
        let decisions = self
            .ledger
            .read_decisions(sample::agent_id(1), None, 100)
            .await
            .unwrap();
        let name = agent(1, AgentStatus::Active).name;
        let expected: Vec<HistoryEntry> = decisions
            .iter()
            .map(|one| HistoryEntry::new(one, &name, &Labels::default()))
            .collect();
        assert_eq!(self.journal(HistoryPart::All).await, expected);
        let refusals: Vec<HistoryEntry> = expected.iter().filter(|one| one.payment.is_none()).cloned().collect();
        assert_eq!(self.journal(HistoryPart::Refusals).await, refusals);

        let mut days: BTreeMap<Day, DaySums> = BTreeMap::new();
        for entry in &expected {
            let day = days.entry(entry.day()).or_default();
            day.total = day.total.plus(entry.usage_sums());
            if let Some(service) = entry.service {
                let of_service = day.services.entry(service).or_default();
                *of_service = of_service.plus(entry.usage_sums());
            }
            if let Some(refusal) = &entry.refusal {
                *day.reasons.entry(refusal.error.clone()).or_default() += 1;
            }
            if let Some(limit) = entry.payment.as_ref().and_then(|payment| payment.nearest) {
                match day.nearest.first_mut() {
                    Some(nearest) => nearest.limit = nearest.limit.max(limit),
                    None => day.nearest.push(AgentLimit {
                        agent: entry.agent,
                        name: name.clone(),
                        limit,
                    }),
                }
            }
            day.agents = 1;
        }
        let found: BTreeMap<Day, DaySums> = self.days().await;
        let without = |day: DaySums| DaySums {
            biggest: Vec::new(),
            ..day
        };
        let found_without: BTreeMap<_, _> = found
            .clone()
            .into_iter()
            .map(|(day, sums)| (day, without(sums)))
            .collect();
        assert_eq!(found_without, days);
        for sums in found.into_values() {
            let spent = !sums.total.authorized.is_zero();
            let biggest: Vec<_> = sums.biggest.iter().map(|one| (one.agent, one.sums)).collect();
            let expected: Vec<_> = spent.then_some((sample::agent_id(1), sums.total)).into_iter().collect();
            assert_eq!(biggest, expected);
        }
    }

    /// Asserts that the events and the decision history show the changes by [`World::live`].
    pub(crate) async fn assert_told_and_folded(&self) {
        self.assert_folded().await;
        let sums = self.sums().await;
        let units = [sums.authorized, sums.confirmed, sums.released, sums.taken_back].map(Amount::units);
        assert_eq!(units, [250, 40, 20, 30]);
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

    /// Returns the rows in the usage table whose partition key has this prefix.
    pub(crate) async fn rows(&self, prefix: &str) -> Rows {
        let rows = scan(&self.emulator.client, USAGE, None).await.into_iter();
        let text = |row: &HashMap<String, AttributeValue>, name: &str| row[name].as_s().unwrap().clone();
        let rows = rows.map(|row| ((text(&row, "pk"), text(&row, "sk")), row.into_iter().collect()));
        rows.filter(|((pk, _), _): &(RowKey, Row)| pk.starts_with(prefix))
            .collect()
    }

    /// Makes every proxy stop responding from the n-th moment on. Each call has two moments: before and after it is
    /// executed.
    ///
    /// The returned `Notify` fires at the first call without a response.
    pub(crate) fn kill_at(&self, moment: usize) -> Arc<Notify> {
        let (moments, kill) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        for proxy in &self.proxies {
            let (moments, kill) = (Arc::clone(&moments), Arc::clone(&kill));
            proxy.follow(move |_| {
                if moments.fetch_add(1, SeqCst) == moment {
                    kill.notify_one();
                    return Fate::Silence;
                }
                Fate::PassOn
            });
        }
        kill
    }

    pub(crate) fn behave(&self) {
        for proxy in &self.proxies {
            proxy.behave();
        }
    }

    pub(crate) fn behind(&self) -> (Ledger, UsageTable) {
        let client = client(&self.proxies[0].url);
        let ledger = Ledger::new(client.clone(), LEDGER.to_owned(), DECISIONS.to_owned());
        (ledger, UsageTable::new(client, USAGE))
    }
}

pub(crate) type RowKey = (String, String);
pub(crate) type Row = BTreeMap<String, AttributeValue>;
pub(crate) type Rows = BTreeMap<RowKey, Row>;
