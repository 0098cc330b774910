//! What is still open on chain: the index of holds, and requests to look at one.

pub(crate) mod holds;
