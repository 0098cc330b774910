//! Notifications to users: the events that are sent, the channels, the send times and the texts.

pub(crate) mod mail_address;
pub(crate) mod message;
pub(crate) mod pace;
pub(crate) mod pending;
pub(crate) mod settings;
pub(crate) mod words;
