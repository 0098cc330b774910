//! The search page of the dashboard.

use crate::redirect::see_other;
use crate::search::operations::{MAX_QUERY_CHARS, SearchResult};
use crate::sessions::session::PageSession;
use crate::state::PeopleState;
use crate::ui::datetime::exact_time;
use crate::ui::labels;
use crate::ui::layout::{Layout, NavItem};
use crate::ui::list::search_field;
use crate::ui::money::amount_text;
use axum::{http::Uri, response::IntoResponse as _};
use maud::{Markup, html};
use purser_api::{Query, Reply};
use purser_domain::escape_hidden_characters;

/// If there is a single result, redirects to the result's page.
pub(crate) async fn show_search_page(people: PeopleState, session: PageSession, uri: Uri) -> Reply {
    let text: String = Query::from_uri(&uri)
        .parse_text("q")
        .unwrap_or_default()
        .chars()
        .take(MAX_QUERY_CHARS)
        .collect();
    let found = people.search_own_data(&session.person, &text).await?;
    if let [only] = found.as_slice() {
        return Ok(see_other(&only.page_path()));
    }
    let layout = Layout::new(&session, people.now());
    Ok(search_page(&layout, text.trim(), &found).into_response())
}

fn search_page(layout: &Layout, text: &str, results: &[SearchResult]) -> Markup {
    layout.html_page(
        "Search",
        NavItem::Search,
        &html! {
            h1 { "Search" }
            form.filters method="get" action="/dashboard/search" {
                (search_field("search", "Text", text))
                button type="submit" { "Search" }
            }
            p.hint { "An id, a transaction hash, a payee’s address, a host, or a part of an agent’s or service’s name." }
            @if text.is_empty() { } @else if results.is_empty() { p.empty { "Nothing of yours matches “" (text) "”." } } @else {
                ul.rows { @for found in results { li.row { (search_result_row(found)) } } }
            }
        },
    )
}

fn search_result_row(result: &SearchResult) -> Markup {
    html! {
        div.row-main {
            a href=(result.page_path()) {
                @match result {
                    SearchResult::Agent(agent) => (escape_hidden_characters(&agent.name)),
                    SearchResult::Decision(entry) => { (amount_text(entry.amount)) " by " (escape_hidden_characters(&entry.agent_name)) ", " (exact_time(entry.at)) },
                    SearchResult::Approval(approval) => { "Approval of " (amount_text(approval.amount)) ", " (exact_time(approval.created_at)) },
                    SearchResult::Payee(address) => { "Payments to " (labels::short_wallet_address(*address)) },
                    SearchResult::Service(service) => { "Payments for " (escape_hidden_characters(&service.name)) },
                }
            }
            " " span.muted { (result.kind_name()) }
        }
    }
}
