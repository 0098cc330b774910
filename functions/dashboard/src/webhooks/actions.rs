//! The webhook forms.

use crate::sessions::session::VerifiedForm;
use crate::state::PeopleState;
use crate::ui::form::FormName;
use crate::ui::layout::Layout;
use crate::ui::notice::{PageMessage, redirect_with_notice};
use crate::webhooks::form::{CONFLICT, WebhookForm};
use crate::webhooks::operations::IssuedWebhook;
use crate::webhooks::paths::{PAGE, webhook_path};
use crate::webhooks::terms::{FIELDS, parse_selected_agent_ids, parse_settings};
use crate::webhooks::{list_page, page};
use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use purser_api::Reply;
use purser_domain::{DeliveryId, WebhookSettings};

/// Creates a webhook and shows the secret. The form contains a free slot, and a slot has at most one webhook,
/// so a reload creates no second webhook.
pub(crate) async fn submit_new_webhook(people: PeopleState, verified_form: VerifiedForm) -> Reply {
    let user = &verified_form.session.person;
    let mut form = verified_form.parse_posted_form(FormName::NewWebhook);
    let layout = Layout::new(&verified_form.session, people.now());
    let place = form.field_text("place").parse().ok();
    if place.is_none() {
        form.add_error("", "The form is incomplete. Reload the page.");
    }
    let agents = parse_selected_agent_ids(&people, user, &mut form).await?;
    let terms = parse_settings(&mut form, &agents, true);
    let Some((terms, place)) = terms.zip(place) else {
        let layout = layout.with_form(form);
        let page = list_page::render_webhooks_page(&people, &layout, user).await?;
        return Ok((StatusCode::BAD_REQUEST, page).into_response());
    };
    match people.create_webhook(user, terms, Some(place)).await {
        Ok(IssuedWebhook { own, secret }) => {
            Ok(page::webhook_page_response(&people, &layout, user, &own, None, Some(secret)).await?)
        }
        Err(error) => {
            let (status, layout) = layout.with_rejected_form(form, error, &FIELDS, CONFLICT)?;
            let page = list_page::render_webhooks_page(&people, &layout, user).await?;
            Ok((status, page).into_response())
        }
    }
}

pub(crate) async fn submit_webhook_settings(request: WebhookForm) -> Reply {
    let mut form = request.parse_posted_form(FormName::Webhook);
    let agents = parse_selected_agent_ids(&request.people, &request.posted.session.person, &mut form).await?;
    let terms = parse_settings(&mut form, &agents, request.own.webhook.terms.enabled);
    let Some((terms, if_match)) = terms.zip(form.parse_version()) else {
        return request.show_form_again(form).await;
    };
    let user = &request.posted.session.person;
    let updated = request
        .people
        .update_webhook(user, request.own.clone(), if_match, &terms, false)
        .await;
    request.respond_to_form(form, updated, PageMessage::WebhookSaved).await
}

/// Enables the webhook, or resumes deliveries that stopped after a 410 (Gone).
pub(crate) async fn enable_webhook(form: WebhookForm) -> Reply {
    set_webhook_enabled(form, true, PageMessage::WebhookEnabled).await
}

pub(crate) async fn disable_webhook(form: WebhookForm) -> Reply {
    set_webhook_enabled(form, false, PageMessage::WebhookDisabled).await
}

async fn set_webhook_enabled(request: WebhookForm, enabled: bool, message: PageMessage) -> Reply {
    let mut form = request.parse_posted_form(FormName::Plain);
    let Some(if_match) = form.parse_version() else {
        return request.show_form_again(form).await;
    };
    let terms = WebhookSettings {
        enabled,
        ..request.own.webhook.terms.clone()
    };
    let user = &request.posted.session.person;
    let updated = request
        .people
        .update_webhook(user, request.own.clone(), if_match, &terms, enabled)
        .await;
    request.respond_to_form(form, updated, message).await
}

pub(crate) async fn submit_webhook_removal(request: WebhookForm) -> Reply {
    let mut form = request.parse_posted_form(FormName::Plain);
    let Some(if_match) = form.parse_version() else {
        return request.show_form_again(form).await;
    };
    let user = &request.posted.session.person;
    match request.people.remove_webhook(user, request.own.clone(), if_match).await {
        Ok(()) => Ok(redirect_with_notice(PAGE, PageMessage::WebhookRemoved)),
        Err(error) => request.show_rejected_form(form, error).await,
    }
}

/// Replaces the webhook's secret. A reload sends an outdated version, so it replaces nothing.
pub(crate) async fn submit_secret_rotation(request: WebhookForm) -> Reply {
    let mut form = request.parse_posted_form(FormName::Plain);
    let Some(if_match) = form.parse_version() else {
        return request.show_form_again(form).await;
    };
    let user = &request.posted.session.person;
    let rotated = request
        .people
        .rotate_webhook_secret(user, request.own.clone(), if_match)
        .await;
    match rotated {
        Ok(issued) => request.show_new_secret(issued).await,
        Err(error) => request.show_rejected_form(form, error).await,
    }
}

pub(crate) async fn submit_webhook_test(form: WebhookForm) -> Reply {
    let user = &form.posted.session.person;
    form.people.test_webhook(user, &form.own).await?;
    Ok(redirect_with_notice(
        &webhook_path(form.own.webhook.id),
        PageMessage::WebhookTestSent,
    ))
}

pub(crate) async fn submit_redelivery(form: WebhookForm) -> Reply {
    let delivery = form.parse_path_parameter("delivery", DeliveryId::parse)?;
    let user = &form.posted.session.person;
    form.people.redeliver(user, &form.own, delivery).await?;
    Ok(redirect_with_notice(
        &webhook_path(form.own.webhook.id),
        PageMessage::WebhookSentAgain,
    ))
}
