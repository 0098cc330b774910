//! Events for external programs in the `CloudEvents` 1.0 format: one event per change.
//!
//! The same change always has the same event id. An event has exactly the fields of its kind (`kind.rs`), so it
//! contains no secret and no text from a caller.

pub(crate) mod data;
pub(crate) mod field;
pub(crate) mod kind;
pub(crate) mod record;
mod schema;
