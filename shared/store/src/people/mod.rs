//! Agents with their keys and policies, approvals, sessions, freezes, and request limits.

pub(crate) mod agent;
pub(crate) mod approval;
pub(crate) mod authenticate;
mod brake;
pub(crate) mod call_leases;
pub(crate) mod chunked_counter;
pub(crate) mod freezes;
pub(crate) mod handover;
pub(crate) mod kept_responses;
pub(crate) mod key_limit;
pub(crate) mod key_use;
pub(crate) mod oauth;
pub(crate) mod owned;
pub(crate) mod policy;
pub(crate) mod session;
pub(crate) mod spare_key;
pub(crate) mod starting_set;
pub(crate) mod template;
pub(crate) mod throttle;
pub(crate) mod waiting;
pub(crate) mod wallet;
