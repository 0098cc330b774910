//! Notifications: the events, channels, send times and texts.

pub(crate) mod mail_address;
pub(crate) mod message;
pub(crate) mod pace;
pub(crate) mod pending;
pub(crate) mod settings;
pub(crate) mod words;
