//! An agent's services: what each may cost, edited in place.

use super::agent::{self, AgentPage};
use super::bar::bar;
use super::form::FormName;
use super::money::{cap, money};
use super::names::{self, ServiceRef};
use super::notice::Notice;
use super::policy::{policy_inputs, read_policy};
use super::shell::{Button, Shell, version_input};
use super::{done, named};
use crate::Dashboard;
use crate::services::{EnableService, GovernedService, ServiceEdit};
use crate::sign_in::Posted;
use axum::extract::{Path, State};
use maud::{Markup, html};
use purser_api::{Precondition, Reply};
use purser_domain::{Amount, EnabledService, Network, Service, ServiceId, SpendPolicy, TrustStatus, Unpayable};
use std::sync::Arc;

/// `POST …/services`.
pub(super) async fn enable(
    State(dashboard): State<Arc<Dashboard>>,
    Path(agent): Path<String>,
    posted: Posted,
) -> Reply {
    let owned = posted.own_agent(&dashboard, &agent).await?;
    let edition = dashboard.catalog().await?;
    let mut form = posted.form(FormName::Enable);
    let service = form.service();
    let policy = read_policy(&mut form, service.and_then(|id| edition.catalog.by_id(id)));
    let Some((service, policy)) = service.zip(policy) else {
        return agent::again(&dashboard, &posted, &owned, form, None).await;
    };
    let enable = EnableService {
        service: service.to_string(),
        policy,
    };
    // Version zero is that there is none: a service that was enabled meanwhile keeps its limits.
    match dashboard
        .enable_service(&owned, Precondition::Version(0), &enable)
        .await
    {
        Ok(_) => Ok(done(&names::agent_path(owned.agent().id), Notice::ServiceEnabled)),
        Err(error) => agent::again(&dashboard, &posted, &owned, form, Some(error)).await,
    }
}

/// `POST …/services/{service}`.
pub(super) async fn edit(
    State(dashboard): State<Arc<Dashboard>>,
    Path((agent, service)): Path<(String, String)>,
    posted: Posted,
) -> Reply {
    let owned = posted.own_agent(&dashboard, &agent).await?;
    let service = named(ServiceId::parse(&service))?;
    let edition = dashboard.catalog().await?;
    let mut form = posted.form(FormName::Policy(service));
    let policy = read_policy(&mut form, edition.catalog.by_id(service));
    let Some((policy, meant)) = policy.zip(form.version()) else {
        return agent::again(&dashboard, &posted, &owned, form, None).await;
    };
    let edit = ServiceEdit { enabled: None, policy };
    match dashboard.edit_service(&owned, meant, service, &edit).await {
        Ok(_) => Ok(done(&names::agent_path(owned.agent().id), Notice::PolicySaved)),
        Err(error) => agent::again(&dashboard, &posted, &owned, form, Some(error)).await,
    }
}

/// `POST …/services/{service}/disable`.
pub(super) async fn disable(dashboard: State<Arc<Dashboard>>, path: Path<(String, String)>, posted: Posted) -> Reply {
    switch(dashboard, path, posted, false, Notice::ServiceDisabled).await
}

/// `POST …/services/{service}/enable`.
pub(super) async fn enable_again(
    dashboard: State<Arc<Dashboard>>,
    path: Path<(String, String)>,
    posted: Posted,
) -> Reply {
    switch(dashboard, path, posted, true, Notice::ServiceEnabled).await
}

async fn switch(
    State(dashboard): State<Arc<Dashboard>>,
    Path((agent, service)): Path<(String, String)>,
    posted: Posted,
    enabled: bool,
    notice: Notice,
) -> Reply {
    let owned = posted.own_agent(&dashboard, &agent).await?;
    let service = named(ServiceId::parse(&service))?;
    let mut form = posted.form(FormName::Plain);
    let Some(meant) = form.version() else {
        return agent::again(&dashboard, &posted, &owned, form, None).await;
    };
    let edit = ServiceEdit {
        enabled: Some(enabled),
        ..ServiceEdit::default()
    };
    match dashboard.edit_service(&owned, meant, service, &edit).await {
        Ok(_) => Ok(done(&names::agent_path(owned.agent().id), notice)),
        Err(error) => agent::again(&dashboard, &posted, &owned, form, Some(error)).await,
    }
}

pub(super) fn section(shell: &Shell, page: &AgentPage<'_>, path: &str) -> Markup {
    let (enabled, disabled): (Vec<&GovernedService>, Vec<&GovernedService>) =
        page.services.iter().partition(|panel| panel.record.enabled);
    html! {
        section id="services" aria-labelledby="services-title" {
            div.section-head {
                h2 id="services-title" { "Services " span.muted { "what each may cost" } }
                (enable_form(shell, page, path))
            }
            @if enabled.is_empty() { p.empty { "No service is enabled: every payment is refused." } }
            ul.panels { @for panel in enabled { (panel_item(shell, page, panel, path)) } }
            @if !disabled.is_empty() {
                details.fold {
                    summary { (disabled.len()) @if disabled.len() == 1 { " disabled service" } @else { " disabled services" } }
                    ul.rows { @for panel in disabled { (disabled_row(shell, page, panel, path)) } }
                }
            }
        }
    }
}

fn name_of(panel: &GovernedService, service: Option<&Service>) -> Markup {
    let name = service.map(|service| service.name.clone());
    names::service(&ServiceRef {
        id: panel.record.service,
        name,
    })
}

