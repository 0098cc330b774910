//! The keys on an agent's page.

use crate::agents::contents::AgentPage;
use crate::keys::api::parse_scope;
use crate::keys::operations::ListedKey;
use crate::ui::datetime::{relative_and_exact_time, relative_time};
use crate::ui::form::{BoxOption, FieldOf, Form, FormName};
use crate::ui::labels;
use crate::ui::layout::{Button, Layout, version_input};
use maud::{Markup, html};
use purser_domain::{Catalog, Duration, KeyScope, KeyStatus, Permission, Timestamp, escape_hidden_characters};
use serde_json::json;

/// The JSON fields of a new key, each with the form field and label.
const FIELDS: [FieldOf; 4] = [
    ("permissions", "may", "May"),
    ("services", "services", "Services"),
    ("networks", "networks", "Networks"),
    ("expires_at", "expires_days", "Expires"),
];

/// If the result is `None`, the form has at least one validation error.
pub(crate) fn parse_key_scope(form: &mut Form, catalog: &Catalog, now: Timestamp) -> Option<KeyScope> {
    let days = form.parse_number("expires_days", "Expires", 0, 3_650)?;
    let expires = Duration::from_secs_u32(days.saturating_mul(86_400));
    let some = |field| Some(form.distinct_field_words(field)).filter(|words| !words.is_empty());
    let body = json!({
        "permissions": form.distinct_field_words("may"),
        "services": some("services"),
        "networks": some("networks"),
        "expires_at": (days > 0).then(|| now.after(expires).to_string()),
    });
    form.take_value_or_add_errors(parse_scope(&body, catalog, now), &FIELDS)
}

