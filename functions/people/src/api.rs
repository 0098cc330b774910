//! The JSON API. Requests carry a user's session in the `Authorization` header, and in `approvals/poll.rs` a session or
//! an agent key. The API does not accept the dashboard's cookie, so other sites can't make a browser send an
//! authenticated request.
//!
//! Each feature has an `api.rs` with one function per route, which parses the request, runs the operation and responds.
//! All functions check in the same order: the session (401), whether the resource exists and belongs to the caller
//! (404), the body and the query (400, with all validation errors in one response), and the version in `If-Match` (428,
//! 412).

use crate::agents::{api as agents, bulk_api as bulk, wallet_api as wallet};
use crate::approvals::{api as approvals, poll};
use crate::audit::api as audit;
use crate::backtests::api as backtests;
use crate::decisions::api as decisions;
use crate::handovers::api as handovers;
use crate::history::api as history;
use crate::journal::api as journal;
use crate::keys::api as keys;
use crate::notices::api as notices;
use crate::payouts::api as payouts;
use crate::rules::api as rules;
use crate::search::api as search;
use crate::services::api as services;
use crate::sessions::api as sessions;
use crate::settlements::api as settlements;
use crate::shadow::api as shadow;
use crate::state::People;
use crate::templates::api as templates;
use crate::usage::api as usage;
use crate::webhooks::api as webhooks;
use std::sync::Arc;

purser_api::routes!(
    Arc<People>,
    tag = "dashboard",
    agents::list,
    agents::create,
    agents::read,
    agents::edit,
    bulk::edit,
    keys::list,
    keys::create,
    keys::rotate,
    keys::revoke,
    services::list,
    services::enable,
    services::limit_unlimited,
    services::read,
    services::edit,
    services::disable,
    history::policy_versions,
    history::restore_policy,
    history::agent_versions,
    history::restore_rule,
    rules::list,
    rules::add,
    rules::replace,
    rules::remove,
    wallet::read,
    payouts::read,
    payouts::name,
    payouts::remove,
    payouts::pay_out,
    poll::approval,
    approvals::list,
    approvals::read,
    approvals::approve,
    approvals::reject,
    journal::decisions,
    approvals::withdraw,
    approvals::decide_all,
    decisions::read,
    decisions::evaluate_again,
    decisions::statement,
    journal::settlements,
    settlements::read,
    search::find,
    usage::read,
    backtests::start,
    backtests::list,
    backtests::read,
    shadow::read,
    shadow::attach,
    shadow::remove,
    shadow::promote,
    templates::list,
    templates::read,
    templates::put,
    templates::remove,
    templates::agents,
    templates::apply,
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
