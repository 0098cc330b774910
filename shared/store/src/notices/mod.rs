//! Notices to people: their settings, the waiting events, and the pace of each channel.

pub(crate) mod pace;
pub(crate) mod pending;
pub(crate) mod settings;
