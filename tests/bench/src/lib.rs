//! The shared parts of the code benches: the world of their decisions, and the table of their results.
//!
//! `benches/code.rs` times the steps of one call, each compared with a reference.

mod case;
mod table;
mod world;

pub use case::Case;
pub use table::Table;
pub use world::{NETWORK, World, authorize_body, offer_v1, offer_v2};
