//! The HTTP API in front of the functions, with the routes of `template.yaml` and API Gateway's events. Only the local
//! gateway has `/_local/…`.

use crate::chain::{DevChain, NETWORK};
use crate::issuer::{DEMO_OWNER, Issuer};
use axum::body::Bytes;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, any, on, post};
use axum::{Json, Router};
use purser_api::GatewayContext;
use purser_domain::{Amount, parse_address};
use purser_testkit::Route;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use tower::ServiceExt as _;

/// The state of the routes `/_local/…`.
#[derive(Clone)]
pub(crate) struct Controls {
    /// How far the stack's clock is ahead of the system's clock, in microseconds.
    pub(crate) clock_ahead: Arc<AtomicI64>,
    pub(crate) chain: DevChain,
    pub(crate) issuer: Issuer,
}

/// A route of `template.yaml` whose function is missing in the stack.
#[derive(Debug, thiserror::Error)]
#[error("template.yaml routes {} {} to {}, which is not here", .0.method, .0.path, .0.function)]
pub struct UnroutedError(Route);

/// Returns the gateway for functions by logical id.
pub(crate) fn router(
    routes: &[Route],
    functions: &BTreeMap<&str, Router>,
    controls: Controls,
) -> Result<Router, UnroutedError> {
    let mut gateway = Router::new();
    let mut fallback = None;
    for route in routes {
        let function = functions
            .get(route.function.as_str())
            .ok_or_else(|| UnroutedError(route.clone()))?
            .clone();
        let handler =
            move |ConnectInfo(peer): ConnectInfo<SocketAddr>, request: Request| invoke(function, peer, request);
        if route.path == "$default" {
            fallback = Some(handler);
            continue;
        }
        let path = route.path.replace("{proxy+}", "{*proxy}");
        let method = match route.method.as_str() {
            "ANY" => {
                if !path.ends_with('}') {
                    // API Gateway ignores a trailing slash in routing, and passes it to the function.
                    gateway = gateway.route(&format!("{path}/"), any(handler.clone()));
                }
                gateway = gateway.route(&path, any(handler));
                continue;
            }
            "GET" => MethodFilter::GET,
            "HEAD" => MethodFilter::HEAD,
            "POST" => MethodFilter::POST,
            "PUT" => MethodFilter::PUT,
            "PATCH" => MethodFilter::PATCH,
            "DELETE" => MethodFilter::DELETE,
            _ => return Err(UnroutedError(route.clone())),
        };
        gateway = gateway.route(&path, on(method, handler));
    }
    // axum responds to HEAD with a GET route, but API Gateway only with a HEAD route.
    if let Some(handler) = &fallback {
        let has_head = |path: &str| routes.iter().any(|route| route.method == "HEAD" && route.path == path);
        for path in routes
            .iter()
            .filter(|route| route.method == "GET" && !has_head(&route.path))
            .map(|route| &route.path)
        {
            gateway = gateway.route(path, on(MethodFilter::HEAD, handler.clone()));
        }
    }
    let local = Router::new()
        .route("/_local/clock", post(advance_clock))
        .route("/_local/fund", post(fund))
        .route("/_local/token", post(sign_in))
        .with_state(controls);
    let gateway = match fallback {
        // In API Gateway, an unknown method is an unknown route.
        Some(handler) => gateway.fallback(handler.clone()).method_not_allowed_fallback(handler),
        None => gateway,
    };
    Ok(gateway.merge(local))
}

/// Calls a function with the request context of API Gateway.
pub(crate) async fn invoke(function: Router, peer: SocketAddr, request: Request) -> Response {
    // The function must not see the gateway's extensions (matched path, original URI).
    let (mut parts, body) = request.into_parts();
    parts.extensions.clear();
    let host = parts.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let context = GatewayContext::new(parts.method.clone(), host, peer.ip());
    parts.extensions.insert(context);
    let response = function.oneshot(Request::from_parts(parts, body)).await;
    response.unwrap_or_else(|never: std::convert::Infallible| match never {})
}

/// `POST /_local/clock {"advance_seconds": n}`: advances the clocks of the stack and the chain.
async fn advance_clock(State(controls): State<Controls>, body: Bytes) -> Response {
    let seconds = parse_json_or_null(&body)
        .get("advance_seconds")
        .and_then(Value::as_u64)
        .filter(|seconds| *seconds <= 10 * 366 * 86_400);
    let Some(micros) = seconds
        .and_then(|seconds| i64::try_from(seconds).ok())
        .and_then(|seconds| seconds.checked_mul(1_000_000))
    else {
        return reject("`advance_seconds` must be a whole number of seconds, ten years at most");
    };
    if let Err(error) = controls.chain.advance(seconds.unwrap_or_default()).await {
        return (
            StatusCode::BAD_GATEWAY,
            Json(json!({"error": "chain", "message": error.to_string()})),
        )
            .into_response();
    }
    controls.clock_ahead.fetch_add(micros, Ordering::SeqCst);
    let ahead = controls.clock_ahead.load(Ordering::SeqCst);
    Json(json!({"ahead_seconds": ahead.div_euclid(1_000_000)})).into_response()
}

/// `POST /_local/fund {"wallet_address", "units"}`: mints the test token.
async fn fund(State(controls): State<Controls>, body: Bytes) -> Response {
    let body = parse_json_or_null(&body);
    let wallet = body
        .get("wallet_address")
        .and_then(Value::as_str)
        .and_then(|text| parse_address(text).ok());
    let units = body.get("units").and_then(Value::as_u64).and_then(Amount::from_units);
    let (Some(wallet), Some(units)) = (wallet, units) else {
        return reject("`wallet_address` must be an address and `units` a whole number of micro-units");
    };
    match controls
        .chain
        .mint(NETWORK.token().address, wallet, units.units())
        .await
    {
        Ok(()) => Json(json!({"wallet_address": wallet.to_string(), "units": units.units()})).into_response(),
        Err(error) => (
            StatusCode::BAD_GATEWAY,
            Json(json!({"error": "chain", "message": error.to_string()})),
        )
            .into_response(),
    }
}

/// `POST /_local/token`: returns an ID token of the demo owner, for a sign-in at the current time.
async fn sign_in(State(controls): State<Controls>) -> Response {
    Json(json!({"token": controls.issuer.token(&DEMO_OWNER)})).into_response()
}

/// Parses the body as JSON, whatever its content type is. Returns null for an invalid body.
fn parse_json_or_null(body: &[u8]) -> Value {
    serde_json::from_slice(body).unwrap_or_default()
}

fn reject(message: &str) -> Response {
    (
        StatusCode::BAD_REQUEST,
        Json(json!({"error": "invalid_request", "message": message})),
    )
        .into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use axum::response::Html;
    use axum::routing::get;
    use http_body_util::BodyExt as _;
    use purser_api::{ApiSettings, with_middleware};

    #[tokio::test]
    async fn compressed_responses_pass_the_local_gateway_unchanged() {
        let page = Router::new().route("/page", get(|| async { Html("a line\n".repeat(1_000)) }));
        let function = with_middleware(page, ApiSettings::default());
        let request = Request::get("/page").header(header::ACCEPT_ENCODING, "gzip");
        let request = request.body(Body::empty()).unwrap();
        let answer = invoke(function, SocketAddr::from(([127, 0, 0, 1], 9)), request).await;
        assert_eq!(answer.headers()[header::CONTENT_ENCODING], "gzip");
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        assert!(body.starts_with(&[0x1f, 0x8b]) && body.len() < 200, "{}", body.len());
    }
}
