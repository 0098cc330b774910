//! What the code benches share: the world of their decisions, and the table of their results.
//!
//! `benches/code.rs` times the parts of one call, each compared with a reference. `references` times the decision
//! compared with general policy engines; it is a workspace of its own, so that none of these is deployed.

mod case;
mod table;
mod world;

pub use case::{Case, failed_checks};
pub use table::Table;
pub use world::{NETWORK, World, authorize_body, offer_v1, offer_v2};
