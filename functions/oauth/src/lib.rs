//! The authorization server's routes for client programs (OAuth 2.1): metadata, registration, tokens and device codes.
//!
//! Invariants:
//!
//! - The Lambda function `oauth` issues tokens only for grants in the agent's record, and it can't write that record.
//! - Each authorization code, device code and refresh token is used once. A second use ends the grant.
//! - No registration is stored, and each address is throttled.
//! - No code, token or secret is logged.

mod device;
mod error;
mod form;
mod metadata;
mod register;
mod revoke;
mod token;

use aws_smithy_runtime_api::client::http::SharedHttpConnector;
use axum::Router;
use axum::extract::FromRequestParts;
use axum::http::{HeaderValue, StatusCode, header, request::Parts};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse as _, Response};
use axum::routing::options;
use error::OAuthError;
use purser_api::{
    ApiSettings, Argument, Boot, BootError, Clock, Entropy, Failure, OperationDescription, Secrets, ThrottleScope,
    domain_name, errors,
};
use purser_domain::{ClientId, ClientReference, Error, OAuthKey, Result, Timestamp};
use purser_store::{Ledger, Throttle};
use std::sync::Arc;
use utoipa::openapi::OpenApi;

struct OAuth {
    ledger: Ledger,
    throttle: Throttle,
    key: OAuthKey,
    /// The configured URL of the API. `None` derives the URL from the host name in each request.
    api_url: Option<String>,
    http: SharedHttpConnector,
    clock: Clock,
    entropy: Entropy,
}

impl OAuth {
    /// Counts a request. Returns 429 if the address has sent too many requests.
    async fn count_request(&self, server: &Server, now: Timestamp) -> Result<()> {
        self.throttle.run_limited_by(server.scope, now, async { Ok(()) }).await
    }

    fn find_client(&self, id: Option<&str>, now: Timestamp) -> Result<(ClientId, ClientReference), OAuthError> {
        let id = id.ok_or(OAuthError::InvalidRequest("`client_id` is required"))?;
        let id = ClientId::parse(id).ok_or(OAuthError::InvalidClient)?;
        let client = self.key.find_client(&id, now).ok_or(OAuthError::InvalidClient)?;
        Ok((id, client))
    }
}

struct Server {
    /// The issuer: the API's URL without a path, `https://<host>`.
    issuer: String,
    scope: ThrottleScope,
}

impl Server {
    /// Returns the protected resource's URL (RFC 9728).
    fn resource(&self) -> String {
        format!("{}/mcp", self.issuer)
    }
}

impl FromRequestParts<Arc<OAuth>> for Server {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, oauth: &Arc<OAuth>) -> Result<Self, Failure> {
        let by_gateway = || domain_name(&parts.extensions).map(|name| format!("https://{name}"));
        let issuer = oauth.api_url.clone().or_else(by_gateway);
        Ok(Self {
            issuer: issuer
                .ok_or_else(|| Error::internal("determining the OAuth issuer", "the gateway sent no domain name"))?,
            scope: ThrottleScope::for_request(&parts.extensions),
        })
    }
}

impl Argument for Server {
    fn describe(operation: &mut OperationDescription) {
        operation.add_error::<errors::TooManyRequests>();
        operation.add_error::<errors::TemporarilyUnavailable>();
    }
}

purser_api::routes!(
    Arc<OAuth>,
    tag = "oauth",
    metadata::read_resource_metadata,
    metadata::read_mcp_metadata,
    metadata::read_server_metadata,
    register::register_client,
    device::request_device_code,
    token::issue_token,
);

/// Returns the part of the OpenAPI document that describes this crate's routes.
pub fn openapi() -> OpenApi {
    description()
}

/// Builds the router, configured by environment variables.
pub async fn router(boot: Boot) -> Result<Router, BootError> {
    let mut env = boot.env;
    let api = ApiSettings::from_env(&mut env);
    let tables = ["LEDGER_TABLE", "THROTTLE_TABLE"].map(|name| env.require_text(name));
    let secret = env.require_text("OAUTH_KEY_SECRET_ARN");
    let throttle_per_minute = env.parse_number("THROTTLE_PER_MINUTE", 120, 1..=1_000_000);
    let api_url = env.get("API_URL").map(|url| url.trim_end_matches('/').to_owned());
    let settings = (api, tables, secret, throttle_per_minute, api_url);
    let (api, [ledger, throttle], secret, throttle_per_minute, api_url) = env.finish(settings)?;
    let secret = Secrets::new(&boot.aws).read(&secret).await?;
    let db = purser_store::dynamodb_client(&boot.aws);
    let oauth = Arc::new(OAuth {
        ledger: Ledger::without_decisions_table(db.clone(), ledger),
        throttle: Throttle::for_oauth(&db, throttle, throttle_per_minute),
        key: OAuthKey::from_secret(&secret).ok_or("the OAuth secret must have at least 32 characters")?,
        api_url,
        http: boot.http,
        clock: boot.clock,
        entropy: boot.entropy,
    });
    let mut routes = routes();
    for path in metadata::PATHS {
        routes = routes.route(path, options(cors_preflight_response));
    }
    let routes = routes.layer(from_fn(async |request, next: Next| {
        let mut response = next.run(request).await;
        allow_any_origin(&mut response);
        response
    }));
    Ok(purser_api::with_middleware(routes.with_state(oauth), api))
}

/// Lets pages of any origin read the response, because clients may run in a browser. The routes use no cookies.
fn allow_any_origin(response: &mut Response) {
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
}

/// Responds to a browser's preflight request (Fetch standard §4.8).
async fn cors_preflight_response() -> Response {
    let headers = [
        (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST"),
        (
            header::ACCESS_CONTROL_ALLOW_HEADERS,
            "authorization, content-type, mcp-protocol-version",
        ),
        (header::ACCESS_CONTROL_MAX_AGE, "86400"),
    ];
    (StatusCode::NO_CONTENT, headers).into_response()
}