fn panel_item(shell: &Shell, page: &AgentPage<'_>, panel: &GovernedService, path: &str) -> Markup {
    let EnabledService {
        service: id,
        version,
        policy,
        ..
    } = &panel.record;
    let inputs = shell.inputs(FormName::Policy(*id));
    let service = page.catalog.by_id(*id);
    let permissive = policy.is_permissive();
    html! {
        li.panel {
            details id=(format!("service-{id}")) open[inputs.is_typed()] {
                summary {
                    span.panel-name {
                        (name_of(panel, service))
                        @if let Some(service) = service {
                            span.muted { " " (service.category.name()) }
                            (trust(service.trust_status))
                        }
                        @if permissive { span.chip.wait { "no limit" } }
                    }
                    span.limits {
                        @if permissive {
                            span { "spends what the wallet holds, asks nobody" }
                        } @else {
                            span { "per call " (cap(policy.max_per_call)) }
                            span { "per day " (cap(policy.max_per_day)) }
                            span { "asks above " (cap(policy.require_approval_above)) }
                        }
                        (scope(policy))
                    }
                    span.panel-spend {
                        (bar(panel.spent_today, Amount::ZERO, policy.max_per_day))
                        span.figures { (money(panel.spent_today)) " in 24 h" }
                    }
                    span.edit aria-hidden="true" { "Edit" }
                }
                div.unfolded {
                    @if let Some(service) = service { (unpayable(service, page.network)) }
                    (shell.form(&format!("{path}/services/{id}"), &html! {
                        (version_input(*version))
                        (policy_inputs(&inputs, policy, service))
                        div.actions { button.primary type="submit" { "Save limits" } }
                    }))
                    (shell.button(&format!("{path}/services/{id}/disable"), &Button::danger(
                        "Disable service",
                        "Disable this service? Every payment to it is refused until you enable it again.",
                    ).at(*version)))
                }
            }
        }
    }
}

/// The operations that nobody is paid for, so that no policy is blamed for it.
fn unpayable(service: &Service, network: Network) -> Markup {
    let of_it = service.operations.iter();
    let of_it: Vec<_> = of_it
        .filter_map(|operation| Some((operation, operation.payable(network).err()?)))
        .collect();
    html! {
        @if !of_it.is_empty() {
            p.muted { "Not paid, whatever the limits say:" }
            ul.muted {
                @for (operation, why) in of_it {
                    li {
                        span title=(operation.slug) { (operation.label) } ": "
                        (match why {
                            Unpayable::NoPayment => "the catalog has no payment for it",
                            Unpayable::OtherNetwork => "its payment is on another network",
                            Unpayable::NoMaximum => "its price is not fixed, and the catalog has no maximum for it",
                        })
                    }
                }
            }
        }
    }
}

/// What a policy narrows besides amounts.
fn scope(policy: &SpendPolicy) -> Markup {
    html! {
        @if let Some(operations) = &policy.enabled_operations {
            span { (operations.len()) @if operations.len() == 1 { " operation" } @else { " operations" } " only" }
        }
        @if !policy.allows_any_domain() {
            span { (policy.allowed_domains.len()) @if policy.allowed_domains.len() == 1 { " domain" } @else { " domains" } " only" }
        }
    }
}

fn trust(status: TrustStatus) -> Markup {
    match status {
        TrustStatus::PlatformVerified | TrustStatus::ProbePassed => html! {},
        TrustStatus::Listed | TrustStatus::Discovered => html! { " " span.chip { "not verified" } },
        TrustStatus::Disabled => html! { " " span.chip.bad { "withdrawn from the catalog" } },
    }
}

fn disabled_row(shell: &Shell, page: &AgentPage<'_>, panel: &GovernedService, path: &str) -> Markup {
    let (policy, service) = (&panel.record.policy, page.catalog.by_id(panel.record.service));
    html! {
        li.row {
            div.row-main {
                (name_of(panel, service))
                span.muted { " per call " (cap(policy.max_per_call)) ", per day " (cap(policy.max_per_day)) }
            }
            div.row-actions {
                (shell.button(
                    &format!("{path}/services/{}/enable", panel.record.service),
                    &Button::plain("Enable again").at(panel.record.version),
                ))
            }
        }
    }
}

/// The form that enables a service by hand, with the column defaults filled in.
fn enable_form(shell: &Shell, page: &AgentPage<'_>, path: &str) -> Markup {
    let offered: Vec<(String, String)> = page
        .catalog
        .services()
        .iter()
        .filter(|service| service.is_open())
        .filter(|service| page.services.iter().all(|panel| panel.record.service != service.id))
        .map(|service| {
            (
                service.id.to_string(),
                format!("{} ({})", service.name, service.category.name()),
            )
        })
        .collect();
    let inputs = shell.inputs(FormName::Enable);
    html! {
        @if !offered.is_empty() {
            details.pop.wide open[inputs.is_typed()] {
                summary.button { "Enable a service" }
                div.pop-body {
                    (shell.form(&format!("{path}/services"), &html! {
                        (inputs.choice("service_id", "Service", &offered, ""))
                        (policy_inputs(&inputs, &SpendPolicy::column_defaults(), None))
                        button.primary type="submit" { "Enable service" }
                    }))
                }
            }
        }
    }
}
