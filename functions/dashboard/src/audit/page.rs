//! The page with a user's audit log, and the CSV file.

use crate::agents::choice::{AgentChoice, NamedAgent};
use crate::agents::owned::OwnedAgent;
use crate::audit::columns;
use crate::csv;
use crate::sessions::session::PageSession;
use crate::state::PeopleState;
use crate::ui::datetime::{exact_time, relative_time};
use crate::ui::labels;
use crate::ui::layout::{Layout, NavItem};
use crate::ui::list::{
    date_fields, filter_error_message, filter_form, filter_select, first_and_next_links, invalid_filter_text,
};
use crate::ui::paths;
use axum::{
    http::{StatusCode, Uri},
    response::IntoResponse as _,
};
use maud::{Markup, html};
use purser_api::{AuditView, Query, Reply, parse_audit_filter};
use purser_domain::{
    Actor, AgentId, AuditChanges, AuditFilter, AuditKind, AuditOutcome, AuditRecord, AuditRejection, Catalog,
    escape_hidden_characters,
};
use purser_store::{AuditRow, MAX_ROWS_PER_READ, Page, PageRequest};
use serde_json::Value;
use std::collections::BTreeSet;
use uuid::Uuid;

const PAGE: &str = "/dashboard/audit-log";
const CSV: &str = "/dashboard/audit-log.csv";

/// If a filter is invalid, the page has an error message and no rows.
pub(crate) async fn show_audit_log_page(people: PeopleState, session: PageSession, uri: Uri) -> Reply {
    const ROWS: u32 = 25;
    let (mut filter, named, before, error) = parse_audit_query(&uri);
    let user = &session.person;
    let choice = people.resolve_named_agent(user, named).await?;
    filter.agent = choice.id;
    let rows = async {
        if error.is_some() || choice.is_ambiguous() {
            return Ok(Page::default());
        }
        people
            .list_audit_log(user, filter, PageRequest { before, limit: ROWS })
            .await
    };
    let (page, edition) = tokio::try_join!(rows, people.current_catalog())?;
    let named = page.items.iter().filter_map(|row| row.record.act.agent);
    let named: BTreeSet<AgentId> = named.collect();
    let agents = people.read_own_agents(user, named.into_iter().collect()).await?;
    let status = match error {
        Some(_) => StatusCode::BAD_REQUEST,
        None => StatusCode::OK,
    };
    let layout = Layout::new(&session, people.now()).with_error_message(error);
    let log = Log {
        filter,
        choice: &choice,
        agents: &agents,
        rows: &page.items,
        before,
        older: page.next,
        catalog: &edition.catalog,
    };
    Ok((status, audit_log_page(&layout, &log)).into_response())
}

/// Downloads the rows that match the filters. If the file is full, the last line is a link to the remaining rows.
pub(crate) async fn download_audit_log(people: PeopleState, session: PageSession, uri: Uri) -> Reply {
    /// The maximum number of reads per file, of [`MAX_ROWS_PER_READ`] rows each. 50 reads take some seconds.
    const MAX_PAGES: u32 = 50;
    let (filter, _, mut before, error) = parse_audit_query(&uri);
    if let Some(error) = error {
        return Ok((StatusCode::BAD_REQUEST, error).into_response());
    }
    let mut text = csv::csv_header(columns::COLUMNS);
    let export = async {
        for _ in 0..MAX_PAGES {
            let page_request = PageRequest {
                before,
                limit: MAX_ROWS_PER_READ,
            };
            let page = people.list_audit_log(&session.person, filter, page_request).await?;
            for row in &page.items {
                text.push_str(&csv::csv_row(
                    columns::COLUMNS,
                    &AuditView::new(&row.record, &row.sha256),
                ));
            }
            before = page.next;
            if before.is_none() || text.len() > csv::MAX_BYTES {
                break;
            }
        }
        Ok(())
    };
    people
        .run_in_long_operation_slot(session.person.id.as_str(), export)
        .await?;
    let next = before.map(|before| audit_log_url(CSV, filter, Some(before)));
    Ok(csv::csv_file_response("purser-audit-log", &text, next))
}

