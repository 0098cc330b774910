//! The page with the versions of a policy, or of an agent's rules.

use crate::address::address;
use crate::agents::owned::{OwnedAgent, parse_id};
use crate::audit::page::change_list;
use crate::cursor;
use crate::history::operations::{ChangedVersion, Direction, History, rules_of};
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
use purser_domain::{Agent, AgentId, AuditChanges, Catalog, EnabledService, Members, Result, Rule, ServiceId, visible};
use purser_store::{EditMark, PageRequest, RecordVersion};
use std::sync::Arc;

/// The number of versions per page.
const ROWS: u32 = 25;

/// Returns the path of the version page: for the policy of `service`, or for the agent's rules.
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

/// Shows `GET /dashboard/agents/{agent}/history`: the versions of the agent's rules, or of one policy.
pub(crate) async fn show(
    State(people): State<Arc<People>>,
    session: PageSession,
    Path(agent): Path<String>,
    uri: Uri,
) -> Reply {
    let agent = parse_id(AgentId::parse(&agent))?;
    let owned = people.own_agent(&session.person, agent).await?;
    let mut query = Query::without_blanks(&uri);
    let service = match query.text("service") {
        None => None,
        Some(text) => Some(parse_id(ServiceId::parse(&text))?),
    };
    let before = query.text("before").and_then(|text| cursor::read_version(&text));
    let slice = PageRequest { before, limit: ROWS };
    let version = |query: &mut Query, name| query.text(name).and_then(|text| cursor::read_version(&text));
    let compared = version(&mut query, "from").zip(version(&mut query, "to"));
    let edition = people.catalog().await?;
    let layout = Layout::new(&session, people.now());
    let (of, versions, next) = if let Some(service) = service {
        let record = people.service(&owned, service).await?.record;
        let history = people.policy_history(&owned, service, slice, None).await?;
        let of = html! { "Limits of " (labels::service(service, &edition.catalog)) };
        let compared = match compared {
            None => None,
            Some((from, to)) => {
                let read = people.policy_history(&owned, service, only(to), Some(from)).await?;
                Some((from, to, find_changes(to, read)?))
            }
        };
        let numbers = history.items.iter().map(|item| item.version.version).collect();
        let versions = html! {
            (comparison(agent, Some(service), numbers, compared.as_ref()))
            (policies(&layout, &owned, &record, &history))
        };
        (of, versions, history.next)
    } else {
        let history = people.rules_history(&owned, slice, None).await?;
        let of = html! { "Rules" };
        let compared = match compared {
            None => None,
            Some((from, to)) => {
                let read = people.rules_history(&owned, only(to), Some(from)).await?;
                Some((from, to, find_changes(to, read)?))
            }
        };
        let edits = history
            .items
            .iter()
            .filter(|item| item.changes != AuditChanges::default());
        let numbers = edits.map(|item| item.version.version).collect();
        let versions = html! {
            (comparison(agent, None, numbers, compared.as_ref()))
            (rules(&layout, &owned, &history, &edition.catalog))
        };
        (of, versions, history.next)
    };
    let page = layout.page(
        "History",
        NavItem::Agents,
        &html! {
            p.crumb { a href=(paths::agent(agent)) { (visible(&owned.agent().name)) } }
            h1 { "History" }
            h2 { (of) }
            p { "Restoring a version is an edit: it makes a new version, and its limits apply to the next payment. The "
                a href=(address("/dashboard/audit-log", [("agent_id", Some(agent.to_string()))])) { "audit log" } " has the source of each edit." }
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

/// Requests only this version.
fn only(version: u64) -> PageRequest<u64> {
    PageRequest {
        before: version.checked_add(1),
        limit: 1,
    }
}

/// Finds the changes of version `to`. The error is `not_found` if the history does not contain this version.
fn find_changes<T>(to: u64, history: History<T>) -> Result<(AuditChanges, Direction)> {
    let mut items = history.items.into_iter();
    parse_id(
        items
            .find(|item| item.version.version == to)
            .map(|item| (item.changes, item.direction)),
    )
}

/// Renders the form that compares two versions, and the result.
fn comparison(
    agent: AgentId,
    service: Option<ServiceId>,
    mut numbers: Vec<u64>,
    compared: Option<&(u64, u64, (AuditChanges, Direction))>,
) -> Markup {
    numbers.extend(compared.iter().flat_map(|(from, to, _)| [*from, *to]));
    numbers.sort_unstable_by(|one, other| other.cmp(one));
    numbers.dedup();
    let (newest, next) = (numbers.first().copied(), numbers.get(1).copied());
    let select = |name: &str, label: &str, chosen: Option<u64>| {
        html! {
            label { (label) " "
                select name=(name) {
                    @for number in &numbers { option value=(number) selected[chosen == Some(*number)] { "Version " (number) } }
                }
            }
        }
    };
    html! {
        @if next.is_some() {
            form.row-actions method="get" action=(format!("{}/history", paths::agent(agent))) {
                @if let Some(service) = service { input type="hidden" name="service" value=(service); }
                (select("from", "From", compared.map(|(from, ..)| *from).or(next)))
                (select("to", "to", compared.map(|(_, to, _)| *to).or(newest)))
                button type="submit" { "Compare" }
            }
        }
        @if let Some((from, to, (changes, direction))) = compared {
            div.message role="status" {
                p { strong { "From version " (from) " to version " (to) ". " } (direction_of(*direction)) }
                (change_list(changes))
            }
        }
    }
}

fn direction_of(direction: Direction) -> &'static str {
    match (direction.widens, direction.narrows) {
        (false, false) => "They allow the same.",
        (true, false) => "The second may allow what the first refused or asked for.",
        (false, true) => "The second may refuse or ask for what the first allowed.",
        (true, true) => "The second may allow more in some ways, and less in others.",
    }
}

fn policies(
    layout: &Layout,
    owned: &OwnedAgent,
    current: &EnabledService,
    history: &History<EnabledService>,
) -> Markup {
    let agent = owned.agent().id;
    html! {
        ol.rows {
            @for ChangedVersion { version, changes, direction } in &history.items {
                li.row {
                    (headline(layout, owned, version, *direction, version.version == current.version))
                    (change_list(changes))
                    @if version.version != current.version {
                        (differences("Differences from the current version", current.audit_members(), version.record.audit_members()))
                        (layout.button(
                            &format!("{}/services/{}/versions/{}/restore", paths::agent(agent), current.service, version.version),
                            &Button::plain("Restore").at(current.version).asking_why(),
                        ))
                    }
                }
            }
        }
    }
}

fn rules(layout: &Layout, owned: &OwnedAgent, history: &History<Agent>, catalog: &Catalog) -> Markup {
    let current = owned.agent();
    html! {
        ol.rows {
            // Updates of the agent that did not change the rules are left out.
            @for ChangedVersion { version, changes, direction } in history.items.iter().filter(|item| item.changes != AuditChanges::default()) {
                @let others: Vec<&Rule> = version.record.rules.iter().filter(|rule| !is_in_force(current, rule)).collect();
                li.row {
                    (headline(layout, owned, version, *direction, version.version == current.version))
                    (change_list(changes))
                    @if !others.is_empty() {
                        (differences("Differences from the current rules", rules_of(current), rules_of(&version.record)))
                    }
                    @for rule in others {
                        p { (phrases::rule(&rule.kind, catalog)) }
                        (layout.button(
                            &format!("{}/versions/{}/rules/{}/restore", paths::agent(current.id), version.version, rule.id),
                            &Button::plain("Restore this rule").at(current.version).asking_why(),
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

fn headline<T>(
    layout: &Layout,
    owned: &OwnedAgent,
    version: &RecordVersion<T>,
    direction: Direction,
    is_current: bool,
) -> Markup {
    let EditMark { by, reason, .. } = &version.mark;
    let is_own = by.as_ref().is_some_and(|by| by.as_str() == owned.agent().owner);
    html! {
        div.row-main {
            strong { "Version " (version.version) }
            @if is_current { " " span.chip.good { "current" } }
            @if direction.widens { " " span.chip.wait { "widens" } }
            @if direction.narrows { " " span.chip { "narrows" } }
            " " span.muted {
                @match version.at { Some(at) => (both(at, layout.now)), None => "time not known yet" }
                @if let Some(by) = by { " by " @if is_own { "you" } @else { (by) } }
            }
            @if let Some(reason) = reason { p { "Why: " (visible(reason.as_str())) } }
        }
    }
}

fn differences(title: &str, current: Members, then: Members) -> Markup {
    html! {
        details.fold {
            summary { (title) }
            (change_list(&AuditChanges::between(Some(current), Some(then))))
        }
    }
}
