//! One decision, with the checks and the call. The module `journal` lists decisions.

pub(crate) mod api;
pub(crate) mod evidence;
pub(crate) mod operations;
pub(crate) mod page;
