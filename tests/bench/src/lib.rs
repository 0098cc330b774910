//! What the benches of the code share: the world that they decide in, and the table of what they measured.
//!
//! `benches/code.rs` times what one call does, each part beside a reference. `references` times the decision beside general
//! policy engines; it is a workspace of its own, so that nothing of these gets into what is deployed.

mod case;
mod table;
mod world;

pub use case::{Case, failed_checks};
pub use table::Table;
pub use world::{NETWORK, World, authorize_body, offer_v1, offer_v2};
