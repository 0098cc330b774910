//! One decision, with the checks and the call. The list of decisions is in `journal`.

pub(crate) mod api;
pub(crate) mod evidence;
pub(crate) mod operations;
pub(crate) mod page;
