//! The JSON response and the receipt of a single settlement. The list of settlements is in `journal`.

pub(crate) mod api;
pub(crate) mod receipt;
