//! Runs a plan: executes its rounds, compares every response with the expected ones, and completes all pending work.
//!
//! There is one thread with paused time, so only the plan determines the order of events.

use crate::chain::{Call, Chain, Fate, Limits, NETWORK, ShownView, SignedTerms, Tx};
use crate::coverage::Coverage;
use crate::expect::{self, RequestParts};
use crate::hostile;
use crate::kms;
use crate::laws::Caller;
use crate::network::{Busy, FaultsSeen, Link, Moment, SimNode, ToFacilitator, Wire, World};
use crate::notices;
use crate::payouts::FIRST_PAYOUT;
use crate::people::{self, Scope, agent_id, payee, service_id};
use crate::plan::{Buy, CROWD, KEYS, Op, Pay, Plan, Proof, Row, SERVICES, Setting, Step, Twist, WORKERS, owner_of};
use crate::queues;
use crate::stored::StoredState;
use crate::tables::{AUDIT, CATALOG, DECISIONS, Item, LEDGER, THROTTLE, USAGE, number, text};
use aws_smithy_runtime_api::client::http::SharedHttpConnector;
use aws_smithy_runtime_api::client::stalled_stream_protection::StalledStreamProtectionConfig;
use axum::Router;
use axum::body::Body;
use axum::http::{Request, header};
use purser_api::{AuthorizeRequest, Background, Boot, Clock, Entropy, GatewayContext};
use purser_chain::{KmsKeys, Node};
use purser_domain::{
    Address, AgentId, ApprovalId, B256, CallDigest, Fingerprint, Intent, RuleId, Timestamp, Wallet, WalletKey,
};
use purser_model::flaw::Flaw;
use purser_reconcile::{Outcome as Outcomes, Part, Reconcile};
use purser_store::{CatalogTable, Ledger, UsageTable};
use purser_stream::{Events, History};
use purser_testkit::Rng;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tower::ServiceExt as _;

const WALLET_SEED: &str = "000102030405060708090a0b0c0d0e0f000102030405060708090a0b0c0d0e0f";
pub(crate) const NONCE_KEY: &str = "0123456789abcdef0123456789abcdef";
const WRONG_NONCE_KEY: &str = "fedcba9876543210fedcba9876543210";
const CONFIRMATIONS: u64 = 3;
/// The depth to which blocks are watched. It exceeds every reorg, and the depth that a block gets during the longest
/// call.
const WATCH: u64 = 20;
/// A second, in microseconds.
const SECOND: i64 = 1_000_000;
const LONGEST_CALL: i64 = 30 * SECOND;
/// The number of an agent's idempotency keys, including those of bursts.
const KEYS_IN_ALL: usize = 256;
/// The shard that contains all authorized settlements.
const WHOLE: (u8, u8) = (0, 1);
/// The initial balance of a wallet, in micro-USDC.
const FUNDS: u64 = 20_000;

/// The agents' wallets. They are derived only once per process, because the derivation is slow.
static WALLETS: LazyLock<Vec<Wallet>> = LazyLock::new(|| {
    let seed = purser_chain::WalletSeed::from_hex(WALLET_SEED).expect("a seed");
    let wallet = |number: u8| {
        let signer = seed.derive_wallet(number.into()).expect("a wallet");
        Wallet {
            key: WalletKey::Seed { index: number.into() },
            address: signer.address(),
            attestation: signer.attest(agent_id(number)).expect("an attestation"),
        }
    };
    (0..CROWD).map(wallet).collect()
});

/// The result of a simulated run.
#[derive(Debug)]
pub struct Outcome {
    /// The violations found; empty if there are none.
    pub complaints: Vec<String>,
    /// The events that occurred in the run.
    pub coverage: Coverage,
    /// The calls of the run in order, as text.
    pub trace: Vec<String>,
    /// A hash of the run. Equal plans have equal hashes.
    pub print: u64,
}

/// Runs a plan. A panic also counts as a violation.
pub fn run(plan: &Plan) -> Outcome {
    run_beside(plan, None)
}

/// Runs a plan, and compares the run with a model that has this planted bug.
pub fn run_beside(plan: &Plan, flaw: Option<Flaw>) -> Outcome {
    // The store and the SDK draw their backoffs from this thread's generator.
    fastrand::seed(plan.seed);
    let watched = panics::watch(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build();
        runtime.expect("a runtime").block_on(async {
            let run = Run::begin(plan).await;
            if let Some(model) = &mut run.world.record().modelled {
                model.flaw = flaw;
            }
            run.play(plan).await;
            run.outcome()
        })
    });
    let (outcome, panics) = watched;
    let mut outcome = outcome.unwrap_or_else(|| Outcome {
        complaints: Vec::new(),
        coverage: Coverage::default(),
        trace: Vec::new(),
        print: 0,
    });
    outcome.complaints.extend(panics);
    outcome
}

/// Records panics, because background tasks and the functions hide them.
mod panics {
    use std::cell::RefCell;
    use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
    use std::sync::Once;

    thread_local! {
        static NOTED: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
    }

    pub(super) fn watch<T>(work: impl FnOnce() -> T) -> (Option<T>, Vec<String>) {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let usual = take_hook();
            set_hook(Box::new(move |panic| {
                let unwatched = NOTED.with_borrow_mut(|noted| match noted {
                    Some(noted) => {
                        noted.push(format!("panicked: {panic}"));
                        false
                    }
                    None => true,
                });
                if unwatched {
                    usual(panic);
                }
            }));
        });
        NOTED.set(Some(Vec::new()));
        let done = catch_unwind(AssertUnwindSafe(work)).ok();
        (done, NOTED.take().unwrap_or_default())
    }
}

/// A process of the functions.
pub(crate) struct Worker {
    pub(crate) link: Arc<Link>,
    payments: Router,
    /// The router for requests from other functions.
    pub(crate) direct: Router,
    reconcile: Reconcile,
    /// A reconcile function with another nonce key.
    misled: Reconcile,
    /// The function `events`, which starts only at the end, so that its start does not affect the run.
    events: OnceLock<Events>,
    history: OnceLock<History>,
    ledger: Ledger,
}

/// What an agent remembers of an idempotency key.
#[derive(Clone, Default)]
pub(crate) struct Memory {
    buy: Option<Buy>,
    pub(crate) settlement: Option<String>,
    pub(crate) approval: Option<ApprovalId>,
    /// The signed payment, and its header.
    pub(crate) payment: Option<(SignedTerms, String)>,
    pub(crate) transaction: Option<B256>,
    /// The transaction id of the last denial by the cap per call.
    pub(crate) refusal: Option<String>,
    /// Whether the agent got no response to the last call with the key.
    in_doubt: bool,
}

pub(crate) struct AgentCard {
    id: AgentId,
    pub(crate) keys: Vec<String>,
    /// The scopes of API keys by the key's id. Keys without a scope are left out.
    scopes: BTreeMap<String, Scope>,
    pub(crate) memory: Vec<Memory>,
    /// The transaction id of the last denial by a daily cap.
    pub(crate) refused_by_day: Option<String>,
    /// The last request for a temporary limit increase.
    pub(crate) raise: Option<ApprovalId>,
    rules: BTreeMap<u8, RuleId>,
}

pub(crate) struct Run {
    /// The number of the run in this process.
    number: u64,
    /// The depth to which blocks are watched.
    watch: u64,
    pub(crate) setting: Setting,
    wallets: Vec<Wallet>,
    pub(crate) world: Arc<World>,
    pub(crate) workers: Vec<Worker>,
    pub(crate) catalog: CatalogTable,
    agents: Mutex<Vec<AgentCard>>,
    rng: Arc<Mutex<Rng>>,
    rules: AtomicU64,
    thaws: Mutex<BTreeMap<u8, usize>>,
    /// The number of steps in progress.
    under_way: watch::Sender<usize>,
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    replayed: bool,
    pub(crate) body: Value,
    pub(crate) took: Duration,
}

/// The state at the beginning of a step.
#[derive(Clone, Copy)]
pub(crate) struct Begun {
    /// The index of the first stored state that the step may have read.
    moment: usize,
    /// The time on the process's clock, in microseconds since 1970.
    pub(crate) clock: i64,
    /// Whether no concurrent step may concern the same agents.
    pub(crate) alone: bool,
    /// The owner of the agents that the step may concern; `None` for all owners.
    owner: Option<u8>,
}

impl Begun {
    pub(crate) const fn owner(&self) -> Option<u8> {
        self.owner
    }
}

