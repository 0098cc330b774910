//! The metadata of the protected resource (RFC 9728) and of the authorization server (RFC 8414).

use crate::Server;
use axum::Json;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use purser_domain::Permission;
use serde_json::{Value, json};

/// All paths of the Lambda function `oauth`, for which preflight requests are routed.
pub(crate) const PATHS: [&str; 6] = [
    "/.well-known/oauth-protected-resource",
    "/.well-known/oauth-protected-resource/mcp",
    "/.well-known/oauth-authorization-server",
    "/oauth/register",
    "/oauth/device_authorization",
    "/oauth/token",
];

pub(crate) const GRANT_TYPES: [&str; 3] = ["authorization_code", "refresh_token", DEVICE_CODE];
pub(crate) const DEVICE_CODE: &str = "urn:ietf:params:oauth:grant-type:device_code";

fn cacheable_json_response(document: Value) -> Response {
    ([(header::CACHE_CONTROL, "public, max-age=300")], Json(document)).into_response()
}

fn resource_metadata(server: &Server) -> Response {
    cacheable_json_response(json!({
        "resource": server.resource(),
        "resource_name": "Purser",
        "authorization_servers": [server.issuer],
        "scopes_supported": Permission::ALL.iter().map(|permission| permission.name()).collect::<Vec<_>>(),
        "bearer_methods_supported": ["header"],
    }))
}

/// Returns the metadata of `/mcp` as a protected resource (RFC 9728).
#[utoipa::path(
    get, path = "/.well-known/oauth-protected-resource", operation_id = "oauth_resource",
    responses((status = 200, body = Object, description = "The resource, its authorization server and its scopes."))
)]
pub(crate) async fn read_resource_metadata(server: Server) -> Response {
    resource_metadata(&server)
}

/// Returns the metadata of `/mcp` as a protected resource, at the path that RFC 9728 derives from `/mcp`.
#[utoipa::path(
    get, path = "/.well-known/oauth-protected-resource/mcp", operation_id = "oauth_mcp_resource",
    responses((status = 200, body = Object, description = "The resource, its authorization server and its scopes."))
)]
pub(crate) async fn read_mcp_metadata(server: Server) -> Response {
    resource_metadata(&server)
}

/// Returns the metadata of the authorization server (RFC 8414).
#[utoipa::path(
    get, path = "/.well-known/oauth-authorization-server", operation_id = "oauth_server",
    responses((status = 200, body = Object, description = "The endpoints and what they support."))
)]
pub(crate) async fn read_server_metadata(server: Server) -> Response {
    let url = |path: &str| format!("{}{path}", server.issuer);
    cacheable_json_response(json!({
        "issuer": server.issuer,
        "authorization_endpoint": url("/dashboard/connect"),
        "token_endpoint": url("/oauth/token"),
        "registration_endpoint": url("/oauth/register"),
        "device_authorization_endpoint": url("/oauth/device_authorization"),
        "revocation_endpoint": url("/oauth/revoke"),
        "scopes_supported": Permission::ALL.iter().map(|permission| permission.name()).collect::<Vec<_>>(),
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": GRANT_TYPES,
        "token_endpoint_auth_methods_supported": ["none"],
        "revocation_endpoint_auth_methods_supported": ["none"],
        "code_challenge_methods_supported": ["S256"],
        "client_id_metadata_document_supported": true,
        "authorization_response_iss_parameter_supported": true,
    }))
}
