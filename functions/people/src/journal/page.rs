//! The pages with decisions and settlements, and the CSV files.

use crate::csv;
use crate::cursor;
use crate::journal::columns;
use crate::journal::filter::{JournalFilter, JournalList};
use crate::journal::row;
use crate::sessions::session::PageSession;
use crate::state::People;
use crate::ui::datetime::exact;
use crate::ui::labels;
use crate::ui::layout::{Layout, NavItem};
use crate::ui::list::{date_fields, filter_problem, filter_select, filters, nothing_shown, paging, text_field};
use crate::ui::paths;
use axum::{
    extract::State,
    http::{StatusCode, Uri},
    response::IntoResponse as _,
};
use maud::{Markup, html};
use purser_api::{Query, Reply};
use purser_domain::{Amount, Catalog, DecisionResult, JournalEntry, ReceiptStatus, ServiceId, Timestamp, visible};
use purser_store::{Page, PageRequest};
use std::sync::Arc;
use uuid::Uuid;

impl JournalList {
    const fn title(self) -> &'static str {
        match self {
            Self::Decisions => "Decisions",
            Self::Settlements => "Settlements",
        }
    }

    const fn path(self) -> &'static str {
        match self {
            Self::Decisions => "/dashboard/decisions",
            Self::Settlements => "/dashboard/settlements",
        }
    }

    const fn nav(self) -> NavItem {
        match self {
            Self::Decisions => NavItem::Decisions,
            Self::Settlements => NavItem::Settlements,
        }
    }
}

/// The data of one list page: its rows, filter and cursor.
struct ListedDecisions<'a> {
    list: JournalList,
    filter: JournalFilter,
    page: Page<JournalEntry, Uuid>,
    is_continued: bool,
    complete_until: Option<Timestamp>,
    catalog: &'a Catalog,
}

/// Shows `GET /dashboard/decisions`: the decisions that match the filter.
pub(crate) async fn decisions(State(people): State<Arc<People>>, session: PageSession, uri: Uri) -> Reply {
    show(&people, &session, JournalList::Decisions, &uri).await
}

/// Shows `GET /dashboard/settlements`: the settlements that match the filter.
pub(crate) async fn settlements(State(people): State<Arc<People>>, session: PageSession, uri: Uri) -> Reply {
    show(&people, &session, JournalList::Settlements, &uri).await
}

/// Handles `GET /dashboard/decisions.csv`: downloads the decisions that match the filter.
pub(crate) async fn decisions_file(State(people): State<Arc<People>>, session: PageSession, uri: Uri) -> Reply {
    file(&people, &session, JournalList::Decisions, &uri).await
}

/// Handles `GET /dashboard/settlements.csv`: downloads the settlements that match the filter.
pub(crate) async fn settlements_file(State(people): State<Arc<People>>, session: PageSession, uri: Uri) -> Reply {
    file(&people, &session, JournalList::Settlements, &uri).await
}

async fn show(people: &People, session: &PageSession, list: JournalList, uri: &Uri) -> Reply {
    /// The number of rows per page.
    const ROWS: u32 = 25;
    let (filter, before, problem) = read(uri);
    let slice = PageRequest { before, limit: ROWS };
    let page = async {
        match problem {
            None => people.journal(&session.person, list, &filter, slice).await,
            Some(_) => Ok(Page::default()),
        }
    };
    let (page, edition, complete_until) = tokio::join!(page, people.catalog(), people.complete_until());
    let edition = edition?;
    let shown = ListedDecisions {
        list,
        page: page?,
        is_continued: before.is_some(),
        complete_until,
        catalog: &edition.catalog,
        filter,
    };
    let status = match problem {
        Some(_) => StatusCode::BAD_REQUEST,
        None => StatusCode::OK,
    };
    let layout = Layout {
        problem,
        ..Layout::new(session, people.now())
    };
    Ok((status, list_page(&layout, &shown)).into_response())
}

async fn file(people: &People, session: &PageSession, list: JournalList, uri: &Uri) -> Reply {
    let (filter, before, problem) = read(uri);
    if let Some(problem) = problem {
        return Ok((StatusCode::BAD_REQUEST, problem).into_response());
    }
    let edition = people.catalog().await?;
    let mut text = columns::header();
    let write = |entry: &JournalEntry| {
        text.push_str(&columns::row(entry, &edition.catalog));
        text.len() < csv::MAX_BYTES
    };
    let export = people.export(&session.person, list, &filter, before, write);
    let next = people.run_long(session.person.id.as_str(), export).await?;
    let next = next.map(|next| address(&file_path(list), &filter, Some(next)));
    let name = list.title().to_lowercase();
    Ok(csv::file(&format!("purser-{name}"), &text, next))
}

fn file_path(list: JournalList) -> String {
    format!("{}.csv", list.path())
}

/// Parses the filter and the cursor from the URL, and returns an error message if a value is invalid. An empty value is
/// ignored.
fn read(uri: &Uri) -> (JournalFilter, Option<Uuid>, Option<String>) {
    let mut query = Query::without_blanks(uri);
    let service = |query: &mut Query| query.read("service_id", ServiceId::parse, "is not one of the listed values");
    let filter = JournalFilter {
        least: dollars(&mut query, "min"),
        most: dollars(&mut query, "max"),
        ..JournalFilter::from_query(&mut query, service)
    };
    let cursor = query.read("cursor", cursor::read_place, "is invalid; start from the first page");
    (filter, cursor, filter_problem(query))
}

