//! `GET /.well-known/jwks.json` and `GET /log/checkpoint`: what verifies statements of decisions and payments.

use crate::{CACHE_CONTROL, CatalogApi};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use purser_api::{Cacheable, Failure};
use purser_domain::{Error, ErrorKind};
use purser_log::LogReader;
use std::sync::Arc;

const NOTE: &str = "text/plain; charset=utf-8";

purser_api::error_responses! {
    /// The errors of these endpoints.
    pub(crate) LogErrors: 404, 500;
}

/// The keys that sign statements of decisions and payments: the current one first, then older ones.
#[utoipa::path(
    get,
    path = "/.well-known/jwks.json",
    operation_id = "statement_keys",
    tag = "evidence",
    responses(
        (status = 200, body = Object, description = "A JSON Web Key Set (RFC 7517)."),
        (status = 304, description = "Not modified: `If-None-Match` holds the current `ETag`."),
        LogErrors,
    )
)]
pub(crate) async fn jwks(State(api): State<Arc<CatalogApi>>, headers: HeaderMap) -> Result<Response, Failure> {
    let trust = reader(&api)?.trust().await?.ok_or(ErrorKind::NotFound)?;
    let keys = serde_json::to_string(&trust.jwks).map_err(|error| Error::internal("writing the keys", error))?;
    Ok(Cacheable::new(keys).answer(&headers, CACHE_CONTROL))
}

/// The keys of statements and of the log, as `purser verify --trust` reads them.
#[utoipa::path(
    get,
    path = "/log/trust",
    operation_id = "log_trust",
    tag = "evidence",
    responses(
        (status = 200, body = Object, description = "`jwks`, and the `vkey` and `origin` of the log. Keep your own copy."),
        (status = 304, description = "Not modified: `If-None-Match` holds the current `ETag`."),
        LogErrors,
    )
)]
pub(crate) async fn trust(State(api): State<Arc<CatalogApi>>, headers: HeaderMap) -> Result<Response, Failure> {
    let trust = reader(&api)?.trust().await?.ok_or(ErrorKind::NotFound)?;
    Ok(Cacheable::new(trust.to_bytes()?).answer(&headers, CACHE_CONTROL))
}

/// The newest checkpoint of the log of statements, at most about a minute after the statements.
#[utoipa::path(
    get,
    path = "/log/checkpoint",
    operation_id = "log_checkpoint",
    tag = "evidence",
    responses(
        (status = 200, body = String, content_type = "text/plain", description = "A signed note (c2sp.org/tlog-checkpoint)."),
        (status = 304, description = "Not modified: `If-None-Match` holds the current `ETag`."),
        LogErrors,
    )
)]
pub(crate) async fn checkpoint(State(api): State<Arc<CatalogApi>>, headers: HeaderMap) -> Result<Response, Failure> {
    let checkpoint = reader(&api)?.checkpoint().await?.ok_or(ErrorKind::NotFound)?;
    Ok(Cacheable::text(NOTE, checkpoint).answer(&headers, "public, max-age=5"))
}

fn reader(api: &CatalogApi) -> Result<&LogReader, Failure> {
    Ok(api.log.as_ref().ok_or(ErrorKind::NotFound)?)
}
