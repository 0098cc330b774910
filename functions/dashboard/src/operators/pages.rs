//! Routes for the operators' pages.
//!
//! Invariant: the Lambda function `internal` performs every action, and no form contains a payee that no probe has
//! observed.

use crate::operators::layout::{AGENTS, CATALOG, CHANGES, FREEZES};
use crate::operators::{agents_page, catalog, changes, form, freezes_page, service_page};
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
    let act = || post(form::submit_act).get(form::redirect_to_page);
    Router::new()
        .route("/dashboard/operator", get(redirect_to_catalog))
        .route(CATALOG, get(catalog::show_operator_catalog_page))
        .route(
            "/dashboard/operator/services/{service}",
            get(service_page::show_service_page),
        )
        .route("/dashboard/operator/services/{service}/{act}", act())
        .route(
            "/dashboard/operator/services/{service}/operations/{operation}/{act}",
            act(),
        )
        .route(CHANGES, get(changes::show_changes_page))
        .route(
            FREEZES,
            post(form::submit_act)
                .get(freezes_page::show_freezes_page)
                .layer(Extension(Stops::ALWAYS)),
        )
        .route("/dashboard/operator/freezes/{act}", act())
        .route(AGENTS, get(agents_page::show_operator_agents_page))
        .route("/dashboard/operator/agents/{agent}/{act}", act())
}

async fn redirect_to_catalog() -> Response {
    see_other(CATALOG)
}
