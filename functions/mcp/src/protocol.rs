//! The protocol's own answers, with every error as JSON.
//!
//! `rmcp` answers what is wrong with an HTTP request in plain text. Here that becomes the API's envelope, and a body that
//! is no message a JSON-RPC error (JSON-RPC 2.0 §5.1).

use crate::endpoint::Service;
use axum::Json;
use axum::body::{Body, Bytes};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, HeaderValue, Request, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use purser_api::{ErrorBody, RequestId};
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, ErrorData, JsonRpcError, RequestId as MessageId};

/// The methods that this server answers.
const METHODS: [&str; 5] = ["initialize", "ping", "server/discover", "tools/call", "tools/list"];

/// Answers a message.
pub(crate) async fn spoken(service: &Service, parts: Parts, body: Bytes) -> Response {
    let request_id = parts.extensions.get::<RequestId>().cloned();
    let is_json = is_json(&parts.headers);
    if let Some(id) = misfit(&body) {
        let error = ErrorData::invalid_params("the parameters are not those of the method", None);
        return Json(JsonRpcError::new(Some(id), error)).into_response();
    }
    let answer = service
        .handle(Request::from_parts(parts, Body::from(body.clone())))
        .await;
    let status = answer.status();
    let is_error = status.is_client_error() || status.is_server_error();
    if !is_error || self::is_json(answer.headers()) {
        return answer.map(Body::new);
    }
    let (slug, message) = match status {
        StatusCode::UNSUPPORTED_MEDIA_TYPE if is_json => return unreadable(&body),
        StatusCode::UNSUPPORTED_MEDIA_TYPE => ("unsupported_media_type", "`Content-Type` must be application/json"),
        StatusCode::NOT_ACCEPTABLE => (
            "not_acceptable",
            "`Accept` must name application/json and text/event-stream",
        ),
        StatusCode::FORBIDDEN => (
            "cross_site_request",
            "a page in a browser can't call this; call it from a program",
        ),
        StatusCode::BAD_REQUEST => (
            "invalid_request",
            "a header does not fit the message's protocol version",
        ),
        _ => (
            "internal_error",
            "an unexpected error on our side; send the message again",
        ),
    };
    envelope(request_id, status, slug, message)
}

/// 405: nothing is streamed, and there are no sessions to end.
pub(crate) fn method_not_allowed(extensions: &Extensions) -> Response {
    let id = extensions.get::<RequestId>().cloned();
    let (status, message) = (StatusCode::METHOD_NOT_ALLOWED, "only POST is supported here");
    let mut answer = envelope(id, status, "method_not_allowed", message);
    answer
        .headers_mut()
        .insert(header::ALLOW, HeaderValue::from_static("POST"));
    answer
}

fn envelope(id: Option<RequestId>, status: StatusCode, slug: &str, message: &str) -> Response {
    let body = ErrorBody {
        error: slug.to_owned(),
        message: message.to_owned(),
        request_id: id.map(|id| id.to_string()),
        ..ErrorBody::default()
    };
    (status, Json(body)).into_response()
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = kind.map(|kind| kind.split_once(';').map_or(kind, |(essence, _)| essence));
    essence.is_some_and(|essence| essence.trim().eq_ignore_ascii_case("application/json"))
}

/// The id of a request for a known method whose parameters don't fit it: `rmcp` would take it for an unknown method.
fn misfit(body: &[u8]) -> Option<MessageId> {
    let Ok(ClientJsonRpcMessage::Request(message)) = serde_json::from_slice(body) else {
        return None;
    };
    match message.request {
        ClientRequest::CustomRequest(request) if METHODS.contains(&request.method.as_str()) => Some(message.id),
        _ => None,
    }
}

/// A body that is no message: JSON-RPC's parse error, or its invalid request. Its parser's words are not repeated.
fn unreadable(body: &[u8]) -> Response {
    let error = match serde_json::from_slice::<serde::de::IgnoredAny>(body) {
        Err(_) => ErrorData::parse_error("the body is not JSON", None),
        Ok(_) => ErrorData::invalid_request("the body is not one JSON-RPC 2.0 message", None),
    };
    // The id can't be known, and JSON-RPC has null for that.
    let body = serde_json::json!({"jsonrpc": "2.0", "id": null, "error": error});
    (StatusCode::BAD_REQUEST, Json(body)).into_response()
}
