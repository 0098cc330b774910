//! The shared parts of the code benches: the world of their decisions, and the table of their results.
//!
//! `benches/code.rs` times the steps of one call, each compared with a reference. `references` compares the decision's
//! time with general policy engines; it is a separate workspace, so that none of these is deployed.

mod case;
mod table;
mod world;

pub use case::{Case, failed_checks};
pub use table::Table;
pub use world::{NETWORK, World, authorize_body, offer_v1, offer_v2};
