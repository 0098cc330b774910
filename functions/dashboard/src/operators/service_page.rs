//! The page of one service for operators, with the forms that accept, withdraw and set prices.
//!
//! Each form contains the version of the service that the page shows, and the full payee address.

use crate::agents::owned::require_id;
use crate::operators::catalog::trust_chip;
use crate::operators::changes::quote_cell;
use crate::operators::form::{ActMessages, OperatorForm};
use crate::operators::form_name::OperatorFormName;
use crate::operators::layout::{CATALOG, ConfirmedAct, hidden_input, operator_page, payee_and_price, service_path};
use crate::redirect::see_other;
use crate::sessions::session::OperatorSession;
use crate::state::{People, PeopleState};
use crate::ui::datetime::relative_and_exact_time;
use crate::ui::form::Form;
use crate::ui::layout::{Button, Layout, version_input};
use crate::ui::money::amount_text;
use crate::ui::notice::PageMessage;
use axum::{extract::Path, http::Uri, response::IntoResponse as _};
use maud::{Markup, html};
use purser_api::{ConfirmedPayment, OperationAt, OperatorAct, Precondition, Reply};
use purser_domain::{
    CatalogPayment, ErrorKind, NextPricing, Operation, OperationUuid, ProbeRecord, Quote, Result, Service, ServiceId,
};
use std::collections::HashMap;

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

/// Redirects a `GET` of a path that accepts only `POST`.
pub(crate) async fn redirect_to_service(Path(path): Path<HashMap<String, String>>) -> Reply {
    let id = require_id(path.get("service").and_then(|service| ServiceId::parse(service)))?;
    Ok(see_other(&service_path(id)))
}

pub(crate) async fn submit_probe_request(request: OperatorForm) -> Reply {
    let service = request.parse_path_parameter("service", ServiceId::parse)?;
    let action = OperatorAct::RequestProbe { service_id: service };
    let form = request.parse_posted_form(OperatorFormName::Probe);
    submit_service_action(
        request,
        service,
        form,
        action,
        ActMessages::for_single_operator(PageMessage::ProbeRequested),
    )
    .await
}

/// Accepts the operation's delayed change as a second operator.
pub(crate) async fn submit_change_acceptance(form: OperatorForm) -> Reply {
    let accepts = |at| OperatorAct::AcceptChange(at);
    let notices = ActMessages::for_single_operator(PageMessage::ChangeAccepted);
    submit_operation_action(form, OperatorFormName::Accept, notices, |_, at| Some(accepts(at))).await
}

pub(crate) async fn submit_delayed_change_withdrawal(form: OperatorForm) -> Reply {
    let withdraws = |at| OperatorAct::WithdrawChange(at);
    let notices = ActMessages::for_single_operator(PageMessage::ChangeWithdrawn);
    submit_operation_action(form, OperatorFormName::Withdraw, notices, |_, at| Some(withdraws(at))).await
}

/// Sets the operation's price and payee to the probe result that the operator confirmed.
pub(crate) async fn submit_probed_price(request: OperatorForm) -> Reply {
    let notices = ActMessages {
        done: PageMessage::PaymentPinned,
        awaits_second_operator: PageMessage::PinAwaitsSecond,
    };
    let pins = |form: &mut Form, at| {
        let payment = parse_confirmed_payment(form)?;
        Some(OperatorAct::PinPayment { at, payment })
    };
    submit_operation_action(request, OperatorFormName::Pin, notices, pins).await
}

