//! Values: sealed money, identifiers, names, time, and how JSON is read.

pub(crate) mod address;
pub(crate) mod amount;
pub(crate) mod id;
pub(crate) mod json;
pub(crate) mod slug;
pub(crate) mod time;
