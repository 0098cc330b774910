//! Previews of policy and rule updates: what an update would allow and block.

pub(crate) mod api;
pub(crate) mod operations;
pub(crate) mod section;
pub(crate) mod trial;
