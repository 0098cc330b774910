//! Events for external programs, in the `CloudEvents` 1.0 format: one event per change.
//!
//! Invariants: the same change always has the same event id. An event has exactly the fields of its kind (`kind.rs`),
//! so it contains no secret and no text from a caller.
//!
//! `shared/store/src/stream` derives the events from stored changes. `functions/webhooks` and `functions/notices`
//! decide who receives an event.

pub(crate) mod data;
pub(crate) mod field;
pub(crate) mod kind;
pub(crate) mod record;
pub(crate) mod schema;
