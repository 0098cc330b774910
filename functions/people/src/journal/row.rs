//! Table rows for decisions and settlements.

use crate::ui::datetime::{exact_time, relative_time};
use crate::ui::labels;
use crate::ui::layout::Layout;
use crate::ui::list::Column::{Number, Text};
use crate::ui::list::column_headings;
use crate::ui::money::{amount_text, column_amount, format_dollars};
use crate::ui::paths;
use crate::ui::phrases;
use maud::{Markup, html};
use purser_domain::{Catalog, DecisionResult, HistoryDenial, HistoryEntry, SettlementState};

/// Renders a table of decisions, with a link to the details of each decision.
pub(crate) fn decisions_table(layout: &Layout, caption: &str, entries: &[HistoryEntry], catalog: &Catalog) -> Markup {
    html! {
        table.list.entries {
            caption.sr { (caption) }
            (column_headings(&[Text("Time"), Text("Agent"), Text("For"), Number("Amount"), Text("Outcome"), Text("Details")]))
            tbody { @for entry in entries { (decision_row(layout, entry, catalog)) } }
        }
    }
}

fn decision_row(layout: &Layout, entry: &HistoryEntry, catalog: &Catalog) -> Markup {
    html! {
        tr {
            td data-label="Time" { (relative_time(entry.at, layout.now)) span.sr { ", " (exact_time(entry.at)) } }
            th scope="row" { (labels::agent_link(entry.agent, &entry.agent_name)) }
            td data-label="For" {
                @match entry.service {
                    Some(service) => {
                        (labels::service_name(service, catalog)) " "
                        span.muted { (labels::operation_name(catalog.find_by_id(service), entry.operation.as_ref())) }
                    }
                    None => { "payout to " (labels::short_wallet_address(entry.pay_to)) }
                }
            }
            td.num data-label="Amount" { (column_amount(entry.amount)) }
            td data-label="Outcome" { (outcome_chip(entry)) }
            td data-label="Details" { (details_link(entry)) }
        }
    }
}

fn details_link(entry: &HistoryEntry) -> Markup {
    let (path, text) = match entry.settlement_id() {
        Some(settlement) => (paths::receipt_path(entry.agent, settlement), "Receipt"),
        None => (paths::decision_path(entry.agent, entry.transaction), "Checks"),
    };
    html! { a href=(path) { (text) span.sr { " of " (amount_text(entry.amount)) ", " (exact_time(entry.at)) } } }
}

/// Renders the outcome as a chip with a short explanation.
pub(crate) fn outcome_chip(entry: &HistoryEntry) -> Markup {
    match (entry.result, entry.settlement_state()) {
        (DecisionResult::Block | DecisionResult::Escalate, _) => {
            html! { (labels::result_chip(entry.result)) " " (rejection_reason(entry)) }
        }
        (DecisionResult::RevertConfirmation, _) => {
            html! { (labels::result_chip(entry.result)) " its transaction left the chain" }
        }
        (DecisionResult::Allow | DecisionResult::Payout, Some(state)) => state_chip(state),
        (DecisionResult::Allow | DecisionResult::Payout, None) => html! {},
    }
}

fn state_chip(state: &SettlementState) -> Markup {
    match state {
        SettlementState::Authorized => html! { span.chip { "Pending" } " not yet on chain" },
        SettlementState::Confirmed { .. } => html! { span.chip.good { "Confirmed" } },
        SettlementState::Expired => html! { span.chip { "Released" } " never paid" },
    }
}

/// Describes briefly why the payment was blocked or escalated.
fn rejection_reason(entry: &HistoryEntry) -> Markup {
    let Some(refusal) = &entry.refusal else {
        return html! {};
    };
    html! {
        @match phrases::limit_link(entry) {
            Some(limit) => a href=(limit) { (rejection_text(entry, refusal)) },
            None => (rejection_text(entry, refusal)),
        }
    }
}

fn rejection_text(entry: &HistoryEntry, refusal: &HistoryDenial) -> String {
    let limit = refusal
        .limit
        .map(|limit| format!(" of {}", format_dollars(limit)))
        .unwrap_or_default();
    let used = refusal.used.filter(|used| !used.is_zero());
    let used = used
        .map(|used| format!(" ({} used)", format_dollars(used)))
        .unwrap_or_default();
    let (rule, detail) = entry.reason.split_once(':').unwrap_or((&entry.reason, ""));
    let by_rule = refusal.rule == "approval_required";
    match (refusal.error.as_str(), rule) {
        ("service_not_enabled", _) => "service not enabled".to_owned(),
        ("operation_not_enabled_for_agent", _) => "operation not enabled".to_owned(),
        ("domain_not_allowed", _) => {
            format!("host not allowed: {}", refusal.hostname.as_deref().unwrap_or("unknown"))
        }
        ("amount_exceeds_max", _) => format!("above the agent’s own maximum{limit}"),
        ("amount_exceeds_per_call_limit", _) => format!("limit per call{limit} exceeded"),
        ("daily_spend_limit_exceeded", _) => format!("daily limit{limit} exceeded{used}"),
        ("approval_required", _) if by_rule => "a rule asks for approval".to_owned(),
        ("approval_required", _) => format!("over the approval threshold{limit}"),
        ("insufficient_usdc_balance", _) => "wallet balance too low".to_owned(),
        ("policy_blocked", "agent_frozen") => "agent frozen".to_owned(),
        ("policy_blocked", "category_block") => format!("category {detail} is blocked"),
        ("policy_blocked", "catalog_payee") => "payee not in the catalog".to_owned(),
        ("policy_blocked", "catalog_price") => "price above the catalog’s maximum".to_owned(),
        ("policy_blocked", "catalog_payment") => "operation can’t be paid".to_owned(),
        ("policy_blocked", "vendor_allowlist") => "vendor not allowed".to_owned(),
        ("policy_blocked", "budget_limit") => format!("budget{limit} exceeded{used}"),
        ("policy_blocked", "approval_rejected") => "approval rejected".to_owned(),
        ("policy_blocked", "approval_expired") => "approval expired".to_owned(),
        ("policy_blocked", "too_many_open_approvals") => "too many pending approvals".to_owned(),
        ("policy_blocked", "approval_request_mismatch") => "approval of another request".to_owned(),
        (_, _) => entry.reason.clone(),
    }
}
