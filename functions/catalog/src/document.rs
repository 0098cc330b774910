//! `GET /openapi.json`: the OpenAPI document of the whole API, which `make openapi` generates.

use crate::CACHE_CONTROL;
use axum::http::HeaderMap;
use axum::response::Response;
use purser_api::{Cacheable, endpoint};
use std::sync::LazyLock;

static DOCUMENT: LazyLock<Cacheable> = LazyLock::new(|| Cacheable::new(include_str!("../../../docs/openapi.json")));

/// Returns the OpenAPI 3.1 document of this API.
#[endpoint(get "/openapi.json", operation_id = "document", body = Object, returns = "The OpenAPI document.", cached())]
pub(crate) async fn read_openapi_document(headers: HeaderMap) -> Response {
    DOCUMENT.clone().respond(&headers, CACHE_CONTROL)
}
