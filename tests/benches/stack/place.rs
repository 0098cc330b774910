//! The stack, the agents and the functions of the measurements.

use crate::bare::{Asker, RecordedCalls, Signer};
use crate::function::{Call, Function};
use k256::ecdsa::SigningKey;
use purser_api::{Boot, Clock, CustodyKind};
use purser_domain::WalletKey;
use purser_local::{Front, Options};
use purser_testkit::{Proxy, ProxyConfig, Units};
use purser_tests::{PayingNode, TestAgent, World, in_rounds, judged_policy};
use serde_json::Value;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// The database's latency while calls are recorded. The latency is long, so that concurrent calls overlap.
const LATENCY: Duration = Duration::from_millis(25);

/// A running stack. The database slows down with the transactions of the last ten minutes, so each bench starts a new
/// stack.
pub struct Place {
    pub world: World,
    pub node: PayingNode,
    pub agents: Vec<TestAgent>,
    /// The proxy that records database calls.
    pub proxy: Proxy,
    pub runtime: Runtime,
}

impl Place {
    /// Starts a stack with `agents` agents that have the same policy and no calls.
    pub fn start(agents: usize) -> Self {
        Self::start_with(agents, CustodyKind::Seed)
    }

    /// Starts a stack whose wallet keys are in this custody.
    pub fn start_with(agents: usize, custody: CustodyKind) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let node = PayingNode::start();
        let url = node.url.clone();
        let (world, agents, proxy) = runtime.block_on(async {
            let node_front: Front = Box::new(move |_| Box::pin(async move { url }));
            let world = World::with(Options {
                node_front: Some(node_front),
                throttle_per_minute: 1_000_000,
                custody,
                ..Options::default()
            })
            .await;
            let mut made = Vec::new();
            for _ in 0..agents {
                let agent = world.poor_agent(vec![]).await;
                world.enable(&agent, "lab-search", judged_policy()).await;
                made.push(agent);
            }
            let config = ProxyConfig {
                latency: LATENCY,
                ..ProxyConfig::default()
            };
            let proxy = Proxy::start(world.stack.dynamodb_url.clone(), config).await;
            (world, made, proxy)
        });
        Self {
            world,
            node,
            agents,
            proxy,
            runtime,
        }
    }

    /// Starts the function `payments` without the recording proxy.
    pub async fn payments(&self, others: &[(&str, &str)]) -> Function {
        let payments = async |boot| Ok(purser_payments::routers(boot).await?.gateway);
        Function::start(payments, &self.world.stack.environment, others).await
    }

    /// Starts the function `payments` behind the recording proxy, and calls it twice for the first agent.
    pub async fn recorded_payments(&self) -> Function {
        let function = self.payments(&[("DYNAMODB_ENDPOINT", self.proxy.url.as_str())]).await;
        // What only a first call or one call a minute does, such as recording the use of a key, is not measured.
        for _ in 0..2 {
            let body = self.allowed_body();
            function.call(&self.authorize(&self.agents[0], &body)).await.expect(200);
            tokio::time::sleep(4 * LATENCY).await;
        }
        function
    }

    /// Records the database and node calls of a function for an event. Also returns the consumed database units.
    pub async fn record(&self, function: &Function, event: &[u8], status: u16) -> (RecordedCalls, Units) {
        self.node.set_latency(LATENCY);
        // Background writes of earlier calls, such as the last use of a key, must not be recorded.
        self.proxy.quiet().await;
        self.proxy.calls().take();
        self.node.take();
        function.call(event).await.expect(status);
        let mut calls = self.proxy.calls().take();
        let units = Units::sum(&calls);
        calls.extend(self.node.take());
        self.node.set_latency(Duration::ZERO);
        (RecordedCalls::new(in_rounds(calls)), units)
    }

    /// Returns the clients for the bare calls, configured like the functions' clients.
    pub async fn asker(&self) -> Asker {
        let boot = Boot::new(
            self.world.stack.environment.clone().into_iter().collect(),
            Clock::system(),
        );
        let agent = self.world.stack.ledger.read_agent_by_id(self.agents[0].id).await;
        let wallet = agent.expect("an answer").expect("the agent").wallet;
        let signer = match wallet.key {
            WalletKey::Kms { id, .. } => Signer::Kms {
                kms: aws_sdk_kms::Client::new(&boot.aws),
                key: id.to_string(),
                wallet: wallet.address,
            },
            WalletKey::Seed { .. } => Signer::Memory(SigningKey::from_slice(&[0x5e; 32]).expect("a key")),
        };
        Asker {
            db: purser_store::dynamodb_client(&boot.aws),
            http: reqwest::Client::new(),
            node_url: self.node.url.clone(),
            signer,
        }
    }

    pub fn allowed_body(&self) -> Value {
        purser_tests::body_of(self.world.offer(1))
    }

    pub fn post(&self, agent: &TestAgent, path: &str, body: Option<&Value>) -> Vec<u8> {
        let key = format!("Bearer {}", agent.key);
        let call = Call {
            method: "POST",
            path,
            query: "",
            header: Some(("authorization", &key)),
            body,
        };
        call.event()
    }

    pub fn get(&self, agent: &TestAgent, path: &str) -> Vec<u8> {
        let key = format!("Bearer {}", agent.key);
        let call = Call {
            method: "GET",
            path,
            query: "",
            header: Some(("authorization", &key)),
            body: None,
        };
        call.event()
    }

    pub fn authorize(&self, agent: &TestAgent, body: &Value) -> Vec<u8> {
        self.post(agent, "/x402/authorize", Some(body))
    }
}

/// Returns a runtime with one thread, as Lambda handles one request at a time.
pub fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Returns a runtime with one thread per core.
pub fn many_threads() -> Runtime {
    Builder::new_multi_thread().enable_all().build().expect("a runtime")
}
