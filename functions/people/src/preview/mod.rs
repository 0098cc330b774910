//! Previews of policy and rule updates: what an update would allow and block, before the update is saved.

pub(crate) mod api;
pub(crate) mod operations;
pub(crate) mod section;
pub(crate) mod trial;
