//! The stack of a load test, the processes of the function `payments`, and the agents that make payments.

use crate::Size;
use crate::callers::Payment;
use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use purser_api::Clock;
use purser_domain::EventKind;
use purser_local::{DEMO_OWNER, DEMO_STRANGER, DemoUser, Front, Options, Streaming};
use purser_testkit::{Entry, serve};
use purser_tests::{Answer, PayingNode, Process, Program, Request, TestAgent, World};
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;
use tokio::sync::{Mutex as AsyncMutex, mpsc};

/// The owners of the agents. The webhook receiver of the first owner is down.
pub const OWNERS: [&DemoUser; 2] = [&DEMO_OWNER, &DEMO_STRANGER];
const RECONCILE: Duration = Duration::from_secs(55);
/// One agent out of this number reaches its daily limit.
const CAPPED: usize = 10;
/// The daily limit of the agents that reach it, in micro-units.
pub const CAP: u64 = 20_000;

pub struct Payer {
    pub agent: TestAgent,
    pub key: RwLock<String>,
    /// The daily limit, in micro-units; `None` if the agent has none.
    pub cap: Option<u64>,
    /// The index of the agent's owner in [`OWNERS`].
    pub owner: usize,
}

impl Payer {
    pub fn key(&self) -> String {
        self.key.read().expect("not poisoned").clone()
    }
}

/// The stack of a load test, and the state that the callers share.
pub struct Place {
    pub world: World,
    pub node: PayingNode,
    pub payers: Vec<Payer>,
    /// The processes of the function `payments`.
    pub environments: Vec<Process>,
    /// The payments that were authorized so far.
    pub payments: Mutex<Vec<Payment>>,
    /// The events on the event bus.
    pub published: Mutex<PublishedEvents>,
    /// The events that the second owner's webhook receiver got: the type of each event, by event id.
    pub received: Arc<Mutex<BTreeMap<String, String>>>,
    /// The difference between the functions' clock and the system's clock, in microseconds.
    ahead: Arc<AtomicI64>,
    /// The processes of `payments` that handle no call.
    free: (mpsc::UnboundedSender<usize>, AsyncMutex<mpsc::UnboundedReceiver<usize>>),
}

/// The events on the event bus.
#[derive(Debug, Default)]
pub struct PublishedEvents {
    /// The number of different events by event type and settlement.
    pub settlements: BTreeMap<String, BTreeMap<String, u32>>,
    /// The types of the second owner's events, by event id.
    pub of_second_owner: BTreeMap<String, String>,
}

impl Place {
    pub async fn start(size: &Size) -> Self {
        let node = PayingNode::start();
        let url = node.url.clone();
        let node_front: Front = Box::new(move |_| Box::pin(async move { url }));
        let received = Arc::default();
        let program = serve(program(Arc::clone(&received))).await;
        let authority = program.trim_start_matches("http://").to_owned();
        let ahead = Arc::new(AtomicI64::new(0));
        let world = World::with(Options {
            node_front: Some(node_front),
            throttle_per_minute: 1_000_000,
            streams: Streaming::On,
            clock: Some(Clock::with_shift(Arc::clone(&ahead))),
            environment: BTreeMap::from([("WEBHOOK_ALLOWED_HOSTS".to_owned(), authority.clone())]),
            ..Options::default()
        })
        .await;
        for (user, path) in OWNERS.into_iter().zip(["dead", "alive"]) {
            let hook = json!({"url": format!("http://{authority}/{path}")});
            world
                .person_edits(&world.person(user), Method::POST, "/webhooks", &hook)
                .await
                .created();
        }
        let mut payers = Vec::new();
        for number in 0..size.agents {
            let owner = number % OWNERS.len();
            let person = world.person(OWNERS[owner]);
            let agent = world.agent_of(&person, &format!("payer {number}")).await;
            let cap = (number % CAPPED == 0).then_some(CAP);
            if let Some(cap) = cap {
                let limit = json!({"max_per_day_units": cap});
                let path = agent.path("/services/lab-search");
                world.person_edits(&person, Method::PATCH, &path, &limit).await.ok();
            }
            payers.push(Payer {
                key: RwLock::new(agent.key.clone()),
                agent,
                cap,
                owner,
            });
        }
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut environments = Vec::new();
        for number in 0..size.environments {
            let program = Program {
                path: env!("CARGO_BIN_EXE_function").into(),
                function: "payments",
                time: Duration::from_secs(15),
                environment: vec![],
            };
            environments.push(Process::for_program(&world, program).await);
            sender.send(number).expect("a receiver");
        }
        Self {
            world,
            node,
            payers,
            environments,
            payments: Mutex::default(),
            published: Mutex::default(),
            received,
            ahead,
            free: (sender, AsyncMutex::new(receiver)),
        }
    }

