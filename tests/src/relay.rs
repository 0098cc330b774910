//! A relay in front of Purser and the providers, which can stop between two messages or respond itself.

use crate::World;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request as Incoming, State};
use axum::response::Response;
use reqwest::Client;
use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

/// A relay in front of Purser, which is also an HTTP proxy in front of the providers.
#[derive(Clone)]
pub struct Relay {
    upstream: Arc<str>,
    http: Client,
    moments: Arc<AtomicUsize>,
    stop_at: Option<usize>,
    /// Notified when the relay has stopped.
    pub stopped: Arc<Notify>,
    /// The relay's own responses to the next paid calls. The last element is used first.
    pub answers: Arc<Mutex<Vec<(&'static str, Script)>>>,
}

/// Returns the relay's response to a paid call; `None` forwards the call to the provider.
pub type Script = fn(&str) -> Option<Response>;

impl Relay {
    /// Starts a relay, and returns its URL too. The relay stops at the moment `stop_at`. Each exchange has two moments,
    /// before and after the upstream's response.
    ///
    /// # Panics
    ///
    /// If it can't listen.
    pub async fn start(world: &World, stop_at: Option<usize>) -> (Self, String) {
        let relay = Self {
            upstream: world.stack.base_url.as_str().into(),
            http: Client::builder()
                .redirect(reqwest::redirect::Policy::none())
                .build()
                .expect("it works"),
            moments: Arc::default(),
            stop_at,
            stopped: Arc::default(),
            answers: Arc::default(),
        };
        let router = Router::new().fallback(relayed).with_state(relay.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("it works");
        let url = format!("http://{}", listener.local_addr().expect("it works"));
        tokio::spawn(async move { axum::serve(listener, router).await });
        (relay, url)
    }

    /// Counts the points before and after each response, and blocks forever at the point `stop_at`.
    async fn moment(&self) {
        if Some(self.moments.fetch_add(1, SeqCst)) == self.stop_at {
            self.stopped.notify_one();
            pending::<()>().await;
        }
    }
}

async fn relayed(State(relay): State<Relay>, request: Incoming) -> Response {
    relay.moment().await;
    let (parts, body) = request.into_parts();
    let is_paid = parts.headers.contains_key("payment-signature");
    let url = match parts.uri.authority() {
        Some(_) => parts.uri.to_string(),
        None => format!("{}{}", relay.upstream, parts.uri),
    };
    let script = is_paid.then(|| relay.answers.lock().expect("it works").pop()).flatten();
    if let Some(answer) = script.and_then(|(_, script)| script(&url)) {
        return answer;
    }
    let mut headers = parts.headers;
    headers.remove("host");
    let body: Bytes = axum::body::to_bytes(body, 1 << 20).await.expect("it works");
    let answer = relay
        .http
        .request(parts.method, url)
        .headers(headers)
        .body(body)
        .send()
        .await
        .expect("it works");
    relay.moment().await;
    let mut response = Response::builder().status(answer.status());
    for (name, value) in answer.headers() {
        if name != "transfer-encoding" && name != "content-length" {
            response = response.header(name, value);
        }
    }
    response
        .body(Body::from(answer.bytes().await.expect("it works")))
        .expect("it works")
}
