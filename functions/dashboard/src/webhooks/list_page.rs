//! The page with a user's webhooks, and the form that creates a webhook.

use crate::caller::Caller;
use crate::state::People;
use crate::ui::count::count_with_noun;
use crate::ui::form::FormName;
use crate::ui::labels;
use crate::ui::layout::{Layout, NavItem};
use crate::webhooks::operations::OwnWebhook;
use crate::webhooks::paths::{PAGE, webhook_path};
use crate::webhooks::terms::settings_inputs;
use axum::response::{IntoResponse as _, Response};
use maud::{Markup, html};
use purser_domain::{Result, Webhook, WebhookSettings, escape_hidden_characters};

pub(crate) async fn render_webhooks_page(people: &People, layout: &Layout, user: &Caller) -> Result<Response> {
    Ok(webhook_list_page(layout, &people.list_webhooks(user).await?).into_response())
}

fn webhook_list_page(layout: &Layout, webhooks: &[OwnWebhook]) -> Markup {
    let slot = (0..Webhook::MAX).find(|slot| webhooks.iter().all(|own| own.webhook.slot != *slot));
    layout.html_page(
        "Webhooks",
        NavItem::Webhooks,
        &html! {
            div.section-head {
                h1 { "Webhooks" }
                @if let Some(slot) = slot { (new_webhook_form(layout, slot)) }
            }
            p {
                "Send events about your agents to an HTTPS endpoint. Calls are signed according to "
                (labels::external_link("https://www.standardwebhooks.com", "Standard Webhooks"))
                "."
            }
            @if slot.is_none() { p.hint { "You have " (Webhook::MAX) ", the maximum: remove one to add another." } }
            @if webhooks.is_empty() {
                p.empty { "There are no webhooks yet." }
            } @else {
                ul.rows { @for own in webhooks { (webhook_row(own)) } }
            }
        },
    )
}

fn webhook_row(owned_webhook: &OwnWebhook) -> Markup {
    let terms = &owned_webhook.webhook.terms;
    html! {
        li.row {
            div.row-main {
                p { a.name href=(webhook_path(owned_webhook.webhook.id)) { (webhook_title(terms)) } " " (state_chip(owned_webhook)) }
                @if terms.description.is_some() { p { code.long { (terms.url) } } }
                p.muted { (event_summary(terms)) }
            }
        }
    }
}

/// Returns the webhook's description. If the webhook has no description, returns the webhook's URL.
pub(crate) fn webhook_title(settings: &WebhookSettings) -> String {
    settings
        .description
        .as_deref()
        .map_or_else(|| settings.url.to_string(), escape_hidden_characters)
}

pub(crate) fn state_chip(owned_webhook: &OwnWebhook) -> Markup {
    html! {
        @if !owned_webhook.webhook.terms.enabled { span.chip { "off" } }
        @else if owned_webhook.gone_at.is_some() { span.chip.bad { "gone" } }
        @else if owned_webhook.failed.is_some() { span.chip.wait { "failing" } }
        @else { span.chip.good { "on" } }
    }
}

/// Describes briefly which events a webhook receives.
fn event_summary(settings: &WebhookSettings) -> String {
    let kinds = match &settings.kinds {
        None => "all events".to_owned(),
        Some(kinds) if kinds.len() == 1 => kinds.iter().map(|kind| kind.label()).collect(),
        Some(kinds) => count_with_noun(kinds.len(), "event type"),
    };
    let agents = match &settings.agents {
        None => "all agents".to_owned(),
        Some(agents) => count_with_noun(agents.len(), "agent"),
    };
    format!("{kinds}, of {agents}")
}

fn new_webhook_form(layout: &Layout, index: u8) -> Markup {
    let inputs = layout.form_inputs(FormName::NewWebhook);
    html! {
        details.pop open[inputs.has_posted_form()] {
            summary.button { "New webhook" }
            div.pop-body {
                (layout.post_form(PAGE, &html! {
                    input type="hidden" name="place" value=(index);
                    (settings_inputs(&inputs, None, &[]))
                    button.primary type="submit" { "Create webhook" }
                }))
            }
        }
    }
}
