//! The inputs of the code benchmarks, and the table of their results.

mod case;
mod table;
mod world;

pub use case::Case;
pub use table::Table;
pub use world::{NETWORK, World, authorize_body, offer_v1, offer_v2};
