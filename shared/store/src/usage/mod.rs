//! The usage table: the counted usage, the open work of publishing events, and the attested payees. Only the function
//! `events` and an operator's recount write it. Decisions read only the attested payees.
//!
//! | file | contents |
//! |---|---|
//! | `table.rs` | counting a batch, reading sums |
//! | `checkpoint.rs` | the records of a shard that were counted |
//! | `recount.rs` | recounting days |
//! | `reminder.rs`, `reminders.rs` | reminders, and quarantined changes |
//! | `attested.rs` | the attested payees |
//! | `key.rs` | the keys |

mod attested;
pub(crate) mod checkpoint;
mod key;
pub(crate) mod recount;
pub(crate) mod reminder;
pub(crate) mod reminders;
pub(crate) mod table;
