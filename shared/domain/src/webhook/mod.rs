//! Webhooks: which events a person's program is called with, how a call is signed, and when it is tried again.

pub(crate) mod ciphertext;
pub(crate) mod delivery;
pub(crate) mod record;
pub(crate) mod retry;
pub(crate) mod secret;
