//! The page with the versions of an agent's policy for a service, or of an agent's rules.

use crate::address::path_with_query;
use crate::agents::owned::{OwnedAgent, require_id};
use crate::audit::page::change_list;
use crate::cursor;
use crate::history::operations::{ChangedVersion, Direction, History, RuleReport, audited_rules};
use crate::preview::operations::PreviewDays;
use crate::sessions::session::PageSession;
use crate::state::PeopleState;
use crate::ui::datetime::{exact_time, relative_and_exact_time};
use crate::ui::labels;
use crate::ui::layout::{Button, Layout, NavItem};
use crate::ui::list::first_and_next_links;
use crate::ui::paths;
use crate::ui::phrases;
use axum::{extract::Path, http::Uri, response::IntoResponse as _};
use maud::{Markup, html};
use purser_api::{Query, Reply};
use purser_domain::{
    Agent, AgentId, AuditChanges, AuditFields, Catalog, EnabledService, Result, Rule, ServiceId,
    escape_hidden_characters,
};
use purser_store::{PageRequest, RecordVersion, UpdateMark};

const ROWS: u32 = 25;

/// Returns the path of the page with the versions of the agent's policy for `service`. If `service` is `None`, returns
/// the path of the page with the versions of the agent's rules.
pub(crate) fn history_path(agent: AgentId, service: Option<ServiceId>) -> String {
    history_page_url(agent, service, None)
}

fn history_page_url(agent: AgentId, service: Option<ServiceId>, before: Option<u64>) -> String {
    path_with_query(
        &format!("{}/history", paths::agent_path(agent)),
        [
            ("service", service.map(|service| service.to_string())),
            ("before", before.map(|version| version.to_string())),
        ],
    )
}

/// Returns the path of the page with the versions of the agent's rules and the number of decisions per rule.
pub(crate) fn rule_report_path(agent: AgentId, before: Option<u64>, days: &str) -> String {
    path_with_query(
        &format!("{}/history", paths::agent_path(agent)),
        [
            ("days", Some(days.to_owned())),
            ("before", before.map(|version| version.to_string())),
        ],
    )
}

pub(crate) async fn show_history_page(
    people: PeopleState,
    session: PageSession,
    Path(agent): Path<String>,
    uri: Uri,
) -> Reply {
    let agent = require_id(AgentId::parse(&agent))?;
    let owned = people.read_own_agent(&session.person, agent).await?;
    let mut query = Query::without_blanks(&uri);
    let service = match query.parse_text("service") {
        None => None,
        Some(text) => Some(require_id(ServiceId::parse(&text))?),
    };
    let version = |query: &mut Query, name| {
        query
            .parse_text(name)
            .and_then(|text| cursor::parse_version_cursor(&text))
    };
    let before = version(&mut query, "before");
    let page_request = PageRequest { before, limit: ROWS };
    let compared = version(&mut query, "from").zip(version(&mut query, "to"));
    let edition = people.current_catalog().await?;
    let layout = Layout::new(&session, people.now());
    let (of, versions, next) = if let Some(service) = service {
        let record = people.read_service(&owned, &service.to_string()).await?.record;
        let history = people.read_policy_history(&owned, service, page_request, None).await?;
        let of = html! { "Limits of " (labels::service_name(service, &edition.catalog)) };
        let compared = match compared {
            None => None,
            Some((from, to)) => {
                let read = people
                    .read_policy_history(&owned, service, single_version_request(to), Some(from))
                    .await?;
                Some((from, to, find_version_changes(to, read)?))
            }
        };
        let version_numbers = history.items.iter().map(|item| item.version.version).collect();
        let versions = html! {
            (version_comparison_form(agent, Some(service), version_numbers, compared.as_ref()))
            (policy_versions_section(&layout, &owned, &record, &history))
        };
        (of, versions, history.next)
    } else {
        let history = people.read_rules_history(&owned, page_request, None).await?;
        let of = html! { "Rules" };
        let compared = match compared {
            None => None,
            Some((from, to)) => {
                let read = people
                    .read_rules_history(&owned, single_version_request(to), Some(from))
                    .await?;
                Some((from, to, find_version_changes(to, read)?))
            }
        };
        let updates = history
            .items
            .iter()
            .filter(|item| item.changes != AuditChanges::default());
        let version_numbers = updates.map(|item| item.version.version).collect();
        let days = query.parse_text("days").and_then(|text| text.parse().ok());
        let report = match days.and_then(PreviewDays::new) {
            None => None,
            Some(days) => Some(people.report_rules(&owned, &history, days).await?),
        };
        let versions = html! {
            (version_comparison_form(agent, None, version_numbers, compared.as_ref()))
            p {
                "How often each rule decided in the last "
                @for days in ["7", "30"] { a href=(rule_report_path(agent, before, days)) { (days) " days" } " " }
            }
            (rule_versions_section(&layout, &owned, &history, report.as_ref(), &edition.catalog))
        };
        (of, versions, history.next)
    };
    let page = layout.html_page(
        "History",
        NavItem::Agents,
        &html! {
            p.crumb { a href=(paths::agent_path(agent)) { (escape_hidden_characters(&owned.agent().name)) } }
            h1 { "History" }
            h2 { (of) }
            p { "Restoring a version is an edit: it makes a new version, and its limits apply to the next payment. The "
                a href=(path_with_query("/dashboard/audit-log", [("agent_id", Some(agent.to_string()))])) { "audit log" } " has the source of each edit." }
            (versions)
            (first_and_next_links(
                "Pages",
                before.map(|_| ("Newest", history_page_url(agent, service, None))),
                next.map(|next| ("Older", history_page_url(agent, service, Some(next)))),
            ))
        },
    );
    Ok(page.into_response())
}

