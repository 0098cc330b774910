//! Routes for the webhook pages. The forms use the same operations as `api.rs`.

use crate::agents::owned::parse_id;
use crate::redirect::see_other;
use crate::sessions::session::PageSession;
use crate::state::People;
use crate::ui::layout::Layout;
use crate::webhooks::paths::path_of;
use crate::webhooks::{actions, deliveries, list_page, page};
use axum::{
    Router,
    extract::{Path, State},
    handler::Handler,
    http::Uri,
    routing::{MethodRouter, get, post},
};
use purser_api::Reply;
use purser_domain::WebhookId;
use std::collections::HashMap;
use std::sync::Arc;

/// Returns the routes below `/dashboard/webhooks`.
pub(crate) fn routes() -> Router<Arc<People>> {
    Router::new()
        .route("/", get(list).post(actions::create))
        .route("/{webhook}", get(show))
        .route("/{webhook}/edit", form(actions::edit))
        .route("/{webhook}/enable", form(actions::enable))
        .route("/{webhook}/disable", form(actions::disable))
        .route("/{webhook}/remove", form(actions::remove))
        .route("/{webhook}/rotate", form(actions::rotate))
        .route("/{webhook}/test", form(actions::test))
        .route("/{webhook}/deliveries/{delivery}/redeliver", form(actions::redeliver))
}

/// Routes a form's path: `POST` to the handler, and `GET` back to the webhook's page.
fn form<H, T>(handler: H) -> MethodRouter<Arc<People>>
where
    H: Handler<T, Arc<People>>,
    T: 'static,
{
    post(handler).get(back)
}

/// Shows `GET /dashboard/webhooks`: the user's webhooks.
async fn list(State(people): State<Arc<People>>, session: PageSession, uri: Uri) -> Reply {
    let layout = Layout::new(&session, people.now()).with_notice(&uri);
    Ok(list_page::answer(&people, &layout, &session.person).await?)
}

/// Shows `GET /dashboard/webhooks/{webhook}`: one webhook with its deliveries.
async fn show(State(people): State<Arc<People>>, session: PageSession, Path(webhook): Path<String>, uri: Uri) -> Reply {
    let id = parse_id(WebhookId::parse(&webhook))?;
    let own = people.own_webhook(&session.person, id).await?;
    let layout = Layout::new(&session, people.now()).with_notice(&uri);
    let before = deliveries::cursor(&uri);
    Ok(page::answer(&people, &layout, &session.person, &own, before, None).await?)
}

/// Redirects a `GET` for a form's path to the webhook's page.
async fn back(Path(path): Path<HashMap<String, String>>) -> Reply {
    let webhook = parse_id(path.get("webhook").and_then(|webhook| WebhookId::parse(webhook)))?;
    Ok(see_other(&path_of(webhook)))
}
