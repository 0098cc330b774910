//! The catalog for people: the services with their prices and trust status, and the agents that have them enabled.
//!
//! The catalog is in memory. Policies are read for the chosen agent, or for all agents if they are few.

use crate::agents::fleet::CARDS;
use crate::agents::operations::Agents;
use crate::agents::owned::Owned;
use crate::sessions::session::PageSession;
use crate::several::several;
use crate::state::People;
use crate::ui::count::counted;
use crate::ui::labels;
use crate::ui::layout::{Layout, NavItem};
use crate::ui::list::{Paginated, agent_field, filter_select, has_text, page_number, page_text, search_field};
use crate::ui::money::{is_no_limit, money};
use axum::{extract::State, http::Uri, response::IntoResponse as _};
use maud::{Markup, html};
use purser_api::{Query, Reply};
use purser_domain::{AgentId, Availability, Category, Network, Operation, Result, Service, ServiceId, TrustStatus};
use std::collections::BTreeMap;
use std::sync::Arc;

const PAGE: &str = "/dashboard/catalog";

/// The filters in a URL. Unknown values are ignored.
#[derive(Clone, Debug, Default)]
struct View {
    search: String,
    category: Option<Category>,
    agent: Option<AgentId>,
    page: usize,
}

impl View {
    fn of(uri: &Uri) -> Self {
        let mut query = Query::without_blanks(uri);
        Self {
            search: query.text("q").unwrap_or_default(),
            category: query.read("category", Category::from_name, ""),
            agent: query.read("agent_id", AgentId::parse, ""),
            page: page_number(&mut query),
        }
    }

    fn fits(&self, service: &Service) -> bool {
        let text = self.search.trim();
        let operations = service.operations.iter();
        let has_it = has_text(&service.name, text)
            || has_text(&service.description, text)
            || operations
                .map(|operation| &operation.label)
                .any(|label| has_text(label, text));
        has_it && self.category.is_none_or(|category| service.category == category)
    }

    fn address(&self, page: usize) -> String {
        crate::address::address(
            PAGE,
            [
                ("q", (!self.search.is_empty()).then(|| self.search.clone())),
                ("category", self.category.map(|category| category.name().to_owned())),
                ("agent_id", self.agent.map(|agent| agent.to_string())),
                ("page", page_text(page)),
            ],
        )
    }

    fn is_filtered(&self) -> bool {
        !self.search.is_empty() || self.category.is_some() || self.agent.is_some()
    }
}

/// The agents that have each service enabled.
type Enabled = BTreeMap<ServiceId, Vec<Owned>>;

/// One page of the catalog.
struct Shown<'a> {
    view: &'a View,
    agents: &'a Agents,
    /// `None` if there are many agents and none was chosen.
    enabled: Option<Enabled>,
    services: Paginated<&'a Service>,
    network: Network,
}

/// `GET /dashboard/catalog`.
pub(crate) async fn show(State(people): State<Arc<People>>, session: PageSession, uri: Uri) -> Reply {
    let view = View::of(&uri);
    let agents = people.agents_to_choose(&session.person, view.agent);
    let (agents, edition) = tokio::try_join!(agents, people.catalog())?;
    let mut looked_at = agents.known.clone();
    looked_at.retain(|owned| view.agent.is_none_or(|agent| owned.agent().id == agent));
    let are_few = looked_at.len() <= CARDS && !(agents.are_many && view.agent.is_none());
    let looked_at = are_few.then_some(looked_at);
    let enabled = match looked_at {
        Some(agents) => Some(enabled_of(&people, agents).await?),
        None => None,
    };
    let services = edition.catalog.services().iter();
    let services: Vec<&Service> = services
        .filter(|service| service.is_open() && view.fits(service))
        .collect();
    let shown = Shown {
        view: &view,
        agents: &agents,
        enabled,
        services: Paginated::of(services, view.page),
        network: people.network,
    };
    let layout = Layout::of(&session, people.now());
    Ok(catalog_page(&layout, &shown).into_response())
}

async fn enabled_of(people: &People, agents: Vec<Owned>) -> Result<Enabled> {
    let read = several(agents, |owned| {
        let ledger = people.ledger.clone();
        async move {
            let records = ledger.enabled_services(owned.agent()).await?;
            Ok((owned, records))
        }
    });
    let mut enabled = Enabled::new();
    for (owned, records) in read.await? {
        for record in records.into_iter().filter(|record| record.enabled) {
            enabled.entry(record.service).or_default().push(owned.clone());
        }
    }
    Ok(enabled)
}

