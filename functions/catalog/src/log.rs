//! `GET /.well-known/jwks.json` and `GET /log/…`: the keys, checkpoint and tiles that verify statements.

use crate::{CACHE_CONTROL, CatalogApi};
use axum::extract::{Path, Request, State};
use axum::http::header::ACCESS_CONTROL_ALLOW_ORIGIN;
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use purser_api::{Cacheable, Failure, errors};
use purser_domain::{Error, ErrorKind};
use purser_log::LogReader;
use std::sync::Arc;

const NOTE: &str = "text/plain; charset=utf-8";

/// Returns the keys that sign statements of decisions and payments: the current key first, then older keys.
#[utoipa::path(
    get, path = "/.well-known/jwks.json", operation_id = "statement_keys", tag = "evidence",
    responses(
        (status = 200, body = Object, description = "A JSON Web Key Set (RFC 7517)."),
        (status = 304, description = "Not modified, because `If-None-Match` has the current `ETag`."),
        errors::NotFound, errors::TemporarilyUnavailable,
    )
)]
pub(crate) async fn read_statement_keys(
    State(api): State<Arc<CatalogApi>>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let trust = require_log_reader(&api)?
        .read_trust()
        .await?
        .ok_or(ErrorKind::NotFound)?;
    let keys = serde_json::to_string(&trust.jwks).map_err(|error| Error::internal("writing the keys", error))?;
    Ok(Cacheable::new(keys).respond(&headers, CACHE_CONTROL))
}

/// Returns the keys of statements and of the log, in the form that `purser verify --trust` reads.
#[utoipa::path(
    get, path = "/log/trust", operation_id = "log_trust", tag = "evidence",
    responses(
        (status = 200, body = Object, description = "The keys of statements (`jwks`), the keys of the log (`logs`, each with `vkey` and `origin`, current key first), and `witnesses`, if there are any. Keep your own copy."),
        (status = 304, description = "Not modified, because `If-None-Match` has the current `ETag`."),
        errors::NotFound, errors::TemporarilyUnavailable,
    )
)]
pub(crate) async fn read_trust_document(
    State(api): State<Arc<CatalogApi>>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let trust = require_log_reader(&api)?
        .read_trust()
        .await?
        .ok_or(ErrorKind::NotFound)?;
    Ok(Cacheable::new(trust.to_bytes()?).respond(&headers, CACHE_CONTROL))
}

/// Returns the newest checkpoint of the log of statements. The checkpoint is at most about a minute older than the
/// newest statement.
#[utoipa::path(
    get, path = "/log/checkpoint", operation_id = "log_checkpoint", tag = "evidence",
    responses(
        (status = 200, body = String, content_type = "text/plain", description = "The checkpoint, as a signed note (c2sp.org/tlog-checkpoint)."),
        (status = 304, description = "Not modified, because `If-None-Match` has the current `ETag`."),
        errors::NotFound, errors::TemporarilyUnavailable,
    )
)]
pub(crate) async fn read_log_checkpoint(
    State(api): State<Arc<CatalogApi>>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let checkpoint = require_log_reader(&api)?
        .read_checkpoint()
        .await?
        .ok_or(ErrorKind::NotFound)?;
    Ok(Cacheable::text_response(NOTE, checkpoint).respond(&headers, "public, max-age=5"))
}

/// `GET /log/tile/…`: returns a tile of hashes (c2sp.org/tlog-tiles). OpenAPI can't describe this route.
pub(crate) async fn read_hash_tile(
    State(api): State<Arc<CatalogApi>>,
    Path(path): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let tile = require_log_reader(&api)?
        .read_hash_tile(&format!("tile/{path}"))
        .await?;
    let tile = tile.ok_or(ErrorKind::NotFound)?;
    let cache_control = if tile.is_full {
        "public, max-age=31536000, immutable"
    } else {
        "public, max-age=60"
    };
    Ok(Cacheable::text_response("application/octet-stream", tile.bytes).respond(&headers, cache_control))
}

/// Allows pages of any origin to read the log and the keys, also in error responses.
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

fn require_log_reader(api: &CatalogApi) -> Result<&LogReader, Failure> {
    Ok(api.log.as_ref().ok_or(ErrorKind::NotFound)?)
}
