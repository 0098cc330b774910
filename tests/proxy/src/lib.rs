//! A proxy in front of a DynamoDB endpoint, for tests. It adds what the emulator lacks - transactions that meet on an
//! item, answers and requests that are lost - and tells what each call cost.
//!
//! The conflict rule is that of USENIX ATC'23 "Distributed Transactions at Scale in Amazon DynamoDB", listing 3, and of
//! the developer guide, "Transaction conflict handling": an item takes part in one transaction at a time; another
//! transaction or single write on it is refused at once; reads never are.

mod calls;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
pub use calls::{Call, Calls, Units};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// How a proxy behaves. By default it passes everything on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Manners {
    /// How long a transaction holds its items: half before its commit, half after it.
    pub hold: Option<Duration>,
    /// How long every call waits before it is sent on: long enough, calls that were made side by side overlap.
    pub latency: Duration,
    /// So many transactions are carried out, and answered with an error as if the answer were lost.
    pub lost_answers: u32,
    /// So many transactions are answered with an error and not carried out.
    pub lost_requests: u32,
}

/// A running proxy. It serves for as long as the runtime that it was started on.
#[derive(Clone)]
pub struct Proxy {
    /// Where it listens.
    pub url: String,
    shared: Arc<Shared>,
}

struct Shared {
    upstream: String,
    client: reqwest::Client,
    hold: Option<Duration>,
    latency: Duration,
    held: Mutex<HashSet<String>>,
    lost_answers: AtomicU32,
    lost_requests: AtomicU32,
    /// So many of the next transactions are stalled.
    to_stall: AtomicU32,
    stalled: AtomicU32,
    /// A permit for each stalled transaction that may go on.
    gate: Semaphore,
    conflicts: AtomicU32,
    calls: Calls,
}

impl Proxy {
    /// Starts a proxy on a free loopback port.
    pub async fn start(upstream: String, manners: Manners) -> Self {
        let shared = Arc::new(Shared {
            upstream,
            client: reqwest::Client::new(),
            hold: manners.hold,
            latency: manners.latency,
            held: Mutex::default(),
            lost_answers: AtomicU32::new(manners.lost_answers),
            lost_requests: AtomicU32::new(manners.lost_requests),
            to_stall: AtomicU32::new(0),
            stalled: AtomicU32::new(0),
            gate: Semaphore::new(0),
            conflicts: AtomicU32::new(0),
            calls: Calls::default(),
        });
        let router = Router::new().route("/", post(answer)).with_state(Arc::clone(&shared));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, shared }
    }

    /// How many writes were refused because a transaction held their item.
    pub fn conflicts(&self) -> u32 {
        self.shared.conflicts.load(SeqCst)
    }

    /// Stalls the next so many transactions: each waits here, decided and not yet written, until [`Proxy::resume`]. The
    /// SDK waits for a second.
    pub fn stall(&self, count: u32) {
        self.shared.to_stall.store(count, SeqCst);
    }

    /// Waits until so many transactions are stalled.
    pub async fn stalled(&self, count: u32) {
        let waiting = async {
            while self.shared.stalled.load(SeqCst) < count {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(5), waiting)
            .await
            .expect("that many transactions arrive");
    }

    /// Sends the stalled transactions on, and stalls no more.
    pub fn resume(&self) {
        self.shared.to_stall.store(0, SeqCst);
        let stalled = self.shared.stalled.swap(0, SeqCst);
        self.shared.gate.add_permits(stalled.try_into().expect("few"));
    }

    /// The calls that went through.
    pub fn calls(&self) -> &Calls {
        &self.shared.calls
    }
}

