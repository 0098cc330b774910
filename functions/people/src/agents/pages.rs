//! The routes of an agent's page and of the page's forms.

use crate::agents::owned::parse_id;
use crate::agents::{actions, page};
use crate::redirect::see_other;
use crate::sessions::session::{PageSession, Stops};
use crate::state::People;
use crate::ui::layout::Layout;
use crate::ui::paths;
use crate::{history, keys, payouts, rules, services, shadow};
use axum::{
    Extension, Router,
    extract::{Path, State},
    handler::Handler,
    http::Uri,
    routing::{MethodRouter, get, post},
};
use purser_api::Reply;
use purser_domain::AgentId;
use std::collections::HashMap;
use std::sync::Arc;

/// The routes below the path of an agent's page.
pub(crate) fn routes() -> Router<Arc<People>> {
    Router::new()
        .route("/", get(show))
        .route("/rename", form(actions::rename))
        .route("/labels", form(actions::label))
        .route("/archive", form(actions::archive).layer(Extension(Stops::ALWAYS)))
        .route("/restore", form(actions::restore))
        .route("/freeze", form(actions::freeze).layer(Extension(Stops::ALWAYS)))
        .route("/unfreeze", form(actions::unfreeze))
        .route("/keys", form(keys::actions::create))
        .route("/keys/{key}/rotate", form(keys::actions::rotate))
        .route("/keys/{key}/revoke", form(keys::actions::revoke))
        .route("/payout-address", form(payouts::actions::name_address))
        .route("/payout-address/remove", form(payouts::actions::remove_address))
        .route("/payouts", form(payouts::actions::pay_out))
        .route("/services", form(services::actions::enable))
        .route("/services/limits", form(services::actions::limit_unlimited))
        .route("/services/{service}", form(services::actions::edit))
        .route("/services/{service}/disable", form(services::actions::disable))
        .route("/services/{service}/enable", form(services::actions::enable_again))
        .route("/shadow", get(shadow::page::show))
        .route("/shadow/promote", form(shadow::actions::promote))
        .route("/shadow/remove", form(shadow::actions::remove))
        .route("/history", get(history::page::show))
        .route(
            "/services/{service}/versions/{version}/restore",
            form(history::actions::restore_policy),
        )
        .route(
            "/versions/{version}/rules/{rule}/restore",
            form(history::actions::restore_rule),
        )
        .route("/rules", form(rules::actions::add))
        .route("/rules/{rule}", form(rules::actions::replace))
        .route("/rules/{rule}/remove", form(rules::actions::remove))
}

/// Routes `POST` to the handler, and `GET` to a redirect to the agent's page.
pub(crate) fn form<H, T>(handler: H) -> MethodRouter<Arc<People>>
where
    H: Handler<T, Arc<People>>,
    T: 'static,
{
    post(handler).get(back)
}

/// Handles `GET /dashboard/agents/{agent}`.
async fn show(State(people): State<Arc<People>>, session: PageSession, Path(agent): Path<String>, uri: Uri) -> Reply {
    let agent = parse_id(AgentId::parse(&agent))?;
    let owned = people.own_agent(&session.person, agent).await?;
    let layout = Layout::new(&session, people.now()).with_notice(&uri);
    Ok(page::answer(&people, &layout, &owned, None).await?)
}

/// Handles `GET` of a path that only accepts `POST`: redirects to the agent's page.
async fn back(Path(path): Path<HashMap<String, String>>) -> Reply {
    let agent = parse_id(path.get("agent").and_then(|agent| AgentId::parse(agent)))?;
    Ok(see_other(&paths::agent(agent)))
}
