//! Notifications: which events a user is notified about, through which channels, when and in which words.

pub(crate) mod mail_address;
pub(crate) mod message;
pub(crate) mod pace;
pub(crate) mod pending;
pub(crate) mod settings;
pub(crate) mod words;
