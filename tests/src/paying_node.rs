//! A scripted node for benches, with a chain on which every wallet has a large balance. Runs on a separate thread.

use purser_domain::TxHash;
use purser_testkit::chain::{BLOCK_SECONDS, ScriptedChain, payment_of, time_of, tx_hash};
use purser_testkit::{Call, Reply, ScriptedNode};
use serde_json::Value;
use std::future::pending;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// A running node, which stops when the process ends. Clones share all state.
#[derive(Clone)]
pub struct PayingNode {
    /// The node's URL.
    pub url: String,
    node: ScriptedNode,
    chain: Arc<Mutex<ScriptedChain>>,
    allowance: Arc<Mutex<Allowance>>,
    transactions: Arc<AtomicU64>,
}

/// The node's rate limit, and the number of rejected calls.
#[derive(Debug)]
struct Allowance {
    per_second: u32,
    second: Instant,
    answered: u32,
    refused: usize,
}

impl Allowance {
    fn takes(&mut self) -> bool {
        if self.second.elapsed() >= Duration::from_secs(1) {
            (self.second, self.answered) = (Instant::now(), 0);
        }
        let takes = self.answered < self.per_second;
        if takes {
            self.answered += 1;
        } else {
            self.refused += 1;
        }
        takes
    }
}

impl PayingNode {
    /// Starts a node that responds to every call immediately.
    pub fn start() -> Self {
        let chain = Arc::<Mutex<ScriptedChain>>::default();
        let allowance = Arc::new(Mutex::new(Allowance {
            per_second: u32::MAX,
            second: Instant::now(),
            answered: 0,
            refused: 0,
        }));
        let (served, limit) = (Arc::clone(&chain), Arc::clone(&allowance));
        let (started, starting) = mpsc::channel();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let answer = move |method: &str, params: &Value| {
                    if limit.lock().expect("not poisoned").takes() {
                        Reply::Result(served.lock().expect("not poisoned").answer(method, params))
                    } else {
                        Reply::Status(429)
                    }
                };
                let node = ScriptedNode::start(answer).await;
                node.note_calls(false);
                started.send(node).expect("somebody waits for it");
                pending::<()>().await;
            });
        });
        let node = starting.recv().expect("it starts");
        Self {
            url: node.url.clone(),
            node,
            chain,
            allowance,
            transactions: Arc::default(),
        }
    }

    /// Sets the delay of each response. Calls are recorded while the delay is not zero.
    pub fn set_latency(&self, latency: Duration) {
        self.node.set_latency(latency);
        self.node.note_calls(!latency.is_zero());
    }

    /// Limits the calls per second. The node responds with 429 to further calls.
    pub fn set_limit(&self, per_second: u32) {
        self.allowance.lock().expect("not poisoned").per_second = per_second;
    }

    /// Returns the number of calls that [`PayingNode::set_limit`] rejected since the last call of this method.
    pub fn take_refused(&self) -> usize {
        std::mem::take(&mut self.allowance.lock().expect("not poisoned").refused)
    }

    /// Takes the recorded calls since the last call of this method.
    pub fn take(&self) -> Vec<Call> {
        self.node.take_calls()
    }

    /// Mines `blocks` empty blocks.
    pub fn mine(&self, blocks: u64) {
        self.chain().head += blocks;
    }

    /// Mines empty blocks until the newest block's time is not earlier than `seconds`.
    pub fn mine_until(&self, seconds: u64) {
        let mut chain = self.chain();
        let missing = seconds.saturating_sub(time_of(chain.head).secs());
        chain.head += missing.div_ceil(BLOCK_SECONDS);
    }

    /// Returns the hash of a transaction that is not on the chain yet.
    pub fn transaction(&self) -> TxHash {
        tx_hash(self.transactions.fetch_add(1, Relaxed))
    }

    /// Makes an authorized payment in the transaction `hash`, `below` blocks below the newest block. `authorized` is
    /// the response of authorize.
    pub fn carry_out_by(&self, authorized: &Value, hash: TxHash, below: u64) {
        let mut chain = self.chain();
        let block = chain.head - below;
        chain.pay(&payment_of(authorized), block, hash);
    }

    /// Makes an authorized payment in a final block, and returns the transaction's hash.
    pub fn carry_out(&self, authorized: &Value) -> String {
        /// The depth is larger than any bench requires.
        const FINAL: u64 = 100;
        let hash = self.transaction();
        // The payments are spread over blocks, so that each block has few logs.
        self.carry_out_by(authorized, hash, FINAL + self.transactions.load(Relaxed));
        hash.to_string()
    }

    /// Makes an authorized payment in the newest block, and returns the transaction's hash.
    pub fn pay_now(&self, authorized: &Value) -> String {
        let hash = self.transaction();
        self.carry_out_by(authorized, hash, 0);
        hash.to_string()
    }

    /// Returns the sum that a wallet has paid, in micro-USDC.
    pub fn spent(&self, wallet: &str) -> u64 {
        self.chain().spent(wallet.parse().expect("an address"))
    }

    fn chain(&self) -> MutexGuard<'_, ScriptedChain> {
        self.chain.lock().expect("not poisoned")
    }
}
