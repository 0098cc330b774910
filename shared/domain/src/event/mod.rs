//! What happened, for programs outside: one event for each fact, as `CloudEvents` 1.0.
//!
//! Always true: the same fact is told under the same id, however often; an event has the members that its kind names
//! (`kind.rs`) and no others, so nothing secret and no caller's words come into one.
//!
//! Deliberately elsewhere: which stored change is which fact (`shared/store/src/stream`), and who is told.

pub(crate) mod data;
pub(crate) mod field;
pub(crate) mod kind;
pub(crate) mod record;
pub(crate) mod schema;
pub(crate) mod usage;