impl Run {
    async fn begin(plan: &Plan) -> Arc<Self> {
        static RUNS: AtomicU64 = AtomicU64::new(0);
        let number = RUNS.fetch_add(1, SeqCst);
        let watch = WATCH + 2 * plan.setting.side_blocks;
        let address_of = |agent: u8| match plan.setting.kms {
            true => kms::address(agent),
            false => WALLETS[usize::from(agent)].address,
        };
        let balances = (0..plan.setting.agents()).map(|agent| (address_of(agent), FUNDS));
        let balances = balances.chain([(faucet(), 1_000_000_000)]).collect();
        let limits = Limits::drawn(Rng::from_seed(plan.seed ^ 3));
        let chain = Chain::new(
            Rng::from_seed(plan.seed ^ 1),
            CONFIRMATIONS,
            plan.setting.start.unsigned_abs(),
            balances,
            limits,
            plan.setting.side_blocks,
        );
        let start = plan.setting.start * SECOND;
        let secrets = [
            ("seed", WALLET_SEED),
            ("nonces", NONCE_KEY),
            ("wrong nonces", WRONG_NONCE_KEY),
            ("rpc", "http://node.sim"),
        ];
        let secrets = secrets.map(|(name, value)| (name, value.to_owned())).into();
        let world = World::new(chain, secrets, start, plan.skews);
        let rng = Arc::new(Mutex::new(Rng::from_seed(plan.seed ^ 2)));

        let operator = Link::new(&world, 0);
        let setting = plan.setting;
        let boot = |link: &Arc<Link>, nonces| boot(link, number, watch, setting, &rng, nonces);
        let aws = boot(&operator, "nonces").aws;
        let db = purser_store::dynamodb_client(&aws);
        let wallets = if setting.kms {
            kms::wallets(KmsKeys::new(aws), setting.agents()).await
        } else {
            WALLETS.clone()
        };
        let card = |agent| AgentCard {
            id: agent_id(agent),
            keys: Vec::new(),
            scopes: BTreeMap::new(),
            memory: vec![Memory::default(); KEYS_IN_ALL],
            refused_by_day: None,
            raise: None,
            rules: BTreeMap::new(),
        };
        let mut run = Self {
            number,
            watch,
            setting: plan.setting,
            wallets,
            world: Arc::clone(&world),
            workers: Vec::new(),
            catalog: CatalogTable::new(db.clone(), CATALOG),
            agents: Mutex::new((0..plan.setting.agents()).map(card).collect()),
            rng: Arc::clone(&rng),
            rules: AtomicU64::new(0),
            thaws: Mutex::default(),
            under_way: watch::Sender::default(),
        };
        for service in 0..SERVICES {
            world
                .record()
                .known
                .payees
                .insert(service_id(service).to_string(), payee(service));
        }
        let ledger = Ledger::new(db, LEDGER, DECISIONS);
        people::set_up(&run, &ledger, Timestamp::from_micros(start).expect("an instant")).await;
        let events = Events::boot(boot(&operator, "nonces")).expect("the function starts");
        events
            .publish_due_events(Duration::from_secs(60))
            .await
            .expect("the payees are attested");
        for worker in 0..WORKERS {
            let link = Link::new(&world, worker);
            let over = |node: &Arc<Link>| {
                let nodes = [0, 1].map(|endpoint| -> Arc<dyn Node> { Arc::new(SimNode(Arc::clone(node), endpoint)) });
                let has_two = plan.setting.two_endpoints;
                move |network, _: &str, finality| {
                    let [first, second] = nodes;
                    Ok(if has_two {
                        purser_chain::Chain::from_nodes(network, [first, second], finality)
                    } else {
                        purser_chain::Chain::from_node(network, first, finality)
                    })
                }
            };
            let boot = |nonces| boot(&link, nonces);
            let payments = purser_payments::routers_with_chain(boot("nonces"), over(&link)).await;
            let reconcile = Reconcile::boot_with_chain(boot("nonces"), over(&link)).await;
            let misled = Reconcile::boot_with_chain(boot("wrong nonces"), over(&link)).await;
            let db = purser_store::dynamodb_client(&boot("nonces").aws);
            let payments = payments.expect("the function starts");
            run.workers.push(Worker {
                payments: payments.gateway,
                direct: payments.direct,
                reconcile: reconcile.expect("the function starts"),
                misled: misled.expect("the function starts"),
                events: OnceLock::new(),
                history: OnceLock::new(),
                ledger: Ledger::new(db, LEDGER, DECISIONS),
                link,
            });
        }
        // The first run of reconcile starts the watch of blocks, as in a deployment.
        let first = run.workers[0].reconcile.reconcile_all(Duration::from_secs(60)).await;
        first.expect("the first run");
        let mut record = world.record();
        record.stored = StoredState::read(&world.tables);
        record.complaints.clear();
        record.events.clear();
        drop(record);
        Arc::new(run)
    }

    async fn play(self: &Arc<Self>, plan: &Plan) {
        let mut number = 1;
        for round in &plan.rounds {
            self.round(number, round).await;
            number += round.len();
            if !self.world.record().complaints.is_empty() {
                return;
            }
        }
        self.drain(number).await;
        if self.world.record().complaints.is_empty() {
            self.tell(plan.seed, number).await;
            self.replay().await;
        }
        if self.setting.webhooks && self.world.record().complaints.is_empty() {
            self.call_webhooks(plan.seed, number).await;
        }
        if self.setting.webhooks && self.world.record().complaints.is_empty() {
            self.send_notices(plan.seed).await;
        }
    }

    fn outcome(&self) -> Outcome {
        let mut record = self.world.record();
        let mut hasher = DefaultHasher::new();
        let trace: Vec<String> = record.events.iter().map(ToString::to_string).collect();
        trace.hash(&mut hasher);
        for (key, row) in record.stored.ledger.iter().chain(&record.stored.decisions) {
            let mut row = Item::clone(row);
            // The counter for audit ids is shared by all runs of the process, so equal runs have different ids.
            row.remove("aid");
            (key, crate::tables::words(&row)).hash(&mut hasher);
        }
        Outcome {
            complaints: std::mem::take(&mut record.complaints),
            coverage: std::mem::take(&mut record.coverage),
            trace,
            print: hasher.finish(),
        }
    }

    /// Returns the tables that a replay reads.
    pub(crate) fn readers(&self) -> (&Ledger, UsageTable) {
        let worker = &self.workers[0];
        let db = purser_store::dynamodb_client(&self.boot(&worker.link).aws);
        (&worker.ledger, UsageTable::new(db, USAGE))
    }

    pub(crate) fn link_of(&self, worker: usize) -> &Arc<Link> {
        &self.workers[worker].link
    }

    /// Returns the configuration of a process.
    pub(crate) fn boot(&self, link: &Arc<Link>) -> Boot {
        boot(link, self.number, self.watch, self.setting, &self.rng, "nonces")
    }

    pub(crate) const fn agents_in_all(&self) -> u8 {
        self.setting.agents()
    }

