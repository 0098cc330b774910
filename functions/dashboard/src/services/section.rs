//! The services on an agent's page, with forms for their policies.

use crate::agents::contents::AgentPage;
use crate::history;
use crate::operators::changes::start_time_cell;
use crate::preview::section as preview;
use crate::services::operations::GovernedService;
use crate::services::policy::policy_inputs;
use crate::ui::bar::usage_bar;
use crate::ui::count::count_with_noun;
use crate::ui::form::FormName;
use crate::ui::labels;
use crate::ui::layout::{Button, Layout, version_input};
use crate::ui::money::{amount_text, cap_text, is_no_limit, used_amount};
use crate::ui::{paths, phrases};
use maud::{Markup, html};
use purser_domain::{
    Amount, EnabledService, Network, NextPricing, Operation, Service, SpendPolicy, Timestamp, TrustStatus, Unpayable,
    escape_hidden_characters,
};

pub(crate) fn services_section(layout: &Layout, page: &AgentPage<'_>, path: &str) -> Markup {
    let (enabled, disabled): (Vec<&GovernedService>, Vec<&GovernedService>) =
        page.services.iter().partition(|service| service.record.enabled);
    html! {
        section id="services" aria-labelledby="services-title" {
            div.section-head {
                h2 id="services-title" { "Services " span.muted { "limits per service" } }
                (enable_form(layout, page, path))
            }
            (all_limits_form(layout, &enabled, path))
            @if enabled.is_empty() { p.empty { "No service is enabled: every payment is refused." } }
            ul.panels { @for service in enabled { (enabled_service_item(layout, page, service, path)) } }
            @if !disabled.is_empty() {
                details.fold {
                    summary { (count_with_noun(disabled.len(), "disabled service")) }
                    ul.rows { @for service in disabled { (disabled_service_row(layout, page, service, path)) } }
                }
            }
        }
    }
}

/// Renders the form that sets limits for all of the agent's services that have no limits yet.
fn all_limits_form(layout: &Layout, enabled: &[&GovernedService], path: &str) -> Markup {
    let unlimited = enabled.iter().filter(|service| service.record.policy.is_permissive());
    let inputs = layout.form_inputs(FormName::Unlimited);
    let count = unlimited.count();
    html! {
        @if count > 0 {
            details.message.warn open[inputs.has_posted_form()] {
                summary { (count_with_noun(count, "service")) " without limits. " strong { "Set limits for all of them" } }
                (layout.post_form(&format!("{path}/services/limits"), &html! {
                    (policy_inputs(&inputs, &SpendPolicy::suggested_limits(), None))
                    (inputs.update_reason_input())
                    div.actions { button.primary type="submit" { "Set limits" } }
                }))
            }
        }
    }
}

fn enabled_service_item(
    layout: &Layout,
    page: &AgentPage<'_>,
    governed_service: &GovernedService,
    path: &str,
) -> Markup {
    let EnabledService {
        service: id,
        version,
        policy,
        ..
    } = &governed_service.record;
    let inputs = layout.form_inputs(FormName::Policy(*id));
    let service = page.catalog.find_by_id(*id);
    let permissive = policy.is_permissive();
    let increases: Vec<_> = policy.active_increases(&page.agent.owner, layout.now).collect();
    html! {
        li.panel {
            details id=(format!("service-{id}")) open[inputs.has_posted_form()] {
                summary {
                    span.panel-name {
                        (labels::service_name(governed_service.record.service, page.catalog))
                        @if let Some(service) = service {
                            span.muted { " " (service.category.name()) }
                            (trust_chip(service.trust_status))
                            @if service.next_pricing_change(layout.now).is_some() { " " span.chip.wait { "payment changes" } }
                        }
                    }
                    span.limits {
                        @if permissive {
                            span { "Unlimited, no approval" }
                        } @else {
                            span { "per call " (cap_text(policy.max_per_call)) }
                            span { "daily " (cap_text(policy.max_per_day)) }
                            span { "approval above " (cap_text(policy.require_approval_above)) }
                        }
                        (policy_scope_text(policy))
                        @if !increases.is_empty() { span.chip.wait { "higher limits for now" } }
                    }
                    span.panel-spend {
                        @if !is_no_limit(governed_service.caps.per_day) { (usage_bar(governed_service.spent_today.amount, Amount::ZERO, governed_service.caps.per_day)) }
                        span.figures { (used_amount(governed_service.spent_today)) " in 24 h" }
                    }
                    span.edit aria-hidden="true" { "Edit" }
                }
                div.unfolded {
                    @if let Some(service) = service {
                        (upcoming_payee_and_price_changes(service, layout.now))
                        (unpayable_operations(service, page.network, layout.now))
                    }
                    @for increase in &increases {
                        p {
                            "You raised the limits: " (phrases::limit_increase_phrase(increase.temporary_caps(), None, layout.now)) ". "
                            a href=(paths::approval_path(page.agent.id, increase.approval)) { "See or end it" }
                            ". It also ends if you change this limit."
                        }
                    }
                    (preview::update_preview_section(layout, &inputs))
                    (layout.post_form(&format!("{path}/services/{id}"), &html! {
                        (version_input(*version))
                        (policy_inputs(&inputs, policy, service))
                        (inputs.update_reason_input())
                        div.actions {
                            button.primary type="submit" { "Save limits" }
                            (preview::preview_and_test_buttons(&format!("{path}/services/{id}")))
                        }
                    }))
                    p.fine { a href=(history::page::history_path(page.agent.id, Some(*id))) { "History of these limits" } }
                    (layout.button_form(&format!("{path}/services/{id}/disable"), &Button::danger(
                        "Disable service",
                        "Disable this service? Every payment to it is refused until you enable it again.",
                    ).with_version(*version).with_reason_input()))
                }
            }
        }
    }
}

