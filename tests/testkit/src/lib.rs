//! Test doubles of the service's dependencies: the session issuer, Secrets Manager, KMS, Lambda, SQS, SES, DynamoDB and
//! its streams, EventBridge, and the chain's node. A proxy records the calls to any dependency and makes calls fail.
//! The crate also has sample values.
//!
//! The doubles use the wire protocols on loopback and take plain values, so the crates under test can use them in unit
//! tests. By default they behave correctly, and a test injects single faults. The local stack uses the doubles too.
//!
//! The simulation's chain and network are in `tests/sim`, and running stacks in `tests/src`. No deployed code depends
//! on this crate.

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
