//! What is true: money, ids, policy, evaluation, x402 objects, settlements, and the one error vocabulary.
//!
//! Everything here is arithmetic on values. Time, callers and facts arrive as arguments; nothing reads a clock, an
//! environment, a file or a socket, and nothing logs. A payment moves through types that can only be made in order:
//!
//! ```text
//! bytes ─parse─▶ Intent ─evaluate─▶ Grant ─reserve─▶ Settlement ─match_transfer─▶ Transfer ─▶ confirmed
//! ```
//!
//! Deliberately elsewhere: how things are stored (`shared/store`), what the chain says and how it is signed
//! (`shared/chain`), and status numbers (`shared/api`).

#![cfg_attr(
    test,
    expect(clippy::arithmetic_side_effects, reason = "tests calculate what they expect")
)]

mod address;
mod agent;
mod amount;
mod approval;
mod call;
mod catalog;
mod decision;
mod endpoint;
mod error;
mod evaluate;
mod fingerprint;
mod id;
mod intent;
mod json;
mod network;
mod payment;
mod policy;
mod probe;
mod proof;
mod reconcile;
mod requirement;
mod rule;
mod settlement;
mod slug;
mod target;
mod time;
mod transfer;
mod window;

pub use address::*;
pub use agent::*;
pub use alloy_primitives::B256;
pub use amount::*;
pub use approval::*;
pub use call::*;
pub use catalog::{
    Aggregates, Availability, Catalog, CatalogPayment, Category, FIXED_PRICE, Operation, Payable, Service, TrustStatus,
    Unpayable,
};
pub use decision::*;
pub use endpoint::Endpoint;
pub use error::*;
pub use evaluate::*;
pub use fingerprint::*;
pub use id::*;
pub use intent::*;
pub use json::*;
pub use network::*;
pub use payment::*;
pub use policy::*;
pub use probe::*;
pub use proof::*;
pub use reconcile::*;
pub use requirement::*;
pub use rule::*;
pub use settlement::*;
pub use slug::*;
pub use target::*;
pub use time::*;
pub use transfer::*;
pub use url::Url;
pub use window::*;
