//! The API: JSON for whoever has a session of a person (in `approval.rs`: or an agent's key), in the `Authorization` header
//! alone. The pages' cookie does not speak here, so that no other site can make a browser ask.
//!
//! One file per thing, and in it one function per route: parse, operate, answer. They judge in one order: the session
//! (401), whose thing it is and whether it exists (404), the body and the query (400, every problem at once), the version
//! that is meant (428, 412).

mod agents;
mod approval;
mod approval_view;
mod approvals;
#[cfg(test)]
mod bodies;
mod decisions;
mod keys;
mod request;
mod rules;
mod services;
mod settlements;
mod wallet;

use crate::state::Dashboard;
use std::sync::Arc;

purser_api::routes!(
    Arc<Dashboard>,
    agents::list,
    agents::create,
    agents::read,
    agents::edit,
    keys::list,
    keys::create,
    keys::rotate,
    keys::revoke,
    services::list,
    services::enable,
    services::read,
    services::edit,
    services::disable,
    rules::list,
    rules::add,
    rules::replace,
    rules::remove,
    wallet::read,
    approval::approval,
    approvals::list,
    approvals::read,
    approvals::approve,
    approvals::reject,
    decisions::list,
    decisions::read,
    settlements::list,
    settlements::read,
);