fn catalog_page(layout: &Layout, shown: &Shown<'_>) -> Markup {
    let view = shown.view;
    layout.page(
        "Catalog",
        NavItem::Catalog,
        &html! {
            h1 { "Catalog" }
            p { "The services that agents can pay for. On the page of an agent, you choose its services and their limits." }
            form.filters method="get" action=(PAGE) role="search" aria-label="Filters" {
                (search_field("services", "Service or operation", &view.search))
                (filter_select("category", "category", "Category", "All categories", Category::ALL.iter().map(|category| {
                    (category.name().to_owned(), html! { (category.name()) }, view.category == Some(*category))
                })))
                (agent_field("Who may", shown.agents, view.agent))
                button type="submit" { "Show" }
                @if view.is_filtered() { a href=(PAGE) { "Clear" } }
            }
            @if shown.enabled.is_none() { p.hint { "You have many agents: choose one to see what it may buy." } }
            @if shown.services.rows.is_empty() { p.empty { "No service fits." } } @else {
                ul.rows { @for service in &shown.services.rows { (service_row(layout, service, shown)) } }
            }
            (shown.services.paging("Pages of services", "service", |page| view.address(page)))
        },
    )
}

fn service_row(layout: &Layout, service: &Service, shown: &Shown<'_>) -> Markup {
    let aggregates = service.aggregates(layout.now);
    html! {
        li.row.service {
            div.row-main {
                p {
                    span.name { (service.name) } " " code.muted { (service.slug) } " " span.muted { (service.category.name()) } " "
                    (trust(service.trust_status))
                    @if service.next_change(layout.now).is_some() { " " span.chip.wait { "payment changes" } }
                }
                p.muted { (service.description) }
                (who_may(service, shown))
            }
            p.row-aside {
                (counted(aggregates.operations, "operation"))
                @if !aggregates.min_price.is_zero() { ", from " (money(aggregates.min_price)) }
            }
            details.fold {
                summary { "Operations and prices" }
                table.list {
                    caption.sr { "Operations of " (service.name) }
                    thead { tr { th scope="col" { "Operation" } th.num scope="col" { "Price" } th scope="col" { "Last probe" } } }
                    tbody { @for operation in &service.operations { (operation_row(layout, operation, shown.network)) } }
                }
            }
        }
    }
}

fn operation_row(layout: &Layout, operation: &Operation, network: Network) -> Markup {
    let is_paid = operation.payable(network, layout.now).is_ok();
    html! {
        tr {
            th scope="row" { span title=(operation.slug) { (operation.label) } }
            td.num data-label="Price" {
                @match operation.pricing(layout.now).most() {
                    Some(most) if is_paid && is_no_limit(most) => { "the provider’s price" }
                    Some(most) if is_paid => { "at most " (money(most)) }
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

/// The most agents whose names are shown without unfolding.
const NAMED: usize = 3;

fn who_may(service: &Service, shown: &Shown<'_>) -> Markup {
    let Some(enabled) = &shown.enabled else { return html! {} };
    let may = enabled.get(&service.id).map_or(&[][..], Vec::as_slice);
    html! {
        div {
            @if may.is_empty() {
                span.muted { @if shown.view.agent.is_some() { "Not enabled for this agent." } @else { "Not enabled for any agent." } }
            } @else if may.len() <= NAMED {
                (names(may))
            } @else {
                details.fold {
                    summary { "Enabled for " (counted(may.len(), "agent")) }
                    p { (names(may)) }
                }
            }
        }
    }
}

fn names(agents: &[Owned]) -> Markup {
    html! {
        "Enabled for: "
        @for (place, owned) in agents.iter().enumerate() {
            @if place > 0 { ", " }
            (labels::agent(owned.agent().id, &owned.agent().name))
        }
    }
}

fn trust(status: TrustStatus) -> Markup {
    match status {
        TrustStatus::PlatformVerified => html! { span.chip.good { "verified" } },
        TrustStatus::ProbePassed => html! { span.chip.good { "probe passed" } },
        TrustStatus::Listed | TrustStatus::Discovered => html! { span.chip { "not verified" } },
        TrustStatus::Disabled => html! { span.chip.bad { "withdrawn" } },
    }
}
