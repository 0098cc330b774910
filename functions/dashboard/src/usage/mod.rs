//! Spending: the current use of windows, and daily sums.

pub(crate) mod api;
pub(crate) mod operations;
pub(crate) mod section;
pub(crate) mod spending;
pub(crate) mod windows;
