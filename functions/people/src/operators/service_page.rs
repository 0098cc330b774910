//! The page of one service for operators: its operations with payees and prices, delayed changes, the payment that its
//! provider asks for, and the forms that accept, withdraw and set prices.
//!
//! Each form contains the version of the service that the page shows, and the full payee address.

use crate::agents::owned::parse_id;
use crate::operators::catalog::trust;
use crate::operators::changes::quote_cell;
use crate::operators::form::{Notices, OperatorForm};
use crate::operators::form_name::OperatorFormName;
use crate::operators::layout::{CATALOG, ConfirmedAct, hidden, page, pays, service_path};
use crate::redirect::see_other;
use crate::sessions::session::OperatorSession;
use crate::state::People;
use crate::ui::datetime::both;
use crate::ui::form::Form;
use crate::ui::layout::{Button, Layout, version_input};
use crate::ui::money::money;
use crate::ui::notice::Notice;
use axum::{
    extract::{Path, State},
    http::Uri,
    response::IntoResponse as _,
};
use maud::{Markup, html};
use purser_api::{OperationAt, OperatorAct, PinnedPayment, Precondition, Reply};
use purser_domain::{
    CatalogPayment, ErrorKind, NextPricing, Operation, OperationUuid, ProbeRecord, Quote, Result, Service, ServiceId,
};
use std::collections::HashMap;
use std::sync::Arc;

/// Shows `GET /dashboard/operator/services/{service}`: one service with its operations and probe results.
pub(crate) async fn show(
    State(people): State<Arc<People>>,
    OperatorSession(session): OperatorSession,
    Path(service): Path<String>,
    uri: Uri,
) -> Reply {
    let id = parse_id(ServiceId::parse(&service))?;
    let layout = Layout::new(&session, people.now()).with_notice(&uri);
    Ok(render(&people, &layout, id).await?.into_response())
}

/// Redirects a `GET` for a form's path to the service's page.
pub(crate) async fn back(Path(path): Path<HashMap<String, String>>) -> Reply {
    let id = parse_id(path.get("service").and_then(|service| ServiceId::parse(service)))?;
    Ok(see_other(&service_path(id)))
}

/// Handles `POST …/probe`: requests a probe of the service.
pub(crate) async fn probe(sent: OperatorForm) -> Reply {
    let service = sent.parse_parameter("service", ServiceId::parse)?;
    let act = OperatorAct::RequestProbe {
        service_id: service.uuid(),
    };
    let form = sent.form(OperatorFormName::Probe);
    answer(sent, service, form, act, Notices::one(Notice::ProbeRequested)).await
}

/// Handles `POST …/operations/{operation}/accept`: accepts the operation's delayed change as a second operator.
pub(crate) async fn accept(sent: OperatorForm) -> Reply {
    let accepts = |at| OperatorAct::AcceptChange(at);
    let notices = Notices::one(Notice::ChangeAccepted);
    edit(sent, OperatorFormName::Accept, notices, |_, at| Some(accepts(at))).await
}

/// Handles `POST …/operations/{operation}/withdraw`: withdraws the operation's delayed change.
pub(crate) async fn withdraw(sent: OperatorForm) -> Reply {
    let withdraws = |at| OperatorAct::WithdrawChange(at);
    let notices = Notices::one(Notice::ChangeWithdrawn);
    edit(sent, OperatorFormName::Withdraw, notices, |_, at| Some(withdraws(at))).await
}

/// Handles `POST …/operations/{operation}/pin`: sets the operation's payment to the payment that a probe observed.
pub(crate) async fn pin(sent: OperatorForm) -> Reply {
    let notices = Notices {
        done: Notice::PaymentPinned,
        awaits_second: Notice::PinAwaitsSecond,
    };
    let pins = |form: &mut Form, at| {
        let payment = parse_pinned_payment(form)?;
        Some(OperatorAct::PinPayment { at, payment })
    };
    edit(sent, OperatorFormName::Pin, notices, pins).await
}

/// Performs a confirmed action on an operation, conditional on the service version in the form.
async fn edit(
    sent: OperatorForm,
    name: fn(OperationUuid) -> OperatorFormName,
    notices: Notices,
    act: impl FnOnce(&mut Form, OperationAt) -> Option<OperatorAct>,
) -> Reply {
    let service = sent.parse_parameter("service", ServiceId::parse)?;
    let operation = sent.parse_parameter("operation", OperationUuid::parse)?;
    let mut form = sent.form(name(operation));
    let version = form.version().and_then(|version| match version {
        Precondition::Version(version) => Some(version),
        Precondition::Any => None,
    });
    let is_confirmed = form.is_checked("confirmed", "Compare the payee and the price, and check the box.");
    let at = version.map(|version| OperationAt::new(service, operation, version));
    let act = at.and_then(|at| act(&mut form, at)).filter(|_| is_confirmed);
    let Some(act) = act else {
        return sent
            .again(form, async |people, layout| render(people, &layout, service).await)
            .await;
    };
    answer(sent, service, form, act, notices).await
}

async fn answer(sent: OperatorForm, service: ServiceId, form: Form, act: OperatorAct, notices: Notices) -> Reply {
    let page = async |people: &People, layout: Layout| render(people, &layout, service).await;
    sent.act(form, act, notices, &service_path(service), page).await
}

