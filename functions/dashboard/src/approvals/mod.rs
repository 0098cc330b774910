//! Approvals: the queue, the owner's decisions, and the route that agents poll.

pub(crate) mod api;
pub(crate) mod background;
pub(crate) mod bulk;
pub(crate) mod grant;
pub(crate) mod operations;
pub(crate) mod page;
pub(crate) mod poll;
pub(crate) mod queue;
pub(crate) mod raise;
pub(crate) mod row;
pub(crate) mod single;