/// Returns an error message if a filter is invalid. Empty filters are ignored.
fn parse_audit_query(uri: &Uri) -> (AuditFilter, NamedAgent, Option<Uuid>, Option<String>) {
    let mut query = Query::without_blanks(uri);
    let filter = parse_audit_filter(&mut query);
    let named = NamedAgent {
        id: filter.agent,
        text: query.parse_text("agent"),
    };
    let cursor = query.parse_with(
        "cursor",
        |text| Uuid::try_parse(text).ok(),
        "is invalid; start from the first page",
    );
    (filter, named, cursor, filter_error_message(query))
}

fn audit_log_url(path: &str, filter: AuditFilter, cursor: Option<Uuid>) -> String {
    crate::address::path_with_query(
        path,
        [
            ("agent_id", filter.agent.map(|agent| agent.to_string())),
            ("kind", filter.kind.map(|kind| kind.name().to_owned())),
            ("from", filter.from.map(|at| at.to_string())),
            ("to", filter.to.map(|at| at.to_string())),
            ("refused", filter.refused.then(|| true.to_string())),
            ("cursor", cursor.map(|cursor| cursor.to_string())),
        ],
    )
}

struct Log<'a> {
    filter: AuditFilter,
    choice: &'a AgentChoice,
    agents: &'a [OwnedAgent],
    rows: &'a [AuditRow],
    /// The cursor of this page; `None` for the first page.
    before: Option<Uuid>,
    /// The cursor of the next page. `None` on the last page.
    older: Option<Uuid>,
    catalog: &'a Catalog,
}

fn audit_log_page(layout: &Layout, log: &Log<'_>) -> Markup {
    let filter = log.filter;
    layout.html_page(
        "Audit log",
        NavItem::Audit,
        &html! {
            div.section-head {
                h1 { "Audit log" }
                a.button href=(audit_log_url(CSV, filter, log.before)) { "Download as CSV" }
            }
            p { "Your actions, including refused ones, with their origin, and actions of others on your agents. Log entries cannot be changed." }
            (audit_log_filters(log, layout.problem.is_some()))
            @if layout.problem.is_some() {
                (invalid_filter_text())
            } @else if log.choice.is_ambiguous() {
                (log.choice.matching_agent_links(|agent| audit_log_url(PAGE, AuditFilter { agent: Some(agent), ..filter }, None)))
            } @else if log.rows.is_empty() {
                p.empty { @if filter == AuditFilter::default() { "There are no entries yet." } @else { "No entry matches these filters." } }
            } @else {
                ul.rows.log { @for row in log.rows { (audit_log_row(layout, row, log)) } }
            }
            (first_and_next_links(
                "Pages",
                log.before.map(|_| ("Newest", audit_log_url(PAGE, filter, None))),
                log.older.map(|older| ("Older", audit_log_url(PAGE, filter, Some(older)))),
            ))
        },
    )
}

fn audit_log_filters(log: &Log<'_>, is_open: bool) -> Markup {
    let filter = log.filter;
    let is_filtered = filter != AuditFilter::default() || log.choice.is_ambiguous();
    let fields = html! {
        (log.choice.search_field("Agent’s name"))
        (filter_select("kind", "kind", "Action", "All actions", audit_kinds_in_user_log().map(|kind| {
            (kind.name().to_owned(), html! { (kind.label()) }, filter.kind == Some(kind))
        })))
        (date_fields(filter.from, filter.to))
        label.check { input type="checkbox" name="refused" value="true" checked[filter.refused]; " Refused only" }
    };
    filter_form(PAGE, is_open, is_filtered.then_some(PAGE), &fields)
}

