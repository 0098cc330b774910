//! What was authorized, paid and paid out: one row each, with its receipt.

use super::datetime::{exact, relative};
use super::labels;
use super::layout::{Here, Layout};
use super::list::{columns, filter_select, paging};
use super::money::money;
use super::paths;
use super::receipt::state_chip;
use crate::ops::owned::Owned;
use crate::ops::settlements::SettlementFilter;
use crate::session::PageSession;
use crate::state::People;
use axum::{
    extract::State,
    http::{StatusCode, Uri},
    response::IntoResponse as _,
};
use maud::{Markup, html};
use purser_api::{Query, Reply, from_to};
use purser_domain::{AgentId, Catalog, Duration, ReceiptStatus, Settlement, Timestamp};
use purser_store::{Page, Slice};
use std::sync::Arc;
use uuid::Uuid;

const PAGE: &str = "/dashboard/settlements";
/// Of so many agents the settlements are shown together: each is a query for every page. Of more, one has to be chosen.
const TOGETHER: usize = 25;

/// One page of settlements.
struct Shown<'a> {
    filter: SettlementFilter,
    /// Every agent that can be selected.
    agents: &'a [Owned],
    /// `None` where an agent has to be chosen first.
    rows: Option<Vec<Settlement>>,
    is_continued: bool,
    /// Where the next page begins.
    older: Option<Uuid>,
    catalog: &'a Catalog,
}

/// `GET /dashboard/settlements`.
pub(super) async fn show(State(people): State<Arc<People>>, session: PageSession, uri: Uri) -> Reply {
    /// How many rows a page has.
    const ROWS: u32 = 25;
    let asked = read(&uri);
    let (filter, before) = asked.unwrap_or_default();
    let person = &session.person;
    let slice = Slice { before, limit: ROWS };
    let (agents, edition) = tokio::try_join!(people.agents(person), people.catalog())?;
    let page = match filter.agent {
        Some(_) => Some(people.settlements(person, filter, slice).await?),
        None if agents.len() <= TOGETHER => {
            let ids: Vec<AgentId> = agents.iter().map(|owned| owned.agent().id).collect();
            Some(people.settlements_of(ids, filter, slice).await?)
        }
        None => None,
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
    let layout = Layout {
        problem: asked
            .is_none()
            .then(|| "These filters were not understood, so everything is shown.".to_owned()),
        ..Layout::of(&session, people.now())
    };
    let status = if asked.is_none() {
        StatusCode::BAD_REQUEST
    } else {
        StatusCode::OK
    };
    Ok((status, settlements_page(&layout, &shown)).into_response())
}

/// The filter and the cursor in a URL; `None` where they are invalid. An empty field is no filter.
fn read(uri: &Uri) -> Option<(SettlementFilter, Option<Uuid>)> {
    let mut query = Query::without_blanks(uri);
    let (from, to) = from_to(&mut query);
    let filter = SettlementFilter {
        agent: query.read("agent_id", AgentId::parse, ""),
        status: query.read("status", ReceiptStatus::from_name, ""),
        from,
        to,
    };
    let cursor = query.read("cursor", |text| Uuid::try_parse(text).ok(), "");
    query.finish().ok().map(|()| (filter, cursor))
}

fn address(filter: SettlementFilter, cursor: Option<Uuid>) -> String {
    crate::address::address(
        PAGE,
        [
            ("agent_id", filter.agent.map(|agent| agent.to_string())),
            ("status", filter.status.map(|status| status.name().to_owned())),
            ("from", filter.from.map(|at| at.to_string())),
            ("to", filter.to.map(|at| at.to_string())),
            ("cursor", cursor.map(|cursor| cursor.to_string())),
        ],
    )
}

fn settlements_page(layout: &Layout, shown: &Shown<'_>) -> Markup {
    let filter = shown.filter;
    layout.page(
        "Settlements",
        Here::Settlements,
        &html! {
            h1 { "Settlements" }
            p { "What your agents were authorized to pay, what the chain shows of it, and what was paid out to you." }
            (filters(shown))
            @match &shown.rows {
                None => p.empty { "You have more than " (TOGETHER) " agents: choose one to see its settlements." },
                Some(rows) if rows.is_empty() => p.empty {
                    @if filter == SettlementFilter::default() { "Nothing was authorized yet." }
                    @else if shown.older.is_some() { "Nothing here fits these filters; older settlements may." }
                    @else { "Nothing fits these filters." }
                },
                Some(rows) => (table(layout, rows, shown)),
            }
            (paging(
                "Pages",
                shown.is_continued.then(|| ("Newest", address(filter, None))),
                shown.older.map(|older| ("Older", address(filter, Some(older)))),
            ))
        },
    )
}

fn filters(shown: &Shown<'_>) -> Markup {
    let filter = shown.filter;
    let day = |at: Option<Timestamp>| at.map(|at| at.to_string().chars().take(10).collect::<String>());
    // A date is included to its end: an instant before the next day is of that date.
    let to = filter.to.map(|to| to.before(Duration::from_secs_u32(1)));
    html! {
        form.filters method="get" action=(PAGE) role="search" {
            (filter_select("agent", "agent_id", "Agent", "All agents", shown.agents.iter().map(Owned::agent).map(|agent| {
                (agent.id.to_string(), html! { (agent.name) }, filter.agent == Some(agent.id))
            })))
            (filter_select("status", "status", "State", "All states", ReceiptStatus::ALL.iter().map(|status| {
                (status.name().to_owned(), html! { (status.name()) }, filter.status == Some(*status))
            })))
            div.field {
                label for="filter-from" { "From" }
                input id="filter-from" type="date" name="from" value=[day(filter.from)];
            }
            div.field {
                label for="filter-to" { "To" }
                input id="filter-to" type="date" name="to" value=[day(to)];
            }
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
