//! An agent's keys: made, shown once, rotated with an overlap, revoked.

use super::agent::{self, AgentPage};
use super::form::FormName;
use super::moment::{both, relative};
use super::names;
use super::notice::Notice;
use super::shell::{Button, Shell, version_input};
use super::{done, named};
use crate::ops::keys::{IssuedKey, ListedKey};
use crate::sign_in::Posted;
use crate::state::Dashboard;
use axum::extract::{Path, State};
use maud::{Markup, html};
use purser_api::{Precondition, Reply};
use purser_domain::{KeyId, KeyStatus};
use std::sync::Arc;

/// `POST …/keys`. The answer is the page that shows the key, not a redirect: nothing could carry the key there. A reload
/// sends the same version again, and so makes no second key.
pub(super) async fn create(
    State(dashboard): State<Arc<Dashboard>>,
    Path(agent): Path<String>,
    posted: Posted,
) -> Reply {
    let owned = posted.own_agent(&dashboard, &agent).await?;
    let mut form = posted.form(FormName::Plain);
    let Some(meant) = form.version() else {
        return agent::again(&dashboard, &posted, &owned, form, None).await;
    };
    match dashboard.create_key(owned.clone(), meant).await {
        Ok(issued) => show(&dashboard, &posted, issued).await,
        Err(error) => agent::again(&dashboard, &posted, &owned, form, Some(error)).await,
    }
}

/// `POST …/keys/{key}/rotate`.
pub(super) async fn rotate(
    State(dashboard): State<Arc<Dashboard>>,
    Path((agent, key)): Path<(String, String)>,
    posted: Posted,
) -> Reply {
    let owned = posted.own_agent(&dashboard, &agent).await?;
    let key = named(KeyId::parse(&key))?;
    let mut form = posted.form(FormName::Rotate(key));
    let Some((overlap, meant)) = form.overlap().zip(form.version()) else {
        return agent::again(&dashboard, &posted, &owned, form, None).await;
    };
    match dashboard.rotate_key(owned.clone(), meant, key, overlap).await {
        Ok(rotation) => show(&dashboard, &posted, rotation.issued).await,
        Err(error) => agent::again(&dashboard, &posted, &owned, form, Some(error)).await,
    }
}

/// `POST …/keys/{key}/revoke`. Names no version: a stolen key has to end at once, whoever else is editing.
pub(super) async fn revoke(
    State(dashboard): State<Arc<Dashboard>>,
    Path((agent, key)): Path<(String, String)>,
    posted: Posted,
) -> Reply {
    let owned = posted.own_agent(&dashboard, &agent).await?;
    let key = named(KeyId::parse(&key))?;
    let (owned, _) = dashboard.revoke_key(owned, Precondition::Any, key).await?;
    Ok(done(&names::agent_path(owned.agent().id), Notice::KeyRevoked))
}

async fn show(dashboard: &Dashboard, posted: &Posted, issued: IssuedKey) -> Reply {
    let shell = Shell::of(&posted.visitor, dashboard.now());
    Ok(agent::answer(dashboard, &shell, &issued.agent, Some(issued.text)).await?)
}

/// A new key, on the only page that ever shows it.
pub(super) fn shown_once(key: &str) -> Markup {
    html! {
        section.card.key-once aria-labelledby="new-key-title" data-new-key {
            h2 id="new-key-title" { "The new key" }
            p.warning {
                strong { "Copy it now: it is shown this once." } " We keep no copy, so a lost key can only be replaced. "
                "It works like a password: whoever has it can spend within this agent’s limits."
            }
            div.key-line {
                label.sr for="new-key-text" { "Agent key" }
                textarea.key id="new-key-text" rows="3" readonly spellcheck="false" autocomplete="off" data-select { (key) }
                button.primary.copy type="button" data-copy=(key) hidden { "Copy the key" }
            }
            p.hint { "The agent sends it with every call: " code { "Authorization: Bearer gak_pub_…:gak_sec_…" } }
        }
    }
}

pub(super) fn section(shell: &Shell, page: &AgentPage<'_>, path: &str) -> Markup {
    let version = page.agent.version;
    let (live, ended): (Vec<&ListedKey>, Vec<&ListedKey>) = page
        .keys
        .iter()
        .partition(|row| !matches!(row.status, KeyStatus::Ended { .. }));
    html! {
        section id="keys" aria-labelledby="keys-title" {
            div.section-head {
                h2 id="keys-title" { "Keys" }
                (shell.button(&format!("{path}/keys"), &Button { class: "", ..Button::plain("Create key") }.at(version)))
            }
            @if live.is_empty() {
                p.empty { "No key works at present. The agent can’t ask for anything until you create one." }
            } @else {
                ul.rows { @for row in live { (live_row(shell, row, version, path)) } }
            }
            @if !ended.is_empty() {
                details.fold {
                    summary { (ended.len()) @if ended.len() == 1 { " key that has ended" } @else { " keys that have ended" } }
                    ul.rows { @for row in ended { (ended_row(shell, row)) } }
                }
            }
        }
    }
}

fn facts(shell: &Shell, row: &ListedKey) -> Markup {
    html! {
        code title="The end of the key’s public half" { "…" (row.key.id) }
        span.muted {
            " created " (relative(row.key.created_at, shell.now)) " · "
            @match row.last_used_at {
                Some(at) => { "last used " (relative(at, shell.now)) }
                None => { "never used" }
            }
        }
    }
}

fn live_row(shell: &Shell, row: &ListedKey, version: u64, path: &str) -> Markup {
    let (key, status) = (row.key.id, row.status);
    let inputs = shell.inputs(FormName::Rotate(key));
    let overlaps = [
        ("0", "at once"),
        ("3600", "after 1 hour"),
        ("86400", "after 1 day"),
        ("604800", "after 7 days"),
        ("2592000", "after 30 days"),
    ]
    .map(|(secs, text)| (secs.to_owned(), text.to_owned()));
    html! {
        li.row.key-row {
            div.row-main {
                (facts(shell, row))
                @if let KeyStatus::Ending { ends_at } = status {
                    p { span.chip.wait { "replaced" } " stops working " (both(ends_at, shell.now)) }
                }
            }
            div.row-actions {
                @if status == KeyStatus::Active {
                    details.pop open[inputs.is_typed()] {
                        summary.button { "Rotate" }
                        div.pop-body {
                            (shell.form(&format!("{path}/keys/{key}/rotate"), &html! {
                                (version_input(version))
                                p { "Makes a new key. Both work until the old one stops." }
                                (inputs.choice("overlap_seconds", "The old key stops working", &overlaps, "86400"))
                                button.primary type="submit" { "Rotate key" }
                            }))
                        }
                    }
                }
                (shell.button(
                    &format!("{path}/keys/{key}/revoke"),
                    &Button::danger("Revoke", "Revoke this key? The very next call with it is refused. This can’t be undone."),
                ))
            }
        }
    }
}

fn ended_row(shell: &Shell, row: &ListedKey) -> Markup {
    html! {
        li.row {
            div.row-main { (facts(shell, row)) }
            @if let KeyStatus::Ended { ended_at } = row.status {
                div.row-aside { span.chip.bad { "ended" } " " (relative(ended_at, shell.now)) }
            }
        }
    }
}
