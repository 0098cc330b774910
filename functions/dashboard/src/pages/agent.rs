//! One agent: whether it may pay, its services and their policies, its rules, its keys, its wallet.

use super::form::{Form, FormName};
use super::keys;
use super::moment::{exact, relative};
use super::names;
use super::notice::Notice;
use super::rules;
use super::services;
use super::shell::{Button, Here, Shell, version_input};
use super::wallet;
use super::{done, named};
use crate::Dashboard;
use crate::agents::AgentEdit;
use crate::keys::ListedKey;
use crate::owned::Owned;
use crate::rules::StandingRule;
use crate::services::GovernedService;
use crate::sign_in::{Posted, Visitor, see_other};
use axum::{
    extract::{Path, State},
    http::{StatusCode, Uri},
    response::{IntoResponse as _, Response},
};
use maud::{Markup, html};
use purser_api::{Failure, Precondition, Reply};
use purser_domain::{Agent, AgentId, AgentName, AgentStatus, Amount, Catalog, Error, ErrorKind, Network, Result};
use std::collections::HashMap;
use std::sync::Arc;

/// An agent with everything that its page shows.
#[derive(Debug)]
pub(crate) struct AgentPage<'a> {
    pub(crate) agent: &'a Agent,
    pub(crate) catalog: &'a Catalog,
    /// Every service that was ever enabled.
    pub(crate) services: Vec<GovernedService>,
    pub(crate) keys: Vec<ListedKey>,
    pub(crate) rules: Vec<StandingRule>,
    /// `None` while the chain can't be asked.
    pub(crate) balance: Option<Amount>,
    pub(crate) network: Network,
    /// The key that was created just now: shown on this one page and never again.
    pub(crate) new_key: Option<String>,
}

/// `GET /dashboard/agents/{agent}`.
pub(super) async fn show(
    State(dashboard): State<Arc<Dashboard>>,
    visitor: Visitor,
    Path(agent): Path<String>,
    uri: Uri,
) -> Reply {
    let owned = dashboard
        .own_agent(&visitor.person, named(AgentId::parse(&agent))?)
        .await?;
    let shell = Shell::of(&visitor, dashboard.now()).noticed(&uri);
    Ok(answer(&dashboard, &shell, &owned, None).await?)
}

/// `GET` of an address that only forms are sent to: whoever comes here by the address bar wants the agent.
pub(super) async fn back(Path(path): Path<HashMap<String, String>>) -> Reply {
    let agent = named(path.get("agent").and_then(|agent| AgentId::parse(agent)))?;
    Ok(see_other(&names::agent_path(agent)))
}

/// `POST …/rename`.
pub(super) async fn rename(
    State(dashboard): State<Arc<Dashboard>>,
    Path(agent): Path<String>,
    posted: Posted,
) -> Reply {
    let owned = posted.own_agent(&dashboard, &agent).await?;
    let mut form = posted.form(FormName::Rename);
    let Some((name, meant)) = form.agent_name().zip(form.version()) else {
        return again(&dashboard, &posted, &owned, form, None).await;
    };
    let edit = AgentEdit {
        name: Some(name),
        status: None,
    };
    match dashboard.edit_agent(owned.clone(), meant, &edit).await {
        Ok(owned) => Ok(done(&names::agent_path(owned.agent().id), Notice::AgentRenamed)),
        Err(error) => again(&dashboard, &posted, &owned, form, Some(error)).await,
    }
}

/// `POST …/freeze`.
pub(super) async fn freeze(dashboard: State<Arc<Dashboard>>, agent: Path<String>, posted: Posted) -> Reply {
    set_status(dashboard, agent, posted, AgentStatus::Frozen, Notice::AgentFrozen).await
}

/// `POST …/unfreeze`.
pub(super) async fn unfreeze(dashboard: State<Arc<Dashboard>>, agent: Path<String>, posted: Posted) -> Reply {
    set_status(dashboard, agent, posted, AgentStatus::Active, Notice::AgentUnfrozen).await
}

/// Names no version: a freeze has to work at once, whoever else is editing.
async fn set_status(
    State(dashboard): State<Arc<Dashboard>>,
    Path(agent): Path<String>,
    posted: Posted,
    status: AgentStatus,
    notice: Notice,
) -> Reply {
    let owned = posted.own_agent(&dashboard, &agent).await?;
    let edit = AgentEdit {
        name: None,
        status: Some(status),
    };
    let owned = dashboard.edit_agent(owned, Precondition::Any, &edit).await?;
    Ok(done(&names::agent_path(owned.agent().id), notice))
}

/// The page of an agent.
pub(super) async fn answer(
    dashboard: &Dashboard,
    shell: &Shell,
    owned: &Owned,
    new_key: Option<String>,
) -> Result<Response> {
    let (mut services, rules, keys, edition, balance) = tokio::try_join!(
        dashboard.services(owned),
        dashboard.rules(owned),
        dashboard.keys(owned),
        dashboard.catalog(),
        async { Ok(dashboard.balance(owned).await) },
    )?;
    // By name, and what has left the catalog last.
    services.sort_by_cached_key(|governed| {
        let service = edition.catalog.by_id(governed.record.service);
        (service.is_none(), service.map(|service| service.name.to_lowercase()))
    });
    let page = AgentPage {
        agent: owned.agent(),
        catalog: &edition.catalog,
        services,
        keys,
        rules,
        balance,
        network: dashboard.network,
        new_key,
    };
    Ok(agent_page(shell, &page).into_response())
}

