//! Routes for the webhook pages. The forms use the same operations as `api.rs`.

use crate::agents::owned::require_id;
use crate::redirect::see_other;
use crate::sessions::session::PageSession;
use crate::state::{People, PeopleState};
use crate::ui::layout::Layout;
use crate::webhooks::paths::webhook_path;
use crate::webhooks::{actions, deliveries, list_page, page};
use axum::{
    Router,
    extract::Path,
    handler::Handler,
    http::Uri,
    routing::{MethodRouter, get, post},
};
use purser_api::Reply;
use purser_domain::WebhookId;
use std::collections::HashMap;
use std::sync::Arc;

pub(crate) fn routes() -> Router<Arc<People>> {
    Router::new()
        .route("/", get(show_webhooks_page).post(actions::submit_new_webhook))
        .route("/{webhook}", get(show_webhook_page))
        .route("/{webhook}/edit", form_route(actions::submit_webhook_settings))
        .route("/{webhook}/enable", form_route(actions::enable_webhook))
        .route("/{webhook}/disable", form_route(actions::disable_webhook))
        .route("/{webhook}/remove", form_route(actions::submit_webhook_removal))
        .route("/{webhook}/rotate", form_route(actions::submit_secret_rotation))
        .route("/{webhook}/test", form_route(actions::submit_webhook_test))
        .route(
            "/{webhook}/deliveries/{delivery}/redeliver",
            form_route(actions::submit_redelivery),
        )
}

/// Routes a form's path: `POST` to the handler, and `GET` back to the webhook's page.
fn form_route<H, T>(handler: H) -> MethodRouter<Arc<People>>
where
    H: Handler<T, Arc<People>>,
    T: 'static,
{
    post(handler).get(redirect_to_webhook)
}

async fn show_webhooks_page(people: PeopleState, session: PageSession, uri: Uri) -> Reply {
    let layout = Layout::new(&session, people.now()).with_message_in_url(&uri);
    Ok(list_page::render_webhooks_page(&people, &layout, &session.person).await?)
}

async fn show_webhook_page(people: PeopleState, session: PageSession, Path(webhook): Path<String>, uri: Uri) -> Reply {
    let id = require_id(WebhookId::parse(&webhook))?;
    let own = people.read_own_webhook(&session.person, id).await?;
    let layout = Layout::new(&session, people.now()).with_message_in_url(&uri);
    let before = deliveries::parse_cursor(&uri);
    Ok(page::webhook_page_response(&people, &layout, &session.person, &own, before, None).await?)
}

/// Redirects a `GET` of a path that accepts only `POST`.
async fn redirect_to_webhook(Path(path): Path<HashMap<String, String>>) -> Reply {
    let webhook = require_id(path.get("webhook").and_then(|webhook| WebhookId::parse(webhook)))?;
    Ok(see_other(&webhook_path(webhook)))
}
