//! Handles MCP messages so that every error is JSON, also for an invalid message (JSON-RPC 2.0 §5.1).

use axum::Json;
use axum::body::{Body, Bytes};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, HeaderValue, Request, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use purser_api::{ErrorBody, RequestId};
use purser_mcp::Tools;
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, ErrorData, JsonRpcError, RequestId as MessageId};
use rmcp::transport::streamable_http_server::{StreamableHttpService, session::never::NeverSessionManager};

pub(crate) type Service = StreamableHttpService<Tools, NeverSessionManager>;

/// The methods that this server supports.
const METHODS: [&str; 5] = ["initialize", "ping", "server/discover", "tools/call", "tools/list"];

pub(crate) async fn dispatch_message(service: &Service, mut parts: Parts, body: Bytes) -> Response {
    let request_id = parts.extensions.get::<RequestId>().cloned();
    let is_json = is_json(&parts.headers);
    if !accepts_json(&parts.headers) {
        let message = "only application/json is answered, and `Accept` excludes it";
        return error_envelope(request_id, StatusCode::NOT_ACCEPTABLE, "not_acceptable", message);
    }
    // `rmcp` requires that the client accepts event streams, but this server sends none.
    parts.headers.insert(
        header::ACCEPT,
        HeaderValue::from_static("application/json, text/event-stream"),
    );
    if let Some(id) = invalid_parameters_request_id(&body) {
        let error = ErrorData::invalid_params("the parameters are not those of the method", None);
        return Json(JsonRpcError::new(Some(id), error)).into_response();
    }
    let response = service
        .handle(Request::from_parts(parts, Body::from(body.clone())))
        .await;
    let status = response.status();
    let is_error = status.is_client_error() || status.is_server_error();
    if !is_error || self::is_json(response.headers()) {
        return response.map(Body::new);
    }
    let (slug, message) = match status {
        StatusCode::UNSUPPORTED_MEDIA_TYPE if is_json => return unreadable_body_response(&body),
        StatusCode::UNSUPPORTED_MEDIA_TYPE => ("unsupported_media_type", "`Content-Type` must be application/json"),
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
    error_envelope(request_id, status, slug, message)
}

/// Returns 405, because this server has no streams, and no sessions to end.
pub(crate) fn method_not_allowed(extensions: &Extensions) -> Response {
    let id = extensions.get::<RequestId>().cloned();
    let (status, message) = (StatusCode::METHOD_NOT_ALLOWED, "only POST is supported here");
    let mut response = error_envelope(id, status, "method_not_allowed", message);
    response
        .headers_mut()
        .insert(header::ALLOW, HeaderValue::from_static("POST"));
    response
}

fn error_envelope(id: Option<RequestId>, status: StatusCode, slug: &str, message: &str) -> Response {
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

/// Returns whether a client accepts JSON (RFC 9110 §12.5.1). The most specific matching media range decides.
fn accepts_json(headers: &HeaderMap) -> bool {
    const RANGES: [&str; 3] = ["application/json", "application/*", "*/*"];
    let mut values = headers.get_all(header::ACCEPT).iter().peekable();
    if values.peek().is_none() {
        return true;
    }
    let texts = values.filter_map(|value| value.to_str().ok());
    let mut found: Option<(usize, bool)> = None;
    for range in texts.flat_map(|text| text.split(',')) {
        let mut parts = range.split(';');
        let kind = parts.next().unwrap_or_default().trim();
        let Some(place) = RANGES.iter().position(|known| known.eq_ignore_ascii_case(kind)) else {
            continue;
        };
        let is_weight = |part: &&str| part.trim().get(..2).is_some_and(|name| name.eq_ignore_ascii_case("q="));
        let weight = parts.find(is_weight).and_then(|part| part.trim().get(2..));
        // A weight of zero means "not acceptable".
        let is_taken = weight.is_none_or(|weight| weight.trim().bytes().any(|digit| !matches!(digit, b'0' | b'.')));
        if found.is_none_or(|(best, _)| place < best) {
            found = Some((place, is_taken));
        }
    }
    found.is_some_and(|(_, is_taken)| is_taken)
}

/// Returns the id of a request with a known method and invalid parameters.
fn invalid_parameters_request_id(body: &[u8]) -> Option<MessageId> {
    let Ok(ClientJsonRpcMessage::Request(message)) = serde_json::from_slice(body) else {
        return None;
    };
    match message.request {
        ClientRequest::CustomRequest(request) if METHODS.contains(&request.method.as_str()) => Some(message.id),
        _ => None,
    }
}

/// Builds the response to a body that is not a message: JSON-RPC's parse error or invalid request.
fn unreadable_body_response(body: &[u8]) -> Response {
    let error = match serde_json::from_slice::<serde::de::IgnoredAny>(body) {
        Err(_) => ErrorData::parse_error("the body is not JSON", None),
        Ok(_) => ErrorData::invalid_request("the body is not one JSON-RPC 2.0 message", None),
    };
    // JSON-RPC requires null for an unknown id.
    let body = serde_json::json!({"jsonrpc": "2.0", "id": null, "error": error});
    (StatusCode::BAD_REQUEST, Json(body)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_responses_are_accepted_unless_the_header_excludes_json() {
        let rows: [(&[&str], bool); 16] = [
            (&[], true),
            (&["*/*"], true),
            (&["application/json"], true),
            (&["application/json, text/event-stream"], true),
            (&["APPLICATION/JSON; charset=utf-8"], true),
            (&["application/*;q=0.1"], true),
            (&["text/html", "*/*;q=0.01"], true),
            (&["text/html, application/json;q=0.9"], true),
            (&["text/event-stream"], false),
            (&["text/html"], false),
            (&[""], false),
            (&["application/json;q=0"], false),
            (&["application/json; Q=0.000"], false),
            (&["*/*, application/json;q=0"], false),
            (&["application/json, */*;q=0"], true),
            (&["application/jsonx"], false),
        ];
        for (values, taken) in rows {
            let values = values
                .iter()
                .map(|value| (header::ACCEPT, HeaderValue::from_str(value).unwrap()));
            let mut headers = HeaderMap::new();
            for (name, value) in values {
                headers.append(name, value);
            }
            assert_eq!(accepts_json(&headers), taken, "{headers:?}");
        }
    }
}
