//! Handles requests to the MCP endpoint `/mcp`. Each POST gets one JSON response. The endpoint opens no streams.

use crate::callers::Callers;
use crate::protocol::{self, Service};
use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::http::{Extensions, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use purser_api::{
    AllowedHosts, BootError, ErrorBody, Failure, domain_name, errors, has_access_token, public_address_client_builder,
};
use purser_client::Purser;
use purser_domain::{Error, Result};
use purser_mcp::{KeyFrom, Providers, Tools};
use rmcp::ServerHandler;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The timeout of a tool call. It is shorter than the lease of an open call (`lib.rs`), the timeout of the Lambda
/// function `mcp` (29 s, template.yaml) and the gateway's timeout (30 s).
const TIMEOUT: Duration = Duration::from_secs(25);

pub(crate) struct Endpoint {
    providers: Providers,
    service: OnceLock<(Purser, Service)>,
    /// The configured URL of the API. `None` derives the URL from the host name in the first request.
    api_url: Option<String>,
    callers: Callers,
}

/// Creates a stateless service of MCP's streamable HTTP that offers `tools`.
pub fn stateless_service<H: ServerHandler + Clone>(tools: H) -> StreamableHttpService<H, NeverSessionManager> {
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_sse_keep_alive(None)
        // The `Host` header is not checked, because a key is required and DNS rebinding gets no key.
        .disable_allowed_hosts()
        // Rejects requests from web pages, because no page should have an agent key.
        .enforce_origin_validation();
    StreamableHttpService::new(move || Ok(tools.clone()), NeverSessionManager::default().into(), config)
}

impl Endpoint {
    pub(crate) fn new(
        api_url: Option<String>,
        allowed: AllowedHosts,
        callers: Callers,
    ) -> std::result::Result<Self, BootError> {
        let endpoint = Self {
            providers: provider_client(allowed)?,
            service: OnceLock::new(),
            api_url,
            callers,
        };
        if let Some(url) = &endpoint.api_url {
            endpoint.get_or_init_service(url)?;
        }
        Ok(endpoint)
    }

    /// Returns the service for the API at this URL. Later calls ignore the URL.
    fn get_or_init_service(&self, api_url: &str) -> Result<&(Purser, Service)> {
        if let Some(service) = self.service.get() {
            return Ok(service);
        }
        let purser = Purser::without_key(api_url).map_err(|error| Error::internal("creating the API client", error))?;
        let tools = Tools::new(purser.clone(), KeyFrom::Request, self.providers.clone(), TIMEOUT);
        let service = (purser, stateless_service(tools));
        Ok(self.service.get_or_init(|| service))
    }

    fn request_url(&self, extensions: &Extensions) -> Result<String> {
        let by_gateway = || domain_name(extensions).map(|name| format!("https://{name}"));
        let url = self.api_url.clone().or_else(by_gateway);
        url.ok_or_else(|| Error::internal("determining the API's URL", "the gateway sent no domain name"))
    }

    /// Returns the challenge of a 401 or 403 (RFC 9728 §5.1). `error` is a code of RFC 6750 §3.1.
    fn challenge(&self, extensions: &Extensions, error: Option<&str>) -> Option<HeaderValue> {
        let url = self.request_url(extensions).ok()?;
        let metadata = format!("{}/.well-known/oauth-protected-resource/mcp", url.trim_end_matches('/'));
        let error = error.map_or_else(String::new, |error| format!(r#", error="{error}""#));
        HeaderValue::try_from(format!(
            r#"Bearer resource_metadata="{metadata}", scope="read pay"{error}"#
        ))
        .ok()
    }

    /// Verifies the caller, and passes the message to the protocol.
    async fn handle_message(&self, request: Request) -> Result<Response> {
        let (mut parts, body) = request.into_parts();
        // `with_middleware` has already checked the length of the body.
        let body = to_bytes(body, usize::MAX).await;
        let body = body.map_err(|error| Error::internal("reading the request body", error))?;
        let (purser, service) = self.get_or_init_service(&self.request_url(&parts.extensions)?)?;
        let caller = self.callers.verify_caller(purser, &parts).await?;
        let lacks_permission = Arc::clone(&caller.lacks_permission);
        // This challenge lets the MCP host ask the user for a permission that the access token lacks.
        let challenge = has_access_token(&parts.headers)
            .then(|| self.challenge(&parts.extensions, Some("insufficient_scope")))
            .flatten();
        parts.extensions.insert(caller);
        let mut response = protocol::dispatch_message(service, parts, body).await;
        if let Some(challenge) = challenge.filter(|_| lacks_permission.load(Ordering::Relaxed)) {
            *response.status_mut() = StatusCode::FORBIDDEN;
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
        Ok(response)
    }
}

/// Creates a client that calls providers at public addresses, and the hosts in `allowed` at any address.
fn provider_client(allowed: AllowedHosts) -> reqwest::Result<Providers> {
    let client = public_address_client_builder("Purser-MCP").build()?;
    Ok(Providers::new(client, move |url| allowed.may_call(url)))
}

/// Handles a Model Context Protocol message (streamable HTTP, stateless): JSON-RPC 2.0, one JSON response for each
/// request. Every message needs an agent key, or an access token that a user gave to the caller (OAuth 2.1). A 401 names
/// the metadata with which a host asks the user for access.
#[utoipa::path(
    post, path = "/mcp", operation_id = "mcp",
    security(("agentKey" = [])),
    request_body(content = serde_json::Value, description = "A JSON-RPC message.", content_type = "application/json"),
    responses(
        errors::InvalidAgentKey, errors::InvalidAuthorizationHeader, errors::TooManyRequests,
        errors::TemporarilyUnavailable,
        (status = 200, description = "The JSON-RPC response.", content_type = "application/json"),
        (status = 202, description = "The notification was accepted."),
        (status = 400, description = "A JSON-RPC error: the body is not JSON (-32700) or not a JSON-RPC message (-32600), or a header that the protocol version requires is missing."),
        (status = 403, description = "`cross_site_request` if a web page sent the request, or `key_not_allowed`. If an access token lacks the permission for a tool, the body is the JSON-RPC response, and `WWW-Authenticate` has `insufficient_scope`.", body = ErrorBody),
        (status = 404, description = "A JSON-RPC error: the method is unknown, from version 2026-07-28 on."),
        (status = 406, description = "`not_acceptable`: `Accept` excludes application/json.", body = ErrorBody),
        (status = 415, description = "`unsupported_media_type`: `Content-Type` must be application/json.", body = ErrorBody),
    )
)]
pub(crate) async fn handle_mcp_request(State(endpoint): State<Arc<Endpoint>>, request: Request) -> Response {
    if request.method() != Method::POST {
        return protocol::method_not_allowed(request.extensions());
    }
    let error = request.headers().get(header::AUTHORIZATION).map(|_| "invalid_token");
    let challenge = endpoint.challenge(request.extensions(), error);
    let response = endpoint.handle_message(request).await.map_err(Failure::from);
    let mut response = response.into_response();
    if let Some(challenge) = challenge.filter(|_| response.status() == StatusCode::UNAUTHORIZED) {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    }
    response
}