async fn answer(State(proxy): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> Response {
    let target = headers
        .get("x-amz-target")
        .and_then(|target| target.to_str().ok())
        .unwrap_or_default();
    let operation = target.rsplit('.').next().unwrap_or_default().to_owned();
    let request: Value = serde_json::from_slice(&body).expect("the SDK writes JSON");
    match operation.as_str() {
        "TransactWriteItems" => proxy.transact(operation, headers, request).await,
        "PutItem" | "UpdateItem" | "DeleteItem" => proxy.write(operation, headers, request).await,
        _ => proxy.pass_on(operation, headers, request).await,
    }
}

impl Shared {
    async fn transact(&self, operation: String, headers: HeaderMap, request: Value) -> Response {
        if take_one(&self.lost_requests) {
            return lost();
        }
        if take_one(&self.to_stall) {
            self.stalled.fetch_add(1, SeqCst);
            self.gate.acquire().await.expect("it is never closed").forget();
        }
        let answer = match self.hold {
            None => self.pass_on(operation, headers, request).await,
            Some(hold) => self.transact_holding(hold, operation, headers, request).await,
        };
        if take_one(&self.lost_answers) { lost() } else { answer }
    }

    async fn transact_holding(
        &self,
        hold: Duration,
        operation: String,
        headers: HeaderMap,
        request: Value,
    ) -> Response {
        let actions = request["TransactItems"].as_array().expect("actions");
        let keys: Vec<String> = actions
            .iter()
            .flat_map(Value::as_object)
            .flatten()
            .map(|(_, action)| item_key(action))
            .collect();
        let taken = self.take(&keys);
        if taken.contains(&true) {
            self.conflicts.fetch_add(1, SeqCst);
            return cancelled(&taken);
        }
        tokio::time::sleep(hold / 2).await;
        let answer = self.pass_on(operation, headers, request).await;
        tokio::time::sleep(hold / 2).await;
        self.held
            .lock()
            .expect("not poisoned")
            .retain(|key| !keys.contains(key));
        answer
    }

    /// Takes all the keys, or tells which were taken.
    fn take(&self, keys: &[String]) -> Vec<bool> {
        let mut held = self.held.lock().expect("not poisoned");
        let taken: Vec<bool> = keys.iter().map(|key| held.contains(key)).collect();
        if !taken.contains(&true) {
            held.extend(keys.iter().cloned());
        }
        taken
    }

    async fn write(&self, operation: String, headers: HeaderMap, request: Value) -> Response {
        if self.held.lock().expect("not poisoned").contains(&item_key(&request)) {
            self.conflicts.fetch_add(1, SeqCst);
            return error(
                StatusCode::BAD_REQUEST,
                &json!({
                    "__type": "com.amazonaws.dynamodb.v20120810#TransactionConflictException",
                    "message": "Transaction is ongoing for the item",
                }),
            );
        }
        self.pass_on(operation, headers, request).await
    }

    /// Sends a call on, asking what it costs, and notes it.
    async fn pass_on(&self, operation: String, mut headers: HeaderMap, mut request: Value) -> Response {
        headers.remove(header::HOST);
        headers.remove(header::CONTENT_LENGTH);
        if calls::is_metered(&operation) {
            request["ReturnConsumedCapacity"] = "TOTAL".into();
        }
        let started = Instant::now();
        tokio::time::sleep(self.latency).await;
        let answer = self
            .client
            .post(&self.upstream)
            .headers(headers)
            .body(request.to_string())
            .send();
        let answer = answer.await.expect("the database answers");
        let (status, headers) = (answer.status(), answer.headers().clone());
        let body = answer.bytes().await.expect("a body");
        self.calls.note(operation, started, &body);
        let mut passed = (status, body).into_response();
        for name in ["content-type", "x-amz-crc32", "x-amzn-requestid"] {
            if let Some(value) = headers.get(name) {
                passed.headers_mut().insert(name, value.clone());
            }
        }
        passed
    }
}

fn take_one(left: &AtomicU32) -> bool {
    left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok()
}

/// The item that an action writes, by table and key.
fn item_key(write: &Value) -> String {
    let key = write.get("Item").or_else(|| write.get("Key")).expect("a key");
    format!("{} {} {}", write["TableName"], key["pk"], key["sk"])
}

fn cancelled(taken: &[bool]) -> Response {
    let code = |taken: &bool| if *taken { "TransactionConflict" } else { "None" };
    let codes: Vec<&str> = taken.iter().map(code).collect();
    let reasons: Vec<Value> = codes.iter().map(|code| json!({"Code": code})).collect();
    error(
        StatusCode::BAD_REQUEST,
        &json!({
            "__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
            "Message": format!("Transaction cancelled, please refer cancellation reasons for specific reasons [{}]", codes.join(", ")),
            "CancellationReasons": reasons,
        }),
    )
}

fn lost() -> Response {
    error(
        StatusCode::INTERNAL_SERVER_ERROR,
        &json!({"__type": "com.amazonaws.dynamodb.v20120810#InternalServerError", "message": "the answer was lost"}),
    )
}

fn error(status: StatusCode, body: &Value) -> Response {
    (
        status,
        [(header::CONTENT_TYPE, "application/x-amz-json-1.0")],
        body.to_string(),
    )
        .into_response()
}
