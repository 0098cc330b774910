//! Encodes items: keys, attributes and conditions. This module uses no other module of this crate.

pub(crate) mod attribute;
pub(crate) mod backoff;
pub(crate) mod checks;
pub(crate) mod client;
pub(crate) mod fault;
pub(crate) mod fields;
pub(crate) mod item;
pub(crate) mod json;
pub(crate) mod key;
pub(crate) mod known_sets;
pub(crate) mod ledger;
pub(crate) mod map;
pub(crate) mod table;
