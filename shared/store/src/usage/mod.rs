//! The usage table: the sums of what events counted, and what of publishing them is still to do. The function `events`
//! alone writes it; no decision reads it.
//!
//! | file | one line |
//! |---|---|
//! | `table.rs` | counting a batch, reading sums |
//! | `checkpoint.rs` | which records of a shard were counted |
//! | `told.rs` | reminders, and rows that could not be read |
//! | `key.rs` | the keys |

pub(crate) mod checkpoint;
mod key;
pub(crate) mod table;
pub(crate) mod told;
