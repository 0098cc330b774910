//! Webhooks: their events, signatures and retries.

pub(crate) mod ciphertext;
pub(crate) mod delivery;
pub(crate) mod failed_calls;
pub(crate) mod record;
pub(crate) mod retry;
pub(crate) mod secret;
