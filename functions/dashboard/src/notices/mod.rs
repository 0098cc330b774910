//! Notifications by mail and Slack.

pub(crate) mod api;
pub(crate) mod operations;
pub(crate) mod page;
