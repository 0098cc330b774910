//! The page of settlements, payouts included: one row for each, with a link to its receipt.

use crate::agents::operations::Agents;
use crate::agents::owned::Owned;
use crate::csv;
use crate::cursor;
use crate::sessions::session::PageSession;
use crate::settlements::columns;
use crate::settlements::operations::SettlementFilter;
use crate::settlements::receipt::state_chip;
use crate::span::Span;
use crate::state::People;
use crate::ui::datetime::{exact, relative};
use crate::ui::labels;
use crate::ui::layout::{Layout, NavItem};
use crate::ui::list::{
    agent_field, choose_agent, columns, date_fields, filter_problem, filter_select, nothing_shown, paging,
};
use crate::ui::money::money;
use crate::ui::paths;
use axum::{
    extract::State,
    http::{StatusCode, Uri},
    response::IntoResponse as _,
};
use maud::{Markup, html};
use purser_api::{Query, Reply, from_to};
use purser_domain::{Agent, AgentId, Catalog, ReceiptStatus, Settlement};
use purser_store::{Page, PageRequest};
use std::sync::Arc;
use uuid::Uuid;

const PAGE: &str = "/dashboard/settlements";
const CSV: &str = "/dashboard/settlements.csv";

/// One page of settlements.
struct Shown<'a> {
    filter: SettlementFilter,
    agents: &'a Agents,
    /// `None` if an agent has to be chosen first.
    rows: Option<Vec<Settlement>>,
    is_continued: bool,
    /// The cursor of the next page.
    older: Option<Uuid>,
    catalog: &'a Catalog,
}

/// `GET /dashboard/settlements`.
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
        None => Some(people.settlements_of(agents.ids(), filter, slice).await?),
        Some(agent) => Some(people.settlements_of(vec![agent], filter, slice).await?),
    };
    let older = page.as_ref().and_then(|page: &Page<Settlement, Uuid>| page.next);
    let shown = Shown {
        filter,
        agents: &agents,
        rows: page.map(|page| page.items),
        is_continued: before.is_some(),
        older,
        catalog: &edition.catalog,
    };
    let status = match problem {
        Some(_) => StatusCode::BAD_REQUEST,
        None => StatusCode::OK,
    };
    let layout = Layout {
        problem,
        ..Layout::of(&session, people.now())
    };
    Ok((status, settlements_page(&layout, &shown)).into_response())
}

/// `GET /dashboard/settlements.csv`: the settlements that match the page's filters, of all agents or of one.
pub(crate) async fn file(State(people): State<Arc<People>>, session: PageSession, uri: Uri) -> Reply {
    let (filter, start, problem) = read(&uri, cursor::read_export);
    if let Some(problem) = problem {
        return Ok((StatusCode::BAD_REQUEST, problem).into_response());
    }
    let edition = people.catalog().await?;
    let read = |agent, slice| {
        let people = Arc::clone(&people);
        async move { people.settlements_of(vec![agent], filter, slice).await }
    };
    let mut text = columns::header();
    let write = |agent: &Agent, rows: &[Settlement]| {
        let lines = rows.iter().map(|row| columns::row(row, agent, &edition.catalog));
        text.extend(lines);
        text.len() < csv::MOST_BYTES
    };
    let next = people.export(&session.person, filter.agent, start, read, write).await?;
    let next = next.map(|next| address(CSV, filter, Some(cursor::write_export(next))));
    Ok(csv::file("purser-settlements", text, next))
}

/// The filter and the cursor in a URL, and their errors. An empty field is no filter; an invalid one is ignored.
fn read<P>(uri: &Uri, place: impl FnOnce(&str) -> Option<P>) -> (SettlementFilter, Option<P>, Option<String>) {
    let mut query = Query::without_blanks(uri);
    let (from, to) = from_to(&mut query);
    let filter = SettlementFilter {
        agent: query.read("agent_id", AgentId::parse, "must be an agent’s id"),
        status: query.read("status", ReceiptStatus::from_name, "is not one of the listed values"),
        span: Span { from, to },
    };
    let cursor = query.read("cursor", place, "is invalid; start from the first page");
    (filter, cursor, filter_problem(query))
}

