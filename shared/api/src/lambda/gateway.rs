//! Converts the gateway's events to HTTP requests, and responses to the gateway's format (HTTP API, payload format
//! version 2.0).
//!
//! `lambda_http::run` panics or rejects the event for some valid input, such as `<` in the query, and the gateway then
//! returns its own 500. Here every event gets a response in the gateway's format, because the gateway treats a response
//! without `statusCode` as 200 (API Gateway developer guide, "Lambda function response for format 2.0").

use crate::{ApiSettings, Failure, GatewayContext, with_middleware};
use axum::{
    Router,
    body::Body,
    http::{HeaderMap, HeaderName, HeaderValue, Request, Uri, header},
    response::Response,
    routing::any,
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use http_body_util::{BodyExt as _, Collected};
use lambda_http::{Context, LambdaEvent, RequestExt as _};
use purser_domain::{Error, ValidationError};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use std::{
    collections::{BTreeMap, btree_map::Entry},
    fmt::Write as _,
};
use tower::ServiceExt as _;

/// The gateway's event. Has no `Debug`, because it contains keys and bodies. `null` counts as absent, because emulators
/// send it.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayEvent {
    #[serde(default, deserialize_with = "deserialize_null_as_default")]
    raw_path: String,
    #[serde(default, deserialize_with = "deserialize_null_as_default")]
    raw_query_string: String,
    #[serde(default, deserialize_with = "deserialize_null_as_default")]
    headers: BTreeMap<String, Option<String>>,
    #[serde(default, deserialize_with = "deserialize_null_as_default")]
    cookies: Vec<Option<String>>,
    request_context: GatewayContext,
    body: Option<String>,
    #[serde(default, deserialize_with = "deserialize_null_as_default")]
    is_base64_encoded: bool,
}

fn deserialize_null_as_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// A Lambda function's response to an HTTP API (payload format 2.0), and to a direct request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GatewayResponse {
    /// The HTTP status code.
    pub status_code: u16,
    /// The headers. Several values of a header are joined by commas (RFC 9110 §5.3).
    pub headers: BTreeMap<String, String>,
    /// The values of `Set-Cookie`, which must not be joined.
    pub cookies: Vec<String>,
    /// The body, as base64 unless it is text.
    pub body: String,
    /// Whether the body is base64.
    pub is_base64_encoded: bool,
}

impl GatewayResponse {
    /// Serializes the response. Not in the functions' crates, which are optimized for size.
    pub fn to_json(&self) -> Box<RawValue> {
        // Numbers, strings and maps of strings can be serialized.
        to_raw_value(self).unwrap_or_default()
    }
}

/// Handles any event. An event that is not from the gateway gets a 400. [`crate::serve`] calls this function.
pub async fn handle_any_event(router: Router, event: LambdaEvent<Box<RawValue>>) -> GatewayResponse {
    let LambdaEvent { payload, context } = event;
    match serde_json::from_str::<GatewayEvent>(payload.get()) {
        Ok(event) => handle_gateway_event(router, LambdaEvent::new(event, context)).await,
        // Omits the parser's message, which may repeat parts of the event.
        Err(_) => reject_event("must be an event of an HTTP API, payload format 2.0", context).await,
    }
}

pub(crate) async fn reject_event(message: &'static str, context: Context) -> GatewayResponse {
    let rejection = move || async move { Failure::from(Error::invalid(vec![ValidationError::at_path("", message)])) };
    let router = with_middleware(Router::new().route("/", any(rejection)), ApiSettings::default());
    handle_request(router, Request::new(Body::empty()), context).await
}

/// Passes an event of the gateway to `router`, and returns the response in the gateway's format.
pub async fn handle_gateway_event(router: Router, event: LambdaEvent<GatewayEvent>) -> GatewayResponse {
    handle_request(router, to_http_request(event.payload), event.context).await
}

pub(crate) async fn handle_request(router: Router, request: Request<Body>, context: Context) -> GatewayResponse {
    let response = match router.oneshot(request.with_lambda_context(context)).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    to_gateway_response(response).await
}

