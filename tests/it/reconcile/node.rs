//! A node between reconcile and the chain, which can be down, behind, or wrong about things; and a reconcile that asks it.

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use purser_api::Boot;
use purser_local::Reconcile;
use purser_tests::World;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

/// What the node does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Manner {
    /// It passes everything on.
    Honest,
    /// It answers 503.
    Down,
    /// It has not seen the newest so many blocks.
    Behind(u64),
    /// It serves another chain.
    Elsewhere,
    /// It calls nothing but nonsense for what a contract answers.
    Nonsense,
    /// Its receipts hold other amounts than the chain's.
    Forging,
}

/// A running node.
pub struct Node(Arc<Shared>);

struct Shared {
    upstream: String,
    secrets: String,
    /// Where the node itself listens.
    url: Mutex<String>,
    manner: Mutex<Manner>,
    client: reqwest::Client,
}

impl Node {
    /// A node over the world's chain, and a reconcile that is configured as the stack's but for asking it.
    pub async fn between(world: &World) -> (Self, Reconcile) {
        let shared = Arc::new(Shared {
            upstream: world.stack.rpc_url.clone(),
            secrets: world.stack.environment["SECRETS_ENDPOINT"].clone(),
            url: Mutex::default(),
            manner: Mutex::new(Manner::Honest),
            client: reqwest::Client::new(),
        });
        let url = serve(Router::new().fallback(node).with_state(Arc::clone(&shared))).await;
        *shared.url.lock().unwrap() = url;
        let secrets = serve(Router::new().fallback(secrets).with_state(Arc::clone(&shared))).await;
        let mut environment = world.stack.environment.clone();
        environment.insert("SECRETS_ENDPOINT".to_owned(), secrets);
        // As the stack's own signs (`infra/local/src/recorder.rs`).
        environment.insert("AWS_ACCESS_KEY_ID".to_owned(), "ReconcileFunction".to_owned());
        let boot = Boot::new(environment.into_iter().collect(), world.stack.clock.clone());
        (Self(shared), Reconcile::boot(boot).await.unwrap())
    }

    pub fn set(&self, manner: Manner) {
        *self.0.manner.lock().unwrap() = manner;
    }
}

async fn serve(router: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async { axum::serve(listener, router).await });
    url
}

/// The stack's secrets, but for the RPC's address.
async fn secrets(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> Response {
    let answer = shared.client.post(&shared.secrets).headers(headers).body(body).send();
    let mut answer: Value = answer.await.unwrap().json().await.unwrap();
    for value in answer["SecretValues"].as_array_mut().unwrap() {
        if value["ARN"].as_str().unwrap().ends_with("RpcUrlSecret") {
            value["SecretString"] = shared.url.lock().unwrap().as_str().into();
        }
    }
    answer.to_string().into_response()
}

async fn node(State(shared): State<Arc<Shared>>, body: Bytes) -> Response {
    let manner = *shared.manner.lock().unwrap();
    if manner == Manner::Down {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    let call: Value = serde_json::from_slice(&body).unwrap();
    let answer = shared.client.post(&shared.upstream).json(&call).send().await.unwrap();
    let mut answer: Value = answer.json().await.unwrap();
    let result = &mut answer["result"];
    match (manner, call["method"].as_str().unwrap()) {
        (Manner::Behind(blocks), "eth_blockNumber") => {
            let text = result.as_str().unwrap().trim_start_matches("0x");
            let head = u64::from_str_radix(text, 16).unwrap();
            *result = json!(format!("{:#x}", head - blocks));
        }
        (Manner::Elsewhere, "eth_chainId") => *result = json!("0x2105"),
        (Manner::Nonsense, "eth_call") => *result = json!("0x"),
        (Manner::Forging, "eth_getTransactionReceipt") => {
            for log in result["logs"].as_array_mut().unwrap() {
                log["data"] = json!(format!("0x{:064x}", 1));
            }
        }
        _ => {}
    }
    answer.to_string().into_response()
}
