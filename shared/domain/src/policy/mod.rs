//! The decision whether a payment is allowed: agents, keys, policies, rules, windows, evaluation, decisions and
//! approvals.

pub(crate) mod agent;
pub(crate) mod anomaly;
pub(crate) mod approval;
pub(crate) mod backtest;
pub(crate) mod backtest_run;
pub(crate) mod check;
pub(crate) mod comparison;
pub(crate) mod decision;
pub(crate) mod evaluate;
pub(crate) mod facts;
pub(crate) mod freeze;
pub(crate) mod handover;
pub(crate) mod key_scope;
pub(crate) mod label;
mod limits;
pub(crate) mod raise;
pub(crate) mod recent;
pub(crate) mod replay;
pub(crate) mod rule;
pub(crate) mod schedule;
pub(crate) mod shadow;
pub(crate) mod spend_policy;
pub(crate) mod starting_limits;
pub(crate) mod starting_set;
pub(crate) mod target;
pub(crate) mod template;
pub(crate) mod wallet;
pub(crate) mod wallet_level;
pub(crate) mod widening;
pub(crate) mod window;
