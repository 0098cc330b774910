//! The page of one service for operators, with the forms that accept, withdraw and set prices.
//!
//! Each form contains the version of the service that the page shows, and the full payee address.

use crate::agents::owned::require_id;
use crate::operators::act_form::ActForm;
use crate::operators::acts::{ACCEPT, OperatorAct, PIN, PROBE, WITHDRAW};
use crate::operators::catalog::trust_chip;
use crate::operators::changes::quote_cell;
use crate::operators::layout::{CATALOG, operator_page, payee_and_price, service_path};
use crate::sessions::session::OperatorSession;
use crate::state::{People, PeopleState};
use crate::ui::datetime::relative_and_exact_time;
use crate::ui::layout::{Button, Layout, version_input};
use crate::ui::money::amount_text;
use axum::{extract::Path, http::Uri, response::IntoResponse as _};
use maud::{Markup, html};
use purser_api::Reply;
use purser_domain::{
    CatalogPayment, ErrorKind, NextPricing, Operation, ProbeRecord, Quote, Result, Service, ServiceId,
};

pub(crate) async fn show_service_page(
    people: PeopleState,
    OperatorSession(session): OperatorSession,
    Path(service): Path<String>,
    uri: Uri,
) -> Reply {
    let id = require_id(ServiceId::parse(&service))?;
    let layout = Layout::new(&session, people.now()).with_message_in_url(&uri);
    Ok(render_service_page(&people, &layout, id).await?.into_response())
}

pub(crate) async fn render_service_page(people: &People, layout: &Layout, id: ServiceId) -> Result<Markup> {
    let (service, record) = tokio::try_join!(
        people.catalog_table.read_service_by_id(id),
        people.catalog_table.read_probe_record(id)
    )?;
    let service = service.ok_or(ErrorKind::NotFound)?.at_time(layout.now);
    let page = ServicePageContent {
        people,
        layout,
        service: &service,
        record: &record,
        path: service_path(id),
    };
    let how = html! {
        @if people.internal.is_some() {
            "A change of a payee, or a higher price, that is pinned here takes effect after its delay, or once another operator accepts it, "
            "as the deployment says. Only a payment that a probe has seen can be pinned."
        } @else {
            "Read-only. The deployment lists no operators who act in the browser."
        }
    };
    Ok(operator_page(
        layout,
        &service.name,
        CATALOG,
        &how,
        &page.page_content(),
    ))
}

struct ServicePageContent<'a> {
    people: &'a People,
    layout: &'a Layout,
    service: &'a Service,
    record: &'a ProbeRecord,
    path: String,
}

