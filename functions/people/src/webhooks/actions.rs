//! Handlers for the webhook forms, one function per form.

use crate::sessions::session::VerifiedForm;
use crate::state::People;
use crate::ui::form::FormName;
use crate::ui::layout::Layout;
use crate::ui::notice::{Notice, done};
use crate::webhooks::form::{WebhookForm, reject_form};
use crate::webhooks::operations::IssuedWebhook;
use crate::webhooks::paths::{PAGE, path_of};
use crate::webhooks::terms::{read_agents, read_terms};
use crate::webhooks::{list_page, page};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use purser_api::Reply;
use purser_domain::{DeliveryId, WebhookTerms};
use std::sync::Arc;

/// Handles `POST /dashboard/webhooks`: creates a webhook. The response is the page with the new secret, because a
/// redirect could not carry the secret. The form contains the new webhook's slot, so reloading the page does not create
/// a second webhook.
pub(crate) async fn create(State(people): State<Arc<People>>, posted: VerifiedForm) -> Reply {
    let person = &posted.session.person;
    let mut form = posted.form(FormName::NewWebhook);
    let layout = Layout::new(&posted.session, people.now());
    let place = form.text("place").parse().ok();
    if place.is_none() {
        form.wrong("", "The form is incomplete. Reload the page.");
    }
    let agents = read_agents(&people, person, &mut form).await?;
    let terms = read_terms(&mut form, &agents, true);
    let Some((terms, place)) = terms.zip(place) else {
        let layout = Layout {
            typed: Some(form),
            ..layout
        };
        let page = list_page::answer(&people, &layout, person).await?;
        return Ok((StatusCode::BAD_REQUEST, page).into_response());
    };
    match people.create_webhook(person, terms, Some(place)).await {
        Ok(IssuedWebhook { own, secret }) => {
            Ok(page::answer(&people, &layout, person, &own, None, Some(secret)).await?)
        }
        Err(error) => {
            let (status, layout) = reject_form(layout, form, error)?;
            let page = list_page::answer(&people, &layout, person).await?;
            Ok((status, page).into_response())
        }
    }
}

/// Handles `POST …/edit`: replaces the webhook's settings.
pub(crate) async fn edit(sent: WebhookForm) -> Reply {
    let mut form = sent.form(FormName::Webhook);
    let agents = read_agents(&sent.people, &sent.posted.session.person, &mut form).await?;
    let terms = read_terms(&mut form, &agents, sent.own.webhook.terms.enabled);
    let Some((terms, if_match)) = terms.zip(form.version()) else {
        return sent.again(form).await;
    };
    let person = &sent.posted.session.person;
    let edited = sent
        .people
        .edit_webhook(person, sent.own.clone(), if_match, &terms, false)
        .await;
    sent.answer(form, edited, Notice::WebhookSaved).await
}

/// Handles `POST …/enable`: enables the webhook, or resumes deliveries that were stopped because the endpoint responded
/// 410 (Gone).
pub(crate) async fn enable(sent: WebhookForm) -> Reply {
    switch(sent, true, Notice::WebhookEnabled).await
}

/// Handles `POST …/disable`: stops deliveries to the webhook.
pub(crate) async fn disable(sent: WebhookForm) -> Reply {
    switch(sent, false, Notice::WebhookDisabled).await
}

async fn switch(sent: WebhookForm, enabled: bool, notice: Notice) -> Reply {
    let mut form = sent.form(FormName::Plain);
    let Some(if_match) = form.version() else {
        return sent.again(form).await;
    };
    let terms = WebhookTerms {
        enabled,
        ..sent.own.webhook.terms.clone()
    };
    let person = &sent.posted.session.person;
    let edited = sent
        .people
        .edit_webhook(person, sent.own.clone(), if_match, &terms, enabled)
        .await;
    sent.answer(form, edited, notice).await
}

/// Handles `POST …/remove`: removes the webhook.
pub(crate) async fn remove(sent: WebhookForm) -> Reply {
    let mut form = sent.form(FormName::Plain);
    let Some(if_match) = form.version() else {
        return sent.again(form).await;
    };
    let person = &sent.posted.session.person;
    match sent.people.remove_webhook(person, sent.own.clone(), if_match).await {
        Ok(()) => Ok(done(PAGE, Notice::WebhookRemoved)),
        Err(error) => sent.reject(form, error).await,
    }
}

/// Handles `POST …/rotate`: replaces the webhook's secret. Like [`create`], the response is the page with the new
/// secret. Reloading the page sends an outdated version, so the secret is not rotated again.
pub(crate) async fn rotate(sent: WebhookForm) -> Reply {
    let mut form = sent.form(FormName::Plain);
    let Some(if_match) = form.version() else {
        return sent.again(form).await;
    };
    let person = &sent.posted.session.person;
    let rotated = sent
        .people
        .rotate_webhook_secret(person, sent.own.clone(), if_match)
        .await;
    match rotated {
        Ok(issued) => sent.show_secret(issued).await,
        Err(error) => sent.reject(form, error).await,
    }
}

/// Handles `POST …/test`: sends a test event to the webhook.
pub(crate) async fn test(sent: WebhookForm) -> Reply {
    let person = &sent.posted.session.person;
    sent.people.test_webhook(person, &sent.own).await?;
    Ok(done(&path_of(sent.own.webhook.id), Notice::WebhookTestSent))
}

/// Handles `POST …/deliveries/{delivery}/redeliver`: sends a delivery again.
pub(crate) async fn redeliver(sent: WebhookForm) -> Reply {
    let delivery = sent.parse_parameter("delivery", DeliveryId::parse)?;
    let person = &sent.posted.session.person;
    sent.people.send_again(person, &sent.own, delivery).await?;
    Ok(done(&path_of(sent.own.webhook.id), Notice::WebhookSentAgain))
}
