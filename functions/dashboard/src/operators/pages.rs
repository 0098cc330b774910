//! Routes for the operators' pages.
//!
//! Invariant: the Lambda function `internal` performs every action, and no form contains a payee that no probe has
//! observed.

use crate::operators::layout::{AGENTS, CATALOG, CHANGES, FREEZES};
use crate::operators::{agents_page, catalog, changes, freezes_page, service_page};
use crate::redirect::see_other;
use crate::sessions::session::Stops;
use crate::state::People;
use axum::{
    Extension, Router,
    response::Response,
    routing::{get, post},
};
use std::sync::Arc;

pub(crate) fn routes() -> Router<Arc<People>> {
    let service = Router::new()
        .route("/", get(service_page::show_service_page))
        .route(
            "/probe",
            post(service_page::submit_probe_request).get(service_page::redirect_to_service),
        )
        .route(
            "/operations/{operation}/accept",
            post(service_page::submit_change_acceptance).get(service_page::redirect_to_service),
        )
        .route(
            "/operations/{operation}/withdraw",
            post(service_page::submit_delayed_change_withdrawal).get(service_page::redirect_to_service),
        )
        .route(
            "/operations/{operation}/pin",
            post(service_page::submit_probed_price).get(service_page::redirect_to_service),
        );
    let agent = Router::new()
        .route(
            "/offer",
            post(agents_page::submit_ownership_offer).get(agents_page::redirect_to_operator_agent),
        )
        .route(
            "/withdraw-offer",
            post(agents_page::submit_ownership_offer_withdrawal).get(agents_page::redirect_to_operator_agent),
        )
        .route(
            "/reconcile",
            post(agents_page::submit_reconcile_request).get(agents_page::redirect_to_operator_agent),
        );
    Router::new()
        .route("/dashboard/operator", get(redirect_to_catalog))
        .route(CATALOG, get(catalog::show_operator_catalog_page))
        .nest("/dashboard/operator/services/{service}", service)
        .route(CHANGES, get(changes::show_changes_page))
        .route(
            FREEZES,
            post(freezes_page::submit_freeze)
                .get(freezes_page::show_freezes_page)
                .layer(Extension(Stops::ALWAYS)),
        )
        .route(
            "/dashboard/operator/freezes/end",
            post(freezes_page::submit_unfreeze).get(freezes_page::redirect_to_freezes),
        )
        .route(AGENTS, get(agents_page::show_operator_agents_page))
        .nest("/dashboard/operator/agents/{agent}", agent)
}

async fn redirect_to_catalog() -> Response {
    see_other(CATALOG)
}
