//! The page of an agent's shadow policy.

use crate::agents::owned::{OwnedAgent, require_id};
use crate::audit::page::change_list;
use crate::preview::section;
use crate::sessions::session::PageSession;
use crate::shadow::operations::EvaluatedShadow;
use crate::state::{People, PeopleState};
use crate::ui::count::count_with_noun;
use crate::ui::datetime::{exact_time, relative_and_exact_time};
use crate::ui::layout::{Button, Layout, NavItem};
use crate::ui::money::format_dollars;
use crate::ui::paths;
use axum::{
    extract::Path,
    http::Uri,
    response::{IntoResponse as _, Response},
};
use maud::{Markup, html};
use purser_api::Reply;
use purser_domain::{AgentId, Amount, AuditChanges, ErrorKind, Result, Shadow, escape_hidden_characters};

pub(crate) async fn show_shadow_page(
    people: PeopleState,
    session: PageSession,
    Path(agent): Path<String>,
    uri: Uri,
) -> Reply {
    let agent = require_id(AgentId::parse(&agent))?;
    let owned = people.read_own_agent(&session.person, agent).await?;
    let layout = Layout::new(&session, people.now()).with_message_in_url(&uri);
    Ok(shadow_page_response(&people, &layout, &owned).await?)
}

/// Renders the page, or an empty page if the agent has no shadow policy.
pub(crate) async fn shadow_page_response(people: &People, layout: &Layout, owned: &OwnedAgent) -> Result<Response> {
    let result = match people.evaluate_shadow_policy(owned).await {
        Ok(result) => Some(result),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound) => None,
        Err(error) => return Err(error),
    };
    let agent = owned.agent();
    let page = layout.html_page(
        "Shadow",
        NavItem::Agents,
        &html! {
            p.crumb { a href=(paths::agent_path(agent.id)) { (escape_hidden_characters(&agent.name)) } }
            h1 { "Shadow" }
            p { "A shadow judges the agent’s decisions beside the limits in force, without effect. Nothing is refused or asked because of it." }
            @match &result {
                None => p.empty {
                    "This agent has no shadow. To attach one, fill in the form of a policy or of a rule on "
                    a href=(paths::agent_path(agent.id)) { "its page" } ", and press “Try in shadow”."
                },
                Some(result) => (shadow_page_content(layout, agent.id, result)),
            }
        },
    );
    Ok(page.into_response())
}

fn shadow_page_content(layout: &Layout, agent: AgentId, evaluated_shadow: &EvaluatedShadow) -> Markup {
    let EvaluatedShadow {
        shadow,
        result,
        changes,
        ..
    } = evaluated_shadow;
    let changed_decisions = result.if_declined.count_changed();
    let ends_at = shadow.attached_at.after(Shadow::DURATION);
    let path = paths::shadow_path(agent);
    html! {
        p.muted { "Attached " (relative_and_exact_time(shadow.attached_at, layout.now)) ". It ends " (relative_and_exact_time(ends_at, layout.now)) "." }
        section aria-labelledby="decided-title" {
            h2 id="decided-title" { "What it would have decided" }
            dl.facts-list {
                div { dt { "Agreement" } dd { (result.decisions.saturating_sub(changed_decisions)) " of " (count_with_noun(result.decisions, "decision")) } }
                div { dt { "Would have saved" } dd { (format_units_as_dollars(result.if_declined.saved)) } }
                div { dt { "Would have paid more" } dd { (format_units_as_dollars(result.if_declined.added)) } }
            }
            (section::backtest_result(result, evaluated_shadow.from))
            @if evaluated_shadow.is_partial {
                p.muted { "There are more decisions than this page reads. A backtest of the same limits reads all." }
            }
            p.muted { "Decisions until " (exact_time(evaluated_shadow.until)) "." }
        }
        section aria-labelledby="promote-title" {
            h2 id="promote-title" { "What promoting changes" }
            @if evaluated_shadow.is_edited {
                div.message.warn { p { "The agent or its limits were edited since the shadow was attached. The differences are from the limits in force now." } }
            }
            (section::limit_change_summary(&evaluated_shadow.comparison, false))
            @if *changes == AuditChanges::default() {
                p.empty { "Nothing: these limits are in force." }
            } @else {
                (change_list(changes))
            }
            div.actions {
                (layout.button_form(&format!("{path}/promote"), &Button { class: "primary", ..Button::plain("Promote").with_version(evaluated_shadow.version) }))
                (layout.button_form(&format!("{path}/remove"), &Button::danger("Remove", "Remove the shadow? The limits in force stay as they are.")))
            }
        }
    }
}

fn format_units_as_dollars(units: u64) -> String {
    format_dollars(Amount::from_units(units).unwrap_or(Amount::MAX))
}