    pub(crate) fn rng(&self) -> MutexGuard<'_, Rng> {
        self.rng.lock().expect("not poisoned")
    }

    pub(crate) fn agents(&self) -> MutexGuard<'_, Vec<AgentCard>> {
        self.agents.lock().expect("not poisoned")
    }

    pub(crate) fn memory<T>(&self, agent: u8, key: u8, of: impl FnOnce(&mut Memory) -> T) -> T {
        of(&mut self.agents()[usize::from(agent)].memory[usize::from(key)])
    }

    /// Returns the `events` function of a process, started on first use.
    pub(crate) fn events_on(&self, worker: usize) -> (&Arc<Link>, &Events) {
        let Worker { link, events, .. } = &self.workers[worker];
        let start = || Events::boot(self.boot(link)).expect("the function starts");
        (link, events.get_or_init(start))
    }

    /// Returns the `history` function of a process, started on first use.
    pub(crate) fn history_on(&self, worker: usize) -> &History {
        let Worker { link, history, .. } = &self.workers[worker];
        history.get_or_init(|| History::boot(self.boot(link)).expect("the function starts"))
    }

    pub(crate) fn wallet(&self, agent: u8) -> Wallet {
        self.wallets[usize::from(agent)]
    }

    pub(crate) fn hand_out(&self, id: AgentId, key: String, scope: Scope) {
        let mut agents = self.agents();
        let card = agents.iter_mut().find(|card| card.id == id).expect("an agent");
        card.scopes.insert(key_id(&key), scope);
        card.keys.push(key);
    }

    pub(crate) fn scope_of(&self, agent: u8, key: &str) -> Scope {
        let agents = self.agents();
        let scopes = &agents[usize::from(agent)].scopes;
        scopes.get(key).copied().unwrap_or_default()
    }

    /// Creates an id for the agent's rule with this index.
    pub(crate) fn new_rule(&self, agent: u8, place: u8) -> RuleId {
        let id = people::rule_id(self.rules.fetch_add(1, SeqCst));
        self.agents()[usize::from(agent)].rules.insert(place, id);
        id
    }

    pub(crate) fn rule_in(&self, agent: u8, place: u8) -> Option<RuleId> {
        self.agents()[usize::from(agent)].rules.get(&place).copied()
    }

    /// Returns whether an unfreeze of the agent is in progress.
    pub(crate) fn thawing(&self, agent: u8) -> bool {
        self.thaws
            .lock()
            .expect("not poisoned")
            .get(&agent)
            .is_some_and(|count| *count > 0)
    }

    /// Runs the steps of a round concurrently. The steps of one process run in order.
    async fn round(self: &Arc<Self>, first: usize, steps: &[Step]) {
        self.open_round();
        // The steps of other owners' agents don't affect an agent.
        let apart = |one: &Step, other: &Step| match (one.op.agent(), other.op.agent()) {
            (Some(one), Some(other)) => owner_of(one) != owner_of(other),
            _ => false,
        };
        let is_alone = |index: usize, step: &Step| {
            let owner = step.op.agent().map(owner_of);
            let mut others = steps.iter().enumerate().filter(|(other, _)| *other != index);
            self.world.record().flying_beside(owner) == 0 && others.all(|(_, other)| apart(step, other))
        };
        let mut together = JoinSet::new();
        let mut lanes: BTreeMap<usize, Vec<(usize, Step, bool)>> = BTreeMap::new();
        for (index, step) in steps.iter().enumerate() {
            let (number, alone) = (first + index, is_alone(index, step));
            let lane = if step.op.is_of_the_world() {
                WORKERS + number
            } else {
                step.worker.into()
            };
            lanes.entry(lane).or_default().push((number, step.clone(), alone));
        }
        for steps in lanes.into_values() {
            let run = Arc::clone(self);
            together.spawn(async move {
                for (number, step, alone) in steps {
                    run.step(number, &step, alone).await;
                }
            });
        }
        while let Some(done) = together.join_next().await {
            if let Err(error) = done {
                self.world.complain(format!("the simulation itself failed: {error}"));
            }
        }
        self.close_round();
    }

    fn open_round(&self) {
        let mut record = self.world.record();
        let stored = record.stored.clone();
        record.moments = vec![Moment { stored, step: 0 }];
    }

    /// Checks that the tables contain exactly the recorded writes.
    fn close_round(&self) {
        let stored = StoredState::read(&self.world.tables);
        let indexed = self.world.tables.rows(LEDGER, Some("hold"));
        let indexed: BTreeSet<_> = indexed.into_keys().collect();
        let record = self.world.record();
        let mut found = Vec::new();
        if stored != record.stored {
            found.push("the simulation lost track of what is stored".to_owned());
        }
        let holding = stored.ledger.iter().filter(|(_, row)| row.contains_key("hp"));
        let holding: BTreeSet<_> = holding.map(|(key, _)| key.clone()).collect();
        if indexed != holding {
            found.push(format!("I14 the index holds {indexed:?}, the rows say {holding:?}"));
        }
        drop(record);
        for what in found {
            self.world.complain(what);
        }
    }

    async fn step(self: &Arc<Self>, number: usize, step: &Step, alone: bool) {
        let Step { worker, pace, op, .. } = *step;
        if op.whose().iter().any(|agent| *agent >= self.agents_in_all()) {
            return;
        }
        self.world.count(format!("operation {}", op.name()));
        if let Some(agent) = op.agent() {
            let agent = agent_id(agent).to_string();
            self.world.record().known.acting.insert(number, agent);
        }
        if op.is_of_the_world() {
            sleep(Duration::from_millis(u64::from(pace) % 40)).await;
            let what = match op {
                Op::Pass { .. } | Op::PassToRollOff { .. } | Op::PassToDeadline { .. } => self.pass(op).await,
                _ => self.apply_world_op(op),
            };
            self.world.count(format!("{} {what}", op.name()));
            return;
        }
        let worker = usize::from(worker) % WORKERS;
        let link = &self.workers[worker].link;
        link.begin(number, pace, step.faults.clone());
        let begun = self.begun(worker, alone, op.agent().map(owner_of));
        self.under_way.send_modify(|count| *count += 1);
        let what = self.act(number, worker, op, begun).await;
        self.under_way.send_modify(|count| *count -= 1);
        self.world.count(format!("{} {what}", op.name()));
    }

    pub(crate) fn begun(&self, worker: usize, alone: bool, owner: Option<u8>) -> Begun {
        Begun {
            moment: self.world.record().moments.len() - 1,
            clock: self.world.clock_of(worker),
            alone,
            owner,
        }
    }

    /// Ends a step, and returns the faults that occurred.
    pub(crate) fn ended(&self, worker: usize) -> FaultsSeen {
        let faults_seen = self.workers[worker].link.end();
        for fault in &faults_seen.faults {
            let name = format!("{fault:?}");
            let name = name.split('(').next().unwrap_or_default();
            self.world.count(format!("fault {name}"));
        }
        faults_seen
    }

    async fn act(self: &Arc<Self>, number: usize, worker: usize, op: Op, begun: Begun) -> String {
        match op {
            Op::Authorize { buy, carry, first_key } => {
                self.authorize(number, worker, buy, carry, first_key, begun).await
            }
            Op::Burst {
                agent,
                service,
                units,
                count,
            } => {
                let mut last = String::new();
                for _ in 0..count {
                    let Some(key) = self.unused_key(agent) else { break };
                    let buy = Buy {
                        agent,
                        key,
                        service,
                        units,
                        secs: 60,
                        twist: Twist::Plain,
                    };
                    let begun = self.begun(worker, begun.alone, begun.owner);
                    last = self.authorize(number, worker, buy, None, false, begun).await;
                    self.world.count(format!("Burst {last}"));
                    self.workers[worker].link.begin(number, count.into(), Vec::new());
                }
                self.ended(worker);
                last
            }
            Op::Check { buy, replay } => self.check(number, worker, buy, replay, begun).await,
            Op::Poll { agent, key } => self.poll(worker, agent, key, begun).await,
            Op::Complete { agent, key, proof } => self.complete(worker, agent, key, proof, begun).await,
            Op::Invent { agent, key, count } => {
                let mut last = String::new();
                for number_of in 0..count {
                    let begun = self.begun(worker, begun.alone, begun.owner);
                    let proof = Proof::Invented(number_of);
                    last = self.complete(worker, agent, key, proof, begun).await;
                    self.world.count(format!("Invent {last}"));
                    self.workers[worker].link.begin(number, count.into(), Vec::new());
                }
                self.ended(worker);
                last
            }
            Op::Receipts { agent } => self.receipts(worker, agent, begun).await,
            Op::Reconcile { secs } => {
                let reconcile = self.workers[worker].reconcile.clone();
                self.reconcile(number, worker, &reconcile, WHOLE, secs, begun).await
            }
            Op::ReconcilePart { part } => {
                let reconcile = self.workers[worker].reconcile.clone();
                let part = (part, 2);
                self.reconcile(number, worker, &reconcile, part, 60, begun).await
            }
            Op::ReconcileWithWrongKey => {
                let begun = Begun { alone: false, ..begun };
                let misled = self.workers[worker].misled.clone();
                self.reconcile(number, worker, &misled, WHOLE, 60, begun).await
            }
            Op::Mark { agent, key } if self.memory(agent, key, |memory| memory.settlement.is_none()) => {
                self.ended(worker);
                "nothing authorized".to_owned()
            }
            Op::Resolve { agent, key, .. } if self.memory(agent, key, |memory| memory.approval.is_none()) => {
                self.ended(worker);
                "nothing asked".to_owned()
            }
            Op::AskForRaise { agent } => self.ask_for_more(worker, agent, begun).await,
            Op::GrantRaise { agent } if self.agents()[usize::from(agent)].raise.is_none() => {
                self.ended(worker);
                "nothing asked".to_owned()
            }
            Op::NamePayout { agent, place } => self.name_payout(worker, agent, Some(place), begun).await,
            Op::RemovePayout { agent } => self.name_payout(worker, agent, None, begun).await,
            Op::PayOut { agent, units, key } => self.pay_out(number, worker, (agent, units, key), begun).await,
            Op::Attack { agent, victim, how } => self.attack(number, worker, (agent, victim), how, begun).await,
            _ => self.person(worker, op).await,
        }
    }

    /// Runs a user's operation on a process.
    async fn person(self: &Arc<Self>, worker: usize, op: Op) -> String {
        let Worker { link, ledger, .. } = &self.workers[worker];
        let now = Timestamp::from_micros(self.world.clock_of(worker)).expect("an instant");
        let thaws = match op {
            Op::Freeze { agent, frozen: false } => Some(agent),
            Op::Operators {
                agent,
                by: 0,
                frozen: false,
            } => Some(people::OPERATORS + agent),
            _ => None,
        };
        let thawing = |agent: u8, begins: bool| {
            let mut thaws = self.thaws.lock().expect("not poisoned");
            let count = thaws.entry(agent).or_default();
            *count = if begins { *count + 1 } else { *count - 1 };
        };
        if let Some(agent) = thaws {
            thawing(agent, true);
        }
        let operation = async {
            match op {
                Op::Resolve { agent, key, yes } => {
                    let approval = self
                        .memory(agent, key, |memory| memory.approval)
                        .expect("looked at before");
                    people::resolve(ledger, agent, approval, yes, now).await
                }
                Op::Policy {
                    agent,
                    service,
                    caps,
                    on,
                } => people::put_policy(ledger, agent, service, caps, on).await,
                Op::Freeze { agent, frozen } => people::freeze(self, ledger, agent, frozen).await,
                Op::Operators { agent, by, frozen } => people::operate(self, ledger, (agent, by), frozen, now).await,
                Op::Rule { agent, rule, on } => people::set_rule(self, ledger, agent, rule, on).await,
                Op::Rotate { agent, secs } => people::rotate(self, ledger, agent, secs, now).await,
                Op::Scope { agent, scope } => people::add_key(self, ledger, agent, scope, now).await,
                Op::Offer { agent, to } => people::offer(ledger, agent, to, now).await,
                Op::Accept { agent } => people::accept(self, ledger, agent, now).await,
                Op::GrantRaise { agent } => {
                    let raise = self.agents()[usize::from(agent)].raise;
                    people::grant_raise(ledger, raise.expect("looked at before"), now).await
                }
                Op::Revoke { agent } => people::revoke(self, ledger, agent, now).await,
                Op::Mark { agent, key } => {
                    let settlement = self.memory(agent, key, |memory| memory.settlement.clone());
                    people::mark(ledger, agent, &settlement.expect("looked at before"), now).await
                }
                other => unreachable!("{other:?} is nothing that a person does"),
            }
        };
        let done = tokio::select! {
            biased;
            () = link.crashed() => Ok("crashed"),
            done = operation => done,
        };
        if let Some(agent) = thaws {
            thawing(agent, false);
        }
        let faults_seen = self.ended(worker);
        match done {
            Ok(what) => what.to_owned(),
            Err(error) => {
                if faults_seen.faults.is_empty() {
                    self.world.complain(format!("{op:?} failed without cause: {error}"));
                }
                "failed".to_owned()
            }
        }
    }

    /// Calls the function with an API key, from the address of the agent's owner.
    pub(crate) async fn call(
        &self,
        worker: usize,
        (agent, key): (u8, &str),
        method: &str,
        path: &str,
        body: Option<String>,
    ) -> Option<Answer> {
        let Worker { link, payments, .. } = &self.workers[worker];
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::AUTHORIZATION, format!("Bearer {key}"));
        let mut request = request
            .body(body.map_or_else(Body::empty, Body::from))
            .expect("a request");
        if self.setting.crowd {
            let method = request.method().clone();
            let context = GatewayContext::new(method, None, hostile::address_of(owner_of(agent)));
            request.extensions_mut().insert(context);
        }
        let limits = self.note_call(worker, agent, key);
        let began = Instant::now();
        let calling = async {
            let response = payments.clone().oneshot(request).await.expect("infallible");
            let (parts, body) = response.into_parts();
            let bytes = axum::body::to_bytes(body, usize::MAX).await.expect("a body");
            Answer {
                status: parts.status.as_u16(),
                replayed: parts.headers.contains_key("idempotent-replayed"),
                body: serde_json::from_slice(&bytes).unwrap_or_default(),
                took: began.elapsed(),
            }
        };
        let answer = tokio::select! {
            biased;
            () = link.crashed() => None,
            answer = calling => Some(answer),
        };
        if answer.as_ref().is_some_and(|answer| answer.status == 429) {
            self.judge_limit(agent, &limits);
        }
        answer
    }

    pub(crate) fn has_wide_key(&self, agent: u8) -> bool {
        self.scope_of(agent, &key_id(&self.key_of(agent, false))) == Scope::default()
    }

    pub(crate) fn key_of(&self, agent: u8, first: bool) -> String {
        let agents = self.agents();
        let keys = &agents[usize::from(agent)].keys;
        if first { keys.first() } else { keys.last() }.expect("a key").clone()
    }

    /// Returns an idempotency key of the agent that no step of the plan uses.
    pub(crate) fn unused_key(&self, agent: u8) -> Option<u8> {
        let agents = self.agents();
        let card = &agents[usize::from(agent)];
        let key = (KEYS..FIRST_PAYOUT).find(|key| card.memory[usize::from(*key)].buy.is_none())?;
        Some(key)
    }

    /// Returns whether a step had no faults, and no concurrent step that concerns its agents.
    pub(crate) fn undisturbed(&self, begun: &Begun, faults_seen: &FaultsSeen) -> bool {
        begun.alone && faults_seen.faults.is_empty() && self.world.record().flying_beside(begun.owner) == 0
    }

    /// Returns the stored states that a step may have read.
    fn moments(&self, begun: &Begun) -> Vec<Moment> {
        self.world.record().moments[begun.moment..].to_vec()
    }

    async fn authorize(
        &self,
        number: usize,
        worker: usize,
        buy: Buy,
        carry: Option<u8>,
        first_key: bool,
        begun: Begun,
    ) -> String {
        let carried = carry.and_then(|key| self.memory(buy.agent, key, |memory| memory.approval));
        self.authorize_with(number, worker, buy, carried, first_key, begun)
            .await
    }

    pub(crate) async fn authorize_with(
        &self,
        number: usize,
        worker: usize,
        buy: Buy,
        carried: Option<ApprovalId>,
        first_key: bool,
        begun: Begun,
    ) -> String {
        let caller = self.key_of(buy.agent, first_key);
        let body = authorize_body(number, buy, carried);
        let parsed = AuthorizeRequest::parse(&body, NETWORK).expect("a request");
        let caller_id = key_id(&caller);
        let who = Caller {
            key: caller_id.clone(),
            from: begun.clock,
            call: call_of(&parsed.intent, buy.service),
            payee: payee_of(buy.service),
        };
        self.world.record().known.callers.insert(number, who);
        self.memory(buy.agent, buy.key, |memory| {
            memory.in_doubt = true;
            memory.buy = memory.buy.or(Some(buy));
        });
        let by = (buy.agent, caller.as_str());
        let answer = self
            .call(worker, by, "POST", "/x402/authorize", Some(body.to_string()))
            .await;
        let faults_seen = self.ended(worker);
        let Some(answer) = answer else {
            return "crashed".to_owned();
        };
        self.judge_wait(&answer, &begun, &faults_seen);
        if answer.status == 429 {
            // A 429 response says nothing about earlier calls, so it is not compared.
            return "too_many_requests".to_owned();
        }
        let until = self.world.clock_of(worker);
        let agent = agent_id(buy.agent).to_string();
        let service = service_id(buy.service).to_string();
        let asked = RequestParts {
            agent: &agent,
            service: &service,
            category: people::category(buy.service),
            caller: &caller_id,
            fingerprint: parsed.intent.fingerprint,
            key: parsed.idempotency_key,
            carried,
            buy,
            call: call_of(&parsed.intent, buy.service),
            payee: payee_of(buy.service),
            most_waiting: hostile::most_waiting(self.setting),
            scope: self.scope_of(buy.agent, &caller_id),
        };
        let words = words_of(&answer);
        if words == "5xx" {
            if faults_seen.faults.is_empty() {
                self.world.complain(format!(
                    "step {number}: {} without cause: {}",
                    answer.status, answer.body
                ));
            }
            return words;
        }
        self.memory(buy.agent, buy.key, |memory| memory.in_doubt = false);
        let stands = !expect::raise_changes(&self.moments(&begun)[0].stored, &asked, begun.clock, until);
        let strict = self.undisturbed(&begun, &faults_seen) && stands;
        if let Err(what) = self.judge(number, &answer, &words, &asked, &begun, until, &faults_seen, strict) {
            self.world.complain(format!(
                "step {number}: {what}; the answer was {words}: {}",
                answer.body
            ));
        }
        if let Some(id) = answer.body["approval_id"].as_str().and_then(ApprovalId::parse) {
            self.memory(buy.agent, buy.key, |memory| memory.approval = Some(id));
        }
        if words.starts_with("daily_spend_limit_exceeded") {
            let id = answer.body["transaction_id"].as_str().map(str::to_owned);
            self.agents()[usize::from(buy.agent)].refused_by_day = id;
        }
        if words == "amount_exceeds_per_call_limit" {
            let id = answer.body["transaction_id"].as_str().map(str::to_owned);
            self.memory(buy.agent, buy.key, |memory| memory.refusal = id);
        }
        let kind = words.split(':').take(2).collect::<Vec<_>>();
        match kind.as_slice() {
            ["policy_blocked", reason] => format!("policy_blocked {reason}"),
            [kind, ..] => (*kind).to_owned(),
            [] => String::new(),
        }
    }

    /// Compares a response of authorize with the expected ones.
    #[expect(clippy::too_many_arguments, reason = "an answer, and everything that it depends on")]
    fn judge(
        &self,
        number: usize,
        answer: &Answer,
        words: &str,
        asked: &RequestParts<'_>,
        begun: &Begun,
        until: i64,
        faults_seen: &FaultsSeen,
        strict: bool,
    ) -> Result<(), String> {
        let moments = self.moments(begun);
        let now = moments.last().expect("the first moment").stored.clone();
        let recorded = match (answer.status, answer.body["transaction_id"].as_str()) {
            (402 | 403, Some(id)) => {
                let row = now.decisions.get(&(format!("A#{}", asked.agent), id.to_owned()));
                let at = row
                    .map(|row| number_of(row, "t"))
                    .ok_or("its decision was not recorded")?;
                (at >= begun.clock).then_some(at)
            }
            _ => None,
        };
        let instant = expect::Instant {
            from: begun.clock,
            until,
            recorded,
            balances: &faults_seen.balances,
        };
        if answer.status == 200 {
            self.judge_payment(number, answer, asked, &moments)?;
        }
        let expected = |moment: &Moment| expect::answers(&moment.stored, asked, &instant);
        if strict && !expect::may_backfill(&moments[0].stored, asked) {
            let first = &moments[0];
            let expected = expected(first);
            if expected[0] != words {
                return Err(format!("expected {expected:?}"));
            }
            if words.starts_with("daily_spend_limit_exceeded") {
                let at = recorded.ok_or("a refusal has its time")?;
                let told = answer.body["retry_at"].as_str().map(str::to_owned);
                let fits = expect::retry_at(&first.stored, asked, at);
                let fits = fits.and_then(Timestamp::from_micros).map(|at| at.to_string());
                if told != fits {
                    return Err(format!("retry_at is {told:?} and should be {fits:?}"));
                }
            }
            return Ok(());
        }
        let ended = words == "invalid_agent_key"
            && moments
                .iter()
                .any(|moment| expect::may_have_ended(&moment.stored, asked, until));
        if ended
            || words == "allow"
            || moments
                .iter()
                .any(|moment| expected(moment).iter().any(|one| one == words))
        {
            return Ok(());
        }
        let all: Vec<_> = moments.iter().map(expected).collect();
        Err(format!(
            "refused without cause; expected of the states that there were: {all:?}"
        ))
    }

    /// Checks that a response's settlement is stored, matches the request, and has only one payment.
    fn judge_payment(
        &self,
        number: usize,
        answer: &Answer,
        asked: &RequestParts<'_>,
        moments: &[Moment],
    ) -> Result<(), String> {
        let id = answer.body["settlement_id"].as_str().ok_or("no settlement")?;
        let stored = &moments.last().expect("the first moment").stored;
        let row = stored
            .settlement(asked.agent, id)
            .ok_or("its settlement is not stored")?;
        if number_of(row, "amt") != i64::from(asked.buy.units) || text(row, "svc") != asked.service {
            return Err("its settlement is of another payment".to_owned());
        }
        if bytes_of(row) != asked.key.as_bytes() {
            return Err("its settlement is of another key".to_owned());
        }
        // The settlement must have been written by this step, even if the response to the write was lost.
        let made_here = moments.windows(2).any(|pair| {
            let [before, after] = pair else { return false };
            before.stored.settlement(asked.agent, id).is_none()
                && after.stored.settlement(asked.agent, id).is_some()
                && after.step == number
        });
        if answer.replayed == made_here {
            return Err(format!(
                "told as {}",
                if made_here {
                    "a replay of itself"
                } else {
                    "new, though it is not"
                }
            ));
        }
        let signed = self.world.record().known.signed(id, row);
        let known = self.memory(asked.buy.agent, asked.buy.key, |memory| {
            let known = memory.settlement.get_or_insert_with(|| id.to_owned());
            (known == id, memory.payment.clone())
        });
        if !known.0 {
            return Err("another settlement under the same key".to_owned());
        }
        let payment = &answer.body["payment"];
        if payment.is_null() {
            return Ok(());
        }
        let confirmed = |moment: &Moment| {
            let row = moment.stored.settlement(asked.agent, id);
            row.is_some_and(|row| text(row, "rs") == "confirmed")
        };
        if moments.iter().all(confirmed) {
            return Err("a payment of a settlement that is confirmed".to_owned());
        }
        let inner = payment["payload"]["payload"].to_string();
        if payment["payload"]["extensions"]["sign-in-with-x"]["info"]["nonce"].as_str()
            != Some(number.to_string().as_str())
        {
            return Err("an echo of an older offer".to_owned());
        }
        let told = signed_in(&payment["payload"]).ok_or("a payload without an authorization")?;
        if told != signed {
            return Err(format!("what is signed is {told:?}, what is held {signed:?}"));
        }
        if known.1.is_some_and(|(_, before)| before != inner) {
            // KMS signatures of the same authorization may differ.
            if !self.setting.kms {
                return Err("a second signature for one settlement".to_owned());
            }
            self.world.count("signed again by KMS");
        }
        if text(row, "rs") == "expired" {
            let over = self
                .world
                .chain()
                .was_finally_unused(signed.from, signed.nonce, signed.valid_before);
            if !over {
                return Err("a payment that nothing is held for".to_owned());
            }
        }
        self.memory(asked.buy.agent, asked.buy.key, |memory| {
            memory.payment = Some((signed, inner))
        });
        Ok(())
    }

    async fn check(&self, number: usize, worker: usize, buy: Buy, replay: u8, begun: Begun) -> String {
        let mut body = authorize_body(number, buy, None);
        let intent = AuthorizeRequest::parse(&body, NETWORK).expect("a request").intent;
        let members = body.as_object_mut().expect("an object");
        members.remove("idempotency_key");
        members.insert("replay_key".to_owned(), format!("replay {replay}").into());
        let caller = self.key_of(buy.agent, false);
        let by = (buy.agent, caller.as_str());
        let answer = self
            .call(worker, by, "POST", "/x402/check", Some(body.to_string()))
            .await;
        let faults_seen = self.ended(worker);
        let Some(answer) = answer else {
            return "crashed".to_owned();
        };
        self.judge_wait(&answer, &begun, &faults_seen);
        if answer.status >= 500 && faults_seen.faults.is_empty() {
            self.world
                .complain(format!("check: {} without cause: {}", answer.status, answer.body));
        }
        let result = answer.body["result"].as_str().unwrap_or_default().to_owned();
        if self.undisturbed(&begun, &faults_seen) && answer.status == 200 {
            let agent = agent_id(buy.agent).to_string();
            let moments = self.moments(&begun);
            let asked = RequestParts {
                agent: &agent,
                service: &service_id(buy.service).to_string(),
                category: people::category(buy.service),
                caller: &key_id(&caller),
                fingerprint: Fingerprint::for_text(""),
                key: Fingerprint::for_text(""),
                carried: None,
                buy,
                call: call_of(&intent, buy.service),
                payee: payee_of(buy.service),
                most_waiting: hostile::most_waiting(self.setting),
                scope: self.scope_of(buy.agent, &key_id(&caller)),
            };
            let instant = expect::Instant {
                from: begun.clock,
                until: self.world.clock_of(worker),
                recorded: None,
                balances: &faults_seen.balances,
            };
            let expected = expect::answers(&moments[0].stored, &asked, &instant);
            let reason = answer.body["reason"].as_str().unwrap_or_default();
            // Only authorize's response contains the numbers of a denial and the approval's id.
            let first = match expected[0].split_once(':') {
                Some(("policy_blocked", reason)) => reason,
                Some((slug, _)) => slug,
                None if expected[0] == "allow" => "x402_authorized",
                None => &expected[0],
            };
            if reason != first && !expect::may_backfill(&moments[0].stored, &asked) {
                self.world
                    .complain(format!("the preflight says {reason}; expected {expected:?}"));
            }
        }
        if result.is_empty() {
            answer.status.to_string()
        } else {
            result
        }
    }

    /// Reads an approval through the store, as a user does.
    async fn poll(&self, worker: usize, agent: u8, key: u8, begun: Begun) -> String {
        // Few keys have an approval, so the next key that has one is used.
        let mut keys = (key..KEYS).chain(0..key);
        let Some(approval) = keys.find_map(|key| self.memory(agent, key, |memory| memory.approval)) else {
            self.ended(worker);
            return "nothing asked".to_owned();
        };
        let Worker { link, ledger, .. } = &self.workers[worker];
        let read = tokio::select! {
            biased;
            () = link.crashed() => None,
            read = ledger.read_approval_by_id(approval) => Some(read),
        };
        let faults_seen = self.ended(worker);
        let status = match read {
            None => return "crashed".to_owned(),
            Some(Ok(Some(approval))) => {
                let now = Timestamp::from_micros(self.world.clock_of(worker)).expect("an instant");
                approval.status(now).name().to_owned()
            }
            Some(Ok(None)) => {
                self.world.complain(format!("the approval {approval} can't be seen"));
                return "not found".to_owned();
            }
            Some(Err(error)) => {
                if faults_seen.faults.is_empty() {
                    self.world.complain(format!("an approval can't be seen: {error}"));
                }
                return "failed".to_owned();
            }
        };
        let was = |moment: &Moment| {
            let row = moment
                .stored
                .all("AP#", "")
                .find(|(key, _)| crate::laws::approval_id(key) == approval.to_string());
            let row = row.map(|(_, row)| row);
            row.is_some_and(|row| {
                let late = status == "expired"
                    && matches!(text(row, "st"), "pending" | "approved")
                    && number(row, "ends") <= self.world.clock_of(worker);
                text(row, "st") == status || late
            })
        };
        if !self.moments(&begun).iter().any(was) {
            self.world
                .complain(format!("the approval {approval} never was {status}"));
        }
        status
    }

    async fn complete(&self, worker: usize, agent: u8, key: u8, proof: Proof, begun: Begun) -> String {
        let memory = self.memory(agent, key, |memory| memory.clone());
        let hash = match proof {
            Proof::True => memory.transaction,
            Proof::False => Some(B256::repeat_byte(0xee)),
            Proof::Invented(number) => Some(B256::with_last_byte(number)),
            Proof::Foreign => memory.payment.map(|(signed, _)| self.foreign(&signed)),
            Proof::Of(other) => self.memory(agent, other, |memory| memory.transaction),
        };
        self.prove(worker, agent, key, hash, begun).await
    }

    pub(crate) async fn prove(&self, worker: usize, agent: u8, key: u8, hash: Option<B256>, begun: Begun) -> String {
        let memory = self.memory(agent, key, |memory| memory.clone());
        let (Some(id), Some((signed, _))) = (memory.settlement, memory.payment) else {
            self.ended(worker);
            return "nothing authorized".to_owned();
        };
        let Some(hash) = hash else {
            self.ended(worker);
            return "nothing to show".to_owned();
        };
        let look = || self.world.chain().shows(&signed, hash);
        let before = look();
        let response = json!({"success": true, "transaction": hash.to_string(), "network": NETWORK.caip2()});
        let body = json!({"payment_response_header": response.to_string()});
        let path = format!("/x402/settlements/{id}/complete");
        let caller = self.key_of(agent, false);
        let by = (agent, caller.as_str());
        let answer = self.call(worker, by, "POST", &path, Some(body.to_string())).await;
        let faults_seen = self.ended(worker);
        let Some(answer) = answer else {
            return "crashed".to_owned();
        };
        self.judge_wait(&answer, &begun, &faults_seen);
        let after = look();
        if let Err(what) = self.judge_completion(&answer, agent, &id, hash, [before, after], &begun, &faults_seen) {
            self.world.complain(format!(
                "completing {id} with {hash} ({before:?}, {after:?}): {what}: {}",
                answer.body
            ));
        }
        let text = |name: &str| answer.body[name].as_str();
        text("reason")
            .or_else(|| text("error"))
            .map_or_else(|| "confirmed".to_owned(), |what| format!("{} {what}", answer.status))
    }

    #[expect(clippy::too_many_arguments, reason = "an answer, and everything that it depends on")]
    fn judge_completion(
        &self,
        answer: &Answer,
        number_of_agent: u8,
        id: &str,
        hash: B256,
        shown: [ShownView; 2],
        begun: &Begun,
        faults_seen: &FaultsSeen,
    ) -> Result<(), String> {
        let agent = agent_id(number_of_agent).to_string();
        let moments = self.moments(begun);
        let row = |moment: &Moment| moment.stored.settlement(&agent, id).cloned();
        let was = |state: &str| {
            moments
                .iter()
                .any(|moment| row(moment).is_some_and(|row| text(&row, "rs") == state))
        };
        let first = row(&moments[0]).ok_or("there is no such settlement")?;
        let is_scoped = !self.has_wide_key(number_of_agent);
        let undisturbed = self.undisturbed(begun, faults_seen);
        // After twenty failed proofs, a settlement accepts only a repetition of the last proof.
        let enough = |row: &Item| number(row, "fp") >= 20 && text(row, "fph") != hash.to_string();
        let may_be_enough = moments.iter().any(|moment| row(moment).is_some_and(|row| enough(&row)));
        // Returns whether another settlement has claimed the transaction. With `here`, only claims in the transaction's
        // current block count.
        let block = self.world.chain().block_of(hash);
        let taken = |moment: &Moment, here: bool| {
            moment.stored.claims().any(|claim| {
                claim.tx_hash == hash
                    && claim.log_index.is_none()
                    && claim.settlement != id
                    && (!here || Some(claim.block) == block)
            })
        };
        let is_taken = taken(&moments[0], true);
        let is = |kind: fn(&ShownView) -> bool| shown.iter().any(kind);
        let reason = answer.body["reason"].as_str().unwrap_or_default();
        let wait = answer.body["retry_after"].as_u64();
        match (answer.status, reason) {
            (200, _) if was("confirmed") => Ok(()),
            (200, _) => Err("it is not confirmed".to_owned()),
            (401 | 429, _) => Ok(()),
            (403, _) if answer.body["error"] == "key_not_allowed" && is_scoped => Ok(()),
            _ if undisturbed && enough(&first) != (reason == "too_many_failed_proofs") => {
                Err(format!("{} proofs have failed", number(&first, "fp")))
            }
            (409, _) if !moments.iter().any(|moment| taken(moment, false)) => {
                Err("nobody else has this transaction".to_owned())
            }
            (409, _) => Ok(()),
            (422, "too_many_failed_proofs") if may_be_enough => Ok(()),
            (422, "too_many_failed_proofs") => Err("not that many have failed".to_owned()),
            (422, _) if answer.body["retryable"].as_bool() != Some(reason.starts_with("transaction_not_")) => {
                Err("`retryable` contradicts the reason".to_owned())
            }
            (422, "transaction_not_mined" | "transaction_not_final") if !undisturbed => Ok(()),
            (422, "transaction_not_mined") if text(&first, "rs") != "authorized" => {
                Err("it can't come any more".to_owned())
            }
            (422, "transaction_not_mined") if wait == Some(2) && is(|shown| *shown == ShownView::NotMined) => Ok(()),
            (422, "transaction_not_final") => {
                let waits =
                    |shown: &ShownView| matches!(shown, ShownView::NotFinal { missing } if wait == Some(2 * missing));
                let right = shown.iter().any(waits);
                right
                    .then_some(())
                    .ok_or("it is another number of blocks away".to_owned())
            }
            (422, _) if faults_seen.faults.iter().any(|fault| fault.is_of_chain()) => Ok(()),
            (422, _) if shown == [ShownView::Paid; 2] => Err("it is the payment".to_owned()),
            (422, "transaction_unknown") if !was("expired") && !was("confirmed") => Err("it may come yet".to_owned()),
            (422, "transaction_unknown") if undisturbed && !is(|shown| *shown == ShownView::NotMined) => {
                Err("it is known".to_owned())
            }
            (422, "transaction_unknown") => Ok(()),
            (422, _) if undisturbed && !is(|shown| *shown == ShownView::Other) => Err("it is not final".to_owned()),
            (422, _) if undisturbed && is_taken => Err("another settlement has this transaction".to_owned()),
            (422, _) => Ok(()),
            (503, _) if !undisturbed => Ok(()),
            _ if faults_seen.faults.is_empty() => Err("an error without cause".to_owned()),
            _ => Ok(()),
        }
    }

    /// Returns the hash of a final transfer of the same amount between the same accounts, which the service did not
    /// sign.
    fn foreign(&self, signed: &SignedTerms) -> B256 {
        let mut chain = self.world.chain();
        let hash = chain.new_hash();
        let at = chain.time();
        let SignedTerms { from, to, value, .. } = *signed;
        // Another account deposits the amount first, because only the service can spend the wallet's money.
        let calls = vec![
            Call::Plain {
                from: faucet(),
                to: from,
                value,
            },
            Call::Plain { from, to, value },
        ];
        chain.submit(Tx { hash, calls, at });
        hash
    }

    async fn receipts(&self, worker: usize, agent: u8, begun: Begun) -> String {
        let id = agent_id(agent).to_string();
        let caller = self.key_of(agent, false);
        let path = format!("/agents/{id}/settlements?limit=100");
        let by = (agent, caller.as_str());
        let answer = self.call(worker, by, "GET", &path, None).await;
        let faults_seen = self.ended(worker);
        let Some(answer) = answer else {
            return "crashed".to_owned();
        };
        self.judge_wait(&answer, &begun, &faults_seen);
        if answer.status != 200 {
            let is_scoped = answer.status == 403 && self.scope_of(agent, &key_id(&caller)).forbids_reading;
            if faults_seen.faults.is_empty() && ![401, 429].contains(&answer.status) && !is_scoped {
                self.world
                    .complain(format!("receipts can't be listed: {}", answer.body));
            }
            return answer.status.to_string();
        }
        let listed = answer.body["settlements"].as_array().cloned().unwrap_or_default();
        let pair = |item: &Value, name: &str| item[name].as_str().unwrap_or_default().to_owned();
        let listed: Vec<_> = listed
            .iter()
            .map(|item| (pair(item, "id"), pair(item, "receipt_status")))
            .collect();
        let scope = self.scope_of(agent, &key_id(&caller));
        let hidden = scope
            .forbids
            .map_or_else(|| "none".to_owned(), |service| service_id(service).to_string());
        let stored = |moment: &Moment| {
            let partition = format!("S#{id}");
            let rows = moment.stored.within(&partition, "").rev();
            let rows = rows.filter(|(_, row)| text(row, "kind") != "payout" && text(row, "svc") != hidden);
            rows.map(|(id, row)| (id.to_owned(), text(row, "rs").to_owned()))
                .collect::<Vec<_>>()
        };
        if !self.moments(&begun).iter().any(|moment| stored(moment) == listed) {
            self.world
                .complain(format!("I13 the list of receipts never was {listed:?}"));
        }
        "listed".to_owned()
    }

    /// Reconciles the shard `part` of `of`. After a complete run without faults, no settlement that was due may be
    /// pending, and no claim may remain in a removed block.
    async fn reconcile(
        &self,
        number: usize,
        worker: usize,
        reconcile: &Reconcile,
        (part, of): (u8, u8),
        secs: u8,
        begun: Begun,
    ) -> String {
        let link = &self.workers[worker].link;
        self.world.record().known.reconciling.insert(number);
        let block = Arc::clone(self.world.chain().final_block());
        let which = Part::new(part.into(), of.into()).expect("a part");
        let running = reconcile.reconcile_part(which, Duration::from_secs(secs.into()));
        let ran = tokio::select! {
            biased;
            () = link.crashed() => return { self.ended(worker); "crashed".to_owned() },
            ran = running => ran,
        };
        let faults_seen = self.ended(worker);
        let ran = match ran {
            Ok(ran) => ran,
            Err(error) => {
                if faults_seen.faults.is_empty() && begun.alone {
                    self.world
                        .complain(format!("reconciling failed without cause: {error}"));
                }
                return "failed".to_owned();
            }
        };
        for &outcome in Outcomes::ALL {
            for _ in 0..ran.count_outcome(outcome) {
                self.world.count(format!("reconciled: {}", outcome.name()));
            }
        }
        if !ran.is_complete {
            return "in part".to_owned();
        }
        if self.undisturbed(&begun, &faults_seen) {
            let before = self.moments(&begun).remove(0).stored;
            let mut left = Vec::new();
            let record = self.world.record();
            for (agent, id, row) in record.stored.settlements() {
                let was = before.settlement(agent, id).unwrap_or(row);
                let due = text(was, "hs").parse().unwrap_or(u64::MAX);
                let partition = id.bytes().last().map(char::from).and_then(|digit| digit.to_digit(16));
                let ours = partition.is_some_and(|partition| partition % u32::from(of) == u32::from(part));
                // The payment of a due settlement can no longer be made.
                if ours && due <= block.time && text(row, "rs") == "authorized" {
                    left.push(id.to_owned());
                }
            }
            let deep = block.number.saturating_sub(self.watch - CONFIRMATIONS);
            let chain = self.world.chain();
            for claim in record.stored.claims() {
                if part == 0 && claim.block <= deep && !chain.has(claim.block_hash, claim.block) {
                    left.push(format!("{claim:?}"));
                }
            }
            drop(chain);
            drop(record);
            if !left.is_empty() {
                self.world
                    .complain(format!("a whole run left open what the chain has decided: {left:?}"));
            }
        }
        "to the end".to_owned()
    }

    /// Advances the time. Before a long jump, waits until no step and no call is in progress.
    async fn pass(&self, op: Op) -> &'static str {
        if self.advance_clock(op).is_ok_and(|(micros, _)| micros > LONGEST_CALL) {
            let mut under_way = self.under_way.subscribe();
            under_way
                .wait_for(|count| *count == 0)
                .await
                .expect("its sender is here");
            self.landed().await;
        }
        match self.advance_clock(op) {
            Ok((micros, what)) => {
                self.world.advance_clock(micros);
                what
            }
            Err(why) => why,
        }
    }

    /// Returns by how many microseconds a step advances the time, and the reached event. The error is the reason why
    /// the step does not advance the time.
    fn advance_clock(&self, op: Op) -> Result<(i64, &'static str), &'static str> {
        let now = self.world.now();
        let to = |early| if early { "just before" } else { "at it" };
        match op {
            Op::Pass { secs } => Ok((i64::from(secs) * SECOND, "passed")),
            Op::PassToRollOff { agent, service, early } => {
                let window = crate::stored::day_window(&agent_id(agent).to_string(), &service_id(service).to_string());
                let stored = self.world.record().stored.clone();
                let skew = (0..WORKERS).map(|worker| self.world.skew(worker)).max().unwrap_or(0);
                let entries = stored.entries(&window).into_iter();
                let next = entries
                    .map(|entry| entry.at + crate::stored::DAY - skew - i64::from(early))
                    .find(|at| *at > now);
                next.map(|at| (at - now, to(early))).ok_or("nothing rolls off")
            }
            Op::PassToDeadline { agent, key, early } => {
                let payment = self.memory(agent, key, |memory| memory.payment.clone());
                let (signed, _) = payment.ok_or("nothing authorized")?;
                let at = i64::try_from(signed.valid_before).expect("a time") * SECOND - i64::from(early) * SECOND;
                (at > now).then_some((at - now, to(early))).ok_or("over")
            }
            other => unreachable!("{other:?} lets no time pass"),
        }
    }

    /// Runs an operation of the chain or of time.
    fn apply_world_op(&self, op: Op) -> &'static str {
        match op {
            Op::Reorganize { depth } => {
                self.world.chain().reorganize(depth.into());
                if u64::from(depth) < CONFIRMATIONS {
                    "shallow"
                } else {
                    "deep"
                }
            }
            Op::Pay { agent, key, how } => self.pay(agent, key, how),
            Op::Cancel { agent, key } => {
                let Some((signed, _)) = self.memory(agent, key, |memory| memory.payment.clone()) else {
                    return "nothing authorized";
                };
                let mut chain = self.world.chain();
                let (hash, at) = (chain.new_hash(), chain.time());
                chain.submit(Tx {
                    hash,
                    calls: vec![Call::Cancel(signed.from, signed.nonce)],
                    at,
                });
                "sent"
            }
            Op::Busy { agent, row, secs } => {
                let kind = match row {
                    Row::Agent => "A",
                    Row::Window => "L",
                    Row::Settlements => "S",
                    Row::Keys => "I",
                };
                let until = self.world.now() + i64::from(secs) * SECOND;
                self.world.record().busy = Some(Busy {
                    pk: format!("\"{kind}#{}", agent_id(agent)),
                    until,
                    last: 0,
                });
                "busy"
            }
            Op::Drain { agent } => self.transfer(self.wallet(agent).address, faucet(), |balance, _| balance),
            Op::Fund { agent } => self.transfer(faucet(), self.wallet(agent).address, |_, _| FUNDS),
            other => unreachable!("{other:?} is nothing of the world"),
        }
    }

    fn transfer(&self, from: Address, to: Address, value: impl FnOnce(u64, u64) -> u64) -> &'static str {
        let mut chain = self.world.chain();
        let value = value(chain.balance(from), chain.balance(to));
        let (hash, at) = (chain.new_hash(), chain.time());
        chain.submit(Tx {
            hash,
            calls: vec![Call::Plain { from, to, value }],
            at,
        });
        "sent"
    }

    fn pay(&self, agent: u8, key: u8, how: Pay) -> &'static str {
        let memory = self.memory(agent, key, |memory| memory.clone());
        let Some((signed, _)) = memory.payment else {
            return "nothing authorized";
        };
        let mut chain = self.world.chain();
        let now = chain.time();
        let hash = chain.new_hash();
        let tx = |hash, calls, at| Tx { hash, calls, at };
        let (what, at) = match how {
            Pay::Soon | Pay::Twice | Pay::Batched => ("soon", now),
            Pay::LastSecond => ("last second", signed.valid_before - 1),
            Pay::TooLate => ("too late", signed.valid_before),
        };
        let mut calls = vec![Call::Use(signed)];
        if how == Pay::Batched {
            let mut agents = self.agents();
            for other in &mut agents[usize::from(agent)].memory {
                if let Some((another, _)) = other.payment
                    && another != signed
                    && chain.fate(another.from, another.nonce).is_none()
                    && now + 10 < another.valid_before
                {
                    calls.push(Call::Use(another));
                    other.transaction = Some(hash);
                }
            }
        }
        chain.submit(tx(hash, calls.clone(), at));
        if how == Pay::Twice {
            let second = chain.new_hash();
            chain.submit(tx(second, calls, at + 1));
        }
        drop(chain);
        self.memory(agent, key, |memory| memory.transaction = Some(hash));
        what
    }

    /// Waits until all sent calls have arrived.
    pub(crate) async fn landed(&self) {
        while self.world.record().flying() > 0 {
            sleep(Duration::from_secs(1)).await;
        }
    }

    /// Stops the faults, advances time and chain, and retries every call without a response. Everything must then have
    /// ended.
    async fn drain(self: &Arc<Self>, first: usize) {
        self.landed().await;
        self.world.record().busy = None;
        let mut number = first;
        let mut alone = async |op| {
            let step = Step::on(0, 0, op);
            self.round(number, &[step]).await;
            number += 1;
        };
        for agent in 0..self.agents_in_all() {
            for key in 0..=u8::MAX {
                let (in_doubt, buy) = self.memory(agent, key, |memory| (memory.in_doubt, memory.buy));
                if let (true, Some(buy)) = (in_doubt, buy) {
                    alone(Op::Authorize {
                        buy,
                        carry: None,
                        first_key: false,
                    })
                    .await;
                }
            }
        }
        // No payment is valid any more after this time, and the blocks with the payments are final.
        self.world.advance_clock(2_000 * SECOND);
        // A run processes only a few settlements, and others must become due first, so several runs are needed.
        for _ in 0..60 {
            let Some(pause) = self.until_due() else { break };
            self.world.advance_clock(pause.max(60) * SECOND);
            alone(Op::Reconcile { secs: 60 }).await;
        }
        // The agent completes payments that were made after their release. An operator requests the reconciliation of
        // all others.
        for agent in 0..self.agents_in_all() {
            for key in 0..=u8::MAX {
                if self.memory(agent, key, |memory| memory.transaction.is_some()) {
                    alone(Op::Complete {
                        agent,
                        key,
                        proof: Proof::True,
                    })
                    .await;
                    alone(Op::Mark { agent, key }).await;
                }
            }
        }
        alone(Op::Reconcile { secs: 60 }).await;
        self.settled();
    }

    /// Returns the seconds until a settlement is due or a claim's block is deep enough; `None` if there is neither.
    fn until_due(&self) -> Option<i64> {
        let record = self.world.record();
        let holds = record.stored.settlements().map(|(_, _, row)| text(row, "hs").parse());
        let due = holds.filter_map(Result::ok).min();
        let now = i64::try_from(self.world.chain().final_block().time).expect("a time");
        let checked = record.stored.row("RECONCILE", "#").map_or(0, |row| number(row, "blk"));
        if record.stored.claims().any(|claim| claim.block > checked.unsigned_abs()) {
            return Some(0);
        }
        due.map(|due: i64| due.saturating_sub(now))
    }

    /// Checks that a settlement is confirmed if and only if its payment is on the chain.
    fn settled(&self) {
        let mut found = Vec::new();
        {
            let record = self.world.record();
            let chain = self.world.chain();
            for (_, id, row) in record.stored.settlements() {
                let signed = record.known.signed(id, row);
                let fate = chain.fate(signed.from, signed.nonce);
                let fits = match (fate, text(row, "rs")) {
                    (Some(Fate::Used(hash)), "confirmed") => hash.to_string() == text(row, "txh"),
                    (Some(Fate::Canceled) | None, "expired") => true,
                    _ => false,
                };
                if !fits {
                    found.push(format!(
                        "settlement {id} ended as {}, the chain says {fate:?}",
                        text(row, "rs")
                    ));
                }
            }
            for claim in record.stored.claims() {
                let row = record.stored.settlement(claim.agent, claim.settlement);
                let confirms = row.is_some_and(|row| text(row, "txh") == claim.tx_hash.to_string());
                if !confirms || !chain.has(claim.block_hash, claim.block) {
                    found.push(format!("{claim:?} is left"));
                }
            }
        }
        for what in found {
            self.world.complain(what);
        }
    }
}

