//! Test doubles of the AWS services, the session issuer and the chain's node, with the real wire protocols on loopback,
//! and sample values.
//!
//! The doubles do not depend on the crates under test, so unit tests of these crates can use them. The local stack uses
//! the doubles too, but no deployed code does.

pub mod authorize;
pub mod chain;
mod dynamodb;
mod emulator;
mod event_bus;
pub mod invariants;
mod issuer;
mod kms;
mod lambda;
mod node;
mod promises;
mod proxy;
mod rng;
pub mod sample;
mod secrets_manager;
mod ses;
mod sqs;
mod streams;
mod template;

pub use dynamodb::{DynamoDb, database};
pub use emulator::{
    AUDIT, CATALOG, Consumed, DECISIONS, Emulator, LEDGER, Meter, THROTTLE, USAGE, WEBHOOKS, client, environment,
};
pub use event_bus::{Entry, EventBus, Fault};
pub use issuer::{IssuerScript, Parameters, Signer, TestIssuer, encoded, token_with};
pub use kms::Kms;
pub use lambda::Lambda;
pub use node::{Reply, ScriptedNode};
pub use promises::{PromisedError, assert_promised, promised_errors};
pub use proxy::{Call, Calls, Fate, Moment, Proxy, ProxyConfig, Step, Units};
pub use rng::Rng;
pub use secrets_manager::SecretsManager;
pub use ses::Ses;
pub use sqs::Sqs;
pub use streams::{Streams, journal_event, written_at};
pub use template::{Route, Template};

use axum::Router;
use tokio::net::TcpListener;

/// Serves a router on a free loopback port until the runtime ends, and returns its URL.
pub async fn serve(router: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}