fn audit_log_row(layout: &Layout, row: &AuditRow, log: &Log<'_>) -> Markup {
    let AuditRecord {
        id,
        at,
        actor,
        source,
        act: action,
        outcome,
    } = &row.record;
    let rejection = match outcome {
        AuditOutcome::Done(_) => None,
        AuditOutcome::Refused(rejection) => Some(rejection),
    };
    html! {
        li.row {
            details {
                summary {
                    span.log-when { (relative_time(*at, layout.now)) }
                    span.log-chip {
                        @if rejection.is_some() {
                            span.chip.bad { "refused" }
                        } @else if action.kind == AuditKind::OutflowFound {
                            span.chip.bad { "unexplained" }
                        } @else {
                            span.chip.good { "done" }
                        }
                    }
                    span.log-who { (action.kind.label()) @if let Some(agent) = action.agent { " · " (agent_name(agent, log.agents)) } }
                    span.log-why { @if let Some(rejection) = rejection { (rejection.reason) } }
                }
                div.unfolded {
                    dl.facts-list {
                        div { dt { "When" } dd { (exact_time(*at)) } }
                        @if let Some(agent) = action.agent {
                            div { dt { "Agent" } dd { a href=(paths::agent_path(agent)) { (agent_name(agent, log.agents)) } } }
                        }
                        @if let Some(service) = action.service {
                            div { dt { "Service" } dd { (labels::service_name(service, log.catalog)) } }
                        }
                        @if let Some(reason) = &source.reason { div { dt { "Why" } dd { (escape_hidden_characters(reason.as_str())) } } }
                        @if let Some(object) = &action.object { div { dt { "Of" } dd { code.long { (object) } } } }
                        @if matches!(actor, Actor::Person { .. } | Actor::Client { .. } | Actor::Agent { .. }) {
                            div { dt { "Address" } dd { (source.address.as_deref().unwrap_or("unknown")) } }
                            div { dt { "Program" } dd { (source.user_agent.as_deref().unwrap_or("unknown")) } }
                        }
                        div { dt { "By" } dd { (actor_name(actor)) } }
                        @if !source.request_id.is_empty() {
                            div { dt { "Request" } dd { code.long { (source.request_id) } } }
                        }
                        div { dt { "Entry" } dd { code.long { (id) } } }
                    }
                    @match outcome {
                        AuditOutcome::Done(changes) => (change_list(changes)),
                        AuditOutcome::Refused(rejection) => (rejection_text(rejection)),
                    }
                }
            }
        }
    }
}

fn agent_name(id: AgentId, agents: &[OwnedAgent]) -> String {
    let agent = agents.iter().map(OwnedAgent::agent).find(|agent| agent.id == id);
    agent.map_or_else(|| id.to_string(), |agent| escape_hidden_characters(&agent.name))
}

fn actor_name(actor: &Actor) -> Markup {
    match actor {
        Actor::Person {
            session: Some(session), ..
        } => html! { "a session, " code.long { (session) } },
        Actor::Person { session: None, .. } => html! { "an ID token" },
        Actor::Operator(name) => html! { "the operator " (name) },
        Actor::Reconcile => html! { "unknown sender; seen on the chain" },
        Actor::Rule { .. } => html! { "a rule of the agent" },
        Actor::Client { .. } => html! { "a token of the application" },
        Actor::Agent { key, .. } => html! { "the agent’s key " (labels::key_suffix(*key)) },
    }
}

fn rejection_text(rejection: &AuditRejection) -> Markup {
    html! { p { code { (rejection.error) } ": " (rejection.reason) } }
}

/// Renders each changed field with the previous and the new value.
pub(crate) fn change_list(changes: &AuditChanges) -> Markup {
    let names: BTreeSet<&String> = changes.before.keys().chain(changes.after.keys()).collect();
    let side = |value: Option<&Value>| match value {
        None => html! { span.muted { "nothing" } },
        Some(Value::String(text)) => html! { (escape_hidden_characters(text)) },
        Some(value) => html! { code.long { (escape_hidden_characters(&value.to_string())) } },
    };
    html! {
        @if !names.is_empty() {
            dl.facts-list {
                @for name in names {
                    div {
                        dt { (name) }
                        dd { (side(changes.before.get(name))) " → " (side(changes.after.get(name))) }
                    }
                }
            }
        }
    }
}

fn audit_kinds_in_user_log() -> impl Iterator<Item = AuditKind> {
    let of_operators = |kind: &AuditKind| {
        matches!(
            kind,
            AuditKind::CatalogEdited
                | AuditKind::PaymentPinned
                | AuditKind::PaymentChangeAccepted
                | AuditKind::PaymentChangeWithdrawn
                | AuditKind::TrustStatusSet
                | AuditKind::CuratedSet
                | AuditKind::ProbeRequested
                | AuditKind::ReconcileRequested
                | AuditKind::FreezeEndRequested
        )
    };
    AuditKind::ALL.iter().copied().filter(move |kind| !of_operators(kind))
}
