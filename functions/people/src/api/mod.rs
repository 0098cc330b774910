//! The API: JSON for a person's session (in `approval.rs` also for an agent key), in the `Authorization` header only.
//! The pages' cookie is not accepted here, so no other site can make a browser send a request.
//!
//! One file per resource, and in it one function per route: parse, operate, answer. All check in the same order: the
//! session (401), whether the resource exists and is the caller's (404), the body and the query (400, every problem in
//! one answer), the version in `If-Match` (428, 412).

mod agents;
mod approval;
mod approval_view;
mod approvals;
mod audit;
#[cfg(test)]
mod bodies;
mod decisions;
mod handovers;
mod keys;
mod notices;
mod payouts;
mod request;
mod rules;
mod services;
mod sessions;
mod settlements;
mod usage;
mod wallet;
mod webhooks;

pub(crate) use notices::kinds as notice_kinds;

use crate::state::People;
use std::sync::Arc;

purser_api::routes!(
    Arc<People>,
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
    payouts::read,
    payouts::name,
    payouts::remove,
    payouts::pay_out,
    approval::approval,
    approvals::list,
    approvals::read,
    approvals::approve,
    approvals::reject,
    decisions::list,
    decisions::read,
    settlements::list,
    settlements::read,
    usage::read,
    audit::list,
    handovers::list,
    handovers::accept,
    sessions::list,
    sessions::end,
    sessions::end_all,
    webhooks::list,
    webhooks::create,
    webhooks::read,
    webhooks::replace,
    webhooks::remove,
    webhooks::rotate,
    webhooks::test,
    webhooks::deliveries,
    webhooks::redeliver,
    notices::read,
    notices::replace,
    notices::test,
);
