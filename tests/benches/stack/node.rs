//! A chain's node that answers immediately: every wallet is rich, every block is the same, and a receipt is what was
//! stored there. Its answers have the form and the size of a real node's, without its work.

use purser_domain::{AUTHORIZATION_USED, TRANSFER};
use purser_local::NETWORK;
use purser_testkit::{Call, Reply, ScriptedNode};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::future::pending;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

const BLOCK: &str = "0x1111111111111111111111111111111111111111111111111111111111111111";

/// A running node, on a thread of its own; it ends with the process.
#[derive(Clone)]
pub struct Node {
    pub url: String,
    node: ScriptedNode,
    receipts: Arc<Mutex<HashMap<String, Value>>>,
}

impl Node {
    pub fn start() -> Self {
        let receipts = Arc::<Mutex<HashMap<String, Value>>>::default();
        let known = Arc::clone(&receipts);
        let (started, starting) = mpsc::channel();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let node = ScriptedNode::start(move |method, params| answer(&known, method, params)).await;
                node.note_calls(false);
                started.send(node).expect("somebody waits for it");
                pending::<()>().await;
            });
        });
        let node = starting.recv().expect("it starts");
        Self {
            url: node.url.clone(),
            node,
            receipts,
        }
    }

    /// Sets the delay of each answer; calls are recorded while it is not zero.
    pub fn set_latency(&self, latency: Duration) {
        self.node.set_latency(latency);
        self.node.note_calls(!latency.is_zero());
    }

    /// The recorded calls.
    pub fn take(&self) -> Vec<Call> {
        self.node.take_calls()
    }

    /// Stores the receipt of a transaction with that hash, which makes the payment of an authorize's answer.
    pub fn carry_out(&self, hash: &str, authorized: &Value) {
        let authorization = &authorized["payment"]["payload"]["payload"]["authorization"];
        let word = |name: &str| {
            let digits = authorization[name].as_str().expect("a word").trim_start_matches("0x");
            format!("0x{:0>64}", digits.to_ascii_lowercase())
        };
        let units: u64 = authorization["value"]
            .as_str()
            .expect("a number")
            .parse()
            .expect("a number");
        let log = |index: &str, topics: [String; 3], data: String| {
            json!({
                "address": NETWORK.token().address.to_string(),
                "topics": topics,
                "data": data,
                "logIndex": index,
                "transactionHash": hash,
                "removed": false,
            })
        };
        let used = [AUTHORIZATION_USED.to_string(), word("from"), word("nonce")];
        let moved = [TRANSFER.to_string(), word("from"), word("to")];
        let receipt = json!({
            "transactionHash": hash,
            "blockHash": BLOCK,
            "blockNumber": "0x10",
            "status": "0x1",
            "logs": [log("0x0", used, "0x".to_owned()), log("0x1", moved, format!("0x{units:064x}"))],
        });
        let mut receipts = self.receipts.lock().expect("not poisoned");
        receipts.insert(hash.to_owned(), receipt);
    }
}

fn answer(receipts: &Mutex<HashMap<String, Value>>, method: &str, params: &Value) -> Reply {
    Reply::Result(match method {
        "eth_chainId" => json!(format!("{:#x}", NETWORK.chain_id())),
        "eth_blockNumber" => json!("0x20"),
        "eth_getBlockByNumber" => json!({"hash": BLOCK}),
        "eth_call" => json!(format!("0x{:064x}", 1_000_000_000_000_u64)),
        "eth_getTransactionReceipt" => {
            let hash = params[0].as_str().unwrap_or_default();
            let receipts = receipts.lock().expect("not poisoned");
            receipts.get(hash).cloned().unwrap_or_default()
        }
        _ => return Reply::Refused(-32_601),
    })
}
