//! The page with delayed changes of payees and prices, and with the prices that providers changed.

use crate::operators::layout::{CHANGES, operator_page, payee_and_price, service_path};
use crate::sessions::session::OperatorSession;
use crate::state::PeopleState;
use crate::ui::datetime::relative_and_exact_time;
use crate::ui::layout::Layout;
use crate::ui::list::{Column, ListPage, column_headings, format_page_number, parse_page_number};
use axum::{http::Uri, response::IntoResponse as _};
use maud::{Markup, html};
use purser_api::{Query, Reply};
use purser_domain::{Answer, Network, NextPricing, Operation, Quote, Service, Timestamp, escape_hidden_characters};

pub(crate) async fn show_changes_page(
    people: PeopleState,
    OperatorSession(session): OperatorSession,
    uri: Uri,
) -> Reply {
    let layout = Layout::new(&session, people.now());
    let services = people.catalog_table.read_probed_services().await?;
    let operations = || {
        services.iter().flat_map(|(service, record)| {
            let operations = service.operations.iter();
            operations.map(move |operation| (service, record, operation))
        })
    };
    let delayed = operations()
        .filter_map(|(service, _, operation)| Some((service, operation, operation.delayed_pricing(layout.now)?)));
    let mut delayed: Vec<(&Service, &Operation, &NextPricing)> = delayed.collect();
    delayed.sort_by_key(|(_, operation, next)| (next.from, operation.id));
    let seen = operations().filter_map(|(service, record, operation)| {
        Some((service, operation, record.changed_payment(operation, layout.now)?))
    });
    let number = parse_page_number(&mut Query::without_blanks(&uri));
    let changes = ListPage::new(delayed, number);
    let request = ListPage::new(seen.collect(), number);
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
    let address = |page| crate::address::path_with_query(CHANGES, [("page", format_page_number(page))]);
    let content = html! {
        @if changes.rows.is_empty() { p.empty { "No change waits." } } @else {
            table.list {
                caption.sr { "Pending changes, in the order in which they take effect" }
                (column_headings(&["Operation", "From", "Pays now", "Will pay", "Asked by"].map(Column::Text)))
                tbody { @for change in &changes.rows { (delayed_change_row(&layout, change, people.network)) } }
            }
        }
        (changes.position_and_page_links("Pages of changes", "change", address))
        h2 { "Seen by probes" }
        @if request.rows.is_empty() { p.empty { "Every provider asks for what the catalog lists." } } @else {
            table.list {
                caption.sr { "Operations whose providers ask for another payment" }
                (column_headings(&["Operation", "Pays now", "The provider asks for", "Since"].map(Column::Text)))
                tbody { @for request in &request.rows { (changed_quote_row(&layout, request, people.network)) } }
            }
        }
        (request.position_and_page_links("Pages of payments seen by probes", "operation", address))
    };
    Ok(operator_page(&layout, "Waiting changes", CHANGES, &how, &content).into_response())
}

/// Renders the time at which a delayed change takes effect.
pub(crate) fn start_time_cell(next: &NextPricing, now: Timestamp) -> Markup {
    html! {
        @match next.effective_from() {
            Some(from) => { "from " (relative_and_exact_time(from, now)) },
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
            payee_and_price(pricing, network)
        }
        Quote::Free => html! { span.muted { "no payment" } },
    }
}

fn operation_heading(service: &Service, operation: &Operation) -> Markup {
    html! {
        th scope="row" {
            a href=(service_path(service.id)) { (escape_hidden_characters(&service.name)) }
            p.muted.fine { code { (operation.slug) } }
        }
    }
}

fn delayed_change_row(
    layout: &Layout,
    (service, operation, next): &(&Service, &Operation, &NextPricing),
    network: Network,
) -> Markup {
    html! {
        tr {
            (operation_heading(service, operation))
            td data-label="From" {
                @match next.effective_from() {
                    Some(from) => (relative_and_exact_time(from, layout.now)),
                    None => "another operator’s acceptance",
                }
            }
            td data-label="Pays now" { (payee_and_price(operation.pricing_at(layout.now), network)) }
            td data-label="Will pay" { (payee_and_price(next.as_pricing(), network)) }
            td data-label="Asked by" { (next.by) }
        }
    }
}

fn changed_quote_row(
    layout: &Layout,
    (service, operation, response): &(&Service, &Operation, &Answer),
    network: Network,
) -> Markup {
    html! {
        tr {
            (operation_heading(service, operation))
            td data-label="Pays now" { (payee_and_price(operation.pricing_at(layout.now), network)) }
            td data-label="The provider asks for" { (quote_cell(&response.quote, network)) }
            td data-label="Since" { (relative_and_exact_time(response.since, layout.now)) }
        }
    }
}
