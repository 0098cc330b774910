//! A webhook's page: settings, secrets and deliveries.

use crate::agents::owned::OwnedAgent;
use crate::caller::Caller;
use crate::state::People;
use crate::ui::count::count_with_noun;
use crate::ui::datetime::{relative_and_exact_time, relative_time};
use crate::ui::form::FormName;
use crate::ui::labels;
use crate::ui::layout::{Button, Layout, NavItem, version_input};
use crate::webhooks::deliveries;
use crate::webhooks::list_page::{state_chip, webhook_title};
use crate::webhooks::operations::OwnWebhook;
use crate::webhooks::paths::{PAGE, webhook_path};
use crate::webhooks::terms::settings_inputs;
use axum::response::{IntoResponse as _, Response};
use maud::{Markup, html};
use purser_domain::{AgentId, Result, SecretValidity};
use purser_store::PageRequest;
use uuid::Uuid;

/// `before` is the cursor of the deliveries, and `secret` is a new secret to show.
pub(crate) async fn webhook_page_response(
    people: &People,
    layout: &Layout,
    user: &Caller,
    owned_webhook: &OwnWebhook,
    before: Option<Uuid>,
    secret: Option<String>,
) -> Result<Response> {
    let page_request = PageRequest {
        before,
        limit: deliveries::ROWS,
    };
    let chosen = owned_webhook.webhook.terms.agents.iter().flatten().copied().collect();
    let (agents, log) = tokio::try_join!(
        people.read_own_agents(user, chosen),
        people.list_deliveries(owned_webhook, page_request)
    )?;
    let path = webhook_path(owned_webhook.webhook.id);
    let page = layout.html_page(
        &webhook_title(&owned_webhook.webhook.terms),
        NavItem::Webhooks,
        &html! {
            p.crumb { a href=(PAGE) { "Webhooks" } }
            (webhook_heading(layout, owned_webhook, &path))
            @if let Some(secret) = &secret { (new_secret_message(secret)) }
            (webhook_details(layout, owned_webhook, &agents))
            (settings_form(layout, owned_webhook, &agents, &path))
            (secrets_section(layout, owned_webhook, &path))
            (deliveries::deliveries_section(layout, &log, before.is_some(), &path))
        },
    );
    Ok(page.into_response())
}

fn webhook_heading(layout: &Layout, owned_webhook: &OwnWebhook, path: &str) -> Markup {
    let version = owned_webhook.webhook.version;
    let is_called = owned_webhook.webhook.terms.enabled && owned_webhook.gone_at.is_none();
    html! {
        div.agent-head {
            h1 { (webhook_title(&owned_webhook.webhook.terms)) " " (state_chip(owned_webhook)) }
            div.agent-actions {
                (layout.button_form(&format!("{path}/test"), &Button::plain("Send a test event")))
                @if is_called {
                    (layout.button_form(&format!("{path}/disable"), &Button::plain("Switch off").with_version(version)))
                } @else {
                    (layout.button_form(&format!("{path}/enable"), &Button::plain("Switch on").with_version(version)))
                }
                (layout.button_form(&format!("{path}/remove"), &Button::danger(
                    "Remove",
                    "Remove this webhook? Its secrets and its undelivered events are deleted. This can’t be undone.",
                ).with_version(version)))
            }
        }
        @if let Some(calls) = owned_webhook.failed.as_ref().filter(|calls| !calls.last.is_endpoint_gone()) {
            div.message.bad {
                p {
                    strong { (count_with_noun(calls.count, "call")) " failed" } " since " (relative_and_exact_time(calls.since, layout.now))
                    ". The last error: " (deliveries::call_result_text(calls.last)) "."
                    @if owned_webhook.gone_at.is_some() { " It receives no events until you switch it on, or edit it." }
                }
            }
        } @else if let Some(at) = owned_webhook.gone_at {
            div.message.bad {
                p {
                    strong { "It is disabled" } ", because its program answered 410 Gone or failed for five days, " (relative_and_exact_time(at, layout.now))
                    ". It receives no events until you switch it on, or edit it."
                }
            }
        }
    }
}

