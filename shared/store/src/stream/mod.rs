//! Conversion of stream records into facts, from the old and new image of each row.
//!
//! The conversion is pure, so a record that is delivered again gives the same facts with the same ids. A record without
//! a published change gives none. Facts contain no secrets; `kind.rs` of the events lists the data of each kind.
//!
//! | file | contents |
//! |---|---|
//! | `change.rs` | a record of the stream, as Lambda passes it |
//! | `fact.rs` | facts: events before their owner is known |
//! | `payments.rs`, `approvals.rs`, `agents.rs`, `freezes.rs`, `wallets.rs`, `catalog.rs` | the facts of one kind of row each |
//! | `signs.rs` | changes that raise an alarm |
//! | `row_hash.rs` | the hash of what never changes in a row |
//! | `rows.rs` | dispatch by kind of row |
//! | `owners.rs` | the current owners and names of agents |
//! | `sequence.rs` | sequence numbers |
//!
//! Deliberately elsewhere: publishing (`functions/events`) and folding into the journal (`usage`).

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