/// The page of an agent once more, as it stands now, with the form that was refused: for what is wrong in it, or for
/// `error`.
pub(super) async fn again(
    dashboard: &Dashboard,
    posted: &Posted,
    owned: &Owned,
    mut form: Form,
    error: Option<Error>,
) -> Reply {
    let mut shell = Shell::of(&posted.visitor, dashboard.now());
    let mut status = StatusCode::BAD_REQUEST;
    if let Some(error) = error {
        let failure = Failure::from(error);
        status = failure.status();
        match failure.error().kind() {
            ErrorKind::InvalidRequest(problems) => form.refuse(problems, &[]),
            ErrorKind::VersionConflict { .. } => shell.problem = Some(CONFLICT.to_owned()),
            ErrorKind::ServiceNotFound => shell.problem = Some(CLOSED.to_owned()),
            _ => return Err(failure),
        }
    }
    shell.typed = Some(form);
    let owned = dashboard.own_agent(&posted.visitor.person, owned.agent().id).await?;
    let page = answer(dashboard, &shell, &owned, None).await?;
    Ok((status, page).into_response())
}

const CONFLICT: &str = "This was changed elsewhere after you opened the page, so nothing was saved. The page shows how it \
                        stands now; what you typed is kept in its form, to be saved once more if it still holds.";
const CLOSED: &str = "This service is not offered any more, so it can’t be enabled.";

pub(crate) fn agent_page(shell: &Shell, page: &AgentPage<'_>) -> Markup {
    let agent = page.agent;
    let path = names::agent_path(agent.id);
    let permissive = page
        .services
        .iter()
        .filter(|panel| panel.record.enabled && panel.record.policy.is_permissive())
        .count();
    shell.page(
        &agent.name,
        Here::Elsewhere,
        &html! {
            p.crumb { a href="/dashboard" { "Overview" } }
            div.agent-head {
                div {
                    h1 { (agent.name) " " (names::status(agent.status)) }
                    p.muted {
                        "created " (relative(agent.created_at, shell.now)) " · "
                        span.copyable { code.long { (agent.id) } (names::copy_button(&agent.id.to_string(), "Copy the agent’s id")) }
                    }
                }
                div.agent-actions { (rename_form(shell, page, &path)) (freeze_button(shell, agent.status, &path)) }
            }
            @if agent.status == AgentStatus::Frozen {
                div.message.bad { p { strong { "Frozen." } " Every payment of this agent is refused, approved ones included." } }
            }
            @if let Some(key) = &page.new_key { (keys::shown_once(key)) }
            @if permissive > 0 {
                div.message.warn {
                    p {
                        strong { "No limit" } (format!(" on {permissive} of its services: "))
                        "there it may spend all that its wallet holds, and nobody is asked. "
                        a href="#services" { "Set limits" }
                    }
                }
            }
            nav.inpage aria-label="On this page" {
                ul {
                    li { a href="#services" { "Services" } }
                    li { a href="#rules" { "Rules" } }
                    li { a href="#keys" { "Keys" } }
                    li { a href="#wallet" { "Wallet" } }
                    li { a href=(format!("/dashboard/decisions?agent_id={}", agent.id)) { "Its decisions" } }
                }
            }
            (services::section(shell, page, &path))
            (rules::section(shell, page, &path))
            (keys::section(shell, page, &path))
            (wallet::section(page))
            p.muted.fine { "Record version " (agent.version) " · created " (exact(agent.created_at)) }
        },
    )
}

fn rename_form(shell: &Shell, page: &AgentPage<'_>, path: &str) -> Markup {
    let inputs = shell.inputs(FormName::Rename);
    html! {
        details.pop open[inputs.is_typed()] {
            summary.button { "Rename" }
            div.pop-body {
                (shell.form(&format!("{path}/rename"), &html! {
                    (version_input(page.agent.version))
                    (inputs.line("name", "Name of the agent", &page.agent.name, AgentName::MAX))
                    button.primary type="submit" { "Rename" }
                }))
            }
        }
    }
}

/// Freezing names no version: it has to work at once, whoever else is editing.
fn freeze_button(shell: &Shell, status: AgentStatus, path: &str) -> Markup {
    match status {
        AgentStatus::Active => shell.button(
            &format!("{path}/freeze"),
            &Button::danger(
                "Freeze",
                "Freeze this agent? Every payment is refused from then on, approved ones included, until you unfreeze it.",
            ),
        ),
        AgentStatus::Frozen => shell.button(&format!("{path}/unfreeze"), &Button { class: "primary", ..Button::plain("Unfreeze") }),
    }
}
