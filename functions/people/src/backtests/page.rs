//! The backtest pages: the list, and a backtest's progress and result.

use crate::agents::owned::parse_id;
use crate::preview::section;
use crate::sessions::session::PageSession;
use crate::state::People;
use crate::ui::count::count_with_noun;
use crate::ui::datetime::{both, exact};
use crate::ui::labels;
use crate::ui::layout::{Layout, NavItem};
use crate::ui::money::money;
use crate::ui::paths;
use crate::ui::phrases;
use axum::{
    extract::{Path, State},
    http::Uri,
    response::IntoResponse as _,
};
use maud::{Markup, html};
use purser_api::Reply;
use purser_domain::{AgentStatus, BacktestId, BacktestRun, BacktestTerms, Catalog, OperationScope, PolicyChange};
use std::sync::Arc;

/// Shows `GET /dashboard/backtests`: the user's newest backtests.
pub(crate) async fn list(State(people): State<Arc<People>>, session: PageSession) -> Reply {
    let runs = people.backtests(&session.person).await?;
    let layout = Layout::new(&session, people.now());
    let page = layout.page(
        "Backtests",
        NavItem::Decisions,
        &html! {
            h1 { "Backtests" }
            p { "A backtest tests other limits over the recorded decisions of your agents. Nothing is changed by it. It is kept for 30 days." }
            p { "To start one, fill in the form of a policy or of a rule on the page of an agent, and press “Backtest 30 days”. For several agents at once, use the API." }
            @if runs.is_empty() {
                p.empty { "There are no backtests yet." }
            } @else {
                ul.rows { @for run in &runs { (row(&layout, run)) } }
            }
        },
    );
    Ok(page.into_response())
}

/// Shows `GET /dashboard/backtests/{backtest}`: one backtest with its progress and result.
pub(crate) async fn show(
    State(people): State<Arc<People>>,
    session: PageSession,
    Path(id): Path<String>,
    uri: Uri,
) -> Reply {
    let run = people
        .backtest(&session.person, parse_id(BacktestId::parse(&id))?)
        .await?;
    let edition = people.catalog().await?;
    let layout = Layout::new(&session, people.now()).with_notice(&uri);
    let page = layout.page(
        "Backtest",
        NavItem::Decisions,
        &html! {
            p.crumb { a href=(paths::BACKTESTS) { "Backtests" } }
            h1 { "Backtest " (state(&run)) }
            p.muted { "Started " (both(run.created_at, layout.now)) "." }
            (content(&run, &edition.catalog))
        },
    );
    Ok(page.into_response())
}

fn row(layout: &Layout, run: &BacktestRun) -> Markup {
    html! {
        li.row {
            div.row-main {
                p { a.name href=(paths::backtest(run.id)) { "Started " (both(run.created_at, layout.now)) } " " (state(run)) }
                p.muted {
                    (count_with_noun(run.agents.len(), "agent")) ", " (count_with_noun(run.result.decisions, "decision")) " from "
                    (exact(run.from)) " to " (exact(run.to)) ", "
                    (run.result.if_declined.count_flipped()) " would have been different"
                }
            }
        }
    }
}

fn state(run: &BacktestRun) -> Markup {
    html! {
        @if run.next_agent().is_some() { span.chip { "running" } } @else { span.chip.good { "done" } }
    }
}

fn content(run: &BacktestRun, catalog: &Catalog) -> Markup {
    html! {
        @if run.next_agent().is_some() {
            div.message role="status" {
                p { (run.done) " of " (count_with_noun(run.agents.len(), "agent")) " are done. It runs in the background: reload the page to see its progress." }
            }
        }
        section aria-labelledby="tested-title" {
            h2 id="tested-title" { "What it tests" }
            (terms(&run.terms, catalog))
            dl.facts-list {
                div { dt { "Agents" } dd { (run.agents.len()) } }
                div { dt { "From" } dd { (exact(run.from)) } }
                div { dt { "To" } dd { (exact(run.to)) } }
            }
        }
        section aria-labelledby="result-title" {
            h2 id="result-title" { "What would have been different" }
            (section::results(&run.result, run.from))
            @if run.left_out > 0 { p.warning { (count_with_noun(run.left_out, "agent")) " could not be read, or has another owner." } }
            @if run.partial > 0 { p.muted { "Not all decisions of " (count_with_noun(run.partial, "agent")) " were read, only the oldest." } }
        }
    }
}

/// Renders the tested limits.
fn terms(terms: &BacktestTerms, catalog: &Catalog) -> Markup {
    let BacktestTerms {
        rules,
        status,
        policies,
    } = terms;
    html! {
        ul {
            @if let Some(status) = status {
                li { @match status { AgentStatus::Frozen => "The agents are frozen.", AgentStatus::Active => "The agents are not frozen." } }
            }
            @if let Some(rules) = rules {
                @if rules.is_empty() { li { "No rules." } }
                @for rule in rules { li { "Rule: " (phrases::rule(rule, catalog)) } }
            }
            @for (service, change) in policies {
                li { (labels::service(*service, catalog)) ": " (edit(change)) }
            }
            @if rules.is_none() && status.is_none() && policies.is_empty() { li { "The limits that were in force." } }
        }
    }
}

/// Describes a policy update in words.
fn edit(change: &PolicyChange) -> Markup {
    let PolicyChange { enabled, policy } = change;
    html! {
        @match enabled { Some(true) => "enabled; ", Some(false) => "disabled; ", None => "" }
        @if let Some(most) = policy.max_per_call { "at most " (money(most)) " per call; " }
        @if let Some(most) = policy.max_per_day { "at most " (money(most)) " in 24 hours; " }
        @if let Some(above) = policy.require_approval_above { "asks above " (money(above)) "; " }
        @match &policy.enabled_operations {
            None => "",
            Some(OperationScope::All) => "all operations; ",
            Some(OperationScope::Only(only)) => { (count_with_noun(only.len(), "operation")) "; " },
        }
        @if let Some(domains) = &policy.allowed_domains { (count_with_noun(domains.len(), "allowed domain")) "; " }
        "otherwise as it is."
    }
}
