//! A chain's node on a thread of its own, whose chain a bench makes payments on. Every wallet is rich. Its answers have
//! the form and the size of a real node's, without its work.

use purser_domain::TxHash;
use purser_testkit::chain::{BLOCK_SECONDS, ScriptedChain, payment_of, time_of, tx_hash};
use purser_testkit::{Call, Reply, ScriptedNode};
use serde_json::Value;
use std::future::pending;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// A running node; it ends with the process. Clones share it.
#[derive(Clone)]
pub struct PayingNode {
    /// Its address.
    pub url: String,
    node: ScriptedNode,
    chain: Arc<Mutex<ScriptedChain>>,
    allowance: Arc<Mutex<Allowance>>,
    transactions: Arc<AtomicU64>,
}

/// How many calls it answers in a second, and how many it has refused.
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
    /// A node that answers immediately, and every call.
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

    /// Sets the delay of each answer; calls are recorded while it is not zero.
    pub fn set_latency(&self, latency: Duration) {
        self.node.set_latency(latency);
        self.node.note_calls(!latency.is_zero());
    }

    /// Sets how many calls it answers in each second; to the others it says 429.
    pub fn set_limit(&self, per_second: u32) {
        self.allowance.lock().expect("not poisoned").per_second = per_second;
    }

    /// How many calls it has refused since this was asked last.
    pub fn take_refused(&self) -> usize {
        std::mem::take(&mut self.allowance.lock().expect("not poisoned").refused)
    }

    /// The calls recorded since they were taken last.
    pub fn take(&self) -> Vec<Call> {
        self.node.take_calls()
    }

    /// Mines so many empty blocks.
    pub fn mine(&self, blocks: u64) {
        self.chain().head += blocks;
    }

    /// Mines empty blocks until the newest one is not before this time, in seconds.
    pub fn mine_until(&self, seconds: u64) {
        let mut chain = self.chain();
        let missing = seconds.saturating_sub(time_of(chain.head).secs());
        chain.head += missing.div_ceil(BLOCK_SECONDS);
    }

    /// A transaction that is nowhere yet.
    pub fn transaction(&self) -> TxHash {
        tx_hash(self.transactions.fetch_add(1, Relaxed))
    }

    /// Makes the payment of an authorize's answer, by that transaction, so many blocks below the newest one.
    pub fn carry_out_by(&self, authorized: &Value, hash: TxHash, below: u64) {
        let mut chain = self.chain();
        let block = chain.head - below;
        chain.pay(&payment_of(authorized), block, hash);
    }

    /// Makes the payment of an authorize's answer in a final block, and returns the hash of its transaction.
    pub fn carry_out(&self, authorized: &Value) -> String {
        /// More than any bench waits for.
        const FINAL: u64 = 100;
        let hash = self.transaction();
        // Few in a block, so that its logs are no more than of a few.
        self.carry_out_by(authorized, hash, FINAL + self.transactions.load(Relaxed));
        hash.to_string()
    }

    fn chain(&self) -> MutexGuard<'_, ScriptedChain> {
        self.chain.lock().expect("not poisoned")
    }
}
