//! The catalog page, which shows the services, and whether the selected agent may pay them.

use crate::agents::choice::{AgentChoice, NamedAgent};
use crate::sessions::session::PageSession;
use crate::state::PeopleState;
use crate::ui::count::count_with_noun;
use crate::ui::labels;
use crate::ui::layout::{Layout, NavItem};
use crate::ui::list::{
    ListPage, contains_text, filter_form, filter_select, format_page_number, parse_page_number, search_field,
};
use crate::ui::money::{amount_text, is_no_limit};
use axum::{http::Uri, response::IntoResponse as _};
use maud::{Markup, html};
use purser_api::{Query, Reply};
use purser_domain::{
    AgentId, Availability, Category, Error, ErrorKind, Network, Operation, Service, ServiceId, TrustStatus,
    escape_hidden_characters,
};
use std::collections::BTreeSet;

const PAGE: &str = "/dashboard/catalog";

/// The filters in the URL. Unknown values are ignored.
#[derive(Clone, Debug, Default)]
struct View {
    search: String,
    category: Option<Category>,
    agent: NamedAgent,
    page: usize,
}

impl View {
    fn from_uri(uri: &Uri) -> Self {
        let mut query = Query::without_blanks(uri);
        Self {
            search: query.parse_text("q").unwrap_or_default(),
            category: query.parse_with("category", Category::from_name, ""),
            agent: NamedAgent::from_query(&mut query),
            page: parse_page_number(&mut query),
        }
    }

    fn matches(&self, service: &Service) -> bool {
        let text = self.search.trim();
        let operations = service.operations.iter();
        let has_it = contains_text(&service.name, text)
            || contains_text(&service.description, text)
            || operations
                .map(|operation| &operation.label)
                .any(|label| contains_text(label, text));
        has_it && self.category.is_none_or(|category| service.category == category)
    }

    fn url(&self, agent: Option<AgentId>, page: usize) -> String {
        crate::address::path_with_query(
            PAGE,
            [
                ("q", (!self.search.is_empty()).then(|| self.search.clone())),
                ("category", self.category.map(|category| category.name().to_owned())),
                ("agent_id", agent.map(|agent| agent.to_string())),
                ("page", format_page_number(page)),
            ],
        )
    }
}

/// The services that the selected agent may pay.
type Enabled = BTreeSet<ServiceId>;

struct CatalogList<'a> {
    view: &'a View,
    choice: &'a AgentChoice,
    /// `None` if no agent is selected.
    enabled: Option<Enabled>,
    services: ListPage<&'a Service>,
    network: Network,
}

pub(crate) async fn show_catalog_page(people: PeopleState, session: PageSession, uri: Uri) -> Reply {
    let view = View::from_uri(&uri);
    let choice = people.resolve_named_agent(&session.person, view.agent.clone());
    let (choice, edition) = tokio::try_join!(choice, people.current_catalog())?;
    let enabled = match &choice.agent {
        Some(owned) => {
            let records = people.ledger.list_enabled_services(owned.agent()).await?.into_iter();
            let enabled = records.filter(|record| record.enabled);
            Some(enabled.map(|record| record.service).collect())
        }
        None if choice.id.is_some() => return Err(Error::from(ErrorKind::NotFound).into()),
        None => None,
    };
    let services = edition.catalog.services().iter();
    let services: Vec<&Service> = services
        .filter(|service| service.is_open() && view.matches(service))
        .collect();
    let page = CatalogList {
        view: &view,
        choice: &choice,
        enabled,
        services: ListPage::new(services, view.page),
        network: people.network,
    };
    let layout = Layout::new(&session, people.now());
    Ok(catalog_page(&layout, &page).into_response())
}

