//! The page of the decision log: allows, blocks and escalations with their checks, reverted confirmations and payouts.

use crate::agents::operations::Agents;
use crate::agents::owned::Owned;
use crate::csv;
use crate::cursor;
use crate::decisions::columns;
use crate::decisions::operations::{Calls, DecisionFacts, DecisionFilter};
use crate::sessions::session::PageSession;
use crate::span::Span;
use crate::state::People;
use crate::ui::call;
use crate::ui::datetime::{exact, relative};
use crate::ui::labels;
use crate::ui::layout::{Layout, NavItem};
use crate::ui::list::{agent_field, choose_agent, date_fields, filter_problem, filter_select, nothing_shown, paging};
use crate::ui::money::money;
use crate::ui::paths;
use crate::ui::phrases;
use axum::{
    extract::State,
    http::{StatusCode, Uri},
    response::IntoResponse as _,
};
use maud::{Markup, html};
use purser_api::{Query, Reply, from_to};
use purser_domain::{
    Agent, AgentId, CallDescription, Catalog, DecisionResult, LoggedDecision, ServiceId, SettlementId, SettlementState,
};
use purser_store::{Page, PageRequest};
use std::sync::Arc;
use uuid::Uuid;

const PAGE: &str = "/dashboard/decisions";
const CSV: &str = "/dashboard/decisions.csv";

/// One decision with its agent's name.
#[derive(Clone, Debug)]
pub(crate) struct LogRow {
    pub(crate) decision: LoggedDecision,
    pub(crate) agent: String,
    /// The call of the decision.
    pub(crate) call: Option<CallDescription>,
}

impl LogRow {
    /// The decisions, with their agents' names. An agent that was just created may not be listed yet.
    pub(crate) fn of(decisions: Vec<LoggedDecision>, calls: &Calls, agents: &[Owned]) -> Vec<Self> {
        let name = |id| {
            agents
                .iter()
                .map(Owned::agent)
                .find(|agent| agent.id == id)
                .map(|agent| agent.name.clone())
        };
        let row = |decision: LoggedDecision| {
            let id = DecisionFacts::from(&decision).agent;
            Self {
                agent: name(id).unwrap_or_else(|| id.to_string()),
                call: calls.of(&decision).cloned(),
                decision,
            }
        };
        decisions.into_iter().map(row).collect()
    }
}

const fn label(result: DecisionResult) -> &'static str {
    match result {
        DecisionResult::Allow => "Allowed",
        DecisionResult::Block => "Blocked",
        DecisionResult::Escalate => "Sent for approval",
        DecisionResult::RevertConfirmation => "Reverted",
        DecisionResult::Payout => "Paid out",
    }
}

/// One page of the log.
#[derive(Debug)]
pub(crate) struct DecisionLog<'a> {
    pub(crate) filter: DecisionFilter,
    pub(crate) agents: &'a Agents,
    /// `None` if an agent has to be chosen first.
    pub(crate) rows: Option<Vec<LogRow>>,
    /// Whether this page is not the first.
    pub(crate) is_continued: bool,
    /// The cursor of the next page.
    pub(crate) older: Option<Uuid>,
    pub(crate) catalog: &'a Catalog,
}

/// `GET /dashboard/decisions`.
pub(crate) async fn show(State(people): State<Arc<People>>, session: PageSession, uri: Uri) -> Reply {
    /// The number of rows on a page.
    const ROWS: u32 = 25;
    let (filter, before, problem) = read(&uri, |text| Uuid::try_parse(text).ok());
    let slice = PageRequest { before, limit: ROWS };
    let agents = people.agents_to_choose(&session.person, filter.agent);
    let (agents, edition) = tokio::try_join!(agents, people.catalog())?;
    let page = match filter.agent {
        _ if problem.is_some() => Some(Page::default()),
        None if agents.are_many => None,
        None => Some(people.decisions_of(agents.ids(), filter, slice).await?),
        Some(agent) => Some(people.decisions_of(vec![agent], filter, slice).await?),
    };
    let older = page.as_ref().and_then(|page: &Page<LoggedDecision, Uuid>| page.next);
    let rows = match page {
        None => None,
        Some(page) => {
            let calls = people.calls(&page.items).await?;
            Some(LogRow::of(page.items, &calls, &agents.known))
        }
    };
    let status = match problem {
        Some(_) => StatusCode::BAD_REQUEST,
        None => StatusCode::OK,
    };
    let layout = Layout {
        problem,
        ..Layout::of(&session, people.now())
    };
    let log = DecisionLog {
        filter,
        rows,
        agents: &agents,
        is_continued: before.is_some(),
        older,
        catalog: &edition.catalog,
    };
    Ok((status, decisions_page(&layout, &log)).into_response())
}

