//! The routes of the JSON API. The API ignores the dashboard's cookie, so that other sites can't send authenticated
//! requests.
//!
//! Handlers check the session (401), then the resource (404), then the body (400), then `If-Match` (428, 412).

use crate::agents::{api as agents, bulk_api as bulk, wallet_api as wallet};
use crate::approvals::{api as approvals, poll};
use crate::audit::api as audit;
use crate::backtests::api as backtests;
use crate::connect::api as connect;
use crate::decisions::api as decisions;
use crate::handovers::api as handovers;
use crate::history::api as history;
use crate::journal::api as journal;
use crate::keys::api as keys;
use crate::notices::api as notices;
use crate::payouts::api as payouts;
use crate::rules::api as rules;
use crate::runs::api as runs;
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
    agents::list_agents,
    agents::create_agent,
    agents::read_agent,
    agents::update_agent,
    bulk::update_agents,
    keys::list_keys,
    keys::create_key,
    keys::rotate_key,
    keys::revoke_key,
    connect::revoke_grant,
    services::list_agent_services,
    services::enable_service,
    services::limit_unlimited_services,
    services::read_agent_service,
    services::update_agent_service,
    services::disable_service,
    history::list_policy_versions,
    history::restore_policy_version,
    history::list_agent_versions,
    history::restore_rule_version,
    rules::list_rules,
    rules::add_rule,
    rules::replace_rule,
    rules::remove_rule,
    runs::open_run,
    runs::close_run,
    wallet::read_wallet,
    payouts::read_withdrawal_address,
    payouts::set_withdrawal_address,
    payouts::remove_withdrawal_address,
    payouts::withdraw_to_owner,
    poll::poll_approval,
    approvals::list_approvals,
    approvals::read_approval,
    approvals::approve_request,
    approvals::reject_request,
    journal::list_decisions,
    approvals::withdraw_approval,
    approvals::decide_approvals,
    decisions::read_decision,
    decisions::replay_decision,
    decisions::read_decision_statement,
    journal::list_settlements,
    settlements::read_settlement,
    search::search,
    usage::read_usage,
    backtests::start_backtest,
    backtests::list_backtests,
    backtests::read_backtest,
    shadow::read_shadow,
    shadow::attach_shadow,
    shadow::remove_shadow,
    shadow::promote_shadow,
    templates::list_templates,
    templates::read_template,
    templates::put_template,
    templates::remove_template,
    templates::list_template_agents,
    templates::apply_template,
    audit::list_audit_log,
    handovers::list_handovers,
    handovers::accept_handover,
    sessions::list_sessions,
    sessions::end_session,
    sessions::end_sessions,
    webhooks::list_webhooks,
    webhooks::create_webhook,
    webhooks::read_webhook,
    webhooks::replace_webhook,
    webhooks::remove_webhook,
    webhooks::rotate_webhook_secret,
    webhooks::test_webhook,
    webhooks::list_webhook_deliveries,
    webhooks::redeliver_webhook_delivery,
    notices::read_notification_settings,
    notices::replace_notification_settings,
    notices::test_notifications,
);
