//! The usage table: the sums of what events counted, what of publishing them is still to do, and the payees that are
//! attested. The function `events` alone writes it, and an operator's recount. Decisions read the attested payees and
//! nothing else of it.
//!
//! | file | one line |
//! |---|---|
//! | `table.rs` | counting a batch, reading sums |
//! | `checkpoint.rs` | which records of a shard were counted |
//! | `recount.rs` | counting days anew |
//! | `told.rs` | reminders, and rows that could not be read |
//! | `attested.rs` | the attested payees |
//! | `key.rs` | the keys |

mod attested;
pub(crate) mod checkpoint;
mod key;
pub(crate) mod recount;
pub(crate) mod table;
pub(crate) mod told;
