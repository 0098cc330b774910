//! Handlers for the webhook forms.

use crate::sessions::session::VerifiedForm;
use crate::state::People;
use crate::ui::form::FormName;
use crate::ui::layout::Layout;
use crate::ui::notice::{PageMessage, redirect_with_notice};
use crate::webhooks::form::{WebhookForm, layout_of_rejected_form};
use crate::webhooks::operations::IssuedWebhook;
use crate::webhooks::paths::{PAGE, webhook_path};
use crate::webhooks::terms::{parse_agents, parse_settings};
use crate::webhooks::{list_page, page};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use purser_api::Reply;
use purser_domain::{DeliveryId, WebhookSettings};
use std::sync::Arc;

/// Handles `POST /dashboard/webhooks`: creates a webhook. The response is the page with the new secret, because a
/// redirect cannot carry the secret. The form contains the slot for the new webhook, so reloading the page does not
/// create a second webhook.
pub(crate) async fn submit_new_webhook(State(people): State<Arc<People>>, posted: VerifiedForm) -> Reply {
    let person = &posted.session.person;
    let mut form = posted.parse_form(FormName::NewWebhook);
    let layout = Layout::new(&posted.session, people.now());
    let place = form.field_text("place").parse().ok();
    if place.is_none() {
        form.add_error("", "The form is incomplete. Reload the page.");
    }
    let agents = parse_agents(&people, person, &mut form).await?;
    let terms = parse_settings(&mut form, &agents, true);
    let Some((terms, place)) = terms.zip(place) else {
        let layout = Layout {
            typed: Some(form),
            ..layout
        };
        let page = list_page::webhooks_page_response(&people, &layout, person).await?;
        return Ok((StatusCode::BAD_REQUEST, page).into_response());
    };
    match people.create_webhook(person, terms, Some(place)).await {
        Ok(IssuedWebhook { own, secret }) => {
            Ok(page::webhook_page_response(&people, &layout, person, &own, None, Some(secret)).await?)
        }
        Err(error) => {
            let (status, layout) = layout_of_rejected_form(layout, form, error)?;
            let page = list_page::webhooks_page_response(&people, &layout, person).await?;
            Ok((status, page).into_response())
        }
    }
}

/// Handles `POST …/edit`: replaces the webhook's settings.
pub(crate) async fn submit_webhook_settings(sent: WebhookForm) -> Reply {
    let mut form = sent.parse_form(FormName::Webhook);
    let agents = parse_agents(&sent.people, &sent.posted.session.person, &mut form).await?;
    let terms = parse_settings(&mut form, &agents, sent.own.webhook.terms.enabled);
    let Some((terms, if_match)) = terms.zip(form.parse_version()) else {
        return sent.show_form_again(form).await;
    };
    let person = &sent.posted.session.person;
    let edited = sent
        .people
        .update_webhook(person, sent.own.clone(), if_match, &terms, false)
        .await;
    sent.respond_to_form(form, edited, PageMessage::WebhookSaved).await
}

/// Handles `POST …/enable`: enables the webhook, or resumes deliveries that were stopped because the endpoint responded
/// 410 (Gone).
pub(crate) async fn enable_webhook(sent: WebhookForm) -> Reply {
    set_webhook_enabled(sent, true, PageMessage::WebhookEnabled).await
}

/// Handles `POST …/disable`: stops deliveries to the webhook.
pub(crate) async fn disable_webhook(sent: WebhookForm) -> Reply {
    set_webhook_enabled(sent, false, PageMessage::WebhookDisabled).await
}

async fn set_webhook_enabled(sent: WebhookForm, enabled: bool, notice: PageMessage) -> Reply {
    let mut form = sent.parse_form(FormName::Plain);
    let Some(if_match) = form.parse_version() else {
        return sent.show_form_again(form).await;
    };
    let terms = WebhookSettings {
        enabled,
        ..sent.own.webhook.terms.clone()
    };
    let person = &sent.posted.session.person;
    let edited = sent
        .people
        .update_webhook(person, sent.own.clone(), if_match, &terms, enabled)
        .await;
    sent.respond_to_form(form, edited, notice).await
}

pub(crate) async fn submit_webhook_removal(sent: WebhookForm) -> Reply {
    let mut form = sent.parse_form(FormName::Plain);
    let Some(if_match) = form.parse_version() else {
        return sent.show_form_again(form).await;
    };
    let person = &sent.posted.session.person;
    match sent.people.remove_webhook(person, sent.own.clone(), if_match).await {
        Ok(()) => Ok(redirect_with_notice(PAGE, PageMessage::WebhookRemoved)),
        Err(error) => sent.show_rejected_form(form, error).await,
    }
}

/// Handles `POST …/rotate`: replaces the webhook's secret. As in [`submit_new_webhook`], the response is the page with
/// the new secret. If the page is reloaded, the browser sends an outdated version, so the secret is not replaced again.
pub(crate) async fn submit_secret_rotation(sent: WebhookForm) -> Reply {
    let mut form = sent.parse_form(FormName::Plain);
    let Some(if_match) = form.parse_version() else {
        return sent.show_form_again(form).await;
    };
    let person = &sent.posted.session.person;
    let rotated = sent
        .people
        .rotate_webhook_secret(person, sent.own.clone(), if_match)
        .await;
    match rotated {
        Ok(issued) => sent.show_new_secret(issued).await,
        Err(error) => sent.show_rejected_form(form, error).await,
    }
}

/// Handles `POST …/test`: sends a test event to the webhook.
pub(crate) async fn submit_webhook_test(sent: WebhookForm) -> Reply {
    let person = &sent.posted.session.person;
    sent.people.test_webhook(person, &sent.own).await?;
    Ok(redirect_with_notice(
        &webhook_path(sent.own.webhook.id),
        PageMessage::WebhookTestSent,
    ))
}

/// Handles `POST …/deliveries/{delivery}/redeliver`: sends a delivery again.
pub(crate) async fn submit_redelivery(sent: WebhookForm) -> Reply {
    let delivery = sent.parse_path_parameter("delivery", DeliveryId::parse)?;
    let person = &sent.posted.session.person;
    sent.people.redeliver(person, &sent.own, delivery).await?;
    Ok(redirect_with_notice(
        &webhook_path(sent.own.webhook.id),
        PageMessage::WebhookSentAgain,
    ))
}
