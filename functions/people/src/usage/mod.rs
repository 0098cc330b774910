//! Spending: the use of windows, and sums by day.

pub(crate) mod api;
pub(crate) mod operations;
pub(crate) mod section;
pub(crate) mod spending;
pub(crate) mod windows;
