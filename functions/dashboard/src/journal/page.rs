//! The pages with decisions and settlements, and the CSV files.

use crate::csv;
use crate::cursor;
use crate::journal::columns::{COLUMNS, CsvRow};
use crate::journal::filter::{HistoryFilter, HistoryList};
use crate::journal::row;
use crate::sessions::session::PageSession;
use crate::state::{People, PeopleState};
use crate::ui::datetime::exact_time;
use crate::ui::layout::{Layout, NavItem};
use crate::ui::list::{
    date_fields, filter_error_message, filter_form, filter_select, first_and_next_links, invalid_filter_text,
    text_field,
};
use crate::ui::paths;
use axum::{
    http::{StatusCode, Uri},
    response::IntoResponse as _,
};
use maud::{Markup, html};
use purser_api::{Query, Reply};
use purser_domain::{
    Amount, Catalog, DecisionResult, HistoryEntry, ReceiptStatus, ServiceId, Timestamp, escape_hidden_characters,
};
use purser_store::{Page, PageRequest};
use uuid::Uuid;

impl HistoryList {
    const fn page_title(self) -> &'static str {
        match self {
            Self::Decisions => "Decisions",
            Self::Settlements => "Settlements",
        }
    }

    const fn page_path(self) -> &'static str {
        match self {
            Self::Decisions => "/dashboard/decisions",
            Self::Settlements => "/dashboard/settlements",
        }
    }

    const fn nav_item(self) -> NavItem {
        match self {
            Self::Decisions => NavItem::Decisions,
            Self::Settlements => NavItem::Settlements,
        }
    }
}

struct DecisionListPage<'a> {
    list: HistoryList,
    filter: HistoryFilter,
    page: Page<HistoryEntry, Uuid>,
    is_after_first_page: bool,
    complete_until: Option<Timestamp>,
    catalog: &'a Catalog,
}

pub(crate) async fn show_decisions_page(people: PeopleState, session: PageSession, uri: Uri) -> Reply {
    show_history_page(&people, &session, HistoryList::Decisions, &uri).await
}

pub(crate) async fn show_settlements_page(people: PeopleState, session: PageSession, uri: Uri) -> Reply {
    show_history_page(&people, &session, HistoryList::Settlements, &uri).await
}

pub(crate) async fn download_decisions(people: PeopleState, session: PageSession, uri: Uri) -> Reply {
    download_history(&people, &session, HistoryList::Decisions, &uri).await
}

pub(crate) async fn download_settlements(people: PeopleState, session: PageSession, uri: Uri) -> Reply {
    download_history(&people, &session, HistoryList::Settlements, &uri).await
}

async fn show_history_page(people: &People, session: &PageSession, list: HistoryList, uri: &Uri) -> Reply {
    const ROWS: u32 = 25;
    let (filter, before, error) = parse_history_query(uri);
    let page_request = PageRequest { before, limit: ROWS };
    let page = async {
        match error {
            None => {
                people
                    .read_history_page(&session.person, list, &filter, page_request)
                    .await
            }
            Some(_) => Ok(Page::default()),
        }
    };
    let (page, edition, complete_until) =
        tokio::join!(page, people.current_catalog(), people.read_history_completeness_time());
    let edition = edition?;
    let shown = DecisionListPage {
        list,
        page: page?,
        is_after_first_page: before.is_some(),
        complete_until,
        catalog: &edition.catalog,
        filter,
    };
    let status = match error {
        Some(_) => StatusCode::BAD_REQUEST,
        None => StatusCode::OK,
    };
    let layout = Layout::new(session, people.now()).with_error_message(error);
    Ok((status, decision_list_page(&layout, &shown)).into_response())
}

async fn download_history(people: &People, session: &PageSession, list: HistoryList, uri: &Uri) -> Reply {
    let (filter, before, error) = parse_history_query(uri);
    if let Some(error) = error {
        return Ok((StatusCode::BAD_REQUEST, error).into_response());
    }
    let edition = people.current_catalog().await?;
    let mut text = csv::csv_header(COLUMNS);
    let write = |entry: &HistoryEntry| {
        text.push_str(&csv::csv_row(COLUMNS, &CsvRow::new(entry, &edition.catalog)));
        text.len() < csv::MAX_BYTES
    };
    let export = people.export_history(&session.person, list, &filter, before, write);
    let next = people
        .run_in_long_operation_slot(session.person.id.as_str(), export)
        .await?;
    let next = next.map(|next| history_url(&download_path(list), &filter, Some(next)));
    let name = list.page_title().to_lowercase();
    Ok(csv::csv_file_response(&format!("purser-{name}"), &text, next))
}

fn download_path(list: HistoryList) -> String {
    format!("{}.csv", list.page_path())
}

/// Returns an error message if a filter is invalid. Empty filters are ignored.
fn parse_history_query(uri: &Uri) -> (HistoryFilter, Option<Uuid>, Option<String>) {
    let mut query = Query::without_blanks(uri);
    let service =
        |query: &mut Query| query.parse_with("service_id", ServiceId::parse, "is not one of the listed values");
    let filter = HistoryFilter {
        min_amount: parse_dollars(&mut query, "min"),
        max_amount: parse_dollars(&mut query, "max"),
        ..HistoryFilter::from_query(&mut query, service)
    };
    let cursor = query.parse_with(
        "cursor",
        cursor::parse_uuid_cursor,
        "is invalid; start from the first page",
    );
    (filter, cursor, filter_error_message(query))
}

