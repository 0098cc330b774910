//! The page with payee and price changes: changes that are not active yet, sorted by the time at which they become
//! active, and operations whose provider asks for a different payment than the catalog has.

use crate::operators::layout::{CHANGES, page, pays, service_path};
use crate::sessions::session::OperatorSession;
use crate::state::People;
use crate::ui::datetime::both;
use crate::ui::layout::Layout;
use crate::ui::list::{Column, ListPage, columns, page_number, page_text};
use axum::{extract::State, http::Uri, response::IntoResponse as _};
use maud::{Markup, html};
use purser_api::{Query, Reply};
use purser_domain::{Answer, Network, NextPricing, Operation, ProbeRecord, Quote, Service, Timestamp, visible};
use std::sync::Arc;

/// A pricing change that is not active yet.
struct Waiting<'a> {
    service: &'a Service,
    operation: &'a Operation,
    next: &'a NextPricing,
}

/// An operation whose provider asks for a different payment than the catalog has.
struct ChangedQuote<'a> {
    service: &'a Service,
    operation: &'a Operation,
    answer: &'a Answer,
}

/// Shows `GET /dashboard/operator/changes`: delayed changes, and changed prices of providers.
pub(crate) async fn show(
    State(people): State<Arc<People>>,
    OperatorSession(session): OperatorSession,
    uri: Uri,
) -> Reply {
    let layout = Layout::new(&session, people.now());
    let services = people.catalog_table.load_probed().await?;
    let changes = waiting(&services, layout.now);
    let number = page_number(&mut Query::without_blanks(&uri));
    let changes = ListPage::new(changes, number);
    let asked = ListPage::new(changed_quotes(&services, layout.now), number);
    let how = html! {
        @if people.internal.is_some() {
            "Open a service to accept or withdraw its change, or to pin what its provider asks for. "
            "The operator who requested a change can’t accept it."
        } @else {
            "Read-only. A second operator shortens the delay of a change with "
            code { "POST /internal/services/{id}/operations/{operation}/accept-change" }
            "; every operator can withdraw it with " code { "withdraw-change" } "."
        }
    };
    let address = |page| crate::address::address(CHANGES, [("page", page_text(page))]);
    let content = html! {
        @if changes.rows.is_empty() { p.empty { "No change waits." } } @else {
            table.list {
                caption.sr { "Pending changes, in the order in which they take effect" }
                (columns(&["Operation", "From", "Pays now", "Will pay", "Asked by"].map(Column::Text)))
                tbody { @for change in &changes.rows { (row(&layout, change, people.network)) } }
            }
        }
        (changes.paging("Pages of changes", "change", address))
        h2 { "Seen by probes" }
        @if asked.rows.is_empty() { p.empty { "Every provider asks for what the catalog lists." } } @else {
            table.list {
                caption.sr { "Operations whose providers ask for another payment" }
                (columns(&["Operation", "Pays now", "The provider asks for", "Since"].map(Column::Text)))
                tbody { @for asked in &asked.rows { (changed_quote_row(&layout, asked, people.network)) } }
            }
        }
        (asked.paging("Pages of payments seen by probes", "operation", address))
    };
    Ok(page(&layout, "Waiting changes", CHANGES, &how, &content).into_response())
}

fn waiting(services: &[(Service, ProbeRecord)], now: Timestamp) -> Vec<Waiting<'_>> {
    let mut changes = Vec::new();
    for (service, _) in services {
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

fn changed_quotes(services: &[(Service, ProbeRecord)], now: Timestamp) -> Vec<ChangedQuote<'_>> {
    let mut found = Vec::new();
    for (service, record) in services {
        for operation in &service.operations {
            if let Some(answer) = record.change(operation, now) {
                found.push(ChangedQuote {
                    service,
                    operation,
                    answer,
                });
            }
        }
    }
    found
}

/// Renders the time at which a delayed pricing becomes active.
pub(crate) fn begins(next: &NextPricing, now: Timestamp) -> Markup {
    html! {
        @match next.effective_from() {
            Some(from) => { "from " (both(from, now)) },
            None => "once another operator accepts it",
        }
    }
}

/// Renders the payment that a provider asks for.
pub(crate) fn quote_cell(quote: &Quote, network: Network) -> Markup {
    match quote {
        Quote::Paid(payment) => {
            let pricing = purser_domain::Pricing {
                price_model: purser_domain::FIXED_PRICE,
                max_price: None,
                payment: Some(payment),
            };
            pays(pricing, network)
        }
        Quote::Free => html! { span.muted { "no payment" } },
    }
}

fn head(service: &Service, operation: &Operation) -> Markup {
    html! {
        th scope="row" {
            a href=(service_path(service.id)) { (visible(&service.name)) }
            p.muted.fine { code { (operation.slug) } }
        }
    }
}

fn row(layout: &Layout, change: &Waiting<'_>, network: Network) -> Markup {
    let Waiting {
        service,
        operation,
        next,
    } = change;
    html! {
        tr {
            (head(service, operation))
            td data-label="From" {
                @match next.effective_from() {
                    Some(from) => (both(from, layout.now)),
                    None => "another operator’s acceptance",
                }
            }
            td data-label="Pays now" { (pays(operation.pricing(layout.now), network)) }
            td data-label="Will pay" { (pays(next.pricing(), network)) }
            td data-label="Asked by" { (next.by) }
        }
    }
}

fn changed_quote_row(layout: &Layout, asked: &ChangedQuote<'_>, network: Network) -> Markup {
    let ChangedQuote {
        service,
        operation,
        answer,
    } = asked;
    html! {
        tr {
            (head(service, operation))
            td data-label="Pays now" { (pays(operation.pricing(layout.now), network)) }
            td data-label="The provider asks for" { (quote_cell(&answer.quote, network)) }
            td data-label="Since" { (both(answer.since, layout.now)) }
        }
    }
}
