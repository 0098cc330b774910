//! The preview of an edit of a policy or a rule: what it allows and refuses, before it is saved.

pub(crate) mod api;
pub(crate) mod operations;
pub(crate) mod section;
pub(crate) mod trial;
