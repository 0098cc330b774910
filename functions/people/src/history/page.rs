//! The page with the versions of a policy, or of an agent's rules.

use crate::address::address;
use crate::agents::owned::{Owned, named};
use crate::audit::page::changed;
use crate::cursor;
use crate::history::operations::{Changed, History, rules_of};
use crate::sessions::session::PageSession;
use crate::state::People;
use crate::ui::datetime::both;
use crate::ui::labels;
use crate::ui::layout::{Button, Layout, NavItem};
use crate::ui::list::paging;
use crate::ui::paths;
use crate::ui::phrases;
use axum::{
    extract::{Path, State},
    http::Uri,
    response::IntoResponse as _,
};
use maud::{Markup, html};
use purser_api::{Query, Reply};
use purser_domain::{Agent, AgentId, AuditChanges, Catalog, EnabledService, Members, Rule, ServiceId, Timestamp};
use purser_store::PageRequest;
use std::sync::Arc;

/// The number of versions on a page.
const ROWS: u32 = 25;

/// The page of the versions: of a policy, or of the rules.
pub(crate) fn path(agent: AgentId, service: Option<ServiceId>) -> String {
    page_of(agent, service, None)
}

fn page_of(agent: AgentId, service: Option<ServiceId>, before: Option<u64>) -> String {
    address(
        &format!("{}/history", paths::agent(agent)),
        [
            ("service", service.map(|service| service.to_string())),
            ("before", before.map(|version| version.to_string())),
        ],
    )
}

/// `GET /dashboard/agents/{agent}/history`.
pub(crate) async fn show(
    State(people): State<Arc<People>>,
    session: PageSession,
    Path(agent): Path<String>,
    uri: Uri,
) -> Reply {
    let agent = named(AgentId::parse(&agent))?;
    let owned = people.own_agent(&session.person, agent).await?;
    let mut query = Query::without_blanks(&uri);
    let service = match query.text("service") {
        None => None,
        Some(text) => Some(named(ServiceId::parse(&text))?),
    };
    let before = query.text("before").and_then(|text| cursor::read_version(&text));
    let slice = PageRequest { before, limit: ROWS };
    let edition = people.catalog().await?;
    let layout = Layout::of(&session, people.now());
    let (of, versions, next) = if let Some(service) = service {
        let record = people.service(&owned, service).await?.record;
        let history = people.policy_history(&owned, service, slice).await?;
        let of = html! { "Limits of " (labels::service(service, &edition.catalog)) };
        (of, policies(&layout, &owned, &record, &history), history.next)
    } else {
        let history = people.rules_history(&owned, slice).await?;
        let of = html! { "Rules" };
        (of, rules(&layout, &owned, &history, &edition.catalog), history.next)
    };
    let page = layout.page(
        "History",
        NavItem::Agents,
        &html! {
            p.crumb { a href=(paths::agent(agent)) { (owned.agent().name) } }
            h1 { "History" }
            h2 { (of) }
            p { "Restoring a version is an edit: it makes a new version, and its limits apply to the next payment. Who made an edit is in the "
                a href=(address("/dashboard/audit-log", [("agent_id", Some(agent.to_string()))])) { "audit log" } "." }
            (versions)
            (paging(
                "Pages",
                before.map(|_| ("Newest", page_of(agent, service, None))),
                next.map(|next| ("Older", page_of(agent, service, Some(next)))),
            ))
        },
    );
    Ok(page.into_response())
}

fn policies(layout: &Layout, owned: &Owned, current: &EnabledService, history: &History<EnabledService>) -> Markup {
    let agent = owned.agent().id;
    html! {
        ol.rows {
            @for Changed { version, changes } in &history.items {
                li.row {
                    (headline(layout, version.version, version.at, version.version == current.version))
                    (changed(changes))
                    @if version.version != current.version {
                        (differences("Differences from the current version", current.audit_members(), version.record.audit_members()))
                        (layout.button(
                            &format!("{}/services/{}/versions/{}/restore", paths::agent(agent), current.service, version.version),
                            &Button::plain("Restore").at(current.version),
                        ))
                    }
                }
            }
        }
    }
}

fn rules(layout: &Layout, owned: &Owned, history: &History<Agent>, catalog: &Catalog) -> Markup {
    let current = owned.agent();
    html! {
        ol.rows {
            // Other edits of the agent are no versions of its rules.
            @for Changed { version, changes } in history.items.iter().filter(|item| item.changes != AuditChanges::default()) {
                @let others: Vec<&Rule> = version.record.rules.iter().filter(|rule| !is_in_force(current, rule)).collect();
                li.row {
                    (headline(layout, version.version, version.at, version.version == current.version))
                    (changed(changes))
                    @if !others.is_empty() {
                        (differences("Differences from the current rules", rules_of(current), rules_of(&version.record)))
                    }
                    @for rule in others {
                        p { (phrases::rule(&rule.kind, catalog)) }
                        (layout.button(
                            &format!("{}/versions/{}/rules/{}/restore", paths::agent(current.id), version.version, rule.id),
                            &Button::plain("Restore this rule").at(current.version),
                        ))
                    }
                }
            }
        }
    }
}

fn is_in_force(current: &Agent, rule: &Rule) -> bool {
    current
        .rules
        .iter()
        .any(|now| now.id == rule.id && now.kind == rule.kind)
}

fn headline(layout: &Layout, version: u64, at: Option<Timestamp>, is_current: bool) -> Markup {
    html! {
        div.row-main {
            strong { "Version " (version) }
            @if is_current { " " span.chip.good { "current" } }
            " " span.muted { @match at { Some(at) => (both(at, layout.now)), None => "time not known yet" } }
        }
    }
}

fn differences(title: &str, current: Members, then: Members) -> Markup {
    html! {
        details.fold {
            summary { (title) }
            (changed(&AuditChanges::between(Some(current), Some(then))))
        }
    }
}
