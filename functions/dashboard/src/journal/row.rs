//! Table rows for decisions and settlements.

use crate::ui::datetime::{exact_time, relative_time};
use crate::ui::labels;
use crate::ui::layout::Layout;
use crate::ui::list::Column::{Number, Text};
use crate::ui::list::column_headings;
use crate::ui::money::{amount_text, column_amount};
use crate::ui::paths;
use crate::ui::phrases;
use maud::{Markup, html};
use purser_domain::{Catalog, DecisionResult, HistoryEntry, SettlementState};

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

pub(crate) fn outcome_chip(entry: &HistoryEntry) -> Markup {
    match (entry.result, entry.settlement_state()) {
        (DecisionResult::Block | DecisionResult::Escalate, _) => {
            html! { (labels::result_chip(entry.result)) " " (linked_denial_reason(entry)) }
        }
        (DecisionResult::RevertConfirmation, _) => {
            html! { (labels::result_chip(entry.result)) " its transaction left the chain" }
        }
        (DecisionResult::Allow | DecisionResult::Payout, Some(state)) => settlement_state_chip(state),
        (DecisionResult::Allow | DecisionResult::Payout, None) => html! {},
    }
}

fn settlement_state_chip(state: &SettlementState) -> Markup {
    match state {
        SettlementState::Authorized => html! { span.chip { "Pending" } " not yet on chain" },
        SettlementState::Confirmed { .. } => html! { span.chip.good { "Confirmed" } },
        SettlementState::Expired => html! { span.chip { "Released" } " never paid" },
    }
}

fn linked_denial_reason(entry: &HistoryEntry) -> Markup {
    let Some(denial) = &entry.refusal else {
        return html! {};
    };
    html! {
        @match phrases::denying_limit_url(entry) {
            Some(limit) => a href=(limit) { (phrases::denial_reason(entry, denial)) },
            None => (phrases::denial_reason(entry, denial)),
        }
    }
}
