//! From a table's stream to what happened: a record's two images become facts.
//!
//! Always true: the conversion is pure, so a record that comes again becomes the same facts with the same ids; what
//! changed nothing, or nothing that is told, becomes none. Facts name no secret: `kind.rs` of the events says what each
//! has.
//!
//! | file | one line |
//! |---|---|
//! | `change.rs` | a record of the stream, as Lambda passes it |
//! | `fact.rs` | what happened, before it is known whose it is |
//! | `payments.rs`, `approvals.rs`, `agents.rs`, `freezes.rs`, `wallets.rs`, `catalog.rs` | one kind of row each |
//! | `signs.rs` | the changes that raise an alarm |
//! | `rows.rs` | which row is which |
//! | `owners.rs` | who owns the agents now |
//!
//! Deliberately elsewhere: telling and counting (`functions/events`).

mod agents;
pub(crate) mod approvals;
mod catalog;
pub(crate) mod change;
pub(crate) mod fact;
mod freezes;
pub(crate) mod owners;
mod payments;
mod rows;
pub(crate) mod signs;
mod wallets;
