//! Notifications: users' settings, waiting events, and the send slots of each channel.

pub(crate) mod pace;
pub(crate) mod pending;
pub(crate) mod settings;