impl ServicePageContent<'_> {
    fn has_operator_actions(&self) -> bool {
        self.people.internal.is_some()
    }

    fn page_content(&self) -> Markup {
        let service = self.service;
        html! {
            section.card aria-label="Entry" {
                dl.facts-list {
                    div { dt { "Slug" } dd { code { (service.slug) } } }
                    div { dt { "ID" } dd { code.long { (service.id) } } }
                    div { dt { "Version" } dd { (service.version) } }
                    div { dt { "Trust" } dd {
                        (trust_chip(service.trust_status))
                        @if !service.curated { " " span.chip.wait { "not curated" } }
                    } }
                    @if let Some(at) = self.record.requested_at {
                        div { dt { "Probe requested" } dd { (relative_and_exact_time(at, self.layout.now)) } }
                    }
                }
                @if self.has_operator_actions() {
                    (self.layout.button_form(&format!("{}/probe", self.path), &Button::plain(PROBE.label)))
                }
            }
            @for operation in &service.operations { (self.operation_section(operation)) }
        }
    }

    fn operation_section(&self, operation: &Operation) -> Markup {
        let (layout, network) = (self.layout, self.people.network);
        let title = format!("operation-{}", operation.slug);
        let probe = self.record.latest_probe(operation);
        let request = self.record.changed_payment(operation, layout.now);
        html! {
            section.card aria-labelledby=(title) {
                h2 id=(title) { code { (operation.slug) } }
                p.muted { (operation.method) " " span.long { (operation.endpoint) } }
                dl.facts-list.wide {
                    div { dt { "Pays now" } dd { (payee_and_price(operation.pricing_at(layout.now), network)) } }
                    @if let Err(reason) = operation.payee_and_max_price(network, layout.now) {
                        div { dt { "Can’t be paid" } dd { code { (reason.name()) } } }
                    }
                    @if let Some(next) = operation.delayed_pricing(layout.now) {
                        div { dt { "Will pay" } dd { (payee_and_price(next.as_pricing(), network)) } }
                        div { dt { "In effect" } dd {
                            @match next.effective_from() {
                                Some(from) => (relative_and_exact_time(from, layout.now)),
                                None => "once another operator accepts it",
                            }
                        } }
                        div { dt { "Asked by" } dd { (next.by) } }
                    }
                    @match probe {
                        Some(probe) => div { dt { "Last probe" } dd {
                            (relative_and_exact_time(probe.at, layout.now)) ": " (probe.availability().name())
                        } },
                        None => div { dt { "Last probe" } dd { span.muted { "none" } } },
                    }
                    @if let Some(response) = request {
                        div { dt { "The provider asks for" } dd {
                            (quote_cell(&response.quote, network)) ", since " (relative_and_exact_time(response.since, layout.now))
                        } }
                    }
                }
                @if self.has_operator_actions() {
                    div.row-actions {
                        @if let Some(next) = operation.delayed_pricing(layout.now) { (self.delayed_change_forms(operation, next)) }
                        @if let Some(Quote::Paid(payment)) = request.map(|response| &response.quote) {
                            (self.set_price_form(operation, payment))
                        }
                    }
                }
            }
        }
    }

    fn delayed_change_forms(&self, operation: &Operation, next: &NextPricing) -> Markup {
        let now = payee_and_price(operation.pricing_at(self.layout.now), self.people.network);
        let later = payee_and_price(next.as_pricing(), self.people.network);
        let content = html! {
            dl.facts-list.wide {
                div { dt { "Now" } dd { (now) } }
                div { dt { "After the change" } dd { (later) } }
            }
        };
        let payee = next.payment.pay_to.to_checksum(None);
        html! {
            (self.operation_form(&ACCEPT, operation, Some(&payee), &[], &content))
            (self.operation_form(&WITHDRAW, operation, None, &[], &content))
        }
    }

    fn set_price_form(&self, operation: &Operation, payment: &CatalogPayment) -> Markup {
        let payee = payment.pay_to.to_checksum(None);
        let content = html! {
            dl.facts-list.wide {
                div { dt { "Now" } dd { (payee_and_price(operation.pricing_at(self.layout.now), self.people.network)) } }
                div { dt { "Pinned" } dd { (amount_text(payment.amount)) " to " code.long { (payee) } } }
            }
        };
        let values = [
            ("scheme", payment.scheme.as_str()),
            ("network", payment.network.name()),
            ("token", payment.network.token_symbol()),
            ("amount_units", &payment.amount.to_string()),
            ("pay_to", &payee),
        ];
        self.operation_form(&PIN, operation, Some(&payee), &values, &content)
    }

    /// Renders an act's form with the version of the service and, if the operator confirms a payee, with the payee.
    fn operation_form(
        &self,
        act: &OperatorAct,
        operation: &Operation,
        payee: Option<&str>,
        values: &[(&str, &str)],
        content: &Markup,
    ) -> Markup {
        let form = ActForm {
            act,
            key: operation.id.uuid().as_u128(),
            action: format!("{}/operations/{}/{}", self.path, operation.id, act.name),
            payee,
            values,
            content: html! { (version_input(self.service.version)) (content) },
        };
        form.render(self.layout)
    }
}