fn catalog_page(layout: &Layout, list: &CatalogList<'_>) -> Markup {
    let view = list.view;
    let is_filtered =
        !view.search.is_empty() || view.category.is_some() || list.choice.id.is_some() || list.choice.is_ambiguous();
    let fields = html! {
        (search_field("services", "Service or operation", &view.search))
        (filter_select("category", "category", "Category", "All categories", Category::ALL.iter().map(|category| {
            (category.name().to_owned(), html! { (category.name()) }, view.category == Some(*category))
        })))
        (list.choice.search_field("Agent’s name"))
    };
    layout.html_page(
        "Catalog",
        NavItem::Catalog,
        &html! {
            h1 { "Catalog" }
            p { "The services that agents can pay for. On the page of an agent, you choose its services and their limits." }
            (filter_form(PAGE, false, is_filtered.then_some(PAGE), &fields))
            (list.choice.matching_agent_links(|agent| view.url(Some(agent), 0)))
            @if list.choice.id.is_none() && !list.choice.is_ambiguous() { p.hint { "Choose an agent to see what it may buy." } }
            @if list.services.rows.is_empty() { p.empty { "No service fits." } } @else {
                ul.rows { @for service in &list.services.rows { (service_row(layout, service, list)) } }
            }
            (list.services.position_and_page_links("Pages of services", "service", |page| view.url(list.choice.id, page)))
        },
    )
}

fn service_row(layout: &Layout, service: &Service, list: &CatalogList<'_>) -> Markup {
    let aggregates = service.aggregates(layout.now);
    html! {
        li.row.service {
            div.row-main {
                p {
                    span.name { (escape_hidden_characters(&service.name)) } " " code.muted { (service.slug) } " " span.muted { (service.category.name()) } " "
                    (trust_chip(service.trust_status))
                    @if service.next_pricing_change(layout.now).is_some() { " " span.chip.wait { "payment changes" } }
                }
                p.muted { (escape_hidden_characters(&service.description)) }
                (agent_access_cell(service, list))
            }
            p.row-aside {
                (count_with_noun(aggregates.operations, "operation"))
                @if !aggregates.min_price.is_zero() { ", from " (amount_text(aggregates.min_price)) }
            }
            details.fold {
                summary { "Operations and prices" }
                table.list {
                    caption.sr { "Operations of " (escape_hidden_characters(&service.name)) }
                    thead { tr { th scope="col" { "Operation" } th.num scope="col" { "Price" } th scope="col" { "Last probe" } } }
                    tbody { @for operation in &service.operations { (operation_row(layout, operation, list.network)) } }
                }
            }
        }
    }
}

fn operation_row(layout: &Layout, operation: &Operation, network: Network) -> Markup {
    let is_paid = operation.payee_and_max_price(network, layout.now).is_ok();
    html! {
        tr {
            th scope="row" { span title=(operation.slug) { (escape_hidden_characters(&operation.label)) } }
            td.num data-label="Price" {
                @match operation.pricing_at(layout.now).max_price() {
                    Some(max) if is_paid && is_no_limit(max) => { "the provider’s price" }
                    Some(max) if is_paid => { "at most " (amount_text(max)) }
                    _ if operation.availability == Availability::FreeVerified => { "free" }
                    _ => { span.muted { "can’t be paid" } }
                }
            }
            td data-label="Last probe" {
                (match operation.availability {
                    Availability::PaidX402 => "asked for a payment",
                    Availability::FreeVerified => "answered without payment",
                    Availability::Unverified => "not verified",
                })
            }
        }
    }
}

fn agent_access_cell(service: &Service, list: &CatalogList<'_>) -> Markup {
    let (Some(enabled), Some(owned)) = (&list.enabled, &list.choice.agent) else {
        return html! {};
    };
    let agent = owned.agent();
    html! {
        p {
            @if enabled.contains(&service.id) { "Enabled for: " } @else { span.muted { "Not enabled for " } }
            (labels::agent_link(agent.id, &agent.name))
        }
    }
}

fn trust_chip(status: TrustStatus) -> Markup {
    match status {
        TrustStatus::PlatformVerified => html! { span.chip.good { "verified" } },
        TrustStatus::ProbePassed => html! { span.chip.good { "probe passed" } },
        TrustStatus::Listed | TrustStatus::Discovered => html! { span.chip { "not verified" } },
        TrustStatus::Disabled => html! { span.chip.bad { "withdrawn" } },
    }
}
