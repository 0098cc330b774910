//! `POST /oauth/register`: dynamic client registration (RFC 7591). The client's id encodes the registration.

use crate::{OAuth, Server, error::OAuthError, error::OAuthErrorView, metadata::GRANT_TYPES};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use bytes::Bytes;
use purser_api::parse_json_body;
use purser_domain::{ClientMetadata, ClientMetadataError, RedirectUri};
use serde::Serialize;
use std::sync::Arc;
use utoipa::ToSchema;

/// A client's metadata (RFC 7591 §2). Unknown fields are ignored.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what `ClientMetadata` reads")]
pub(crate) struct ClientRegistration {
    /// Each URI is https, a loopback address, or has a scheme of the client's own.
    #[schema(min_items = 1, max_items = 10, value_type = Vec<url::Url>)]
    redirect_uris: Vec<String>,
    /// Shown to the user, cut at 60 characters.
    #[schema(pattern = r"^[\s\S]*$")]
    client_name: Option<String>,
}

/// A registered client.
#[derive(Serialize, ToSchema)]
pub(crate) struct ClientView {
    /// The client's id, at most 1,024 characters. Valid for a year.
    client_id: String,
    /// The time of the registration, in seconds since 1970.
    client_id_issued_at: u64,
    client_name: String,
    redirect_uris: Vec<String>,
    grant_types: Vec<&'static str>,
    response_types: [&'static str; 1],
    /// `none`, because clients have no secret and use PKCE.
    token_endpoint_auth_method: &'static str,
}

/// Registers a public client (RFC 7591). Nothing is stored: the id contains the name and the redirect URIs. Unknown
/// fields are ignored, and `token_endpoint_auth_method` is always `none`.
#[utoipa::path(
    post, path = "/oauth/register", operation_id = "oauth_register",
    request_body(content = ClientRegistration, content_type = "application/json"),
    responses(
        (status = 201, body = ClientView, description = "The client."),
        (status = 400, body = OAuthErrorView, description = "The registration is rejected; `error_description` says what to correct. `error` is `invalid_redirect_uri` or `invalid_client_metadata`."),
    )
)]
pub(crate) async fn register_client(
    State(oauth): State<Arc<OAuth>>,
    server: Server,
    body: Bytes,
) -> Result<(StatusCode, Json<ClientView>), OAuthError> {
    let now = oauth.clock.now();
    oauth.count_request(&server, now).await?;
    let invalid = |message| OAuthError::Metadata(ClientMetadataError::Metadata(message));
    let document = parse_json_body(&body).map_err(|_| invalid("the body must be JSON"))?;
    let document = document
        .as_object()
        .ok_or_else(|| invalid("the body must be a JSON object"))?;
    let client = ClientMetadata::from_document(document)?;
    let id = oauth.key.register_client(&client, now);
    let id = id.ok_or_else(|| invalid("the name and redirect URIs are too long together"))?;
    let view = ClientView {
        client_id: id.to_string(),
        client_id_issued_at: now.secs(),
        client_name: client.name.to_string(),
        redirect_uris: client.redirect_uris.iter().map(RedirectUri::to_string).collect(),
        grant_types: GRANT_TYPES.to_vec(),
        response_types: ["code"],
        token_endpoint_auth_method: "none",
    };
    Ok((StatusCode::CREATED, Json(view)))
}