/// Performs an action on an operation, conditional on the service version in the form.
async fn submit_operation_action(
    request: OperatorForm,
    form_name: fn(OperationUuid) -> OperatorFormName,
    messages: ActMessages,
    parse_action: impl FnOnce(&mut Form, OperationAt) -> Option<OperatorAct>,
) -> Reply {
    let service = request.parse_path_parameter("service", ServiceId::parse)?;
    let operation = request.parse_path_parameter("operation", OperationUuid::parse)?;
    let mut form = request.parse_posted_form(form_name(operation));
    let version = form.parse_version().and_then(|version| match version {
        Precondition::Version(version) => Some(version),
        Precondition::Any => None,
    });
    let is_confirmed = form.require_checked("confirmed", "Compare the payee and the price, and check the box.");
    let at = version.map(|version| OperationAt {
        service,
        operation,
        version,
    });
    let action = at.and_then(|at| parse_action(&mut form, at)).filter(|_| is_confirmed);
    let Some(action) = action else {
        return request
            .show_form_again(form, async |people, layout| {
                render_service_page(people, &layout, service).await
            })
            .await;
    };
    submit_service_action(request, service, form, action, messages).await
}

async fn submit_service_action(
    request: OperatorForm,
    service: ServiceId,
    form: Form,
    action: OperatorAct,
    messages: ActMessages,
) -> Reply {
    let page = async |people: &People, layout: Layout| render_service_page(people, &layout, service).await;
    request
        .submit_operator_action(form, action, messages, &service_path(service), page)
        .await
}

/// Parses the price and the payee that the operator confirmed, which the form sends in hidden inputs.
fn parse_confirmed_payment(form: &mut Form) -> Option<ConfirmedPayment> {
    let amount = form.field_text("amount_units").parse().ok();
    if amount.is_none() {
        form.add_error("", "The form is incomplete. Reload the page.");
    }
    Some(ConfirmedPayment {
        scheme: form.field_text("scheme").to_owned(),
        network: form.field_text("network").to_owned(),
        amount_units: amount?,
        pay_to: form.field_text("pay_to").to_owned(),
    })
}

async fn render_service_page(people: &People, layout: &Layout, id: ServiceId) -> Result<Markup> {
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
                    (self.layout.button_form(&format!("{}/probe", self.path), &Button::plain("Request a probe")))
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
        let network = self.people.network;
        let path = format!("{}/operations/{}", self.path, operation.id);
        let (now, later) = (
            payee_and_price(operation.pricing_at(self.layout.now), network),
            payee_and_price(next.as_pricing(), network),
        );
        let content = html! {
            (version_input(self.service.version))
            dl.facts-list.wide {
                div { dt { "Now" } dd { (now) } }
                div { dt { "After the change" } dd { (later) } }
            }
        };
        let payee = next.payment.pay_to.to_checksum(None);
        let accept = ConfirmedAct {
            name: OperatorFormName::Accept(operation.id),
            action: &format!("{path}/accept"),
            label: "Accept the change",
            confirms: &format!("I have compared the new payee and its price: {payee}"),
            content: &content,
        };
        let withdraw = ConfirmedAct {
            name: OperatorFormName::Withdraw(operation.id),
            action: &format!("{path}/withdraw"),
            label: "Withdraw the change",
            confirms: "The current payee and price stay in effect",
            content: &content,
        };
        html! { (accept.render_confirmation_form(self.layout)) (withdraw.render_confirmation_form(self.layout)) }
    }

    fn set_price_form(&self, operation: &Operation, payment: &CatalogPayment) -> Markup {
        let network = self.people.network;
        let payee = payment.pay_to.to_checksum(None);
        let seen = ConfirmedPayment::new(payment);
        let content = html! {
            (version_input(self.service.version))
            (hidden_input("scheme", &seen.scheme))
            (hidden_input("network", &seen.network))
            (hidden_input("amount_units", &seen.amount_units.to_string()))
            (hidden_input("pay_to", &seen.pay_to))
            dl.facts-list.wide {
                div { dt { "Now" } dd { (payee_and_price(operation.pricing_at(self.layout.now), network)) } }
                div { dt { "Pinned" } dd { (amount_text(payment.amount)) " to " code.long { (payee) } } }
            }
        };
        let pin = ConfirmedAct {
            name: OperatorFormName::Pin(operation.id),
            action: &format!("{}/operations/{}/pin", self.path, operation.id),
            label: "Pin this payment",
            confirms: &format!("I have verified with the provider that this is its wallet: {payee}"),
            content: &content,
        };
        pin.render_confirmation_form(self.layout)
    }
}
