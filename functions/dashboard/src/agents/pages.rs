//! The routes of an agent's page and of the page's forms.

use crate::agents::owned::require_id;
use crate::agents::{actions, page};
use crate::redirect::see_other;
use crate::sessions::session::{PageSession, Stops};
use crate::state::{People, PeopleState};
use crate::ui::layout::Layout;
use crate::ui::paths;
use crate::{history, keys, payouts, rules, services, shadow};
use axum::{
    Extension, Router,
    extract::Path,
    handler::Handler,
    http::Uri,
    routing::{MethodRouter, get, post},
};
use purser_api::Reply;
use purser_domain::AgentId;
use std::collections::HashMap;
use std::sync::Arc;

pub(crate) fn routes() -> Router<Arc<People>> {
    Router::new()
        .route("/", get(show_agent_page))
        .route("/rename", form_route(actions::submit_agent_name))
        .route("/labels", form_route(actions::submit_agent_labels))
        .route("/raise-factor", form_route(actions::submit_max_increase_factor))
        .route(
            "/archive",
            form_route(actions::archive_agent).layer(Extension(Stops::ALWAYS)),
        )
        .route("/restore", form_route(actions::restore_agent))
        .route(
            "/freeze",
            form_route(actions::freeze_agent).layer(Extension(Stops::ALWAYS)),
        )
        .route("/unfreeze", form_route(actions::unfreeze_agent))
        .route("/keys", form_route(keys::actions::submit_new_key))
        .route("/keys/{key}/rotate", form_route(keys::actions::submit_key_rotation))
        .route("/keys/{key}/revoke", form_route(keys::actions::submit_key_revocation))
        .route(
            "/payout-address",
            form_route(payouts::actions::submit_withdrawal_address),
        )
        .route(
            "/payout-address/remove",
            form_route(payouts::actions::submit_address_removal),
        )
        .route("/payouts", form_route(payouts::actions::submit_withdrawal))
        .route("/services", form_route(services::actions::submit_service_to_enable))
        .route(
            "/services/limits",
            form_route(services::actions::submit_limits_for_unlimited_services),
        )
        .route(
            "/services/{service}",
            form_route(services::actions::submit_policy_update),
        )
        .route(
            "/services/{service}/disable",
            form_route(services::actions::disable_service),
        )
        .route(
            "/services/{service}/enable",
            form_route(services::actions::enable_service_again),
        )
        .route("/shadow", get(shadow::page::show_shadow_page))
        .route("/shadow/promote", form_route(shadow::actions::submit_shadow_promotion))
        .route("/shadow/remove", form_route(shadow::actions::submit_shadow_removal))
        .route("/history", get(history::page::show_history_page))
        .route(
            "/services/{service}/versions/{version}/restore",
            form_route(history::actions::submit_policy_restore),
        )
        .route(
            "/versions/{version}/rules/{rule}/restore",
            form_route(history::actions::submit_rule_restore),
        )
        .route("/rules", form_route(rules::actions::submit_new_rule))
        .route("/rules/{rule}", form_route(rules::actions::submit_rule_replacement))
        .route("/rules/{rule}/remove", form_route(rules::actions::submit_rule_removal))
}

pub(crate) fn form_route<H, T>(handler: H) -> MethodRouter<Arc<People>>
where
    H: Handler<T, Arc<People>>,
    T: 'static,
{
    post(handler).get(redirect_to_agent)
}

async fn show_agent_page(people: PeopleState, session: PageSession, Path(agent): Path<String>, uri: Uri) -> Reply {
    let agent = require_id(AgentId::parse(&agent))?;
    let owned = people.read_own_agent(&session.person, agent).await?;
    let layout = Layout::new(&session, people.now()).with_message_in_url(&uri);
    Ok(page::agent_page_response(&people, &layout, &owned, None).await?)
}

/// Redirects a `GET` of a path that accepts only `POST`.
async fn redirect_to_agent(Path(path): Path<HashMap<String, String>>) -> Reply {
    let agent = require_id(path.get("agent").and_then(|agent| AgentId::parse(agent)))?;
    Ok(see_other(&paths::agent_path(agent)))
}
