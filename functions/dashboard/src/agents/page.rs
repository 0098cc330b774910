//! The page of one agent.

use crate::agents::contents::AgentPage;
use crate::agents::fleet;
use crate::agents::owned::OwnedAgent;
use crate::agents::wallet_section;
use crate::keys;
use crate::payouts;
use crate::rules;
use crate::services;
use crate::state::People;
use crate::ui::datetime::{exact_time, relative_time};
use crate::ui::form::FormName;
use crate::ui::labels;
use crate::ui::layout::{Button, Layout, NavItem, version_input};
use crate::ui::paths;
use axum::response::{IntoResponse as _, Response};
use maud::{Markup, html};
use purser_domain::{Agent, AgentLimits, AgentName, AgentStatus, Result, escape_hidden_characters, find_rule_findings};

pub(crate) async fn agent_page_response(
    people: &People,
    layout: &Layout,
    owned: &OwnedAgent,
    new_key: Option<String>,
) -> Result<Response> {
    let (mut services, rules, keys, payouts, edition, freeze, shadow, balance) = tokio::try_join!(
        people.list_services(owned),
        people.list_rules(owned),
        people.list_keys(owned),
        people.read_withdrawals(owned),
        people.current_catalog(),
        people.find_operator_freeze(owned.agent()),
        Box::pin(people.read_shadow(owned)),
        async { Ok(people.read_wallet_balance(owned).await) },
    )?;
    // Services that left the catalog are last.
    services.sort_by_cached_key(|governed_service| {
        let service = edition.catalog.find_by_id(governed_service.record.service);
        (service.is_none(), service.map(|service| service.name.to_lowercase()))
    });
    let policies: Vec<_> = services.iter().map(|service| service.record.clone()).collect();
    let limits = AgentLimits {
        agent: owned.agent(),
        policies: &policies,
    };
    let page = AgentPage {
        agent: owned.agent(),
        findings: find_rule_findings(&limits, &edition.catalog, people.now()),
        catalog: &edition.catalog,
        services,
        keys,
        rules,
        balance,
        network: people.network,
        payouts,
        payout_key: uuid::Builder::from_random_bytes(people.entropy.random_bytes()?)
            .into_uuid()
            .to_string(),
        freeze,
        shadowed_since: shadow.map(|shadow| shadow.attached_at),
        new_key,
    };
    Ok(agent_page(layout, &page).into_response())
}

pub(crate) fn agent_page(layout: &Layout, page: &AgentPage<'_>) -> Markup {
    let agent = page.agent;
    let path = paths::agent_path(agent.id);
    let permissive = page
        .services
        .iter()
        .filter(|service| service.record.enabled && service.record.policy.is_permissive())
        .count();
    layout.html_page(
        &escape_hidden_characters(&agent.name),
        NavItem::Elsewhere,
        &html! {
            p.crumb { a href=(fleet::PATH) { "Agents" } }
            div.agent-head {
                div {
                    h1 { (escape_hidden_characters(&agent.name)) " " (labels::status_chip(agent.status)) @if agent.archived { " " span.chip { "archived" } } }
                    p.muted {
                        "created " (relative_time(agent.created_at, layout.now)) " · "
                        span.copyable { code.long { (agent.id) } (labels::copy_button(&agent.id.to_string(), "Copy the agent’s id")) }
                    }
                    p { span.muted { "Labels: " } (fleet::label_chips(agent)) }
                }
                div.agent-actions { (rename_form(layout, page, &path)) (labels_form(layout, agent, &path)) (max_increase_factor_form(layout, agent, &path)) (freeze_buttons(layout, agent, &path)) }
            }
            @if let Some(freeze) = &page.freeze { (labels::operator_freeze_message(layout.now, freeze)) }
            @if agent.status == AgentStatus::Frozen {
                div.message.bad {
                    p {
                        strong { "Frozen." } " Every payment of this agent is refused, including approved ones."
                        @if page.freeze.is_none() { " Its money can still be paid out to you." }
                        @if agent.archived { " It is archived: restore it to unfreeze it." }
                    }
                }
            }
            @if let Some(key) = &page.new_key { (keys::section::new_key_message(key)) }
            @if permissive > 0 {
                div.message.warn {
                    p {
                        strong { "No limit" } (format!(" on {permissive} of its services. "))
                        @if agent.status == AgentStatus::Frozen || page.freeze.is_some() {
                            "Once the freeze ends, the agent can spend its whole balance there without approval. "
                        } @else {
                            "The agent can spend its whole balance there without approval. "
                        }
                        a href="#services" { "Set limits" }
                    }
                }
            }
            nav.inpage aria-label="On this page" {
                ul {
                    li { a href="#services" { "Services" } }
                    li { a href="#rules" { "Rules" } }
                    li { a href="#shadow" { "Shadow" } }
                    li { a href="#keys" { "Keys" } }
                    li { a href="#wallet" { "Wallet" } }
                    li { a href="#payouts" { "Payouts" } }
                    li { a href=(format!("/dashboard/decisions?agent_id={}", agent.id)) { "Its decisions" } }
                    li { a href=(format!("/dashboard/audit-log?agent_id={}", agent.id)) { "Its log" } }
                }
            }
            p { a href=(format!("{}?agent_id={}", paths::TEMPLATES, agent.id)) { "Save its limits as a policy template" } }
            @if let Some(followed) = &agent.template {
                p {
                    "It follows the policy template " a href=(paths::template_path(&followed.name)) { (followed.name) }
                    @match followed.version() { Some(version) => { ", version " (version) "." }, None => ", of which an application was interrupted." }
                }
            }
            (services::section::services_section(layout, page, &path))
            (rules::section::rules_section(layout, page, &path))
            section id="shadow" aria-labelledby="shadow-title" {
                h2 id="shadow-title" { "Shadow" }
                @match page.shadowed_since {
                    Some(since) => p {
                        "Other limits judge the agent’s decisions without effect, attached " (relative_time(since, layout.now)) ": "
                        a href=(paths::shadow_path(agent.id)) { "what they would have decided" } "."
                    },
                    None => p.muted {
                        "“Try in shadow” in a form above attaches its limits to the agent without effect: they judge its decisions from then on."
                    },
                }
            }
            (keys::section::keys_section(layout, page, &path))
            (wallet_section::wallet_section(page))
            (payouts::section::withdrawal_section(layout, page, &path))
            p.muted.fine { "Record version " (agent.version) " · created " (exact_time(agent.created_at)) }
        },
    )
}