/// Renders the changes of payees and prices that operators have entered in advance.
fn upcoming_payee_and_price_changes(service: &Service, now: Timestamp) -> Markup {
    let operations = service.operations.iter();
    let changes: Vec<(&Operation, &NextPricing)> = operations
        .filter_map(|operation| Some((operation, operation.delayed_pricing(now)?)))
        .collect();
    html! {
        @if !changes.is_empty() {
            p { strong { "The payee or the price of some operations will change." } " If you don’t agree, disable the service." }
            ul {
                @for (operation, next) in changes {
                    li {
                        span title=(operation.slug) { (escape_hidden_characters(&operation.label)) } ": " (start_time_cell(next, now)) " "
                        @if let Some(max) = next.as_pricing().max_price() { "at most " (amount_text(max)) } " to "
                        (labels::wallet_address(next.payment.pay_to))
                    }
                }
            }
        }
    }
}

/// Renders the operations that can't be paid, so that users do not look for the cause in the policy.
fn unpayable_operations(service: &Service, network: Network, now: Timestamp) -> Markup {
    let of_it = service.operations.iter();
    let of_it: Vec<_> = of_it
        .filter_map(|operation| Some((operation, operation.payee_and_max_price(network, now).err()?)))
        .collect();
    html! {
        @if !of_it.is_empty() {
            p.muted { "Can’t be paid, whatever the limits are:" }
            ul.muted {
                @for (operation, reason) in of_it {
                    li {
                        span title=(operation.slug) { (escape_hidden_characters(&operation.label)) } ": "
                        (match reason {
                            Unpayable::NoPayment => "the catalog lists no payment for it",
                            Unpayable::OtherNetwork => "its payment is on another network",
                            Unpayable::NoMaximum => "its price is not fixed, and the catalog has no maximum for it",
                            Unpayable::PlainHttp => "it is called over plain http",
                        })
                    }
                }
            }
        }
    }
}

/// Renders a policy's limits other than amounts.
fn policy_scope_text(policy: &SpendPolicy) -> Markup {
    html! {
        @if let Some(operations) = &policy.enabled_operations {
            span { (count_with_noun(operations.len(), "operation")) " only" }
        }
        @if !policy.allows_any_domain() {
            span { (count_with_noun(policy.allowed_domains.len(), "domain")) " only" }
        }
    }
}

fn trust_chip(status: TrustStatus) -> Markup {
    match status {
        TrustStatus::PlatformVerified | TrustStatus::ProbePassed => html! {},
        TrustStatus::Listed | TrustStatus::Discovered => html! { " " span.chip { "not verified" } },
        TrustStatus::Disabled => html! { " " span.chip.bad { "withdrawn from the catalog" } },
    }
}

fn disabled_service_row(layout: &Layout, page: &AgentPage<'_>, service: &GovernedService, path: &str) -> Markup {
    let policy = &service.record.policy;
    html! {
        li.row {
            div.row-main {
                (labels::service_name(service.record.service, page.catalog))
                span.muted { " per call " (cap_text(policy.max_per_call)) ", daily " (cap_text(policy.max_per_day)) }
            }
            div.row-actions {
                (layout.button_form(
                    &format!("{path}/services/{}/enable", service.record.service),
                    &Button::plain("Enable again").with_version(service.record.version).with_reason_input(),
                ))
            }
        }
    }
}

/// Renders the form that enables a service, with the default limits.
fn enable_form(layout: &Layout, page: &AgentPage<'_>, path: &str) -> Markup {
    let offered: Vec<(String, String)> = page
        .catalog
        .services()
        .iter()
        .filter(|service| service.is_open())
        .filter(|service| {
            page.services
                .iter()
                .all(|governed_service| governed_service.record.service != service.id)
        })
        .map(|service| {
            (
                service.id.to_string(),
                format!("{} ({})", service.name, service.category.name()),
            )
        })
        .collect();
    let inputs = layout.form_inputs(FormName::Enable);
    html! {
        @if !offered.is_empty() {
            details.pop.wide open[inputs.has_posted_form()] {
                summary.button { "Enable a service" }
                div.pop-body {
                    (preview::update_preview_section(layout, &inputs))
                    (layout.post_form(&format!("{path}/services"), &html! {
                        (inputs.drop_down("service_id", "Service", &offered, ""))
                        (policy_inputs(&inputs, &SpendPolicy::spec_defaults(), None))
                        (inputs.update_reason_input())
                        div.actions {
                            button.primary type="submit" { "Enable service" }
                            (preview::preview_and_test_buttons(&format!("{path}/services")))
                        }
                    }))
                }
            }
        }
    }
}
