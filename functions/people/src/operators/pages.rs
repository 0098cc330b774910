//! The routes of the operators' pages: the catalog as it is stored, delayed changes and freezes.
//!
//! Invariant: these pages are read-only and have no form that changes anything. Operators act with their own tokens
//! (`functions/internal`), so a stolen browser session can't change a payee.

use crate::operators::layout::{CATALOG, CHANGES, FREEZES};
use crate::operators::{catalog, changes, freezes_page};
use crate::redirect::see_other;
use crate::state::People;
use axum::{Router, response::Response, routing::get};
use std::sync::Arc;

/// The routes of operators' pages.
pub(crate) fn routes() -> Router<Arc<People>> {
    Router::new()
        .route("/dashboard/operator", get(to_catalog))
        .route(CATALOG, get(catalog::show))
        .route(CHANGES, get(changes::show))
        .route(FREEZES, get(freezes_page::show))
}

async fn to_catalog() -> Response {
    see_other(CATALOG)
}
