//! The usage table: what events have counted for, and what of telling them is still to do. The function `events` alone
//! writes it; no decision reads it.

mod key;
pub(crate) mod table;
pub(crate) mod told;
