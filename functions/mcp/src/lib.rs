//! Serves the MCP tools of `clients/mcp` at `/mcp` (streamable HTTP, stateless, JSON responses).
//!
//! Invariants:
//!
//! - The API checks each provider call before it is made.
//! - Calls with one key, or to one provider, occupy a limited number of instances.
//! - Without a key or access token, nothing is served, and each address is throttled.
//! - The API throttles and checks the caller's address instead of this function's address.
//! - A provider is called only at a public internet address, which is checked when the connection is opened.
//! - A tool responds before the gateway's timeout.

mod callers;
mod endpoint;
mod open_calls;
mod protocol;
mod responses;

pub use endpoint::stateless_service;

use axum::Router;
use axum::routing::any;
use callers::{AcceptedKeys, Callers};
use endpoint::Endpoint;
use open_calls::OpenCalls;
use purser_api::{ApiSettings, AssertionKeys, Boot, BootError, describe_route};
use purser_domain::Duration;
use purser_store::{CallLeases, KeptResponses, Throttle};
use responses::Responses;
use std::sync::Arc;
use url::Url;
use utoipa::openapi::OpenApi;
use utoipa_axum::router::OpenApiRouter;

/// The lease of an open call, longer than the `Timeout` of the Lambda function `mcp` (template.yaml).
const MAX_LEASE: Duration = Duration::from_secs_u32(30);

/// How long a stored response can be read.
const RESPONSE_RETENTION: Duration = Duration::from_secs_u32(15 * 60);
const _: () = assert!(purser_mcp::RETENTION.as_secs() == 15 * 60);

/// Returns the part of the OpenAPI document that describes `/mcp`. The MCP specification describes the messages.
pub fn openapi() -> OpenApi {
    OpenApiRouter::<Arc<Endpoint>>::new()
        .routes(describe_route(
            "mcp",
            &endpoint::handle_mcp_request,
            utoipa_axum::routes!(endpoint::handle_mcp_request),
        ))
        .into_openapi()
}

/// Builds the router of the Lambda function `mcp`, configured by environment variables.
#[expect(clippy::unused_async, reason = "built like every other function")]
pub async fn router(boot: Boot) -> Result<Router, BootError> {
    let Boot {
        mut env, aws, clock, ..
    } = boot;
    let api = ApiSettings::from_env(&mut env);
    let api_url = env.get("API_URL").map(str::to_owned);
    let is_url = |text: &String| Url::parse(text).is_ok_and(|url| url.has_host());
    if api_url.as_ref().is_some_and(|text| !is_url(text)) {
        env.add_error("API_URL", "must be an address: https://<host>");
    }
    let allowed = env.take_allowed_hosts("MCP_ALLOWED_HOSTS");
    let table = env.require_text("THROTTLE_TABLE");
    let throttle_per_minute = env.parse_number("THROTTLE_PER_MINUTE", 120, 1..=1_000_000);
    // Each open call occupies an instance, and `ReservedConcurrentExecutions` limits the number of instances.
    let calls_per_key = env.parse_number("CALLS_PER_KEY", 4, 1..=1_000);
    let calls_per_provider = env.parse_number("CALLS_PER_PROVIDER", 10, 1..=1_000);
    let client_ip_keys = env.get("CLIENT_IP_KEY_SECRET_ARNS").map(str::to_owned);
    let settings = (api, api_url, allowed, table, throttle_per_minute, client_ip_keys);
    let (api, api_url, allowed, table, throttle_per_minute, client_ip_keys) = env.finish(settings)?;
    let db = purser_store::dynamodb_client(&aws);
    let open_calls = OpenCalls {
        leases: Arc::new(CallLeases::for_mcp(&db, table.as_str(), MAX_LEASE)),
        per_key: calls_per_key,
        per_provider: calls_per_provider,
        clock: clock.clone(),
    };
    let responses = Responses {
        store: KeptResponses::for_mcp(&db, table.as_str(), purser_mcp::MAX_KEPT, RESPONSE_RETENTION),
        clock: clock.clone(),
    };
    let callers = Callers {
        throttle: Throttle::for_mcp(&db, table, throttle_per_minute),
        assertion_keys: AssertionKeys::from_secret_arns(client_ip_keys, &aws, &clock),
        clock,
        accepted: AcceptedKeys::default(),
        open_calls,
        responses,
    };
    let endpoint = Arc::new(Endpoint::new(api_url, allowed, callers)?);
    // MCP requires 405 for methods that open or end a stream. Some clients add a trailing slash and can't follow a
    // redirect.
    let routes = Router::new()
        .route("/mcp", any(endpoint::handle_mcp_request))
        .route("/mcp/", any(endpoint::handle_mcp_request))
        .with_state(endpoint);
    Ok(purser_api::with_middleware(routes, api))
}
