//! The page with a user's webhooks, and the form that creates a webhook.

use crate::caller::Caller;
use crate::state::People;
use crate::ui::count::count_with_noun;
use crate::ui::form::FormName;
use crate::ui::labels;
use crate::ui::layout::{Layout, NavItem};
use crate::webhooks::operations::OwnWebhook;
use crate::webhooks::paths::{PAGE, path_of};
use crate::webhooks::terms::terms_inputs;
use axum::response::{IntoResponse as _, Response};
use maud::{Markup, html};
use purser_domain::{Result, Webhook, WebhookTerms, visible};

/// Renders the page with a user's webhooks.
pub(crate) async fn answer(people: &People, layout: &Layout, person: &Caller) -> Result<Response> {
    Ok(list_page(layout, &people.webhooks(person).await?).into_response())
}

fn list_page(layout: &Layout, webhooks: &[OwnWebhook]) -> Markup {
    let place = (0..Webhook::MAX).find(|place| webhooks.iter().all(|own| own.webhook.slot != *place));
    layout.page(
        "Webhooks",
        NavItem::Webhooks,
        &html! {
            div.section-head {
                h1 { "Webhooks" }
                @if let Some(place) = place { (new_webhook(layout, place)) }
            }
            p {
                "Send events about your agents to an HTTPS endpoint. Calls are signed according to "
                (labels::outside("https://www.standardwebhooks.com", "Standard Webhooks"))
                "."
            }
            @if place.is_none() { p.hint { "You have " (Webhook::MAX) ", the maximum: remove one to add another." } }
            @if webhooks.is_empty() {
                p.empty { "There are no webhooks yet." }
            } @else {
                ul.rows { @for own in webhooks { (row(own)) } }
            }
        },
    )
}

fn row(own: &OwnWebhook) -> Markup {
    let terms = &own.webhook.terms;
    html! {
        li.row {
            div.row-main {
                p { a.name href=(path_of(own.webhook.id)) { (title(terms)) } " " (state_chip(own)) }
                @if terms.description.is_some() { p { code.long { (terms.url) } } }
                p.muted { (event_summary(terms)) }
            }
        }
    }
}

/// Returns the webhook's description, or its URL if there is no description.
pub(crate) fn title(terms: &WebhookTerms) -> String {
    terms
        .description
        .as_deref()
        .map_or_else(|| terms.url.to_string(), visible)
}

pub(crate) fn state_chip(own: &OwnWebhook) -> Markup {
    html! {
        @if !own.webhook.terms.enabled { span.chip { "off" } }
        @else if own.gone_at.is_some() { span.chip.bad { "gone" } }
        @else if own.failed.is_some() { span.chip.wait { "failing" } }
        @else { span.chip.good { "on" } }
    }
}

/// Describes briefly which events a webhook receives.
fn event_summary(terms: &WebhookTerms) -> String {
    let kinds = match &terms.kinds {
        None => "all events".to_owned(),
        Some(kinds) if kinds.len() == 1 => kinds.iter().map(|kind| labels::event(*kind)).collect(),
        Some(kinds) => count_with_noun(kinds.len(), "event type"),
    };
    let agents = match &terms.agents {
        None => "all agents".to_owned(),
        Some(agents) => count_with_noun(agents.len(), "agent"),
    };
    format!("{kinds}, of {agents}")
}

fn new_webhook(layout: &Layout, place: u8) -> Markup {
    let inputs = layout.inputs(FormName::NewWebhook);
    html! {
        details.pop open[inputs.is_typed()] {
            summary.button { "New webhook" }
            div.pop-body {
                (layout.form(PAGE, &html! {
                    input type="hidden" name="place" value=(place);
                    (terms_inputs(&inputs, None, &[]))
                    button.primary type="submit" { "Create webhook" }
                }))
            }
        }
    }
}
