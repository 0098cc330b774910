//! The page with the whole catalog, including services that agents cannot use.

use crate::operators::changes::start_time_cell;
use crate::operators::layout::{CATALOG, operator_page, payee_and_price, service_path};
use crate::sessions::session::OperatorSession;
use crate::state::PeopleState;
use crate::ui::count::count_with_noun;
use crate::ui::layout::Layout;
use crate::ui::list::{
    Column, ListPage, column_headings, contains_text, filter_select, format_page_number, parse_page_number,
    search_field,
};
use axum::{http::Uri, response::IntoResponse as _};
use maud::{Markup, html};
use purser_api::{Query, Reply};
use purser_domain::{Network, Operation, Service, TrustStatus, escape_hidden_characters};

/// The filters from the URL. Unknown values are ignored.
#[derive(Clone, Debug, Default)]
struct View {
    search: String,
    trust: Option<TrustStatus>,
    page: usize,
}

impl View {
    fn from_uri(uri: &Uri) -> Self {
        let mut query = Query::without_blanks(uri);
        Self {
            search: query.parse_text("q").unwrap_or_default(),
            trust: query.parse_with("trust_status", TrustStatus::from_name, ""),
            page: parse_page_number(&mut query),
        }
    }

    /// The search text may be part of a name, slug, id, payee or endpoint.
    fn matches(&self, service: &Service) -> bool {
        let text = self.search.trim();
        let has_it = [service.name.as_str(), service.slug.as_str(), &service.id.to_string()]
            .into_iter()
            .any(|own| contains_text(own, text))
            || service
                .operations
                .iter()
                .any(|operation| name_contains(operation, text));
        has_it && self.trust.is_none_or(|trust| service.trust_status == trust)
    }

    fn url(&self, page: usize) -> String {
        crate::address::path_with_query(
            CATALOG,
            [
                ("q", (!self.search.is_empty()).then(|| self.search.clone())),
                ("trust_status", self.trust.map(|trust| trust.name().to_owned())),
                ("page", format_page_number(page)),
            ],
        )
    }

    fn is_filtered(&self) -> bool {
        !self.search.is_empty() || self.trust.is_some()
    }
}

fn name_contains(operation: &Operation, text: &str) -> bool {
    let next = operation.next.as_ref().map(|next| &next.payment);
    let payees = operation
        .payment
        .iter()
        .chain(next)
        .map(|payment| payment.pay_to.to_string());
    [
        operation.slug.to_string(),
        operation.label.clone(),
        operation.endpoint.to_string(),
    ]
    .into_iter()
    .chain(payees)
    .any(|own| contains_text(&own, text))
}

pub(crate) async fn show_operator_catalog_page(
    people: PeopleState,
    OperatorSession(session): OperatorSession,
    uri: Uri,
) -> Reply {
    let view = View::from_uri(&uri);
    let edition = people.current_catalog().await?;
    let mut services: Vec<&Service> = edition
        .catalog
        .services()
        .iter()
        .filter(|service| view.matches(service))
        .collect();
    services.sort_by(|listed_service, right| listed_service.slug.cmp(&right.slug));
    let services = ListPage::new(services, view.page);
    let layout = Layout::new(&session, people.now());
    let how = html! {
        @if people.internal.is_some() { "Open a service to pin a payment, to probe it, or to decide a change. " }
        @else { "Read-only. " }
        "Entries are written with " code { "purser catalog apply" } ", and taken out of use with "
        code { "PUT /internal/services/{id}/trust-status" } "."
    };
    let content = html! {
        form.filters method="get" action=(CATALOG) role="search" aria-label="Filters" {
            (search_field("services", "Name, id, endpoint or payee", &view.search))
            (filter_select("trust", "trust_status", "Trust", "All", TrustStatus::ALL.iter().map(|trust| {
                (trust.name().to_owned(), html! { (trust.name()) }, view.trust == Some(*trust))
            })))
            button type="submit" { "Show" }
            @if view.is_filtered() { a href=(CATALOG) { "Clear" } }
        }
        @if services.rows.is_empty() { p.empty { "No service fits." } } @else {
            ul.rows { @for service in &services.rows { (service_row(&layout, service, people.network)) } }
        }
        (services.position_and_page_links("Pages of services", "service", |page| view.url(page)))
    };
    Ok(operator_page(&layout, "The whole catalog", CATALOG, &how, &content).into_response())
}

fn service_row(layout: &Layout, service: &Service, network: Network) -> Markup {
    html! {
        li.row.service {
            div.row-main {
                p {
                    a.name href=(service_path(service.id)) { (escape_hidden_characters(&service.name)) } " " code { (service.slug) } " "
                    (trust_chip(service.trust_status))
                    @if !service.curated { " " span.chip.wait { "not curated" } }
                    @if service.next_pricing_change(layout.now).is_some() { " " span.chip.wait { "change waits" } }
                }
                p.muted { code.long { (service.id) } " · version " (service.version) " · from " (service.source) }
            }
            p.row-aside { (count_with_noun(service.operations.len(), "operation")) }
            details.fold {
                summary { "Payees and prices" }
                table.list {
                    caption.sr { "Operations of " (escape_hidden_characters(&service.name)) }
                    (column_headings(&["Operation", "Pays", "Last probe"].map(Column::Text)))
                    tbody { @for operation in &service.operations { (operation_row(layout, operation, network)) } }
                }
            }
        }
    }
}

fn operation_row(layout: &Layout, operation: &Operation, network: Network) -> Markup {
    html! {
        tr {
            th scope="row" {
                code { (operation.slug) }
                p.muted.fine { (operation.method) " " span.long { (operation.endpoint) } }
            }
            td data-label="Pays" {
                (payee_and_price(operation.pricing_at(layout.now), network))
                @if let Err(reason) = operation.payee_and_max_price(network, layout.now) {
                    p.muted.fine { "no call can be paid: " code { (reason.name()) } }
                }
                @if let Some(next) = operation.delayed_pricing(layout.now) {
                    p.fine { (start_time_cell(next, layout.now)) ": " (payee_and_price(next.as_pricing(), network)) }
                }
            }
            td data-label="Last probe" { (operation.availability.name()) }
        }
    }
}

pub(crate) fn trust_chip(status: TrustStatus) -> Markup {
    let is_good = matches!(status, TrustStatus::PlatformVerified | TrustStatus::ProbePassed);
    html! { span.chip.good[is_good].bad[status == TrustStatus::Disabled] { (status.name()) } }
}
