//! One agent: its page, and what the forms on it do.

mod actions;
pub(super) mod agent_form;
pub(super) mod contents;
mod keys;
pub(super) mod page;
mod payouts;
pub(super) mod policy;
pub(super) mod rules;
mod services;
mod wallet;

use super::layout::Layout;
use super::paths;
use crate::ops::owned::named;
use crate::redirect::see_other;
use crate::session::PageSession;
use crate::state::People;
use axum::{
    Router,
    extract::{Path, State},
    handler::Handler,
    http::Uri,
    routing::{MethodRouter, get, post},
};
use purser_api::Reply;
use purser_domain::AgentId;
use std::collections::HashMap;
use std::sync::Arc;

/// The routes below an agent's address.
pub(super) fn routes() -> Router<Arc<People>> {
    Router::new()
        .route("/", get(show))
        .route("/rename", form(actions::rename))
        .route("/freeze", form(actions::freeze))
        .route("/unfreeze", form(actions::unfreeze))
        .route("/keys", form(actions::create_key))
        .route("/keys/{key}/rotate", form(actions::rotate_key))
        .route("/keys/{key}/revoke", form(actions::revoke_key))
        .route("/payout-address", form(actions::name_payout_address))
        .route("/payout-address/remove", form(actions::remove_payout_address))
        .route("/payouts", form(actions::pay_out))
        .route("/services", form(actions::enable_service))
        .route("/services/{service}", form(actions::edit_service))
        .route("/services/{service}/disable", form(actions::disable_service))
        .route("/services/{service}/enable", form(actions::enable_service_again))
        .route("/rules", form(actions::add_rule))
        .route("/rules/{rule}", form(actions::replace_rule))
        .route("/rules/{rule}/remove", form(actions::remove_rule))
}

/// An address that forms are sent to.
pub(super) fn form<H, T>(handler: H) -> MethodRouter<Arc<People>>
where
    H: Handler<T, Arc<People>>,
    T: 'static,
{
    post(handler).get(back)
}

/// `GET /dashboard/agents/{agent}`.
async fn show(State(people): State<Arc<People>>, session: PageSession, Path(agent): Path<String>, uri: Uri) -> Reply {
    let agent = named(AgentId::parse(&agent))?;
    let owned = people.own_agent(&session.person, agent).await?;
    let layout = Layout::of(&session, people.now()).noticed(&uri);
    Ok(page::answer(&people, &layout, &owned, None).await?)
}

/// `GET` of a path that only takes forms: redirects to the agent's page.
async fn back(Path(path): Path<HashMap<String, String>>) -> Reply {
    let agent = named(path.get("agent").and_then(|agent| AgentId::parse(agent)))?;
    Ok(see_other(&paths::agent(agent)))
}
