//! The page of one decision, with the checks and the replay.

use crate::agents::owned::{KnownAgent, require_id};
use crate::decisions::operations::ReplayResult;
use crate::journal::row;
use crate::sessions::session::PageSession;
use crate::state::PeopleState;
use crate::ui::call;
use crate::ui::datetime::exact_time;
use crate::ui::labels;
use crate::ui::layout::{Layout, NavItem};
use crate::ui::money::prominent_amount;
use crate::ui::paths;
use crate::ui::phrases;
use axum::{extract::Path, http::Uri, response::IntoResponse as _};
use maud::{Markup, html};
use purser_api::Reply;
use purser_domain::{AgentId, CallDescription, Catalog, Check, HistoryEntry, LoggedDecision, TransactionId};

/// With `?replay=1`, the page also evaluates the decision again, without storing anything.
pub(crate) async fn show_decision_page(
    people: PeopleState,
    session: PageSession,
    Path((agent, transaction)): Path<(String, String)>,
    uri: Uri,
) -> Reply {
    let agent = require_id(AgentId::parse(&agent))?;
    let id = require_id(TransactionId::parse(&transaction))?;
    let ((agent, decision), edition) = tokio::try_join!(
        people.read_own_decision(&session.person, agent, id),
        people.current_catalog()
    )?;
    let call = people.read_decision_call(&decision).await?;
    let replay = match uri.query() {
        Some("replay=1") => Some(people.replay_decision(&decision).await?),
        _ => None,
    };
    let layout = Layout::new(&session, people.now());
    let page = decision_page(
        &layout,
        &agent,
        &decision,
        call.as_ref(),
        &edition.catalog,
        replay.as_ref(),
    );
    Ok(page.into_response())
}

fn decision_page(
    layout: &Layout,
    agent: &KnownAgent,
    decision: &LoggedDecision,
    call: Option<&CallDescription>,
    catalog: &Catalog,
    replay: Option<&ReplayResult>,
) -> Markup {
    let entry = HistoryEntry::new(decision, &agent.name, &agent.labels);
    layout.html_page(
        "Decision",
        NavItem::Decisions,
        &html! {
            p { a href="/dashboard/decisions" { "Decisions" } }
            h1 { (entry.result.label()) ": " (prominent_amount(entry.amount)) }
            p { (row::outcome_chip(&entry)) }
            (decision_details(&entry, catalog))
            @if let Some(call) = call { (call::call_details(call, entry.amount)) }
            @if let Some(checks) = recorded_checks(decision) {
                h2 { "Checks" }
                (phrases::checks_table(checks))
                (replay_section(replay))
            }
        },
    )
}

/// Renders the button that starts a replay, or the replay's result.
fn replay_section(replay: Option<&ReplayResult>) -> Markup {
    html! {
        h2 id="replay" { "Replay" }
        @match replay {
            None => {
                p { "Evaluates the decision again with the policy, the rules and the catalog entry of its time." }
                form method="get" { button name="replay" value="1" { "Replay" } }
            }
            Some(ReplayResult::Impossible(why)) => p role="status" { "The decision can’t be evaluated again: " (why) "." }
            Some(ReplayResult::Made { differences, .. }) if differences.is_empty() => {
                p role="status" { "The evaluation decides the same." }
            }
            Some(ReplayResult::Made { differences, .. }) => {
                p.warning role="status" { "The evaluation decides otherwise: the record or the evaluation was changed." }
                dl.facts-list {
                    @for one in differences {
                        div { dt { (one.what) } dd { "recorded: " (one.recorded) "; evaluated: " (one.replayed) } }
                    }
                }
            }
        }
    }
}

/// Returns `None` for a withdrawal and for a reverted confirmation, which have no checks.
fn recorded_checks(decision: &LoggedDecision) -> Option<&[Check]> {
    match decision {
        LoggedDecision::Allowed(settlement) => settlement.terms.purchase().map(|purchase| purchase.checks.as_slice()),
        LoggedDecision::Refused(denial) => Some(&denial.checks),
        LoggedDecision::ConfirmationReverted(_) | LoggedDecision::PaidOut(_) => None,
    }
}

fn decision_details(entry: &HistoryEntry, catalog: &Catalog) -> Markup {
    html! {
        dl.card.facts-list {
            div { dt { "When" } dd { (exact_time(entry.at)) } }
            div { dt { "Agent" } dd { (labels::agent_link(entry.agent, &entry.agent_name)) } }
            @if let Some(key) = entry.key { div { dt { "Key" } dd { (labels::key_suffix(key)) } } }
            @if let Some(service) = entry.service {
                div { dt { "Service" } dd { (labels::service_name(service, catalog)) } }
                div { dt { "Operation" } dd { (labels::operation_name(catalog.find_by_id(service), entry.operation.as_ref())) } }
            }
            div { dt { "Pays to" } dd { (labels::wallet_address(entry.pay_to)) } }
            div { dt { "Decision" } dd { code.long { (entry.transaction) } } }
            @if let Some(version) = entry.policy_version { div { dt { "Policy" } dd { "version " (version) } } }
            @if let Some(settlement) = entry.settlement_id() {
                div { dt { "Receipt" } dd { a href=(paths::receipt_path(entry.agent, settlement)) { "Show the receipt" } } }
            }
            @if let Some(approval) = entry.approval {
                div { dt { "Approval" } dd { a href=(paths::approval_path(entry.agent, approval)) { "Show the approval" } } }
            }
            @if entry.payment.is_some() || entry.refusal.is_some() {
                div { dt { "Evidence" } dd { a href=(paths::evidence_path(entry.agent, entry.transaction)) download { "Download the signed statements" } } }
            }
            @if let Some(denial) = &entry.refusal { div { dt { "Took" } dd { (denial.latency_ms) " ms" } } }
        }
    }
}