    /// Sends a request to an idle process of `payments`. Returns `None` if the process crashed.
    pub async fn send(&self, request: &Request) -> Option<Answer> {
        let number = self.free.1.lock().await.recv().await.expect("an environment");
        let answer = self.environments[number].send(request).await;
        self.free.0.send(number).expect("a receiver");
        answer
    }

    /// Mines blocks, delivers stream records, counts events, and runs `reconcile` every minute, until the program ends.
    pub fn keep_time(self: &Arc<Self>) {
        self.mine();
        tokio::spawn(self.world.stack.publish_continuously());
        let place = Arc::clone(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_secs(1)).await;
                place.mine();
                place.count_events();
                for process in &place.environments {
                    for proxy in [&process.db, &process.node, &process.kms] {
                        proxy.calls().take();
                    }
                }
            }
        });
        let place = Arc::clone(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_secs(60)).await;
                // `reconcile` fails while the node is down.
                let _failed = place.world.stack.reconcile.reconcile_all(RECONCILE).await;
            }
        });
    }

    fn mine(&self) {
        self.node.mine_until(self.world.now().secs());
    }

    fn count_events(&self) {
        let mut published = self.published.lock().expect("not poisoned");
        for entry in self.world.stack.bus.take_accepted() {
            published.count(&entry, &self.payers);
        }
    }

    pub fn kills(&self) -> u32 {
        self.environments.iter().map(|process| process.killer().kills()).sum()
    }

    /// Ends all faults, waits until every hold has expired, and runs `reconcile`. Returns the payments.
    pub async fn finish(&self) -> Vec<Payment> {
        /// Longer than a payment is valid, so that all holds expire.
        const AHEAD: i64 = 600 * 1_000_000;
        for process in &self.environments {
            process.spare();
            process.stop().await;
            process.quiet().await;
        }
        self.ahead.store(AHEAD, SeqCst);
        self.mine();
        for _ in 0..1_000 {
            let run = self
                .world
                .stack
                .reconcile
                .reconcile_all(RECONCILE)
                .await
                .expect("a run");
            println!("load     reconciled {}, {} wait", run.outcomes().len(), run.waiting);
            if run.is_complete && run.waiting == 0 && run.outcomes().is_empty() {
                break;
            }
        }
        assert_eq!(self.world.stack.publish_changes().await, 0, "no record is given up");
        self.count_events();
        std::mem::take(&mut *self.payments.lock().expect("not poisoned"))
    }
}

impl PublishedEvents {
    fn count(&mut self, entry: &Entry, payers: &[Payer]) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (id, kind) = (text(&entry.detail["id"]), entry.detail_type.clone());
        if kind == EventKind::PaymentConfirmed.name() || kind == EventKind::PaymentAuthorized.name() {
            let settlement = text(&entry.detail["data"]["settlement_id"]);
            *self
                .settlements
                .entry(kind.clone())
                .or_default()
                .entry(settlement)
                .or_default() += 1;
        }
        let subject = text(&entry.detail["subject"]);
        let of_second = payers
            .iter()
            .any(|payer| payer.owner == 1 && subject.contains(&payer.agent.id.to_string()));
        if of_second {
            self.of_second_owner.insert(id, kind);
        }
    }
}

/// Returns the receivers of both webhooks: the first rejects every event, and the second accepts every event.
fn program(received: Arc<Mutex<BTreeMap<String, String>>>) -> Router {
    let alive = move |body: String| async move {
        let event: Value = serde_json::from_str(&body).unwrap_or_default();
        let text = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
        received.lock().expect("not poisoned").insert(text("id"), text("type"));
        StatusCode::NO_CONTENT
    };
    Router::new()
        .route("/dead", post(async || StatusCode::SERVICE_UNAVAILABLE))
        .route("/alive", post(alive))
}