impl Op {
    /// Returns the agent that the operation concerns; `None` if it may concern several agents.
    pub(crate) fn agent(self) -> Option<u8> {
        match self {
            Self::Authorize { buy, .. } | Self::Check { buy, .. } => Some(buy.agent),
            Self::Burst { agent, .. }
            | Self::Poll { agent, .. }
            | Self::Complete { agent, .. }
            | Self::Invent { agent, .. }
            | Self::Receipts { agent }
            | Self::Resolve { agent, .. }
            | Self::Policy { agent, .. }
            | Self::Freeze { agent, .. }
            | Self::Rule { agent, .. }
            | Self::Rotate { agent, .. }
            | Self::Revoke { agent }
            | Self::Mark { agent, .. }
            | Self::NamePayout { agent, .. }
            | Self::RemovePayout { agent }
            | Self::PayOut { agent, .. }
            | Self::Offer { agent, .. }
            | Self::Accept { agent }
            | Self::AskForRaise { agent }
            | Self::GrantRaise { agent }
            | Self::Scope { agent, .. }
            | Self::Attack { agent, .. } => Some(agent),
            // Calls of all agents read the rows of operators' freezes.
            _ => None,
        }
    }

    /// Returns every agent that the operation names.
    fn whose(self) -> Vec<u8> {
        match self {
            Self::Attack { agent, victim, .. } => vec![agent, victim],
            Self::Operators { agent, .. }
            | Self::Busy { agent, .. }
            | Self::Pay { agent, .. }
            | Self::Cancel { agent, .. }
            | Self::PassToRollOff { agent, .. }
            | Self::PassToDeadline { agent, .. }
            | Self::Drain { agent }
            | Self::Fund { agent } => vec![agent],
            _ => self.agent().into_iter().collect(),
        }
    }

