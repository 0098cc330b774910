//! Notifications: users' settings, waiting events, and each channel's send slots.

pub(crate) mod pace;
pub(crate) mod pending;
pub(crate) mod settings;