fn to_http_request(event: GatewayEvent) -> Request<Body> {
    let method = event.request_context.http_method().clone();
    let mut headers = to_header_map(event.headers);
    // The gateway moves cookies from the headers to a separate list.
    let cookies: Vec<String> = event.cookies.into_iter().flatten().collect();
    if let Ok(cookies) = HeaderValue::from_str(&cookies.join("; "))
        && !cookies.is_empty()
    {
        headers.insert(header::COOKIE, cookies);
    }
    let bytes = match event.body {
        // A body that is not valid base64 is used unchanged.
        Some(body) if event.is_base64_encoded => BASE64_STANDARD.decode(&body).unwrap_or(body.into_bytes()),
        Some(body) => body.into_bytes(),
        None => Vec::new(),
    };
    let mut request = Request::new(Body::from(bytes));
    *request.method_mut() = method;
    *request.uri_mut() = to_uri(&event.raw_path, &event.raw_query_string);
    *request.headers_mut() = headers;
    request.extensions_mut().insert(event.request_context);
    request
}

/// Converts the gateway's headers, whose values can be non-ASCII. Drops headers that are `null` or invalid.
fn to_header_map(pairs: BTreeMap<String, Option<String>>) -> HeaderMap {
    let pair = |(name, value): (String, Option<String>)| {
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        Some((name, HeaderValue::from_bytes(value?.as_bytes()).ok()?))
    };
    pairs.into_iter().filter_map(pair).collect()
}

fn to_uri(path: &str, query: &str) -> Uri {
    // The URI for an invalid path. No route matches `*` (RFC 9112 §3.2.4), so the response is 404.
    const NOWHERE: &str = "*";
    let (path, query) = (percent_encode(path, ""), percent_encode(query, "?"));
    let text = if query.is_empty() {
        path
    } else {
        format!("{path}?{query}")
    };
    text.parse().unwrap_or_else(|_| Uri::from_static(NOWHERE))
}