    /// Returns whether the operation concerns the chain or time, and no function.
    pub(crate) fn is_of_the_world(self) -> bool {
        matches!(
            self,
            Self::Pay { .. }
                | Self::Cancel { .. }
                | Self::Pass { .. }
                | Self::PassToRollOff { .. }
                | Self::PassToDeadline { .. }
                | Self::Reorganize { .. }
                | Self::Busy { .. }
                | Self::Drain { .. }
                | Self::Fund { .. }
        )
    }

    fn name(self) -> String {
        let name = format!("{self:?}");
        name.split([' ', '{']).next().unwrap_or_default().to_owned()
    }
}

/// Returns the digest by which the duplicate guard identifies a call.
fn call_of(intent: &Intent, service: u8) -> [u8; 8] {
    CallDigest::from_intent(intent, &people::operation(service)).0
}

/// Returns the digest by which a service's payee is stored.
fn payee_of(service: u8) -> [u8; 12] {
    *payee(service).first_chunk().expect("an address")
}

/// Returns the address of an account that is neither a wallet nor a payee.
fn faucet() -> Address {
    Address::repeat_byte(0xfa)
}

/// Returns the configuration of a process. `nonces` names the secret with its nonce key.
fn boot(link: &Arc<Link>, run: u64, watch: u64, setting: Setting, rng: &Arc<Mutex<Rng>>, nonces: &str) -> Boot {
    // The SDK's retry quota is per service and region, so each process has its own region.
    let region = format!("sim-{run}-{}", link.worker);
    let [confirmations, watch] = [CONFIRMATIONS, watch].map(|depth| depth.to_string());
    let variables = [
        ("AWS_REGION", region.as_str()),
        ("AWS_ACCESS_KEY_ID", "sim"),
        ("AWS_SECRET_ACCESS_KEY", "sim"),
        ("DYNAMODB_ENDPOINT", "http://dynamodb.sim"),
        ("SECRETS_ENDPOINT", "http://secrets.sim"),
        ("LEDGER_TABLE", LEDGER),
        ("DECISIONS_TABLE", DECISIONS),
        ("AUDIT_TABLE", AUDIT),
        ("CATALOG_TABLE", CATALOG),
        ("THROTTLE_TABLE", THROTTLE),
        ("USAGE_TABLE", USAGE),
        ("EVENTBRIDGE_ENDPOINT", "http://bus.sim"),
        ("KMS_ENDPOINT", "http://kms.sim"),
        ("CUSTODY", if setting.kms { "kms" } else { "seed" }),
        ("EVENT_BUS", "purser"),
        ("STACK", "sim"),
        ("NETWORK", NETWORK.name()),
        ("WALLET_SEED_SECRET_ARN", "seed"),
        ("NONCE_KEY_SECRET_ARN", nonces),
        ("RPC_URL_SECRET_ARN", "rpc"),
        ("FINALITY_CONFIRMATIONS", confirmations.as_str()),
        ("WATCH_CONFIRMATIONS", watch.as_str()),
        ("RECONCILE_MOST_SETTLEMENTS", if setting.crowd { "16" } else { "4" }),
        ("LOG_BLOCK_RANGE", "4"),
        ("APPROVAL_TTL_SECONDS", "7200"),
    ];
    let limits = hostile::limits(setting.crowd);
    let limits = limits.iter().map(|(name, limit)| (*name, limit.as_str()));
    let facilitator = [
        ("FACILITATOR_URL", "http://127.0.0.1:4022"),
        ("PAYOUT_DELAY_SECONDS", "600"),
    ];
    let facilitator = facilitator.into_iter().filter(|_| setting.payouts);
    let boot = Boot::new(
        (variables.into_iter().chain(queues::VARIABLES).chain(notices::VARIABLES))
            .chain(limits)
            .chain(facilitator)
            .collect(),
        Clock::at_fixed_time(link.world.clock(link.worker)),
    );
    let rng = Arc::clone(rng);
    Boot {
        aws: boot
            .aws
            .to_builder()
            .http_client(Wire(Arc::clone(link)))
            // Stalled-stream protection measures real time.
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
            .build(),
        http: SharedHttpConnector::new(ToFacilitator(Arc::clone(link))),
        entropy: Entropy::from_fn(move |bytes| rng.lock().expect("not poisoned").fill(bytes)),
        background: Background::Inline,
        ..boot
    }
}