fn single_version_request(version: u64) -> PageRequest<u64> {
    PageRequest {
        before: version.checked_add(1),
        limit: 1,
    }
}

/// Returns the changes of a version, or `not_found` if the history does not contain this version.
fn find_version_changes<T>(version_number: u64, history: History<T>) -> Result<(AuditChanges, Direction)> {
    let mut items = history.items.into_iter();
    require_id(
        items
            .find(|item| item.version.version == version_number)
            .map(|item| (item.changes, item.direction)),
    )
}

fn version_comparison_form(
    agent: AgentId,
    service: Option<ServiceId>,
    mut version_numbers: Vec<u64>,
    comparison: Option<&(u64, u64, (AuditChanges, Direction))>,
) -> Markup {
    version_numbers.extend(comparison.iter().flat_map(|(from, to, _)| [*from, *to]));
    version_numbers.sort_unstable_by(|left, right| right.cmp(left));
    version_numbers.dedup();
    let (newest, next) = (version_numbers.first().copied(), version_numbers.get(1).copied());
    let select = |name: &str, label: &str, chosen: Option<u64>| {
        html! {
            label { (label) " "
                select name=(name) {
                    @for number in &version_numbers { option value=(number) selected[chosen == Some(*number)] { "Version " (number) } }
                }
            }
        }
    };
    html! {
        @if next.is_some() {
            form.row-actions method="get" action=(format!("{}/history", paths::agent_path(agent))) {
                @if let Some(service) = service { input type="hidden" name="service" value=(service); }
                (select("from", "From", comparison.map(|(from, ..)| *from).or(next)))
                (select("to", "to", comparison.map(|(_, to, _)| *to).or(newest)))
                button type="submit" { "Compare" }
            }
        }
        @if let Some((from, to, (changes, direction))) = comparison {
            div.message role="status" {
                p { strong { "From version " (from) " to version " (to) ". " } (direction_text(*direction)) }
                (change_list(changes))
            }
        }
    }
}

fn direction_text(direction: Direction) -> &'static str {
    match (direction.widens, direction.narrows) {
        (false, false) => "They allow the same.",
        (true, false) => "The second may allow what the first refused or asked for.",
        (false, true) => "The second may refuse or ask for what the first allowed.",
        (true, true) => "The second may allow more in some ways, and less in others.",
    }
}

fn policy_versions_section(
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
                    (version_headline(layout, owned, version, *direction, version.version == current.version))
                    (change_list(changes))
                    @if version.version != current.version {
                        (version_differences("Differences from the current version", current.audit_log_fields(), version.record.audit_log_fields()))
                        (layout.button_form(
                            &format!("{}/services/{}/versions/{}/restore", paths::agent_path(agent), current.service, version.version),
                            &Button::plain("Restore").with_version(current.version).with_reason_input(),
                        ))
                    }
                }
            }
        }
    }
}

