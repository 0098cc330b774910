//! `GET /openapi.json`: the description of the whole API, as it is in the repository.
//!
//! The file is written from the code of all groups by `make openapi`, and a test holds it to them: a function can't
//! describe the others by itself, since functions do not know each other.

use crate::CACHE_CONTROL;
use axum::http::HeaderMap;
use axum::response::Response;
use purser_api::Cacheable;
use std::sync::LazyLock;

static DOCUMENT: LazyLock<Cacheable> = LazyLock::new(|| Cacheable::new(include_str!("../../../docs/openapi.json")));

purser_api::error_responses! {
    /// What this endpoint may be refused with.
    pub(crate) DocumentErrors: 500;
}

/// The description of this API, OpenAPI 3.1.
#[utoipa::path(
    get,
    path = "/openapi.json",
    tag = "catalog",
    responses(
        (status = 200, body = Object, description = "The document."),
        (status = 304, description = "Not changed since the answer whose `ETag` is in `If-None-Match`."),
        DocumentErrors,
    )
)]
pub(crate) async fn document(headers: HeaderMap) -> Response {
    DOCUMENT.clone().answer(&headers, CACHE_CONTROL)
}