/// Returns the body of a step's call. The payment requirements are always the same, but the fields around them differ.
fn authorize_body(number: usize, buy: Buy, carried: Option<ApprovalId>) -> Value {
    let Buy {
        service,
        units,
        secs,
        twist,
        key,
        ..
    } = buy;
    let token = NETWORK.token();
    let payee = if twist == Twist::Stranger {
        Address::repeat_byte(0x66)
    } else {
        payee(service)
    };
    let mut body = json!({
        "payment_requirement": {
            "x402Version": 2,
            "error": format!("offer {number}"),
            "resource": {"url": people::endpoint(service), "description": format!("offer {number}")},
            "extensions": {"sign-in-with-x": {"info": {"nonce": number.to_string()}}},
            "accepts": [{
                "scheme": "exact",
                "network": NETWORK.caip2(),
                "amount": units.to_string(),
                "asset": token.address.to_string(),
                "payTo": payee.to_string(),
                "maxTimeoutSeconds": secs,
                "extra": {"name": token.name, "version": token.version},
            }],
        },
        "max_payment_units": if twist == Twist::OverCeiling { units - 1 } else { units },
        "original_request": {
            "method": "GET",
            "url": people::endpoint(service),
            "body_hash": if twist == Twist::OtherBody { "other" } else { "usual" },
        },
        "service_id": people::slug(service),
        "idempotency_key": format!("key {key}"),
    });
    if number.is_multiple_of(2) {
        // The service must choose the cheaper payment requirements, which come second.
        let entries = body["payment_requirement"]["accepts"].as_array_mut().expect("entries");
        let mut dearer = entries[0].clone();
        dearer["amount"] = (units + 1).to_string().into();
        entries.insert(0, dearer);
    }
    if let Some(id) = carried {
        body["approval_id"] = id.to_string().into();
    }
    body
}

