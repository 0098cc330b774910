//! `/mcp`: the tools of `clients/mcp` over HTTP (MCP's streamable HTTP, stateless, answers in JSON).
//!
//! It is a client of the API with its caller's own agent key, which goes to the API alone, and of providers. In AWS it may
//! count its callers without a key and read the keys of asserted addresses, nothing else. Deliberately elsewhere: the
//! tools (`clients/mcp`), and every judgement (the API).
//!
//! Invariants: each call of a provider is judged by the API first; one key, and one provider, hold a bounded number of
//! environments; without a key only the catalog is served, to each address up to the throttle's limit; the API counts and
//! judges the address of the caller, not of this function; a provider is called at an address of the public internet
//! alone, which is judged where the connection is made; a tool's answer is ready before the gateway gives up.

mod callers;
mod endpoint;
mod open_calls;
mod protocol;

pub use endpoint::stateless;

use axum::Router;
use axum::routing::any;
use callers::{Accepted, Callers};
use endpoint::Endpoint;
use open_calls::OpenCalls;
use purser_api::{ApiSettings, AssertionKeys, Boot, BootError};
use purser_domain::Duration;
use purser_store::{CallLeases, Throttle};
use std::sync::Arc;
use url::Url;
use utoipa::openapi::OpenApi;
use utoipa_axum::router::OpenApiRouter;

/// The lease of an open call: longer than the function runs (`Timeout`, template.yaml), so that no call outlives it.
const LONGEST_LEASE: Duration = Duration::from_secs_u32(30);

/// The group's part of the OpenAPI document: the route alone, as the protocol describes the rest.
pub fn openapi() -> OpenApi {
    OpenApiRouter::<Arc<Endpoint>>::new()
        .routes(utoipa_axum::routes!(endpoint::mcp))
        .into_openapi()
}

/// The group, ready to serve. Optional: `API_URL`, without which the API is at the name that the gateway was called by;
/// and `MCP_ALLOWED_HOSTS`, `host:port` of providers that may have any address, for the local stack.
#[expect(clippy::unused_async, reason = "built like every other function")]
pub async fn router(boot: Boot) -> Result<Router, BootError> {
    let Boot {
        mut env, aws, clock, ..
    } = boot;
    let api = ApiSettings::from_env(&mut env);
    let api_url = env.get("API_URL").map(str::to_owned);
    let is_url = |text: &String| Url::parse(text).is_ok_and(|url| url.has_host());
    if api_url.as_ref().is_some_and(|text| !is_url(text)) {
        env.wrong("API_URL", "must be an address: https://<host>");
    }
    let allowed = env.allowed_hosts("MCP_ALLOWED_HOSTS");
    let table = env.text("THROTTLE_TABLE");
    let throttle_per_minute = env.number("THROTTLE_PER_MINUTE", 120, 1..=1_000_000);
    // Each open call holds one of the function's environments (`ReservedConcurrentExecutions`).
    let calls_per_key = env.number("CALLS_PER_KEY", 4, 1..=1_000);
    let calls_per_provider = env.number("CALLS_PER_PROVIDER", 10, 1..=1_000);
    let client_ip_keys = env.get("CLIENT_IP_KEY_SECRET_ARNS").map(str::to_owned);
    let settings = (api, api_url, allowed, table, throttle_per_minute, client_ip_keys);
    let (api, api_url, allowed, table, throttle_per_minute, client_ip_keys) = env.finish(settings)?;
    let db = purser_store::client(&aws);
    let open_calls = OpenCalls {
        leases: Arc::new(CallLeases::of_mcp(&db, table.as_str(), LONGEST_LEASE)),
        per_key: calls_per_key,
        per_provider: calls_per_provider,
        clock: clock.clone(),
    };
    let callers = Callers {
        throttle: Throttle::of_mcp(&db, table, throttle_per_minute),
        assertion_keys: AssertionKeys::of_secrets(client_ip_keys, &aws, &clock),
        clock,
        accepted: Accepted::default(),
        open_calls,
    };
    let endpoint = Arc::new(Endpoint::new(api_url, allowed, callers)?);
    // Every method: MCP asks for 405 where a stream could be opened or ended. Hosts add a slash to the address that they are
    // given, and don't follow a redirect with a body.
    let routes = Router::new()
        .route("/mcp", any(endpoint::mcp))
        .route("/mcp/", any(endpoint::mcp))
        .with_state(endpoint);
    Ok(purser_api::with_middleware(routes, api))
}