/// Parses an amount in dollars, such as `0.05`.
fn dollars(query: &mut Query, name: &'static str) -> Option<Amount> {
    query.read(name, Amount::from_usdc, "must be an amount in dollars, such as 0.05")
}

fn address(path: &str, filter: &JournalFilter, cursor: Option<Uuid>) -> String {
    let amounts = ["min_amount_units", "max_amount_units"];
    let parameters = filter
        .parameters()
        .into_iter()
        .filter(|(name, _)| !amounts.contains(name));
    let amount = |amount: Option<Amount>| amount.map(Amount::to_usdc);
    let own = [
        ("min", amount(filter.least)),
        ("max", amount(filter.most)),
        ("cursor", cursor.map(cursor::write_place)),
    ];
    crate::address::address(path, parameters.chain(own))
}

fn list_page(layout: &Layout, shown: &ListedDecisions<'_>) -> Markup {
    let (list, filter) = (shown.list, &shown.filter);
    let page = |cursor| address(list.path(), filter, cursor);
    layout.page(
        list.title(),
        list.nav(),
        &html! {
            div.section-head {
                h1 { (list.title()) }
                @if list == JournalList::Decisions { a.button href=(paths::BACKTESTS) { "Backtests" } }
                a.button href=(address(&file_path(list), filter, None)) { "Download as CSV" }
            }
            @if list == JournalList::Settlements {
                p { "The payments that your agents were authorized to make, their state on the chain, and payouts to you." }
            }
            (behind(shown.complete_until))
            (list_filters(shown, layout.problem.is_some()))
            @if layout.problem.is_some() { (nothing_shown()) }
            @else if shown.page.items.is_empty() { p.empty { (nothing(shown)) } }
            @else { (row::table(layout, &format!("{}, newest first", list.title()), &shown.page.items, shown.catalog)) }
            (paging(
                "Pages",
                shown.is_continued.then(|| ("Newest", page(None))),
                shown.page.next.map(|older| (if shown.page.items.len() < 25 { "Search older entries" } else { "Older" }, page(Some(older)))),
            ))
        },
    )
}

/// Renders a warning that the page is behind. Empty if the page is up to date.
pub(crate) fn behind(complete_until: Option<Timestamp>) -> Markup {
    html! {
        @if let Some(until) = complete_until {
            p.message.warn { "This page is complete up to " (exact(until)) " only. Later payments appear soon." }
        }
    }
}

fn nothing(shown: &ListedDecisions<'_>) -> &'static str {
    match (shown.page.next.is_some(), shown.filter == JournalFilter::default()) {
        (true, _) => "None of the entries searched so far matches these filters. Older ones may.",
        (false, true) => "There are no entries yet.",
        (false, false) => "No entry matches these filters.",
    }
}

fn list_filters(shown: &ListedDecisions<'_>, open: bool) -> Markup {
    let (list, filter) = (shown.list, &shown.filter);
    let amount = |amount: Option<Amount>| amount.map(Amount::to_usdc).unwrap_or_default();
    let is_filtered = *filter != JournalFilter::default();
    let fields = html! {
        @if let Some(agent) = filter.agent { input type="hidden" name="agent_id" value=(agent); }
        @else { (text_field("agent", "agent", "Agent’s name", filter.name.as_deref().unwrap_or_default())) }
        (text_field("label", "label", "Label", &filter.label.as_ref().map(ToString::to_string).unwrap_or_default()))
        @if list == JournalList::Decisions {
            (filter_select("result", "result", "Outcome", "All outcomes", DecisionResult::ALL.iter().map(|result| {
                (result.name().to_owned(), html! { (labels::outcome(*result)) }, filter.result == Some(*result))
            })))
        }
        (filter_select("status", "status", "State", "All states", ReceiptStatus::ALL.iter().map(|status| {
            (status.name().to_owned(), html! { (state_label(*status)) }, filter.status == Some(*status))
        })))
        (filter_select("service", "service_id", "Service", "All services", shown.catalog.services().iter().map(|service| {
            (service.id.to_string(), html! { (visible(&service.name)) }, filter.service == Some(service.id))
        })))
        @if list == JournalList::Decisions && filter.reason.is_some() {
            (text_field("reason", "reason", "Reason", filter.reason.as_deref().unwrap_or_default()))
        }
        @if let Some(pay_to) = filter.pay_to { (text_field("pay-to", "pay_to", "Payee", &pay_to.to_string())) }
        (text_field("min", "min", "From $", &amount(filter.least)))
        (text_field("max", "max", "To $", &amount(filter.most)))
        (date_fields(filter.span.from, filter.span.to))
    };
    filters(list.path(), open, is_filtered.then_some(list.path()), &fields)
}

const fn state_label(status: ReceiptStatus) -> &'static str {
    match status {
        ReceiptStatus::Authorized => "Pending",
        ReceiptStatus::Confirmed => "Confirmed",
        ReceiptStatus::Expired => "Released",
    }
}
