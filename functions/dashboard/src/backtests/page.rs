//! The backtest pages: the list, and a backtest's progress and result.

use crate::agents::owned::require_id;
use crate::preview::section;
use crate::sessions::session::PageSession;
use crate::state::PeopleState;
use crate::ui::count::count_with_noun;
use crate::ui::datetime::{exact_time, relative_and_exact_time};
use crate::ui::labels;
use crate::ui::layout::{Layout, NavItem};
use crate::ui::money::amount_text;
use crate::ui::paths;
use crate::ui::phrases;
use axum::{extract::Path, http::Uri, response::IntoResponse as _};
use maud::{Markup, html};
use purser_api::Reply;
use purser_domain::{AgentStatus, BacktestId, BacktestRun, Catalog, OperationScope, PolicyChange, TestedLimits};

pub(crate) async fn show_backtests_page(people: PeopleState, session: PageSession) -> Reply {
    let runs = people.list_backtests(&session.person).await?;
    let layout = Layout::new(&session, people.now());
    let page = layout.html_page(
        "Backtests",
        NavItem::Decisions,
        &html! {
            h1 { "Backtests" }
            p { "A backtest tests other limits over the recorded decisions of your agents. Nothing is changed by it. It is kept for 30 days." }
            p { "To start one, fill in the form of a policy or of a rule on the page of an agent, and press “Backtest 30 days”. For several agents at once, use the API." }
            @if runs.is_empty() {
                p.empty { "There are no backtests yet." }
            } @else {
                ul.rows { @for run in &runs { (backtest_row(&layout, run)) } }
            }
        },
    );
    Ok(page.into_response())
}

pub(crate) async fn show_backtest_page(
    people: PeopleState,
    session: PageSession,
    Path(id): Path<String>,
    uri: Uri,
) -> Reply {
    let run = people
        .read_backtest(&session.person, require_id(BacktestId::parse(&id))?)
        .await?;
    let edition = people.current_catalog().await?;
    let layout = Layout::new(&session, people.now()).with_message_in_url(&uri);
    let page = layout.html_page(
        "Backtest",
        NavItem::Decisions,
        &html! {
            p.crumb { a href=(paths::BACKTESTS) { "Backtests" } }
            h1 { "Backtest " (backtest_state(&run)) }
            p.muted { "Started " (relative_and_exact_time(run.created_at, layout.now)) "." }
            (backtest_content(&run, &edition.catalog))
        },
    );
    Ok(page.into_response())
}

fn backtest_row(layout: &Layout, run: &BacktestRun) -> Markup {
    html! {
        li.row {
            div.row-main {
                p { a.name href=(paths::backtest_path(run.id)) { "Started " (relative_and_exact_time(run.created_at, layout.now)) } " " (backtest_state(run)) }
                p.muted {
                    (count_with_noun(run.agents.len(), "agent")) ", " (count_with_noun(run.result.decisions, "decision")) " from "
                    (exact_time(run.from)) " to " (exact_time(run.to)) ", "
                    (run.result.if_declined.count_changed()) " would have been different"
                }
            }
        }
    }
}

fn backtest_state(run: &BacktestRun) -> Markup {
    html! {
        @if run.next_agent().is_some() { span.chip { "running" } } @else { span.chip.good { "done" } }
    }
}

fn backtest_content(run: &BacktestRun, catalog: &Catalog) -> Markup {
    html! {
        @if run.next_agent().is_some() {
            div.message role="status" {
                p { (run.done) " of " (count_with_noun(run.agents.len(), "agent")) " are done. It runs in the background: reload the page to see its progress." }
            }
        }
        section aria-labelledby="tested-title" {
            h2 id="tested-title" { "What it tests" }
            (tested_limits_list(&run.terms, catalog))
            dl.facts-list {
                div { dt { "Agents" } dd { (run.agents.len()) } }
                div { dt { "From" } dd { (exact_time(run.from)) } }
                div { dt { "To" } dd { (exact_time(run.to)) } }
            }
        }
        section aria-labelledby="result-title" {
            h2 id="result-title" { "What would have been different" }
            (section::backtest_result(&run.result, run.from))
            @if run.left_out > 0 { p.warning { (count_with_noun(run.left_out, "agent")) " could not be read, or has another owner." } }
            @if run.partial > 0 { p.muted { "Not all decisions of " (count_with_noun(run.partial, "agent")) " were read, only the oldest." } }
        }
    }
}

fn tested_limits_list(tested_limits: &TestedLimits, catalog: &Catalog) -> Markup {
    let TestedLimits {
        rules,
        status,
        policies,
    } = tested_limits;
    html! {
        ul {
            @if let Some(status) = status {
                li { @match status { AgentStatus::Frozen => "The agents are frozen.", AgentStatus::Active => "The agents are not frozen." } }
            }
            @if let Some(rules) = rules {
                @if rules.is_empty() { li { "No rules." } }
                @for rule in rules { li { "Rule: " (phrases::rule_sentence(rule, catalog)) } }
            }
            @for (service, change) in policies {
                li { (labels::service_name(*service, catalog)) ": " (policy_change_text(change)) }
            }
            @if rules.is_none() && status.is_none() && policies.is_empty() { li { "The limits that were in force." } }
        }
    }
}

fn policy_change_text(change: &PolicyChange) -> Markup {
    let PolicyChange { enabled, policy } = change;
    html! {
        @match enabled { Some(true) => "enabled; ", Some(false) => "disabled; ", None => "" }
        @if let Some(max) = policy.max_per_call { "at most " (amount_text(max)) " per call; " }
        @if let Some(max) = policy.max_per_day { "at most " (amount_text(max)) " in 24 hours; " }
        @if let Some(above) = policy.require_approval_above { "asks above " (amount_text(above)) "; " }
        @match &policy.enabled_operations {
            None => "",
            Some(OperationScope::All) => "all operations; ",
            Some(OperationScope::Only(only)) => { (count_with_noun(only.len(), "operation")) "; " },
        }
        @if let Some(domains) = &policy.allowed_domains { (count_with_noun(domains.len(), "allowed domain")) "; " }
        "otherwise as it is."
    }
}
