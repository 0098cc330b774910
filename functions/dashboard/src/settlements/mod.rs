//! One settlement and the receipt. The list of settlements is in `journal`.

pub(crate) mod api;
pub(crate) mod receipt;