fn rename_form(layout: &Layout, page: &AgentPage<'_>, path: &str) -> Markup {
    let inputs = layout.form_inputs(FormName::Rename);
    html! {
        details.pop open[inputs.has_posted_form()] {
            summary.button { "Rename" }
            div.pop-body {
                (layout.post_form(&format!("{path}/rename"), &html! {
                    (version_input(page.agent.version))
                    (inputs.required_text_input("name", "Name of the agent", &page.agent.name, AgentName::MAX))
                    button.primary type="submit" { "Rename" }
                }))
            }
        }
    }
}

fn labels_form(layout: &Layout, agent: &Agent, path: &str) -> Markup {
    let inputs = layout.form_inputs(FormName::Labels);
    let lines: Vec<String> = agent
        .labels
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    html! {
        details.pop open[inputs.has_posted_form()] {
            summary.button { "Labels" }
            div.pop-body {
                (layout.post_form(&format!("{path}/labels"), &html! {
                    (version_input(agent.version))
                    (inputs.text_area("labels", "Labels", "One in each line, such as team=search. At most 10.", &lines, 4))
                    button.primary type="submit" { "Save labels" }
                }))
            }
        }
    }
}

/// Renders the form for the maximum cap that the agent may request, as a multiple of the current cap.
fn max_increase_factor_form(layout: &Layout, agent: &Agent, path: &str) -> Markup {
    let inputs = layout.form_inputs(FormName::RaiseFactor);
    let label = "Times the limit that it may ask you for, for at most a week; 0: never";
    html! {
        details.pop open[inputs.has_posted_form()] {
            summary.button { "Higher limits" }
            div.pop-body {
                (layout.post_form(&format!("{path}/raise-factor"), &html! {
                    (version_input(agent.version))
                    (inputs.number_input("factor", label, agent.max_increase_factor.into()))
                    button.primary type="submit" { "Save" }
                }))
            }
        }
    }
}

/// The forms send no version, so that a concurrent update can't delay a freeze.
fn freeze_buttons(layout: &Layout, agent: &Agent, path: &str) -> Markup {
    let archive = Button::danger(
        "Archive",
        "Archive this agent? It is frozen, and left out of lists until you restore it.",
    );
    let freeze = Button::danger(
        "Freeze",
        "Freeze this agent? Every payment is refused, including approved ones, until you unfreeze it.",
    );
    let primary = |label| Button {
        class: "primary",
        ..Button::plain(label)
    };
    html! {
        @match (agent.archived, agent.status) {
            (true, _) => (layout.button_form(&format!("{path}/restore"), &primary("Restore"))),
            (false, AgentStatus::Active) => {
                (layout.button_form(&format!("{path}/archive"), &archive))
                (layout.button_form(&format!("{path}/freeze"), &freeze))
            }
            (false, AgentStatus::Frozen) => {
                (layout.button_form(&format!("{path}/archive"), &archive))
                (layout.button_form(&format!("{path}/unfreeze"), &primary("Unfreeze")))
            }
        }
    }
}
