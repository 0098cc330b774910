//! A proxy that records the calls to a dependency, and makes calls fail as a script says. A forwarded call takes
//! effect, even if its caller disconnects.
//!
//! For DynamoDB, the proxy adds transaction conflicts, which the emulator lacks (developer guide, "Transaction conflict
//! handling"): while a transaction is in progress, other writes to its items are rejected.

mod calls;
mod line;
mod script;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{ConnectInfo, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
pub use calls::{Call, Calls, Units};
pub(crate) use line::{Line, Lines, Opened};
pub use script::{Fate, Moment, Step};
use script::{Script, name_of};
use serde_json::Value;
use std::collections::HashSet;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

/// The configuration of a proxy. By default, the proxy forwards every call unchanged.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProxyConfig {
    /// The time for which a transaction locks its items. The transaction commits in the middle of this time.
    pub hold: Option<Duration>,
    /// The delay of every call before it is forwarded. With a long delay, concurrent calls overlap.
    pub latency: Duration,
    /// The number of transactions that are carried out but get an error response.
    pub lost_answers: u32,
    /// The number of transactions that are not carried out and get an error response.
    pub lost_requests: u32,
}

/// Binds a socket with `SO_REUSEADDR`, so that other sockets can be bound to the address until one of them listens
/// (socket(7)).
fn bound(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

/// Binds a socket to `address` and listens on it.
fn listening(address: SocketAddr) -> io::Result<TcpListener> {
    bound(address)?.listen(1_024)
}

/// A running proxy, which runs until the runtime ends.
#[derive(Clone)]
pub struct Proxy {
    /// The URL of the proxy.
    pub url: String,
    address: SocketAddr,
    shared: Arc<Shared>,
    /// A bound socket that never listens, which reserves the port while the proxy is down.
    _port: Arc<TcpSocket>,
}

struct Shared {
    upstream: String,
    client: reqwest::Client,
    hold: Option<Duration>,
    latency: Duration,
    held: Mutex<HashSet<String>>,
    script: Mutex<Script>,
    /// The number of calls in progress.
    in_hand: AtomicU32,
    /// The task that listens; `None` while the proxy is down.
    listening: Mutex<Option<AbortHandle>>,
    /// The number of transactions that are still to be stalled.
    to_stall: AtomicU32,
    stalled: AtomicU32,
    /// A permit for each stalled transaction that may continue.
    gate: Semaphore,
    conflicts: AtomicU32,
    calls: Calls,
}

impl Proxy {
    /// Starts a proxy on a free loopback port.
    pub async fn start(upstream: String, config: ProxyConfig) -> Self {
        let shared = Arc::new(Shared {
            upstream,
            client: reqwest::Client::new(),
            hold: config.hold,
            latency: config.latency,
            held: Mutex::default(),
            script: Mutex::new(script::losing(config.lost_requests, config.lost_answers)),
            in_hand: AtomicU32::new(0),
            listening: Mutex::default(),
            to_stall: AtomicU32::new(0),
            stalled: AtomicU32::new(0),
            gate: Semaphore::new(0),
            conflicts: AtomicU32::new(0),
            calls: Calls::default(),
        });
        let port = bound(([127, 0, 0, 1], 0).into()).expect("a port");
        let address = port.local_addr().expect("an address");
        let proxy = Self {
            url: format!("http://{address}"),
            address,
            shared,
            _port: Arc::new(port),
        };
        proxy.serve(listening(address).expect("the port is ours"));
        proxy
    }

    fn serve(&self, listener: TcpListener) {
        let router = Router::new()
            .route("/", post(answer))
            .route("/{*path}", post(answer))
            .with_state(Arc::clone(&self.shared));
        let service = router.into_make_service_with_connect_info::<Line>();
        let lines = Lines {
            listener,
            opened: Arc::default(),
        };
        let serving = tokio::spawn(async move { axum::serve(lines, service).await });
        *self.shared.listening.lock().expect("not poisoned") = Some(serving.abort_handle());
    }

    /// Applies `script` to each later call, before it is forwarded and after it took effect.
    pub fn follow(&self, script: impl FnMut(&Step<'_>) -> Fate + Send + 'static) {
        *self.shared.script.lock().expect("not poisoned") = Box::new(script);
    }

    /// Forwards all later calls unchanged.
    pub fn behave(&self) {
        self.follow(|_| Fate::PassOn);
    }

    /// Waits until no call is in progress. Calls of a killed process also run to their end.
    pub async fn quiet(&self) {
        let over = async {
            while self.shared.in_hand.load(SeqCst) > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), over)
            .await
            .expect("calls that were sent on come to an end");
    }

    /// Stops listening, and breaks the open connections.
    pub fn go_down(&self) {
        if let Some(listening) = self.shared.listening.lock().expect("not poisoned").take() {
            listening.abort();
        }
    }

    /// Listens again on the same address.
    pub async fn come_up(&self) {
        let again = async {
            // The aborted task takes a moment to close its listener.
            loop {
                match listening(self.address) {
                    Ok(listener) => break listener,
                    Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
                }
            }
        };
        let listener = tokio::time::timeout(Duration::from_secs(60), again).await;
        self.serve(listener.expect("the port is free again"));
    }

    /// Returns the number of writes that were rejected because of a transaction on the same item.
    pub fn conflicts(&self) -> u32 {
        self.shared.conflicts.load(SeqCst)
    }

    /// Stalls the next `count` transactions before they are written, until [`Proxy::resume`]. The SDK's attempts time
    /// out after two seconds.
    pub fn stall(&self, count: u32) {
        self.shared.to_stall.store(count, SeqCst);
    }

    /// Waits until `count` transactions are stalled.
    pub async fn stalled(&self, count: u32) {
        let waiting = async {
            while self.shared.stalled.load(SeqCst) < count {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), waiting)
            .await
            .expect("that many transactions arrive");
    }

    /// Forwards the stalled transactions, and stalls no more.
    pub fn resume(&self) {
        self.shared.to_stall.store(0, SeqCst);
        let stalled = self.shared.stalled.swap(0, SeqCst);
        self.shared.gate.add_permits(stalled.try_into().expect("few"));
    }

    /// Returns the forwarded calls.
    pub fn calls(&self) -> &Calls {
        &self.shared.calls
    }
}

async fn answer(
    State(proxy): State<Arc<Shared>>,
    ConnectInfo(line): ConnectInfo<Line>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    // In a separate task, a forwarded call takes effect even if the caller disconnects.
    let handled = tokio::spawn(async move {
        proxy.in_hand.fetch_add(1, SeqCst);
        let outcome = proxy.handle(uri.path(), headers, &body).await;
        proxy.in_hand.fetch_sub(1, SeqCst);
        outcome
    });
    match handled.await.expect("the proxy does not panic") {
        Outcome::Answered(response) => response,
        Outcome::CutOff(response) => {
            line.cut_off();
            response
        }
        Outcome::HungUp => {
            line.hang_up();
            StatusCode::BAD_GATEWAY.into_response()
        }
        Outcome::Silent => pending().await,
    }
}

/// What the caller of a call gets.
enum Outcome {
    Answered(Response),
    /// Half of the response, and then a broken connection.
    CutOff(Response),
    /// A broken connection.
    HungUp,
    /// No response.
    Silent,
}

impl Shared {
    async fn handle(&self, path: &str, headers: HeaderMap, body: &[u8]) -> Outcome {
        let request: Value = serde_json::from_slice(body).expect("whoever calls writes JSON");
        let target = headers.get("x-amz-target").and_then(|target| target.to_str().ok());
        let operation = match target {
            Some(target) => target.rsplit('.').next().unwrap_or_default(),
            None if path.ends_with("/invocations") => "Invoke",
            None => request["method"].as_str().unwrap_or_default(),
        };
        let operation = operation.to_owned();
        let call = name_of(&operation, &request);
        let mut edit = None;
        let signer = signer_of(&headers);
        let step = |moment| Step {
            call: &call,
            moment,
            request: &request,
            path,
            signer: &signer,
        };
        match self.fate(&step(Moment::Arrived)) {
            Fate::PassOn => {}
            Fate::Wait(time) => tokio::time::sleep(time).await,
            Fate::Answer(status, body) => return Outcome::Answered(error(status, &body)),
            Fate::HangUp | Fate::CutOff => return Outcome::HungUp,
            Fate::Silence => return Outcome::Silent,
            Fate::Edit(change) => edit = Some(change),
        }
        let done = match operation.as_str() {
            "TransactWriteItems" => self.transact(operation, headers, request.clone()).await,
            "PutItem" | "UpdateItem" | "DeleteItem" => self.write(operation, headers, request.clone()).await,
            _ => self.pass_on_to(path, operation, headers, request.clone()).await,
        };
        let done = edit.into_iter().fold(done, Done::edited);
        match self.fate(&step(Moment::CarriedOut)) {
            Fate::PassOn => {}
            Fate::Wait(time) => tokio::time::sleep(time).await,
            Fate::Answer(status, body) => return Outcome::Answered(error(status, &body)),
            Fate::HangUp => return Outcome::HungUp,
            Fate::CutOff => return Outcome::CutOff(done.into_response()),
            Fate::Silence => return Outcome::Silent,
            Fate::Edit(change) => return Outcome::Answered(done.edited(change).into_response()),
        }
        Outcome::Answered(done.into_response())
    }

    fn fate(&self, step: &Step<'_>) -> Fate {
        if self.listening.lock().expect("not poisoned").is_none() {
            return Fate::HangUp;
        }
        (self.script.lock().expect("not poisoned"))(step)
    }

    async fn transact(&self, operation: String, headers: HeaderMap, request: Value) -> Done {
        if take_one(&self.to_stall) {
            self.stalled.fetch_add(1, SeqCst);
            self.gate.acquire().await.expect("it is never closed").forget();
        }
        match self.hold {
            None => self.pass_on(operation, headers, request).await,
            Some(hold) => self.transact_holding(hold, operation, headers, request).await,
        }
    }

    async fn transact_holding(&self, hold: Duration, operation: String, headers: HeaderMap, request: Value) -> Done {
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
            let code = |taken: &bool| if *taken { "TransactionConflict" } else { "None" };
            let codes: Vec<&str> = taken.iter().map(code).collect();
            return Done::refused(&script::cancelled(&codes));
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

    /// Locks all keys unless one is already locked. Returns which keys were locked before.
    fn take(&self, keys: &[String]) -> Vec<bool> {
        let mut held = self.held.lock().expect("not poisoned");
        let taken: Vec<bool> = keys.iter().map(|key| held.contains(key)).collect();
        if !taken.contains(&true) {
            held.extend(keys.iter().cloned());
        }
        taken
    }

    async fn write(&self, operation: String, headers: HeaderMap, request: Value) -> Done {
        if self.held.lock().expect("not poisoned").contains(&item_key(&request)) {
            self.conflicts.fetch_add(1, SeqCst);
            return Done::refused(&script::conflict());
        }
        self.pass_on(operation, headers, request).await
    }

    /// Forwards a call, and records the call and its consumed capacity.
    async fn pass_on(&self, operation: String, headers: HeaderMap, request: Value) -> Done {
        self.pass_on_to("/", operation, headers, request).await
    }

    async fn pass_on_to(&self, path: &str, operation: String, mut headers: HeaderMap, mut request: Value) -> Done {
        headers.remove(header::HOST);
        headers.remove(header::CONTENT_LENGTH);
        if calls::is_metered(&operation) {
            request["ReturnConsumedCapacity"] = "TOTAL".into();
        }
        let started = Instant::now();
        tokio::time::sleep(self.latency).await;
        let answer = self
            .client
            .post(format!("{}{path}", self.upstream.trim_end_matches('/')))
            .headers(headers)
            .body(request.to_string())
            .send();
        let answer = answer.await.expect("what is behind the proxy answers");
        let (status, mut headers) = (answer.status(), answer.headers().clone());
        let body = answer.bytes().await.expect("a body");
        self.calls.note(operation, request, started, &body);
        let kept = [
            "content-type",
            "x-amz-crc32",
            "x-amz-function-error",
            "x-amzn-errortype",
            "x-amzn-requestid",
        ];
        let headers = kept.into_iter().filter_map(|name| Some((name, headers.remove(name)?)));
        Done {
            status,
            headers: headers
                .map(|(name, value)| (HeaderName::from_static(name), value))
                .collect(),
            body,
        }
    }
}

struct Done {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Done {
    /// Returns an error response of the proxy itself.
    fn refused(body: &Value) -> Self {
        let kind = HeaderValue::from_static("application/x-amz-json-1.0");
        Self {
            status: StatusCode::BAD_REQUEST,
            headers: HeaderMap::from_iter([(header::CONTENT_TYPE, kind)]),
            body: body.to_string().into(),
        }
    }

    /// Returns the response with a changed body.
    fn edited(mut self, change: Box<dyn FnOnce(&mut Value) + Send>) -> Self {
        let mut body = serde_json::from_slice(&self.body).expect("answers are JSON");
        change(&mut body);
        self.body = body.to_string().into();
        // This header contains the checksum of the original body.
        self.headers.remove("x-amz-crc32");
        self
    }
}

impl IntoResponse for Done {
    fn into_response(self) -> Response {
        (self.status, self.headers, self.body).into_response()
    }
}

/// Returns the access key id in the `Authorization` header of an AWS request.
fn signer_of(headers: &HeaderMap) -> String {
    let signature = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let credential = signature.and_then(|text| text.split_once("Credential=")?.1.split_once('/'));
    credential.map_or("?", |(id, _)| id).to_owned()
}

fn take_one(left: &AtomicU32) -> bool {
    left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok()
}

/// Returns the table and the key of the item that an action writes.
fn item_key(write: &Value) -> String {
    let key = write.get("Item").or_else(|| write.get("Key")).expect("a key");
    format!("{} {} {}", write["TableName"], key["pk"], key["sk"])
}

fn error(status: u16, body: &Value) -> Response {
    let status = StatusCode::from_u16(status).expect("a status");
    // A string is sent without JSON encoding, so that a test can send a malformed body.
    let body = body.as_str().map_or_else(|| body.to_string(), str::to_owned);
    (status, [(header::CONTENT_TYPE, "application/x-amz-json-1.0")], body).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_signature_identifies_the_caller() {
        let check = |authorization: Option<&str>, id| {
            let mut headers = HeaderMap::new();
            if let Some(text) = authorization {
                headers.insert(header::AUTHORIZATION, text.parse().unwrap());
            }
            assert_eq!(signer_of(&headers), id);
        };
        let signed =
            "AWS4-HMAC-SHA256 Credential=AgentsFunction/20261121/us-east-1/dynamodb/aws4_request, SignedHeaders=host";
        check(Some(signed), "AgentsFunction");
        check(Some("Bearer x"), "?");
        check(None, "?");
    }
}
