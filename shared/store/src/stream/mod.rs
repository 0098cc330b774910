//! Converts stream records into change events. The conversion is a pure function, so a repeated record gives the same
//! events with the same ids.
//!
//! | file | content |
//! |---|---|
//! | `change.rs` | a record of the stream, as Lambda passes it |
//! | `fact.rs` | change events before their owner is known |
//! | `payments.rs`, `approvals.rs`, `agents.rs`, `freezes.rs`, `wallets.rs`, `catalog.rs` | change events by row kind |
//! | `signs.rs` | changes that raise an alarm |
//! | `row_hash.rs` | the hash of the attributes that never change in a row |
//! | `rows.rs` | dispatch by kind of row |
//! | `owners.rs` | the current owners and names of agents |
//! | `sequence.rs` | sequence numbers |

mod agents;
pub(crate) mod approvals;
mod catalog;
pub(crate) mod change;
pub(crate) mod fact;
mod freezes;
pub(crate) mod owners;
pub(crate) mod payments;
pub(crate) mod row_hash;
mod rows;
pub(crate) mod sequence;
pub(crate) mod signs;
mod wallets;
