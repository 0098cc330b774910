//! Basic values: amounts of money, identifiers, names, times, and strict JSON parsing.

pub(crate) mod address;
pub(crate) mod amount;
pub(crate) mod hidden;
pub(crate) mod id;
pub(crate) mod json;
pub(crate) mod line;
pub(crate) mod slug;
pub(crate) mod time;
pub(crate) mod visible;
