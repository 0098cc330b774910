//! Webhooks: which events they receive, the signatures of their calls, and retries.

pub(crate) mod ciphertext;
pub(crate) mod delivery;
pub(crate) mod failed_calls;
pub(crate) mod record;
pub(crate) mod retry;
pub(crate) mod secret;
