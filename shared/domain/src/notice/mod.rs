//! Notices: which events a person is told of, where, when, and in which words.

pub(crate) mod mail_address;
pub(crate) mod message;
pub(crate) mod pace;
pub(crate) mod pending;
pub(crate) mod settings;
pub(crate) mod words;