/// `GET /dashboard/decisions.csv`: the decisions that match the page's filters, of all agents or of one.
pub(crate) async fn file(State(people): State<Arc<People>>, session: PageSession, uri: Uri) -> Reply {
    let (filter, start, problem) = read(&uri, cursor::read_export);
    if let Some(problem) = problem {
        return Ok((StatusCode::BAD_REQUEST, problem).into_response());
    }
    let edition = people.catalog().await?;
    let read = |agent, slice| {
        let people = Arc::clone(&people);
        async move { people.decisions_of(vec![agent], filter, slice).await }
    };
    let mut text = columns::header();
    let write = |agent: &Agent, rows: &[LoggedDecision]| {
        let lines = rows.iter().map(|row| columns::row(row, agent, &edition.catalog));
        text.extend(lines);
        text.len() < csv::MOST_BYTES
    };
    let next = people.export(&session.person, filter.agent, start, read, write).await?;
    let next = next.map(|next| address(CSV, filter, Some(cursor::write_export(next))));
    Ok(csv::file("purser-decisions", text, next))
}

/// The filter and the cursor in a URL, and their errors. An empty field is no filter; an invalid one is ignored.
fn read<P>(uri: &Uri, place: impl FnOnce(&str) -> Option<P>) -> (DecisionFilter, Option<P>, Option<String>) {
    let mut query = Query::without_blanks(uri);
    let (from, to) = from_to(&mut query);
    let filter = DecisionFilter {
        agent: query.read("agent_id", AgentId::parse, "must be an agent’s id"),
        result: query.read("result", DecisionResult::from_name, "is not one of the listed values"),
        service: query.read("service_id", ServiceId::parse, "is not one of the listed values"),
        span: Span { from, to },
    };
    let cursor = query.read("cursor", place, "is invalid; start from the first page");
    (filter, cursor, filter_problem(query))
}

pub(crate) fn decisions_page(layout: &Layout, log: &DecisionLog<'_>) -> Markup {
    layout.page(
        "Decisions",
        NavItem::Decisions,
        &html! {
            div.section-head {
                h1 { "Decisions" }
                a.button href=(address(CSV, log.filter, None)) { "Download as CSV" }
            }
            (filters(log))
            @match &log.rows {
                _ if layout.problem.is_some() => (nothing_shown()),
                None => (choose_agent("decisions")),
                Some(entries) if entries.is_empty() => p.empty {
                    @if log.filter == DecisionFilter::default() { "There are no decisions yet." } @else { "No entry matches these filters." }
                },
                Some(entries) => (rows(layout, entries, log.catalog)),
            }
            (paging(
                "Pages",
                log.is_continued.then(|| ("Newest", address(PAGE, log.filter, None))),
                log.older.map(|older| ("Older", address(PAGE, log.filter, Some(older.to_string())))),
            ))
        },
    )
}

/// The URL of the log or its file with a filter and a cursor.
fn address(path: &str, filter: DecisionFilter, cursor: Option<String>) -> String {
    crate::address::address(
        path,
        [
            ("agent_id", filter.agent.map(|agent| agent.to_string())),
            ("result", filter.result.map(|result| result.name().to_owned())),
            ("service_id", filter.service.map(|service| service.to_string())),
            ("from", filter.span.from.map(|at| at.to_string())),
            ("to", filter.span.to.map(|at| at.to_string())),
            ("cursor", cursor),
        ],
    )
}

fn filters(log: &DecisionLog<'_>) -> Markup {
    let filter = log.filter;
    html! {
        form.filters method="get" action=(PAGE) role="search" {
            (agent_field("Agent", log.agents, filter.agent))
            (filter_select("result", "result", "Result", "All results", DecisionResult::ALL.iter().map(|result| {
                (result.name().to_owned(), html! { (label(*result)) }, filter.result == Some(*result))
            })))
            (filter_select("service", "service_id", "Service", "All services", log.catalog.services().iter().map(|service| {
                (service.id.to_string(), html! { (service.name) }, filter.service == Some(service.id))
            })))
            (date_fields(filter.span.from, filter.span.to))
            button type="submit" { "Show" }
            @if filter != DecisionFilter::default() { a href=(PAGE) { "Clear" } }
        }
    }
}

