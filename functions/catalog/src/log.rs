//! `GET /.well-known/jwks.json` and `GET /log/…`: what verifies statements of decisions and payments. Pages of any origin
//! may read these, so that a browser can verify.

use crate::{CACHE_CONTROL, CatalogApi};
use axum::extract::{Path, Request, State};
use axum::http::header::ACCESS_CONTROL_ALLOW_ORIGIN;
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::Next;
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
        (status = 200, body = Object, description = "`jwks`; `logs`, each a `vkey` of the log and its `origin`, the current one first; `witnesses`, if there are any. Keep your own copy."),
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

/// `GET /log/tile/…`: a tile of hashes, at its path of c2sp.org/tlog-tiles. With the tiles, anybody checks that one
/// checkpoint continues another. An index is several segments, for which OpenAPI has no parameter.
pub(crate) async fn tile(
    State(api): State<Arc<CatalogApi>>,
    Path(path): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let tile = reader(&api)?.hash_tile(&format!("tile/{path}")).await?;
    let tile = tile.ok_or(ErrorKind::NotFound)?;
    let cache_control = if tile.is_full {
        "public, max-age=31536000, immutable"
    } else {
        "public, max-age=60"
    };
    Ok(Cacheable::text("application/octet-stream", tile.bytes).answer(&headers, cache_control))
}

/// Lets pages of any origin read what verifies statements. A missing tile too, because a client then asks for the full one.
pub(crate) async fn allow_origins(request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let is_evidence = path.starts_with("/log/") || path == "/.well-known/jwks.json";
    let mut response = next.run(request).await;
    if is_evidence {
        let any = HeaderValue::from_static("*");
        response.headers_mut().insert(ACCESS_CONTROL_ALLOW_ORIGIN, any);
    }
    response
}

fn reader(api: &CatalogApi) -> Result<&LogReader, Failure> {
    Ok(api.log.as_ref().ok_or(ErrorKind::NotFound)?)
}
