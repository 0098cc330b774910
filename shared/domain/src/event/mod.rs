//! Events for external programs: one event for each fact, in the format `CloudEvents` 1.0.
//!
//! Invariants: the same fact always has the same id. An event has exactly the members of its kind (`kind.rs`), so it
//! contains no secret and no text from a caller.
//!
//! Elsewhere: deriving the facts from stored changes (`shared/store/src/stream`), and the recipients of events.

pub(crate) mod data;
pub(crate) mod field;
pub(crate) mod kind;
pub(crate) mod record;
pub(crate) mod schema;