/// A list of decisions, each with expandable details.
pub(crate) fn rows(layout: &Layout, rows: &[LogRow], catalog: &Catalog) -> Markup {
    html! { ul.rows.log { @for row in rows { (log_row(layout, row, catalog)) } } }
}

fn log_row(layout: &Layout, row: &LogRow, catalog: &Catalog) -> Markup {
    let facts = DecisionFacts::from(&row.decision);
    html! {
        li.row {
            details {
                summary {
                    span.log-when { (relative(facts.at, layout.now)) }
                    span.log-chip { (chip(&row.decision)) }
                    span.log-who {
                        span.name { (row.agent) } " → "
                        @match facts.service {
                            Some(service) => { (labels::service(service, catalog)) }
                            None => { "you" }
                        }
                    }
                    span.log-why { (told(&row.decision)) }
                    span.log-amount { (money(facts.amount)) }
                }
                div.unfolded {
                    dl.facts-list {
                        div { dt { "When" } dd { (exact(facts.at)) } }
                        div { dt { "Agent" } dd { (labels::agent(facts.agent, &row.agent)) } }
                        @if let Some(key) = facts.key { div { dt { "Key" } dd { (labels::key(key)) } } }
                        @if let Some(service) = facts.service {
                            div { dt { "Operation" } dd { (labels::operation(catalog.by_id(service), facts.operation)) } }
                        }
                        div { dt { "Pays to" } dd { (labels::wallet(facts.pay_to)) } }
                        div { dt { "Decision" } dd { code.long { (facts.transaction) } } }
                        @if let Some(version) = facts.policy_version { div { dt { "Policy" } dd { "version " (version) } } }
                        (more(&row.decision))
                    }
                    @if let Some(described) = &row.call { (call::described(described, facts.amount)) }
                    @if let LoggedDecision::Allowed(_) | LoggedDecision::Refused(_) = row.decision { (phrases::checks(facts.checks)) }
                }
            }
        }
    }
}

fn more(decision: &LoggedDecision) -> Markup {
    match decision {
        LoggedDecision::Allowed(settlement) | LoggedDecision::PaidOut(settlement) => {
            receipt(settlement.terms.agent, settlement.id())
        }
        LoggedDecision::ConfirmationReverted(taken_back) => html! {
            div { dt { "Transaction" } dd { code.long { (taken_back.tx_hash) } } }
            (receipt(taken_back.agent, taken_back.settlement))
        },
        LoggedDecision::Refused(refusal) => html! {
            div { dt { "Took" } dd { (refusal.latency_ms) " ms" } }
            @if refusal.approval.is_some() {
                div { dt { "Approval" } dd { a href="/dashboard/approvals" { "See approvals" } } }
            }
        },
    }
}

fn receipt(agent: AgentId, settlement: SettlementId) -> Markup {
    html! { div { dt { "Receipt" } dd { a href=(paths::receipt(agent, settlement)) { "Show the receipt" } } } }
}

fn chip(decision: &LoggedDecision) -> Markup {
    match decision {
        LoggedDecision::Allowed(_) => html! { span.chip.good { "allowed" } },
        LoggedDecision::PaidOut(_) => html! { span.chip { "paid out" } },
        LoggedDecision::Refused(refusal) if refusal.result == DecisionResult::Escalate => {
            html! { span.chip.wait { "sent for approval" } }
        }
        LoggedDecision::Refused(_) => html! { span.chip.bad { "blocked" } },
        LoggedDecision::ConfirmationReverted(_) => html! { span.chip.wait { "reverted" } },
    }
}

fn told(decision: &LoggedDecision) -> Markup {
    match decision {
        LoggedDecision::Allowed(settlement) => match settlement.state {
            SettlementState::Authorized => html! { "Payment authorized; not yet seen on chain." },
            SettlementState::Confirmed { .. } => html! { "Paid and confirmed on chain." },
            SettlementState::Expired => html! { "Expired: never paid. The amount no longer counts against the caps." },
        },
        LoggedDecision::PaidOut(settlement) => match settlement.state {
            SettlementState::Authorized => html! { "Payout to your address signed; not yet seen on chain." },
            SettlementState::Confirmed { .. } => html! { "Paid out to your address, and confirmed on chain." },
            SettlementState::Expired => html! { "Expired: never paid out. The money is still in the wallet." },
        },
        LoggedDecision::Refused(refusal) => phrases::why(refusal),
        LoggedDecision::ConfirmationReverted(_) => {
            html! { "The confirmation was reverted: its transaction left the chain. The receipt shows the present state." }
        }
    }
}