/// Renders the new secret. No other page shows this secret.
fn new_secret_message(secret: &str) -> Markup {
    html! {
        section.card.key-once aria-labelledby="new-secret-title" {
            h2 id="new-secret-title" { "The new secret" }
            p.warning {
                strong { "Copy it now. It is shown only once." } " Your program uses it to verify that a call comes from Purser."
            }
            div.key-line {
                label.sr for="new-secret-text" { "Webhook’s secret" }
                textarea.key id="new-secret-text" rows="2" readonly spellcheck="false" autocomplete="off" data-select {
                    (secret)
                }
                button.primary.copy type="button" data-copy=(secret) hidden { "Copy the secret" }
            }
        }
    }
}

fn webhook_details(layout: &Layout, owned_webhook: &OwnWebhook, agents: &[OwnedAgent]) -> Markup {
    let (webhook, terms) = (&owned_webhook.webhook, &owned_webhook.webhook.terms);
    html! {
        div.card {
            dl.facts-list.wide {
                div { dt { "Calls" } dd { code.long { (terms.url) } } }
                div {
                    dt { "Events" }
                    dd {
                        @match &terms.kinds {
                            None => "all events",
                            Some(kinds) => (kinds.iter().map(|kind| kind.label()).collect::<Vec<_>>().join(", ")),
                        }
                    }
                }
                div {
                    dt { "Agents" }
                    dd {
                        @match &terms.agents {
                            None => "all agents",
                            Some(chosen) => @for (index, id) in chosen.iter().enumerate() {
                                @if index > 0 { ", " }
                                (agent_name(*id, agents))
                            },
                        }
                    }
                }
                div { dt { "Content type" } dd { code { (terms.content_type.name()) } } }
                div { dt { "Made" } dd { (relative_and_exact_time(webhook.created_at, layout.now)) } }
            }
        }
    }
}

fn agent_name(id: AgentId, agents: &[OwnedAgent]) -> Markup {
    let known = agents.iter().map(OwnedAgent::agent).find(|agent| agent.id == id);
    known.map_or_else(
        || html! { code.long { (id) } },
        |agent| labels::agent_link(id, &agent.name),
    )
}

fn settings_form(layout: &Layout, owned_webhook: &OwnWebhook, agents: &[OwnedAgent], path: &str) -> Markup {
    let inputs = layout.form_inputs(FormName::Webhook);
    html! {
        details.pop open[inputs.has_posted_form()] {
            summary.button { "Edit" }
            div.pop-body {
                (layout.post_form(&format!("{path}/edit"), &html! {
                    (version_input(owned_webhook.webhook.version))
                    (settings_inputs(&inputs, Some(&owned_webhook.webhook.terms), agents))
                    p.hint { "A change of the URL, or one that sends more events, requires a recent sign-in." }
                    button.primary type="submit" { "Save" }
                }))
            }
        }
    }
}

const NEW_SECRET: &str =
    "Create a new secret? For one day, calls are signed with both secrets: update your program in that time.";

fn secrets_section(layout: &Layout, owned_webhook: &OwnWebhook, path: &str) -> Markup {
    html! {
        section aria-labelledby="secrets-title" {
            div.section-head {
                h2 id="secrets-title" { "Secrets" }
                (layout.button_form(&format!("{path}/rotate"), &Button {
                    question: Some(NEW_SECRET),
                    ..Button::plain("New secret").with_version(owned_webhook.webhook.version)
                }))
            }
            ul.rows { @for secret in owned_webhook.webhook.secrets.iter().rev() { (secret_row(layout, secret)) } }
        }
    }
}

fn secret_row(layout: &Layout, secret: &SecretValidity) -> Markup {
    html! {
        li.row {
            div.row-main { p { "made " (relative_time(secret.created_at, layout.now)) } }
            div.row-aside {
                @match secret.ends_at {
                    None => span.chip.good { "signs" },
                    Some(at) if layout.now < at => {
                        span.chip.wait { "replaced" } " signs until " (relative_and_exact_time(at, layout.now))
                    },
                    Some(at) => { span.chip { "ended" } " " (relative_time(at, layout.now)) },
                }
            }
        }
    }
}