/// Returns a response of authorize in the notation of `expect.rs`.
fn words_of(answer: &Answer) -> String {
    let body = &answer.body;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let slug = text(&body["error"]);
    match (answer.status, slug.as_str()) {
        (200, _) if answer.replayed => format!("replay:{}", text(&body["settlement_id"])),
        (200, _) => "allow".to_owned(),
        (500.., _) => "5xx".to_owned(),
        (_, "policy_blocked") => format!("policy_blocked:{}", text(&body["decision"]["reason"])),
        (_, "daily_spend_limit_exceeded") => format!("{slug}:{}", body["spend_today"]),
        (_, "approval_required") => format!("{slug}:{}", text(&body["approval_id"])),
        (_, "idempotent_replay") => format!("{slug}:{}:{}", text(&body["approval_id"]), text(&body["settlement_id"])),
        (_, "idempotency_key_reused_for_different_request") => format!("{slug}:{}", text(&body["settlement_id"])),
        (_, _) => slug,
    }
}

/// Returns the authorization in a payment payload.
pub(crate) fn signed_in(payload: &Value) -> Option<SignedTerms> {
    let authorization = &payload["payload"]["authorization"];
    let text = |name: &str| authorization[name].as_str();
    Some(SignedTerms {
        from: text("from")?.parse().ok()?,
        to: text("to")?.parse().ok()?,
        value: text("value")?.parse().ok()?,
        valid_before: text("validBefore")?.parse().ok()?,
        nonce: text("nonce")?.parse().ok()?,
    })
}

/// Returns the id of an API key: the last sixteen digits of its public half.
fn key_id(key: &str) -> String {
    let (public, _) = key.split_once(':').expect("two halves");
    public[public.len() - 16..].to_owned()
}

fn number_of(row: &Item, name: &str) -> i64 {
    number(row, name)
}

fn bytes_of(row: &Item) -> &[u8] {
    crate::tables::bytes(row, "idem")
}