/// Parses an amount in dollars, such as `0.05`.
fn parse_dollars(query: &mut Query, name: &'static str) -> Option<Amount> {
    query.parse_with(name, Amount::from_usdc, "must be an amount in dollars, such as 0.05")
}

fn history_url(path: &str, filter: &HistoryFilter, cursor: Option<Uuid>) -> String {
    let amounts = ["min_amount_units", "max_amount_units"];
    let parameters = filter
        .query_parameters()
        .into_iter()
        .filter(|(name, _)| !amounts.contains(name));
    let amount = |amount: Option<Amount>| amount.map(Amount::to_usdc);
    let own = [
        ("min", amount(filter.min_amount)),
        ("max", amount(filter.max_amount)),
        ("cursor", cursor.map(cursor::format_uuid_cursor)),
    ];
    crate::address::path_with_query(path, parameters.chain(own))
}

fn decision_list_page(layout: &Layout, shown_page: &DecisionListPage<'_>) -> Markup {
    let (list, filter) = (shown_page.list, &shown_page.filter);
    let page = |cursor| history_url(list.page_path(), filter, cursor);
    layout.html_page(
        list.page_title(),
        list.nav_item(),
        &html! {
            div.section-head {
                h1 { (list.page_title()) }
                @if list == HistoryList::Decisions { a.button href=(paths::BACKTESTS) { "Backtests" } }
                a.button href=(history_url(&download_path(list), filter, None)) { "Download as CSV" }
            }
            @if list == HistoryList::Settlements {
                p { "The payments that your agents were authorized to make, their state on the chain, and payouts to you." }
            }
            (incomplete_data_warning(shown_page.complete_until))
            (history_filter_form(shown_page, layout.problem.is_some()))
            @if layout.problem.is_some() { (invalid_filter_text()) }
            @else if shown_page.page.items.is_empty() { p.empty { (empty_list_text(shown_page)) } }
            @else { (row::decisions_table(layout, &format!("{}, newest first", list.page_title()), &shown_page.page.items, shown_page.catalog)) }
            (first_and_next_links(
                "Pages",
                shown_page.is_after_first_page.then(|| ("Newest", page(None))),
                shown_page.page.next.map(|older| (if shown_page.page.items.len() < 25 { "Search older entries" } else { "Older" }, page(Some(older)))),
            ))
        },
    )
}

/// Warns that the page does not show payments after `complete_until` yet.
pub(crate) fn incomplete_data_warning(complete_until: Option<Timestamp>) -> Markup {
    html! {
        @if let Some(until) = complete_until {
            p.message.warn { "This page is complete up to " (exact_time(until)) " only. Later payments appear soon." }
        }
    }
}

fn empty_list_text(page: &DecisionListPage<'_>) -> &'static str {
    match (page.page.next.is_some(), page.filter == HistoryFilter::default()) {
        (true, _) => "None of the entries searched so far matches these filters. Older ones may.",
        (false, true) => "There are no entries yet.",
        (false, false) => "No entry matches these filters.",
    }
}

fn history_filter_form(page: &DecisionListPage<'_>, is_open: bool) -> Markup {
    let (list, filter) = (page.list, &page.filter);
    let amount = |amount: Option<Amount>| amount.map(Amount::to_usdc).unwrap_or_default();
    let is_filtered = *filter != HistoryFilter::default();
    let fields = html! {
        @if let Some(agent) = filter.agent { input type="hidden" name="agent_id" value=(agent); }
        @else { (text_field("agent", "agent", "Agent’s name", filter.name.as_deref().unwrap_or_default())) }
        (text_field("label", "label", "Label", &filter.label.as_ref().map(ToString::to_string).unwrap_or_default()))
        @if list == HistoryList::Decisions {
            (filter_select("result", "result", "Outcome", "All outcomes", DecisionResult::ALL.iter().map(|result| {
                (result.name().to_owned(), html! { (result.label()) }, filter.result == Some(*result))
            })))
        }
        (filter_select("status", "status", "State", "All states", ReceiptStatus::ALL.iter().map(|status| {
            (status.name().to_owned(), html! { (status.label()) }, filter.status == Some(*status))
        })))
        (filter_select("service", "service_id", "Service", "All services", page.catalog.services().iter().map(|service| {
            (service.id.to_string(), html! { (escape_hidden_characters(&service.name)) }, filter.service == Some(service.id))
        })))
        @if list == HistoryList::Decisions && filter.reason.is_some() {
            (text_field("reason", "reason", "Reason", filter.reason.as_deref().unwrap_or_default()))
        }
        @if let Some(pay_to) = filter.pay_to { (text_field("pay-to", "pay_to", "Payee", &pay_to.to_string())) }
        (text_field("min", "min", "From $", &amount(filter.min_amount)))
        (text_field("max", "max", "To $", &amount(filter.max_amount)))
        (date_fields(filter.span.from, filter.span.to))
    };
    filter_form(
        list.page_path(),
        is_open,
        is_filtered.then_some(list.page_path()),
        &fields,
    )
}