/// The URL of the page or the file with a filter and a cursor.
fn address(path: &str, filter: SettlementFilter, cursor: Option<String>) -> String {
    crate::address::address(
        path,
        [
            ("agent_id", filter.agent.map(|agent| agent.to_string())),
            ("status", filter.status.map(|status| status.name().to_owned())),
            ("from", filter.span.from.map(|at| at.to_string())),
            ("to", filter.span.to.map(|at| at.to_string())),
            ("cursor", cursor),
        ],
    )
}

fn settlements_page(layout: &Layout, shown: &Shown<'_>) -> Markup {
    let filter = shown.filter;
    layout.page(
        "Settlements",
        NavItem::Settlements,
        &html! {
            div.section-head {
                h1 { "Settlements" }
                a.button href=(address(CSV, filter, None)) { "Download as CSV" }
            }
            p { "The payments that your agents were authorized to make, their state on the chain, and payouts to you." }
            (filters(shown))
            @match &shown.rows {
                _ if layout.problem.is_some() => (nothing_shown()),
                None => (choose_agent("settlements")),
                Some(rows) if rows.is_empty() => p.empty {
                    @if filter == SettlementFilter::default() { "There are no settlements yet." }
                    @else if shown.older.is_some() { "No settlement on this page matches these filters. Older ones may." }
                    @else { "No entry matches these filters." }
                },
                Some(rows) => (table(layout, rows, shown)),
            }
            (paging(
                "Pages",
                shown.is_continued.then(|| ("Newest", address(PAGE, filter, None))),
                shown.older.map(|older| ("Older", address(PAGE, filter, Some(older.to_string())))),
            ))
        },
    )
}

fn filters(shown: &Shown<'_>) -> Markup {
    let filter = shown.filter;
    html! {
        form.filters method="get" action=(PAGE) role="search" {
            (agent_field("Agent", shown.agents, filter.agent))
            (filter_select("status", "status", "State", "All states", ReceiptStatus::ALL.iter().map(|status| {
                (status.name().to_owned(), html! { (status.name()) }, filter.status == Some(*status))
            })))
            (date_fields(filter.span.from, filter.span.to))
            button type="submit" { "Show" }
            @if filter != SettlementFilter::default() { a href=(PAGE) { "Clear" } }
        }
    }
}

fn table(layout: &Layout, rows: &[Settlement], shown: &Shown<'_>) -> Markup {
    html! {
        table.list {
            caption.sr { "Settlements, newest first" }
            (columns(&["Receipt", "Amount", "State", "Agent", "For", "Authorized"]))
            tbody { @for settlement in rows { (row(layout, settlement, shown)) } }
        }
    }
}

fn row(layout: &Layout, settlement: &Settlement, shown: &Shown<'_>) -> Markup {
    let terms = &settlement.terms;
    let agent = shown
        .agents
        .known
        .iter()
        .map(Owned::agent)
        .find(|agent| agent.id == terms.agent);
    let id = terms.id.to_string();
    let end = id.get(28..).unwrap_or(&id);
    html! {
        tr {
            th scope="row" {
                a href=(paths::receipt(terms.agent, terms.id)) title=(id) aria-label={ "Receipt …" (end) } { code { "…" (end) } }
            }
            td data-label="Amount" { (money(terms.amount)) }
            td data-label="State" { (state_chip(&settlement.state)) }
            td data-label="Agent" {
                @match agent {
                    Some(agent) => (labels::agent(agent.id, &agent.name)),
                    None => code { (terms.agent) },
                }
            }
            td data-label="For" {
                @match terms.purchase() {
                    Some(purchase) => {
                        (labels::service(purchase.service, shown.catalog)) " "
                        span.muted { (labels::operation(shown.catalog.by_id(purchase.service), Some(&purchase.operation))) }
                    }
                    None => { "paid out to " (labels::short_wallet(terms.pay_to)) }
                }
            }
            td data-label="Authorized" { (relative(terms.authorized_at, layout.now)) span.sr { ", " (exact(terms.authorized_at)) } }
        }
    }
}
