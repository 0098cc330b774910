//! A chain's node that answers at once: every wallet is rich, every block is the same, and a receipt is what was put
//! there. Its answers have the form and the size of a real node's, and none of its work.

use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use purser_local::NETWORK;
use purser_proxy::{Call, Calls};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;

/// The event of EIP-3009 and the one of ERC-20: the hashes of `AuthorizationUsed(address,bytes32)` and
/// `Transfer(address,address,uint256)`.
const AUTHORIZATION_USED: &str = "0x98de503528ee59b575ef0c0a2576a82497bfc029a5685b209e9ec333479b10a5";
const TRANSFER: &str = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef";
const BLOCK: &str = "0x1111111111111111111111111111111111111111111111111111111111111111";

/// A running node, on a thread of its own; it ends with the process.
#[derive(Clone)]
pub struct Node {
    pub url: String,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    receipts: Mutex<HashMap<String, Value>>,
    latency_micros: AtomicU64,
    calls: Calls,
}

impl Node {
    pub fn start() -> Self {
        let shared = Arc::<Shared>::default();
        let router = Router::new().route("/", post(answer)).with_state(Arc::clone(&shared));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("a socket");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let listener = TcpListener::from_std(listener).expect("a socket");
                axum::serve(listener, router).await.expect("it serves");
            });
        });
        Self { url, shared }
    }

    /// Takes so long for each answer, and notes what is asked, as long as that is not zero.
    pub fn set_latency(&self, latency: Duration) {
        let micros = latency.as_micros().try_into().expect("short");
        self.shared.latency_micros.store(micros, Ordering::SeqCst);
    }

    /// What was noted.
    pub fn take(&self) -> Vec<Call> {
        self.shared.calls.take()
    }

    /// Makes a transaction of that hash the one that carried out the payment of an authorize's answer.
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
        let log = |index: &str, topics: Vec<String>, data: String| {
            json!({
                "address": NETWORK.token().address.to_string(),
                "topics": topics,
                "data": data,
                "logIndex": index,
                "transactionHash": hash,
                "removed": false,
            })
        };
        let used = vec![AUTHORIZATION_USED.to_owned(), word("from"), word("nonce")];
        let moved = vec![TRANSFER.to_owned(), word("from"), word("to")];
        let receipt = json!({
            "transactionHash": hash,
            "blockHash": BLOCK,
            "blockNumber": "0x10",
            "status": "0x1",
            "logs": [log("0x0", used, "0x".to_owned()), log("0x1", moved, format!("0x{units:064x}"))],
        });
        self.shared
            .receipts
            .lock()
            .expect("not poisoned")
            .insert(hash.to_owned(), receipt);
    }
}

async fn answer(State(node): State<Arc<Shared>>, Json(request): Json<Value>) -> Json<Value> {
    let method = request["method"].as_str().unwrap_or_default();
    let latency = node.latency_micros.load(Ordering::SeqCst);
    if latency > 0 {
        let started = Instant::now();
        tokio::time::sleep(Duration::from_micros(latency)).await;
        node.calls.note(method.to_owned(), request.clone(), started, &[]);
    }
    let result = match method {
        "eth_chainId" => json!(format!("{:#x}", NETWORK.chain_id())),
        "eth_blockNumber" => json!("0x20"),
        "eth_getBlockByNumber" => json!({"hash": BLOCK}),
        "eth_call" => json!(format!("0x{:064x}", 1_000_000_000_000_u64)),
        "eth_getTransactionReceipt" => {
            let hash = request["params"][0].as_str().unwrap_or_default();
            node.receipts
                .lock()
                .expect("not poisoned")
                .get(hash)
                .cloned()
                .unwrap_or_default()
        }
        _ => return Json(json!({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32601, "message": "no"}})),
    };
    Json(json!({"jsonrpc": "2.0", "id": request["id"], "result": result}))
}
