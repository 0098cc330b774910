//! The page of changes of payees and prices that are not in effect yet, sorted by the time at which they take effect.

use crate::operators::layout::{CHANGES, page, pays};
use crate::sessions::session::OperatorSession;
use crate::state::People;
use crate::ui::datetime::both;
use crate::ui::layout::Layout;
use crate::ui::list::{Paginated, columns, page_number, page_text};
use axum::{extract::State, http::Uri, response::IntoResponse as _};
use maud::{Markup, html};
use purser_api::{Query, Reply};
use purser_domain::{Catalog, Network, NextPricing, Operation, Service, Timestamp};
use std::sync::Arc;

/// A change that is not in effect yet.
struct Waiting<'a> {
    service: &'a Service,
    operation: &'a Operation,
    next: &'a NextPricing,
}

/// `GET /dashboard/operator/changes`.
pub(crate) async fn show(
    State(people): State<Arc<People>>,
    OperatorSession(session): OperatorSession,
    uri: Uri,
) -> Reply {
    let edition = people.catalog().await?;
    let layout = Layout::of(&session, people.now());
    let changes = Paginated::of(
        waiting(&edition.catalog, layout.now),
        page_number(&mut Query::without_blanks(&uri)),
    );
    let how = html! {
        "A second operator shortens the delay of a change with "
        code { "POST /internal/services/{id}/operations/{operation}/accept-change" }
        "; to withdraw a change, write the current entry with " code { "purser catalog apply" } "."
    };
    let content = html! {
        @if changes.rows.is_empty() { p.empty { "No change waits." } } @else {
            table.list {
                caption.sr { "Pending changes, in the order in which they take effect" }
                (columns(&["Operation", "From", "Pays now", "Will pay", "Asked by"]))
                tbody { @for change in &changes.rows { (row(&layout, change, people.network)) } }
            }
        }
        (changes.paging("Pages of changes", "change", |page| {
            crate::address::address(CHANGES, [("page", page_text(page))])
        }))
    };
    Ok(page(&layout, "Waiting changes", CHANGES, &how, &content).into_response())
}

fn waiting(catalog: &Catalog, now: Timestamp) -> Vec<Waiting<'_>> {
    let mut changes = Vec::new();
    for service in catalog.services() {
        for operation in &service.operations {
            if let Some(next) = operation.waiting(now) {
                changes.push(Waiting {
                    service,
                    operation,
                    next,
                });
            }
        }
    }
    changes.sort_by_key(|change| (change.next.from, change.operation.id));
    changes
}

fn row(layout: &Layout, change: &Waiting<'_>, network: Network) -> Markup {
    let Waiting {
        service,
        operation,
        next,
    } = change;
    html! {
        tr {
            th scope="row" { (service.name) p.muted.fine { code { (operation.slug) } } }
            td data-label="From" { (both(next.from, layout.now)) }
            td data-label="Pays now" { (pays(operation.pricing(layout.now), network)) }
            td data-label="Will pay" { (pays(next.pricing(), network)) }
            td data-label="Asked by" { (next.by) }
        }
    }
}
