//! The endpoint: one answer for each POST, and no stream.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use purser_api::{AllowedHosts, BootError, Failure, client_for_public, domain_name};
use purser_client::Purser;
use purser_domain::{Error, Result};
use purser_mcp::{KeyFrom, Providers, Tools};
use rmcp::ServerHandler;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// One call of a tool. The gateway gives up at 30 s, and the function is ended at 29 s (template.yaml).
const LONGEST: Duration = Duration::from_secs(25);

pub(crate) struct Settings {
    /// The API's address, if it is known before the first call.
    pub(crate) api_url: Option<String>,
    pub(crate) allowed: AllowedHosts,
}

/// The state of the endpoint.
pub(crate) struct Endpoint {
    providers: Providers,
    service: OnceLock<Service>,
    api_url: Option<String>,
}

type Service = StreamableHttpService<Tools, NeverSessionManager>;

/// MCP's streamable HTTP without sessions or streams, for these tools.
pub fn stateless<H: ServerHandler + Clone>(tools: H) -> StreamableHttpService<H, NeverSessionManager> {
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_sse_keep_alive(None)
        // The gateway has one name; only this machine's could be rebound, and who calls shows a key.
        .disable_allowed_hosts()
        // No page of a browser may call: nobody gives an agent key to one.
        .enforce_origin_validation();
    StreamableHttpService::new(move || Ok(tools.clone()), NeverSessionManager::default().into(), config)
}

impl Endpoint {
    pub(crate) fn new(settings: Settings) -> std::result::Result<Self, BootError> {
        let endpoint = Self {
            providers: providers(settings.allowed)?,
            service: OnceLock::new(),
            api_url: settings.api_url,
        };
        if let Some(url) = &endpoint.api_url {
            endpoint.service(url)?;
        }
        Ok(endpoint)
    }

    /// The service over the API at this address. Later addresses are other names of the same API.
    fn service(&self, api_url: &str) -> Result<&Service> {
        if let Some(service) = self.service.get() {
            return Ok(service);
        }
        let purser = Purser::without_key(api_url).map_err(|error| Error::internal("making the API's client", error))?;
        let tools = Tools::new(purser, KeyFrom::Request, self.providers.clone(), LONGEST);
        let service = stateless(tools);
        Ok(self.service.get_or_init(|| service))
    }

    fn of_request(&self, request: &Request) -> Result<&Service> {
        let by_gateway = || domain_name(request.extensions()).map(|name| format!("https://{name}"));
        let url = self.api_url.clone().or_else(by_gateway);
        self.service(&url.ok_or_else(|| Error::internal("finding the API", "the gateway has no name"))?)
    }
}

/// Providers at public addresses, and at these hosts.
fn providers(allowed: AllowedHosts) -> reqwest::Result<Providers> {
    let client = client_for_public(concat!("Purser-MCP/", env!("CARGO_PKG_VERSION"))).build()?;
    Ok(Providers::new(client, move |url| allowed.may_call(url)))
}

purser_api::error_responses! {
    /// What this endpoint may be refused with before the protocol.
    pub(crate) McpErrors: 413, 500;
}

/// The Model Context Protocol (streamable HTTP, stateless): JSON-RPC 2.0, one answer in JSON for each request. Tools that
/// read the catalog need no key; the others take the agent's, as the rest of the API does.
#[utoipa::path(
    post,
    path = "/mcp",
    tag = "mcp",
    security((), ("agentKey" = [])),
    request_body(content = serde_json::Value, description = "A JSON-RPC message.", content_type = "application/json"),
    responses(
        (status = 200, description = "The JSON-RPC answer.", content_type = "application/json"),
        (status = 202, description = "A notification was taken."),
        (status = 400, description = "The message lacks what its protocol version needs."),
        (status = 403, description = "It comes from a page of a browser."),
        (status = 404, description = "The method is unknown, from version 2026-07-28 on."),
        (status = 406, description = "`Accept` must name application/json and text/event-stream."),
        (status = 415, description = "The body must be one JSON-RPC message in application/json."),
        McpErrors,
    )
)]
pub(crate) async fn mcp(State(endpoint): State<Arc<Endpoint>>, request: Request) -> Response {
    match endpoint.of_request(&request) {
        Ok(service) => service.handle(request).await.map(Body::new).into_response(),
        Err(error) => Failure::from(error).into_response(),
    }
}
