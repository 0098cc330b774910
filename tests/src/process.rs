//! Runs a function as Lambda does: the function's `main` polls a runtime API for events. A test can kill the process at
//! any call, and the next event starts it again.
//!
//! Proxies see each call of the process before and after it takes effect. The process is killed by SIGKILL, so it can't
//! clean up.

use crate::{Answer, World};
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Json, Router};
use purser_api::Clock;
use purser_testkit::{Fate, Moment, Proxy, ProxyConfig, Step};
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;

/// A function, and the program that runs it: the test's `env!("CARGO_BIN_EXE_function")`.
#[derive(Clone, Debug)]
pub struct Program {
    /// The path of the built `tests/src/bin/function.rs`.
    pub path: PathBuf,
    /// The function's name: `payments`, `people` or `reconcile`.
    pub function: &'static str,
    /// The function's timeout in `template.yaml`.
    pub time: Duration,
    /// Environment variables that override the stack's.
    pub environment: Vec<(&'static str, &'static str)>,
}

/// An HTTP request, which the function gets as an API Gateway event.
#[derive(Clone, Debug)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// The path.
    pub path: String,
    /// The bearer token.
    pub bearer: String,
    /// The `If-Match` header.
    pub if_match: Option<String>,
    /// The body.
    pub body: Option<Value>,
}

impl Request {
    /// Returns a POST request with an agent key.
    pub fn post(bearer: &str, path: &str, body: &Value) -> Self {
        Self {
            method: Method::POST,
            path: path.to_owned(),
            bearer: bearer.to_owned(),
            if_match: None,
            body: Some(body.clone()),
        }
    }

    /// Turns the request into a write that expects the version `if_match`.
    pub fn editing(self, method: Method, if_match: &str) -> Self {
        Self {
            method,
            if_match: Some(if_match.to_owned()),
            ..self
        }
    }

    /// Returns a GET request with an agent key.
    pub fn get(bearer: &str, path: &str) -> Self {
        Self {
            method: Method::GET,
            body: None,
            ..Self::post(bearer, path, &Value::Null)
        }
    }

    fn event(&self) -> Value {
        let mut headers = json!({
            "authorization": format!("Bearer {}", self.bearer),
            "content-type": "application/json",
        });
        if let Some(version) = &self.if_match {
            headers["if-match"] = version.as_str().into();
        }
        json!({
            "version": "2.0",
            "routeKey": "$default",
            "rawPath": self.path,
            "rawQueryString": "",
            "headers": headers,
            "requestContext": {
                "routeKey": "$default",
                "stage": "$default",
                "http": {
                    "method": self.method.as_str(),
                    "path": self.path,
                    "protocol": "HTTP/1.1",
                    "sourceIp": "127.0.0.1",
                },
            },
            "body": self.body.as_ref().map(Value::to_string),
            "isBase64Encoded": false,
        })
    }
}

/// A function, its process while it runs, and the proxies in front of its dependencies.
pub struct Process {
    /// The proxy in front of the database.
    pub db: Proxy,
    /// The proxy in front of the chain's node.
    pub node: Proxy,
    /// The proxy in front of KMS. Only functions with KMS custody call KMS.
    pub kms: Proxy,
    program: Program,
    environment: BTreeMap<String, String>,
    running: tokio::sync::Mutex<Option<Running>>,
    killer: Arc<Killer>,
    /// Whether to kill the process instead of delivering its next response.
    loses_answer: Arc<AtomicBool>,
}

async fn proxy(upstream: &str) -> Proxy {
    Proxy::start(upstream.to_owned(), ProxyConfig::default()).await
}

/// Starts `ENDPOINTS` proxies in front of the node, and a proxy in front of Secrets Manager that returns the node
/// proxies' URLs.
pub async fn node_fronts<const ENDPOINTS: usize>(world: &World) -> ([Proxy; ENDPOINTS], Proxy) {
    let stack = &world.stack;
    let mut nodes = Vec::new();
    for _ in 0..ENDPOINTS {
        nodes.push(proxy(&stack.rpc_url).await);
    }
    let secrets = proxy(&stack.environment["SECRETS_ENDPOINT"]).await;
    let endpoints: Vec<&str> = nodes.iter().map(|node| node.url.as_str()).collect();
    let (there, here) = (stack.rpc_url.clone(), endpoints.join(" "));
    secrets.follow(move |_| {
        let (there, here) = (there.clone(), here.clone());
        Fate::Edit(Box::new(move |answer| {
            for value in answer["SecretValues"].as_array_mut().into_iter().flatten() {
                if value["SecretString"] == there.as_str() {
                    value["SecretString"] = here.as_str().into();
                }
            }
        }))
    });
    (nodes.try_into().ok().expect("as many"), secrets)
}

/// Kills the process of a [`Process`] from another task.
#[derive(Debug, Default)]
pub struct Killer {
    running: Mutex<Option<oneshot::Sender<()>>>,
    kills: AtomicU32,
}

