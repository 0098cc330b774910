//! A JSON-RPC node with scripted responses, which records its calls.

use crate::proxy::{Line, Lines, Opened};
use crate::{Call, Calls};
use axum::Router;
use axum::extract::{ConnectInfo, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;

/// The node's reaction to a call.
#[derive(Clone, Debug)]
pub enum Reply {
    /// Responds with a result.
    Result(Value),
    /// Responds with a JSON-RPC error that has this code.
    Refused(i64),
    /// Responds with an HTTP status and no body. A redirect has no target.
    Status(u16),
    /// Responds with this text.
    Body(String),
    /// Keeps the connection open and never responds.
    Silence,
    /// Closes the connection.
    HangUp,
}

type Script = Box<dyn FnMut(&str, &Value) -> Reply + Send>;

/// A running node, which runs until the runtime ends. Clones share all state.
#[derive(Clone)]
pub struct ScriptedNode {
    /// The URL of the node.
    pub url: String,
    shared: Arc<Shared>,
}

struct Shared {
    script: Mutex<Script>,
    latency: Mutex<Duration>,
    notes: AtomicBool,
    calls: Calls,
    opened: Arc<Opened>,
}

impl ScriptedNode {
    /// Starts a node that responds to each method and its parameters with the result of `script`.
    pub async fn start(script: impl FnMut(&str, &Value) -> Reply + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let shared = Arc::new(Shared {
            script: Mutex::new(Box::new(script)),
            latency: Mutex::default(),
            notes: AtomicBool::new(true),
            calls: Calls::default(),
            opened: Arc::default(),
        });
        let lines = Lines {
            listener,
            opened: Arc::clone(&shared.opened),
        };
        let router = Router::new().route("/", post(answer)).with_state(Arc::clone(&shared));
        let service = router.into_make_service_with_connect_info::<Line>();
        tokio::spawn(async move { axum::serve(lines, service).await });
        Self { url, shared }
    }

    /// Sets the latency of all later responses.
    pub fn set_latency(&self, latency: Duration) {
        *self.shared.latency.lock().expect("not poisoned") = latency;
    }

    /// Turns the recording of calls on or off, because the records of a load test would use too much memory.
    pub fn note_calls(&self, notes: bool) {
        self.shared.notes.store(notes, SeqCst);
    }

    /// Returns the number of connections that clients have opened so far.
    pub fn connections(&self) -> usize {
        self.shared.opened.count()
    }

    /// Drops all further data on the open connections, as if a network device had lost the connections' state.
    pub fn forget_connections(&self) {
        self.shared.opened.forget();
    }

    /// Returns the method and the parameters of the recorded calls, in order.
    pub fn calls(&self) -> Vec<(String, Value)> {
        let asked = |call: &Call| (call.operation.clone(), call.request["params"].clone());
        self.shared.calls.map(asked)
    }

    /// Takes the calls recorded since the last call of this method.
    pub fn take_calls(&self) -> Vec<Call> {
        self.shared.calls.take()
    }

    /// Returns the number of recorded calls of a method.
    pub fn count(&self, method: &str) -> usize {
        self.calls().iter().filter(|(called, _)| called == method).count()
    }
}

async fn answer(State(node): State<Arc<Shared>>, ConnectInfo(line): ConnectInfo<Line>, body: String) -> Response {
    let started = Instant::now();
    let request: Value = serde_json::from_str(&body).expect("a client writes JSON");
    let id = request["id"].clone();
    let method = request["method"].as_str().expect("a method").to_owned();
    let reply = (node.script.lock().expect("not poisoned"))(&method, &request["params"]);
    let latency = *node.latency.lock().expect("not poisoned");
    if !latency.is_zero() {
        tokio::time::sleep(latency).await;
    }
    if node.notes.load(SeqCst) {
        node.calls.note(method, request, started, &[]);
    }
    let (status, body) = match reply {
        Reply::Result(result) => (200, json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string()),
        Reply::Refused(code) => {
            let error = json!({"code": code, "message": "no"});
            (200, json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string())
        }
        Reply::Status(status) => (status, String::new()),
        Reply::Body(body) => (200, body),
        Reply::Silence => std::future::pending().await,
        Reply::HangUp => {
            line.hang_up();
            (502, String::new())
        }
    };
    let status = StatusCode::from_u16(status).expect("a status");
    (status, [(header::LOCATION, "http://127.0.0.1:1/")], body).into_response()
}