/// Parses the payment from the form's hidden inputs.
fn parse_pinned_payment(form: &mut Form) -> Option<PinnedPayment> {
    let amount = form.text("amount_units").parse().ok();
    if amount.is_none() {
        form.wrong("", "The form is incomplete. Reload the page.");
    }
    Some(PinnedPayment {
        scheme: form.text("scheme").to_owned(),
        network: form.text("network").to_owned(),
        amount_units: amount?,
        pay_to: form.text("pay_to").to_owned(),
    })
}

/// Renders the page in its current state.
async fn render(people: &People, layout: &Layout, id: ServiceId) -> Result<Markup> {
    let (service, record) = tokio::try_join!(people.catalog_table.service(id), people.catalog_table.probes(id))?;
    let service = service.ok_or(ErrorKind::NotFound)?.at(layout.now);
    let shown = ServicePageContent {
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
    Ok(page(layout, &service.name, CATALOG, &how, &shown.content()))
}

/// The data that the page shows.
struct ServicePageContent<'a> {
    people: &'a People,
    layout: &'a Layout,
    service: &'a Service,
    record: &'a ProbeRecord,
    path: String,
}

impl ServicePageContent<'_> {
    fn acts(&self) -> bool {
        self.people.internal.is_some()
    }

    fn content(&self) -> Markup {
        let service = self.service;
        html! {
            section.card aria-label="Entry" {
                dl.facts-list {
                    div { dt { "Slug" } dd { code { (service.slug) } } }
                    div { dt { "ID" } dd { code.long { (service.id) } } }
                    div { dt { "Version" } dd { (service.version) } }
                    div { dt { "Trust" } dd {
                        (trust(service.trust_status))
                        @if !service.curated { " " span.chip.wait { "not curated" } }
                    } }
                    @if let Some(at) = self.record.requested_at {
                        div { dt { "Probe requested" } dd { (both(at, self.layout.now)) } }
                    }
                }
                @if self.acts() {
                    (self.layout.button(&format!("{}/probe", self.path), &Button::plain("Request a probe")))
                }
            }
            @for operation in &service.operations { (self.operation(operation)) }
        }
    }

    fn operation(&self, operation: &Operation) -> Markup {
        let (layout, network) = (self.layout, self.people.network);
        let title = format!("operation-{}", operation.slug);
        let probe = self.record.probe(operation);
        let asked = self.record.change(operation, layout.now);
        html! {
            section.card aria-labelledby=(title) {
                h2 id=(title) { code { (operation.slug) } }
                p.muted { (operation.method) " " span.long { (operation.endpoint) } }
                dl.facts-list.wide {
                    div { dt { "Pays now" } dd { (pays(operation.pricing(layout.now), network)) } }
                    @if let Err(why) = operation.payable(network, layout.now) {
                        div { dt { "Can’t be paid" } dd { code { (why.name()) } } }
                    }
                    @if let Some(next) = operation.waiting(layout.now) {
                        div { dt { "Will pay" } dd { (pays(next.pricing(), network)) } }
                        div { dt { "In effect" } dd {
                            @match next.effective_from() {
                                Some(from) => (both(from, layout.now)),
                                None => "once another operator accepts it",
                            }
                        } }
                        div { dt { "Asked by" } dd { (next.by) } }
                    }
                    @match probe {
                        Some(probe) => div { dt { "Last probe" } dd {
                            (both(probe.at, layout.now)) ": " (probe.availability().name())
                        } },
                        None => div { dt { "Last probe" } dd { span.muted { "none" } } },
                    }
                    @if let Some(answer) = asked {
                        div { dt { "The provider asks for" } dd {
                            (quote_cell(&answer.quote, network)) ", since " (both(answer.since, layout.now))
                        } }
                    }
                }
                @if self.acts() {
                    div.row-actions {
                        @if let Some(next) = operation.waiting(layout.now) { (self.forms_of_change(operation, next)) }
                        @if let Some(Quote::Paid(payment)) = asked.map(|answer| &answer.quote) {
                            (self.pin_form(operation, payment))
                        }
                    }
                }
            }
        }
    }

    fn forms_of_change(&self, operation: &Operation, next: &NextPricing) -> Markup {
        let network = self.people.network;
        let path = format!("{}/operations/{}", self.path, operation.id);
        let (now, later) = (
            pays(operation.pricing(self.layout.now), network),
            pays(next.pricing(), network),
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
        html! { (accept.show(self.layout)) (withdraw.show(self.layout)) }
    }

    fn pin_form(&self, operation: &Operation, payment: &CatalogPayment) -> Markup {
        let network = self.people.network;
        let payee = payment.pay_to.to_checksum(None);
        let seen = PinnedPayment::new(payment);
        let content = html! {
            (version_input(self.service.version))
            (hidden("scheme", &seen.scheme))
            (hidden("network", &seen.network))
            (hidden("amount_units", &seen.amount_units.to_string()))
            (hidden("pay_to", &seen.pay_to))
            dl.facts-list.wide {
                div { dt { "Now" } dd { (pays(operation.pricing(self.layout.now), network)) } }
                div { dt { "Pinned" } dd { (money(payment.amount)) " to " code.long { (payee) } } }
            }
        };
        let pin = ConfirmedAct {
            name: OperatorFormName::Pin(operation.id),
            action: &format!("{}/operations/{}/pin", self.path, operation.id),
            label: "Pin this payment",
            confirms: &format!("I have verified with the provider that this is its wallet: {payee}"),
            content: &content,
        };
        pin.show(self.layout)
    }
}