/// Renders a new key. No other page shows this key.
pub(crate) fn new_key_message(key: &str) -> Markup {
    html! {
        section.card.key-once aria-labelledby="new-key-title" data-new-key {
            h2 id="new-key-title" { "The new key" }
            p.warning {
                strong { "Copy it now. It is shown only once." } " Purser keeps no copy, so a lost key can only be replaced. "
                "It works like a password: anyone who has it can spend within this agent’s limits."
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

pub(crate) fn keys_section(layout: &Layout, page: &AgentPage<'_>, path: &str) -> Markup {
    let version = page.agent.version;
    let (live, ended): (Vec<&ListedKey>, Vec<&ListedKey>) = page
        .keys
        .iter()
        .partition(|row| !matches!(row.status, KeyStatus::Ended { .. }));
    html! {
        section id="keys" aria-labelledby="keys-title" {
            div.section-head {
                h2 id="keys-title" { "Keys" }
                div.row-actions {
                    (limited_key_form(layout, version, path))
                    (layout.button_form(&format!("{path}/keys"), &Button { class: "", ..Button::plain("Create key") }.with_version(version)))
                }
            }
            @if live.is_empty() {
                p.empty { "This agent has no active key. It can’t request anything until you create one, or connect an application." }
            } @else {
                ul.rows { @for row in live { (active_key_row(layout, page, row, path)) } }
            }
            @if !ended.is_empty() {
                details.fold {
                    summary { (ended.len()) @if ended.len() == 1 { " ended key" } @else { " ended keys" } }
                    ul.rows { @for row in ended { (expired_key_row(layout, page.catalog, row)) } }
                }
            }
        }
    }
}

pub(crate) fn permission_options() -> Vec<BoxOption> {
    let options = [
        (Permission::Read, "Read receipts, services and policies"),
        (Permission::Pay, "Pay"),
    ];
    let options = options.into_iter().map(|(permission, label)| BoxOption {
        value: permission.name().to_owned(),
        label: label.to_owned(),
        present: true,
    });
    options.collect()
}

fn limited_key_form(layout: &Layout, version: u64, path: &str) -> Markup {
    let inputs = layout.form_inputs(FormName::LimitedKey);
    let may = permission_options();
    let expiries = [
        ("0", "never"),
        ("1", "after 1 day"),
        ("7", "after 7 days"),
        ("30", "after 30 days"),
        ("90", "after 90 days"),
        ("365", "after a year"),
    ]
    .map(|(days, text)| (days.to_owned(), text.to_owned()));
    html! {
        details.pop open[inputs.has_posted_form()] {
            summary.button { "Create a limited key" }
            div.pop-body {
                (layout.post_form(&format!("{path}/keys"), &html! {
                    (version_input(version))
                    input type="hidden" name="limited" value="yes";
                    (inputs.checkboxes("may", "It may", "Choose at least one.", &may))
                    (inputs.text_area("services", "Services", "One slug per line, as the catalog shows them. Empty: all services.", &[], 3))
                    (inputs.text_area("networks", "Networks", "Allowed networks: one CIDR block per line, such as 203.0.113.0/24. Empty: any network.", &[], 3))
                    (inputs.drop_down("expires_days", "It expires", &expiries, "0"))
                    p.hint { "A key’s permissions can’t be changed later. A rotated key keeps them." }
                    button.primary type="submit" { "Create the limited key" }
                }))
            }
        }
    }
}

fn key_scope_text(layout: &Layout, catalog: &Catalog, scope: &KeyScope) -> Markup {
    let may: Vec<&str> = scope.permissions().iter().map(|may| may.name()).collect();
    html! {
        p.muted {
            "May " (may.join(" and "))
            @match &scope.services {
                None => { " for every service" }
                Some(services) => {
                    " for "
                    @for (index, service) in services.iter().enumerate() { @if index > 0 { ", " } (labels::service_name(*service, catalog)) }
                }
            }
            @match &scope.networks {
                None => { ", from everywhere" }
                Some(networks) => {
                    ", from "
                    @for (index, network) in networks.iter().enumerate() { @if index > 0 { ", " } code { (network) } }
                }
            }
            @if let Some(at) = scope.expires_at { ", until " (relative_and_exact_time(at, layout.now)) }
        }
    }
}

fn key_details(layout: &Layout, catalog: &Catalog, row: &ListedKey) -> Markup {
    html! {
        (labels::key_suffix(row.key.id))
        span.muted {
            " created " (relative_time(row.key.created_at, layout.now)) " · "
            @match row.last_used_at {
                Some(at) => { "last used " (relative_time(at, layout.now)) }
                None => { "never used" }
            }
        }
        @if let Some(grant) = row.key.grant() {
            p { "An application that calls itself " strong { "“" (escape_hidden_characters(grant.client.as_str())) "”" } ", through " code { (grant.origin) } }
        }
        @if let Some(opener) = row.key.opened_by { p { "A run, opened by key " (labels::key_suffix(opener)) } }
        (key_scope_text(layout, catalog, &row.key.scope))
    }
}

fn active_key_row(layout: &Layout, page: &AgentPage<'_>, row: &ListedKey, path: &str) -> Markup {
    let (key, status, version) = (row.key.id, row.status, page.agent.version);
    let inputs = layout.form_inputs(FormName::Rotate(key));
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
                (key_details(layout, page.catalog, row))
                @if let KeyStatus::Ending { ends_at } = status {
                    p { span.chip.wait { "replaced" } " stops working " (relative_and_exact_time(ends_at, layout.now)) }
                }
            }
            div.row-actions {
                @if status == KeyStatus::Active && row.key.grant().is_none() && row.key.opened_by.is_none() {
                    details.pop open[inputs.has_posted_form()] {
                        summary.button { "Rotate" }
                        div.pop-body {
                            (layout.post_form(&format!("{path}/keys/{key}/rotate"), &html! {
                                (version_input(version))
                                p { "Creates a new key with the same permissions. Both keys work until the old one ends." }
                                (inputs.drop_down("overlap_seconds", "The old key ends", &overlaps, "86400"))
                                button.primary type="submit" { "Rotate key" }
                            }))
                        }
                    }
                }
                (layout.button_form(
                    &format!("{path}/keys/{key}/revoke"),
                    &Button::danger("Revoke", "Revoke this key? The next call with it is refused. This can’t be undone."),
                ))
            }
        }
    }
}

fn expired_key_row(layout: &Layout, catalog: &Catalog, row: &ListedKey) -> Markup {
    html! {
        li.row {
            div.row-main { (key_details(layout, catalog, row)) }
            @if let KeyStatus::Ended { ended_at } = row.status {
                div.row-aside { span.chip.bad { "ended" } " " (relative_time(ended_at, layout.now)) }
            }
        }
    }
}
