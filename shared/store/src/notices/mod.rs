//! What people are told: what they say of it, what waits, and when each channel's next message may go.

pub(crate) mod pace;
pub(crate) mod pending;
pub(crate) mod settings;
