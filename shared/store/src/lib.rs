//! What is remembered: DynamoDB items, their keys, their conditions and the transactions that move them together.
//!
//! Always true here:
//! - a write carries its guard: its condition names the state and version that the decision was made on;
//! - a payment is one transaction: the window, its entry, the settlement, the idempotency key and the approval move
//!   together or not at all;
//! - `W.total` is the sum of the window's entries that exist, and an entry exists exactly while it counts;
//! - what a decision rests on is read strongly consistent and never cached, and any torn read is caught by a condition;
//! - nothing that money depends on expires by TTL, and no decision reads an index.
//!
//! ```text
//! decision_inputs ─(evaluate)─▶ reserve ─▶ confirm ─▶ revert_confirmation   key.rs      every key, spelled once
//!             │              └────▶ release                item.rs     an item becomes a domain type, or is `Corrupt`
//!             ├────────▶ escalate ─▶ resolve               transact.rs what a cancelled transaction says
//!             └────────▶ record
//! ```
//!
//! Tables: the ledger (`pk`, `sk`, indexes `hold` and `owner`), the decisions (`pk`, `sk`), the catalog (`pk`) and the throttle (`pk`).
//! Deliberately elsewhere: what is allowed (`shared/domain`), HTTP and clocks (`shared/api`), the chain (`shared/chain`).

mod agent;
mod approval;
mod attribute;
mod authenticate;
mod backoff;
mod cache;
mod catalog;
mod checks;
mod client;
mod decision;
mod decision_inputs;
mod escalate;
mod fault;
mod holds;
mod idempotency;
mod item;
mod key;
mod key_use;
mod ledger;
mod map;
mod owned;
mod policy;
mod preflight;
mod release;
mod reserve;
mod revert_confirmation;
mod settle;
mod settlement;
mod throttle;
mod transact;
mod waiting;
mod wallet;
mod window;

pub use agent::Created;
pub use approval::{ApprovalDecision, Resolved};
pub use authenticate::{Authenticated, Authenticator};
pub use backoff::Backoff;
pub use cache::{CatalogCache, Edition};
pub use catalog::{CatalogTable, Listed};
pub use client::client;
pub use decision_inputs::{DecisionInputs, DecisionKeys, ServiceState};
pub use escalate::Escalated;
pub use fault::Fault;
pub use holds::{Held, ReconcileRequest, ScanCursor};
pub use idempotency::IdempotencyRecord;
pub use item::Corrupt;
pub use key::hold::IndexKey;
pub use key_use::KeyUses;
pub use ledger::{Edited, Ledger};
pub use owned::ApprovalPlace;
pub use preflight::ReplayKey;
pub use reserve::Reserved;
pub use settle::{Confirmed, Moved, Presented};
pub use throttle::Throttle;
pub use window::Cleared;
