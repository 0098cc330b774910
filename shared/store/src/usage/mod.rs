//! The usage table: what events have counted for, what of telling them is still to do, and the payees that are attested.
//! The function `events` alone writes it. Decisions read the attested payees and nothing else of it.

mod attested;
mod key;
pub(crate) mod table;
pub(crate) mod told;
