//! The shared parts of the code benchmarks: the data for their decisions, and the table of results.
//!
//! `benches/code.rs` measures the steps of one call, and compares each with a reference.

mod case;
mod table;
mod world;

pub use case::Case;
pub use table::Table;
pub use world::{NETWORK, World, authorize_body, offer_v1, offer_v2};
