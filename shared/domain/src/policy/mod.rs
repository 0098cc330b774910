//! Whether a payment is allowed: agents, keys, policies, rules, windows, the evaluation, decisions and approvals.

pub(crate) mod agent;
pub(crate) mod approval;
pub(crate) mod decision;
pub(crate) mod evaluate;
pub(crate) mod rule;
pub(crate) mod spend_policy;
pub(crate) mod target;
pub(crate) mod window;