fn rule_versions_section(
    layout: &Layout,
    owned: &OwnedAgent,
    history: &History<Agent>,
    report: Option<&RuleReport>,
    catalog: &Catalog,
) -> Markup {
    let current = owned.agent();
    let decided = |version: u64| report.is_some_and(|report| report.rules.keys().any(|(of, _)| *of == version));
    let shown =
        |item: &&ChangedVersion<Agent>| item.changes != AuditChanges::default() || decided(item.version.version);
    html! {
        @if report.is_some_and(|report| report.is_partial) { p.muted { "There are more decisions than are counted here." } }
        ol.rows {
            // Versions of the agent that did not change the rules are not shown.
            @for ChangedVersion { version, changes, direction } in history.items.iter().filter(shown) {
                @let others: Vec<&Rule> = version.record.rules.iter().filter(|rule| !has_same_rule(current, rule)).collect();
                li.row {
                    (version_headline(layout, owned, version, *direction, version.version == current.version))
                    (change_list(changes))
                    @if let Some(report) = report { (rule_report(current.id, version, report, catalog)) }
                    @if !others.is_empty() {
                        (version_differences("Differences from the current rules", audited_rules(current), audited_rules(&version.record)))
                    }
                    @for rule in others {
                        p { (phrases::rule_sentence(&rule.kind, catalog)) }
                        (layout.button_form(
                            &format!("{}/versions/{}/rules/{}/restore", paths::agent_path(current.id), version.version, rule.id),
                            &Button::plain("Restore this rule").with_version(current.version).with_reason_input(),
                        ))
                    }
                }
            }
        }
    }
}

/// Renders each rule of the version with three numbers: the payments that the rule blocked, the payments that
/// the rule escalated, and the allowed payments for which the rule's budget had the least remaining amount of
/// all budgets, and a larger used share than the daily cap.
fn rule_report(agent: AgentId, version: &RecordVersion<Agent>, report: &RuleReport, catalog: &Catalog) -> Markup {
    html! {
        ul.rule-report {
            @for rule in &version.record.rules {
                li {
                    (phrases::rule_sentence(&rule.kind, catalog)) " "
                    @match report.rules.get(&(version.version, rule.id)) {
                        None => span.muted { "No decision." },
                        Some(decisions) => span.muted {
                            "Refused " (decisions.blocked) ", asked " (decisions.escalated) ", nearest limit of " (decisions.tightest) " payments. "
                            @for example in &decisions.examples {
                                a href=(paths::decision_path(agent, example.transaction)) { (exact_time(example.at)) } " "
                            }
                        },
                    }
                }
            }
        }
    }
}

fn has_same_rule(current: &Agent, rule: &Rule) -> bool {
    current
        .rules
        .iter()
        .any(|now| now.id == rule.id && now.kind == rule.kind)
}

fn version_headline<T>(
    layout: &Layout,
    owned: &OwnedAgent,
    version: &RecordVersion<T>,
    direction: Direction,
    is_current: bool,
) -> Markup {
    let UpdateMark { by, reason, .. } = &version.mark;
    let is_own = by.as_ref().is_some_and(|by| by.as_str() == owned.agent().owner);
    html! {
        div.row-main {
            strong { "Version " (version.version) }
            @if is_current { " " span.chip.good { "current" } }
            @if direction.widens { " " span.chip.wait { "widens" } }
            @if direction.narrows { " " span.chip { "narrows" } }
            " " span.muted {
                @match version.at { Some(at) => (relative_and_exact_time(at, layout.now)), None => "time not known yet" }
                @if let Some(by) = by { " by " @if is_own { "you" } @else { (by) } }
            }
            @if let Some(reason) = reason { p { "Why: " (escape_hidden_characters(reason.as_str())) } }
        }
    }
}

fn version_differences(title: &str, current: AuditFields, previous: AuditFields) -> Markup {
    html! {
        details.fold {
            summary { (title) }
            (change_list(&AuditChanges::between(Some(current), Some(previous))))
        }
    }
}