/// Percent-encodes the characters that RFC 3986 §3.3 does not allow in a path, except percent signs and `extra_chars`.
///
/// The gateway passes on the query as the caller encoded it. It decodes the path, so a percent sign in the path is
/// literal, and no route contains one.
fn percent_encode(text: &str, extra_chars: &str) -> String {
    const ALLOWED: &str = "/%-._~!$&'()*+,;=:@";
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_ascii_alphanumeric() || ALLOWED.contains(letter) || extra_chars.contains(letter) {
            escaped.push(letter);
            continue;
        }
        for byte in letter.encode_utf8(&mut [0; 4]).bytes() {
            // Writing to a `String` can't fail.
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}

async fn to_gateway_response(response: Response) -> GatewayResponse {
    let (parts, body) = response.into_parts();
    let text_of = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let cookies = parts.headers.get_all(header::SET_COOKIE).iter().map(text_of).collect();
    let mut headers = BTreeMap::new();
    for (name, value) in parts.headers.iter().filter(|(name, _)| *name != header::SET_COOKIE) {
        match headers.entry(name.to_string()) {
            Entry::Vacant(entry) => {
                entry.insert(text_of(value));
            }
            Entry::Occupied(mut entry) => {
                let _ = write!(entry.get_mut(), ", {}", text_of(value));
            }
        }
    }
    // The body is in memory, so collecting it can't fail.
    let bytes = body.collect().await.map(Collected::to_bytes).unwrap_or_default();
    let (body, is_base64_encoded) = match String::from_utf8(bytes.into()) {
        Ok(text) => (text, false),
        Err(other) => (BASE64_STANDARD.encode(other.as_bytes()), true),
    };
    GatewayResponse {
        status_code: parts.status.as_u16(),
        headers,
        cookies,
        body,
        is_base64_encoded,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{client_ip, read_key, test_clients::TestLog};
    use axum::{
        Json,
        extract::{Path, RawQuery},
        response::AppendHeaders,
        routing::get,
    };
    use serde_json::{Value, json};

    fn app() -> Router {
        let routes = Router::new()
            .route("/echo/{id}", any(echo))
            .route(
                "/key",
                get(|headers: HeaderMap| async move { read_key(&headers).map(drop).map_err(Failure::from) }),
            )
            .route("/binary", get(|| async { [0xff_u8, 0x00].as_slice() }))
            .route(
                "/headers",
                get(|| async {
                    let pairs = [
                        ("set-cookie", "a=1"),
                        ("set-cookie", "b=2"),
                        ("vary", "a"),
                        ("vary", "b"),
                    ];
                    AppendHeaders(pairs)
                }),
            );
        with_middleware(routes, ApiSettings { body_limit: 8 })
    }

    async fn echo(Path(id): Path<String>, RawQuery(query): RawQuery, request: axum::extract::Request) -> Json<Value> {
        let cookie = request
            .headers()
            .get(header::COOKIE)
            .map(|value| value.to_str().unwrap().to_owned());
        let (method, ip) = (request.method().to_string(), client_ip(request.extensions()));
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let body = String::from_utf8_lossy(&body);
        Json(json!({"id": id, "query": query, "cookie": cookie, "method": method, "ip": ip, "body": body}))
    }

    async fn send(path: &str, more: Value) -> GatewayResponse {
        let mut event = json!({
            "rawPath": path,
            "requestContext": {"http": {"method": "PUT", "sourceIp": "203.0.113.9"}},
        });
        for (name, value) in more.as_object().unwrap() {
            event[name] = value.clone();
        }
        invoke(&event).await
    }

    async fn invoke(event: &Value) -> GatewayResponse {
        handle_any_event(
            app(),
            LambdaEvent::new(to_raw_value(event).unwrap(), Context::default()),
        )
        .await
    }

    async fn echoed(path: &str, more: Value) -> Value {
        let answer = send(path, more).await;
        assert_eq!(
            (answer.status_code, answer.is_base64_encoded),
            (200, false),
            "{}",
            answer.body
        );
        serde_json::from_str(&answer.body).unwrap()
    }

    #[tokio::test]
    async fn a_gateway_event_becomes_the_original_http_request() {
        let more = json!({"rawQueryString": "a=1&a=2", "cookies": ["x=1", "y=2"], "body": "{}"});
        assert_eq!(
            echoed("/echo/7", more).await,
            json!({
                "id": "7", "query": "a=1&a=2", "cookie": "x=1; y=2", "method": "PUT", "ip": "203.0.113.9", "body": "{}",
            })
        );
        assert_eq!(
            echoed("/echo/7", json!({"body": "e30=", "isBase64Encoded": true})).await["body"],
            "{}"
        );
        assert_eq!(echoed("/echo/7", json!({"body": "e30="})).await["body"], "e30=");
    }

    #[tokio::test]
    async fn null_fields_of_gateway_events_count_as_absent() {
        let optional = ["rawQueryString", "headers", "cookies", "body", "isBase64Encoded"];
        let nulls: Value = optional.map(|name| (name, Value::Null)).into_iter().collect();
        let absent = echoed("/echo/7", json!({})).await;
        assert_eq!(echoed("/echo/7", nulls).await, absent);
        for name in optional {
            assert_eq!(echoed("/echo/7", json!({name: null})).await, absent, "{name}");
        }
        let inside = json!({"headers": {"accept": null}, "cookies": [null, "x=1", null]});
        assert_eq!(echoed("/echo/7", inside).await["cookie"], "x=1");
        let context = json!({"domainName": null, "http": {"method": "PUT", "sourceIp": null}});
        assert_eq!(
            echoed("/echo/7", json!({"requestContext": context})).await["ip"],
            Value::Null
        );
        assert_eq!(send("/echo/7", json!({"rawPath": null})).await.status_code, 404);
    }

    #[tokio::test]
    async fn unknown_event_formats_are_rejected_without_echo() {
        let logged = TestLog::start();
        let scheduled = json!({"source": "aws.scheduler", "detail-type": "Scheduled Event", "detail": {"hunter2": 1}});
        let first_format = json!({"httpMethod": "GET", "path": "/echo/hunter2", "headers": null, "requestContext": {}});
        let rows = [
            json!({}),
            json!(null),
            json!([]),
            json!("hunter2"),
            json!({"rawPath": "/echo/7", "requestContext": null}),
            json!({"rawPath": "/echo/7", "requestContext": {"http": null}}),
            json!({"rawPath": "/echo/7", "requestContext": {"http": {"method": null}}}),
            json!({"rawPath": "/echo/7", "requestContext": {"http": {"method": "hunter 2"}}}),
            json!({"rawPath": 7, "requestContext": {"http": {"method": "GET"}}}),
            json!({"headers": ["hunter2"], "requestContext": {"http": {"method": "GET"}}}),
            json!({"Records": [{"body": "hunter2"}]}),
            scheduled,
            first_format,
        ];
        for event in rows {
            let answer = invoke(&event).await;
            assert_eq!(answer.status_code, 400, "{event}");
            assert!(answer.headers.contains_key("x-request-id"), "{event}");
            let body: Value = serde_json::from_str(&answer.body).unwrap();
            assert_eq!(body["error"], "invalid_request", "{event}");
            assert!(!answer.body.contains("hunter"), "{}", answer.body);
        }
        assert!(!logged.take().contains("hunter"));
    }

    #[tokio::test]
    async fn the_body_limit_counts_decoded_bytes() {
        // Twelve base64 characters are nine bytes, or eight with a padding character.
        let rows = [("MTIzNDU2Nzg=", 200), ("MTIzNDU2Nzg5", 413)];
        for (body, status) in rows {
            let answer = send("/echo/7", json!({"body": body, "isBase64Encoded": true})).await;
            assert_eq!(answer.status_code, status);
        }
    }

    #[tokio::test]
    async fn malformed_paths_never_break_the_function() {
        let rows = [
            ("/echo/a b", "", "a b", Value::Null),
            ("/echo/\u{e9}", "", "\u{e9}", Value::Null),
            ("/echo/%C3%A9", "", "\u{e9}", Value::Null),
            ("/echo/a?b#c", "", "a?b#c", Value::Null),
            (
                "/echo/a",
                "x=<\"`{}|^\u{e9}>",
                "a",
                json!("x=%3C%22%60%7B%7D%7C%5E%C3%A9%3E"),
            ),
            ("/echo/a", "x=%3C?", "a", json!("x=%3C?")),
        ];
        for (path, query, id, raw_query) in rows {
            let echoed = echoed(path, json!({"rawQueryString": query})).await;
            assert_eq!((&echoed["id"], &echoed["query"]), (&json!(id), &raw_query));
        }
        let endless = format!("/echo/{}", "a".repeat(70_000));
        for path in ["", "echo/7", "*", "//", "/\u{0}", endless.as_str()] {
            assert_eq!(send(path, json!({})).await.status_code, 404, "{path:?}");
        }
    }

    #[tokio::test]
    async fn non_ascii_headers_reach_the_handler() {
        let context = json!({"http": {"method": "GET"}});
        let headers = json!({"authorization": "Bearer \u{e9}:b", "x-name": "\u{e9}", "bad name": "x"});
        let answer = send("/key", json!({"headers": headers, "requestContext": context})).await;
        assert_eq!(answer.status_code, 401);
        assert!(answer.body.contains("invalid_authorization_header"));
    }

    #[tokio::test]
    async fn only_binary_bodies_are_base64_encoded() {
        let get = json!({"requestContext": {"http": {"method": "GET"}}});
        let binary = send("/binary", get.clone()).await;
        assert_eq!((binary.body.as_str(), binary.is_base64_encoded), ("/wA=", true));
        let refused = send("/nowhere", get).await;
        assert_eq!((refused.status_code, refused.is_base64_encoded), (404, false));
    }

    #[tokio::test]
    async fn set_cookie_headers_stay_separate_and_others_are_joined() {
        let answer = send("/headers", json!({"requestContext": {"http": {"method": "GET"}}})).await;
        assert_eq!(answer.cookies, ["a=1", "b=2"]);
        assert_eq!(answer.headers["vary"], "a, b");
        assert!(!answer.headers.contains_key("set-cookie"));
        let sent = serde_json::to_value(&answer).unwrap();
        let members: Vec<&String> = sent.as_object().unwrap().keys().collect();
        assert_eq!(members, ["body", "cookies", "headers", "isBase64Encoded", "statusCode"]);
    }
}
