//! `GET /.well-known/jwks.json` and `GET /log/…`: the keys, checkpoint and tiles that verify statements.

use crate::{AppState, CACHE_CONTROL, CatalogApi};
use axum::extract::{Path, Request};
use axum::http::header::ACCESS_CONTROL_ALLOW_ORIGIN;
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use purser_api::{Cacheable, Failure, Reply, endpoint};
use purser_domain::{Error, ErrorKind};
use purser_log::LogReader;

const NOTE: &str = "text/plain; charset=utf-8";

/// Returns the keys that sign statements of decisions and payments: the current key first, then older keys.
#[endpoint(
    get "/.well-known/jwks.json", operation_id = "statement_keys", tag = "evidence", body = Object,
    returns = "A JSON Web Key Set (RFC 7517).", cached(), errors(NotFound, TemporarilyUnavailable)
)]
pub(crate) async fn read_statement_keys(api: AppState, headers: HeaderMap) -> Reply {
    let trust = require_log_reader(&api)?
        .read_trust()
        .await?
        .ok_or(ErrorKind::NotFound)?;
    let keys =
        serde_json::to_string(&trust.jwks).map_err(|error| Error::internal("serializing the log's keys", error))?;
    Ok(Cacheable::new(keys).respond(&headers, CACHE_CONTROL))
}

/// Returns the keys of statements and of the log, in the form that `purser verify --trust` reads.
#[endpoint(
    get "/log/trust", operation_id = "log_trust", tag = "evidence", body = Object,
    returns = "The keys of statements (`jwks`), the keys of the log (`logs`, each with `vkey` and `origin`, current key first), and `witnesses`, if there are any. Keep your own copy.",
    cached(), errors(NotFound, TemporarilyUnavailable)
)]
pub(crate) async fn read_trust_document(api: AppState, headers: HeaderMap) -> Reply {
    let trust = require_log_reader(&api)?
        .read_trust()
        .await?
        .ok_or(ErrorKind::NotFound)?;
    Ok(Cacheable::new(trust.to_bytes()?).respond(&headers, CACHE_CONTROL))
}

/// Returns the newest checkpoint of the log of statements. The checkpoint is at most about a minute older than the
/// newest statement.
#[endpoint(
    get "/log/checkpoint", operation_id = "log_checkpoint", tag = "evidence", body = String,
    content_type = "text/plain", returns = "The checkpoint, as a signed note (c2sp.org/tlog-checkpoint).", cached(),
    errors(NotFound, TemporarilyUnavailable)
)]
pub(crate) async fn read_log_checkpoint(api: AppState, headers: HeaderMap) -> Reply {
    let checkpoint = require_log_reader(&api)?
        .read_checkpoint()
        .await?
        .ok_or(ErrorKind::NotFound)?;
    Ok(Cacheable::text_response(NOTE, checkpoint).respond(&headers, "public, max-age=5"))
}

/// `GET /log/tile/…`: returns a tile of hashes (c2sp.org/tlog-tiles). OpenAPI can't describe this route.
pub(crate) async fn read_hash_tile(
    api: AppState,
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
