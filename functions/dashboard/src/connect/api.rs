//! `POST /oauth/revoke`, with which a client ends its own grant (RFC 7009).

use crate::state::People;
use axum::Json;
use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use purser_api::{Failure, errors, request_source};
use purser_domain::{Error, ValidationError};
use serde_json::json;
use std::sync::Arc;
use url::form_urlencoded;
use utoipa::ToSchema;

/// The form of a revocation.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what `revoke_grant` reads")]
struct RevocationForm {
    /// An access token or a refresh token of the grant.
    #[schema(pattern = r"^[\s\S]+$")]
    token: String,
}

/// End a grant.
///
/// The body is a form with `token`: an access token or a refresh token of the grant (RFC 7009). All tokens of the grant
/// are rejected at once. The response is 200 also for an unknown token.
#[utoipa::path(
    post, path = "/oauth/revoke", operation_id = "revoke_grant",
    security(()),
    request_body(content = RevocationForm, content_type = "application/x-www-form-urlencoded"),
    responses((status = 200, description = "The grant has ended, or the token is unknown."), errors::InvalidRequest, errors::TooManyRequests)
)]
pub(crate) async fn revoke_grant(State(people): State<Arc<People>>, request: Request) -> Result<Response, Failure> {
    let (parts, body) = request.into_parts();
    // `with_middleware` has already checked the body's length.
    let body = to_bytes(body, usize::MAX).await;
    let body = body.map_err(|error| Error::internal("reading the request body", error))?;
    people.count_request(&parts).await?;
    let mut tokens = form_urlencoded::parse(&body).filter(|(name, value)| name == "token" && !value.is_empty());
    let (Some((_, token)), None) = (tokens.next(), tokens.next()) else {
        return Err(Error::invalid(vec![ValidationError::at_path("/token", "is required, once")]).into());
    };
    people.end_grant_of_token(&token, request_source(&parts)).await?;
    // Clients in a browser may read the response from any origin, because the route uses no cookie.
    let headers = [
        (header::CACHE_CONTROL, "no-store"),
        (header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
    ];
    Ok((headers, Json(json!({}))).into_response())
}
