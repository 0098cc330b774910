//! Routes for the operators' pages: the stored catalog, delayed changes, freezes and agents.
//!
//! Invariant: each form sends its action to `internal` (`operations.rs`). This function cannot change the catalog, a
//! freeze or an offer, and a form never contains a payee that no probe has observed. If the deployment does not permit
//! operators to act in the browser, the pages are read-only.

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

/// Returns the routes of the operators' pages.
pub(crate) fn routes() -> Router<Arc<People>> {
    let service = Router::new()
        .route("/", get(service_page::show))
        .route("/probe", post(service_page::probe).get(service_page::back))
        .route(
            "/operations/{operation}/accept",
            post(service_page::accept).get(service_page::back),
        )
        .route(
            "/operations/{operation}/withdraw",
            post(service_page::withdraw).get(service_page::back),
        )
        .route(
            "/operations/{operation}/pin",
            post(service_page::pin).get(service_page::back),
        );
    let agent = Router::new()
        .route("/offer", post(agents_page::offer).get(agents_page::back))
        .route(
            "/withdraw-offer",
            post(agents_page::withdraw_offer).get(agents_page::back),
        )
        .route("/reconcile", post(agents_page::reconcile).get(agents_page::back));
    Router::new()
        .route("/dashboard/operator", get(to_catalog))
        .route(CATALOG, get(catalog::show))
        .nest("/dashboard/operator/services/{service}", service)
        .route(CHANGES, get(changes::show))
        .route(
            FREEZES,
            post(freezes_page::freeze)
                .get(freezes_page::show)
                .layer(Extension(Stops::ALWAYS)),
        )
        .route(
            "/dashboard/operator/freezes/end",
            post(freezes_page::end).get(freezes_page::back),
        )
        .route(AGENTS, get(agents_page::show))
        .nest("/dashboard/operator/agents/{agent}", agent)
}

async fn to_catalog() -> Response {
    see_other(CATALOG)
}