impl Killer {
    /// Kills the running process. Its open events get no response.
    pub fn kill(&self) {
        if let Some(running) = self.running.lock().expect("not poisoned").take() {
            // The receiver is gone if the process has just been killed.
            let _ = running.send(());
        }
    }

    /// Returns the number of killed processes.
    pub fn kills(&self) -> u32 {
        self.kills.load(SeqCst)
    }
}

struct Running {
    events: mpsc::Sender<Invocation>,
    dead: watch::Receiver<bool>,
    api: AbortHandle,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.api.abort();
    }
}

/// A function's response, or the error that it reported to the runtime API.
type Made = Result<Value, Value>;

struct Invocation {
    event: Value,
    made: oneshot::Sender<Made>,
}

impl Process {
    /// Configures a function for this world. The first event starts the process.
    pub async fn for_program(world: &World, program: Program) -> Self {
        let stack = &world.stack;
        let db = proxy(&stack.environment["DYNAMODB_ENDPOINT"]).await;
        let kms = proxy(&stack.environment["KMS_ENDPOINT"]).await;
        let ([node], secrets) = node_fronts(world).await;
        let mut environment = stack.environment.clone();
        let name = format!(
            "{}{}Function",
            program.function[..1].to_uppercase(),
            &program.function[1..]
        );
        let own = [
            ("DYNAMODB_ENDPOINT", db.url.as_str()),
            ("KMS_ENDPOINT", &kms.url),
            ("SECRETS_ENDPOINT", &secrets.url),
            ("AWS_ACCESS_KEY_ID", &name),
            ("AWS_LAMBDA_FUNCTION_NAME", &name),
            ("AWS_LAMBDA_FUNCTION_VERSION", "$LATEST"),
            ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "256"),
            ("LOG_LEVEL", "off"),
        ];
        environment.extend(own.map(|(name, value)| (name.to_owned(), value.to_owned())));
        let more = program.environment.iter().copied();
        environment.extend(more.map(|(name, value)| (name.to_owned(), value.to_owned())));
        Self {
            db,
            node,
            kms,
            program,
            environment,
            running: tokio::sync::Mutex::default(),
            killer: Arc::default(),
            loses_answer: Arc::default(),
        }
    }

    /// Returns the handle that kills the process.
    pub fn killer(&self) -> Arc<Killer> {
        Arc::clone(&self.killer)
    }

    /// Kills the process instead of delivering its next response.
    pub fn kill_before_the_reply(&self) {
        self.loses_answer.store(true, SeqCst);
    }

    /// Kills the process before or after each call for which `choose` returns true.
    pub fn kill_where(&self, choose: impl FnMut(&str, Moment) -> bool + Send + 'static) {
        let choose = Arc::new(Mutex::new(choose));
        for proxy in [&self.db, &self.node] {
            let (choose, killer) = (Arc::clone(&choose), self.killer());
            proxy.follow(move |step: &Step<'_>| {
                if (choose.lock().expect("not poisoned"))(step.call, step.moment) {
                    killer.kill();
                    return Fate::Silence;
                }
                Fate::PassOn
            });
        }
    }

    /// Waits until all forwarded calls have ended. These also continue after the process is killed.
    pub async fn quiet(&self) {
        self.db.quiet().await;
        self.node.quiet().await;
    }

    /// Stops killing the process, and forwards all calls unchanged.
    pub fn spare(&self) {
        self.loses_answer.store(false, SeqCst);
        self.db.behave();
        self.node.behave();
        self.kms.behave();
    }

    /// Sends a request, and starts the process if necessary. Returns `None` if the process died or the event timed out.
    pub async fn send(&self, request: &Request) -> Option<Answer> {
        let made = self.invoke(request.event()).await?;
        Some(answer_of(
            &made.expect("a function that answers every event fails none"),
        ))
    }

    /// Sends an event that is not an HTTP request, such as that of a schedule.
    pub async fn invoke(&self, event: Value) -> Option<Made> {
        let mut running = self.running.lock().await;
        if running.as_ref().is_none_or(|running| *running.dead.borrow()) {
            *running = Some(self.start().await);
        }
        let running = running.as_mut().expect("it was started");
        let (made, told) = oneshot::channel();
        let invocation = Invocation { event, made };
        running.events.send(invocation).await.expect("the API is there");
        let died = async {
            let _ = running.dead.wait_for(|dead| *dead).await;
        };
        let told = async {
            // The sender is gone if the process died.
            match told.await {
                Ok(made) => made,
                Err(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            made = told => Some(made),
            () = died => None,
            () = tokio::time::sleep(self.program.time) => {
                self.killer.kill();
                None
            }
        }
    }

    /// Kills the process while it is idle.
    pub async fn stop(&self) {
        if let Some(mut running) = self.running.lock().await.take() {
            self.killer.kill();
            let _ = running.dead.wait_for(|dead| *dead).await;
        }
    }

    /// Repeats a request until the process responds.
    pub async fn insist(&self, request: &Request) -> Answer {
        for _ in 0..100 {
            if let Some(answer) = self.send(request).await {
                return answer;
            }
        }
        panic!("a process that lives long enough to answer");
    }

    async fn start(&self) -> Running {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let (events, coming) = mpsc::channel(1);
        let desk = Arc::new(Desk {
            coming: tokio::sync::Mutex::new(coming),
            waiting: Mutex::default(),
            loses_answer: Arc::clone(&self.loses_answer),
            killer: self.killer(),
            time: self.program.time,
        });
        let routes = Router::new()
            .route("/2018-06-01/runtime/invocation/next", get(next))
            .route("/2018-06-01/runtime/invocation/{id}/response", post(response))
            .route("/2018-06-01/runtime/invocation/{id}/error", post(failure))
            .route("/2018-06-01/runtime/init/error", post(refusal))
            .with_state(desk);
        let api = tokio::spawn(async move { axum::serve(listener, routes).await }).abort_handle();
        let child = Command::new(&self.program.path)
            .arg(self.program.function)
            .env_clear()
            .envs(&self.environment)
            .env("AWS_LAMBDA_RUNTIME_API", address)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn();
        let mut child = child.expect("the function's program starts");
        let (died, dead) = watch::channel(false);
        let (kill, killed) = oneshot::channel();
        let killer = self.killer();
        *killer.running.lock().expect("not poisoned") = Some(kill);
        tokio::spawn(async move {
            tokio::select! {
                ended = child.wait() => panic!("the function ended by itself: {ended:?}"),
                Ok(()) = killed => {
                    child.kill().await.expect("SIGKILL is sent");
                    killer.kills.fetch_add(1, SeqCst);
                }
                // The `Process` that started this process was dropped.
                () = died.closed() => {}
            }
            let _ = died.send(true);
        });
        Running { events, dead, api }
    }
}

fn answer_of(answer: &Value) -> Answer {
    let headers: HeaderMap = answer["headers"]
        .as_object()
        .expect("headers")
        .iter()
        .map(|(name, value)| {
            let (name, value) = (name.parse().expect("a name"), value.as_str().expect("a text"));
            (name, value.parse().expect("a value"))
        })
        .collect();
    let body = answer["body"].as_str().expect("a body");
    Answer {
        status: answer["statusCode"]
            .as_u64()
            .and_then(|code| code.try_into().ok())
            .expect("a status"),
        headers,
        body: if body.is_empty() {
            Value::Null
        } else {
            serde_json::from_str(body).expect("a JSON body")
        },
    }
}

/// The server side of a process's runtime API (Lambda developer guide, "Using the Lambda runtime API").
struct Desk {
    coming: tokio::sync::Mutex<mpsc::Receiver<Invocation>>,
    waiting: Mutex<Option<oneshot::Sender<Made>>>,
    loses_answer: Arc<AtomicBool>,
    killer: Arc<Killer>,
    time: Duration,
}

async fn next(State(desk): State<Arc<Desk>>) -> impl IntoResponse {
    let Some(Invocation { event, made }) = desk.coming.lock().await.recv().await else {
        return (StatusCode::GONE, HeaderMap::new(), Json(Value::Null));
    };
    *desk.waiting.lock().expect("not poisoned") = Some(made);
    let deadline = Clock::system().now().micros() / 1_000 + i64::try_from(desk.time.as_millis()).expect("short");
    let headers = [
        ("lambda-runtime-aws-request-id", uuid::Uuid::new_v4().to_string()),
        ("lambda-runtime-deadline-ms", deadline.to_string()),
        (
            "lambda-runtime-invoked-function-arn",
            "arn:aws:lambda:us-east-1:000000000000:function:local".to_owned(),
        ),
    ];
    let headers = headers.map(|(name, value)| (name.parse().expect("a name"), value.parse().expect("a value")));
    (StatusCode::OK, HeaderMap::from_iter(headers), Json(event))
}

async fn response(State(desk): State<Arc<Desk>>, body: Bytes) -> StatusCode {
    desk.hand_over(Ok(serde_json::from_slice(&body).expect("an answer")))
        .await
}

async fn failure(State(desk): State<Arc<Desk>>, body: Bytes) -> StatusCode {
    desk.hand_over(Err(serde_json::from_slice(&body).expect("an error")))
        .await
}

/// Panics, because a function reports here that its initialization failed.
async fn refusal(body: String) {
    panic!("the function did not start: {body}");
}

impl Desk {
    async fn hand_over(&self, made: Made) -> StatusCode {
        if self.loses_answer.swap(false, SeqCst) {
            self.killer.kill();
            std::future::pending::<()>().await;
        }
        if let Some(waiting) = self.waiting.lock().expect("not poisoned").take() {
            // The receiver is gone if the event timed out.
            let _ = waiting.send(made);
        }
        StatusCode::ACCEPTED
    }
}
