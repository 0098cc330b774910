//! An agent's keys.

use super::contents::AgentPage;
use crate::ops::keys::ListedKey;
use crate::pages::datetime::{both, relative};
use crate::pages::form::FormName;
use crate::pages::layout::{Button, Layout, version_input};
use maud::{Markup, html};
use purser_domain::KeyStatus;

/// A new key, on the only page that shows it.
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

pub(super) fn section(layout: &Layout, page: &AgentPage<'_>, path: &str) -> Markup {
    let version = page.agent.version;
    let (live, ended): (Vec<&ListedKey>, Vec<&ListedKey>) = page
        .keys
        .iter()
        .partition(|row| !matches!(row.status, KeyStatus::Ended { .. }));
    html! {
        section id="keys" aria-labelledby="keys-title" {
            div.section-head {
                h2 id="keys-title" { "Keys" }
                (layout.button(&format!("{path}/keys"), &Button { class: "", ..Button::plain("Create key") }.at(version)))
            }
            @if live.is_empty() {
                p.empty { "No key works at present. The agent can’t ask for anything until you create one." }
            } @else {
                ul.rows { @for row in live { (live_row(layout, row, version, path)) } }
            }
            @if !ended.is_empty() {
                details.fold {
                    summary { (ended.len()) @if ended.len() == 1 { " key that has ended" } @else { " keys that have ended" } }
                    ul.rows { @for row in ended { (ended_row(layout, row)) } }
                }
            }
        }
    }
}

fn facts(layout: &Layout, row: &ListedKey) -> Markup {
    html! {
        code title="The end of the key’s public half" { "…" (row.key.id) }
        span.muted {
            " created " (relative(row.key.created_at, layout.now)) " · "
            @match row.last_used_at {
                Some(at) => { "last used " (relative(at, layout.now)) }
                None => { "never used" }
            }
        }
    }
}

fn live_row(layout: &Layout, row: &ListedKey, version: u64, path: &str) -> Markup {
    let (key, status) = (row.key.id, row.status);
    let inputs = layout.inputs(FormName::Rotate(key));
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
                (facts(layout, row))
                @if let KeyStatus::Ending { ends_at } = status {
                    p { span.chip.wait { "replaced" } " stops working " (both(ends_at, layout.now)) }
                }
            }
            div.row-actions {
                @if status == KeyStatus::Active {
                    details.pop open[inputs.is_typed()] {
                        summary.button { "Rotate" }
                        div.pop-body {
                            (layout.form(&format!("{path}/keys/{key}/rotate"), &html! {
                                (version_input(version))
                                p { "Makes a new key. Both work until the old one stops." }
                                (inputs.choice("overlap_seconds", "The old key stops working", &overlaps, "86400"))
                                button.primary type="submit" { "Rotate key" }
                            }))
                        }
                    }
                }
                (layout.button(
                    &format!("{path}/keys/{key}/revoke"),
                    &Button::danger("Revoke", "Revoke this key? The very next call with it is refused. This can’t be undone."),
                ))
            }
        }
    }
}

fn ended_row(layout: &Layout, row: &ListedKey) -> Markup {
    html! {
        li.row {
            div.row-main { (facts(layout, row)) }
            @if let KeyStatus::Ended { ended_at } = row.status {
                div.row-aside { span.chip.bad { "ended" } " " (relative(ended_at, layout.now)) }
            }
        }
    }
}
