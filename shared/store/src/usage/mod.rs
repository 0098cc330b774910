//! The usage table: the sums of what events counted, and what of publishing them is still to do. The function `events`
//! alone writes it, and an operator's recount; no decision reads it.
//!
//! | file | one line |
//! |---|---|
//! | `table.rs` | counting a batch, reading sums |
//! | `checkpoint.rs` | which records of a shard were counted |
//! | `recount.rs` | counting days anew |
//! | `told.rs` | reminders, and rows that could not be read |
//! | `key.rs` | the keys |

pub(crate) mod checkpoint;
mod key;
pub(crate) mod recount;
pub(crate) mod table;
pub(crate) mod told;
