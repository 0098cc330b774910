//! The middleware of all functions: request id, body limit, deadline, error envelope, log line and compression.
//!
//! Each request is logged once, when it ends. Bodies, headers and keys are never logged.

use crate::{
    CallerIds, Clock, Env, Failure, RequestId, TraceId, http::compression::with_compression, http::envelope::ErrorBody,
    lambda::boot::panic_text,
};
use axum::{
    Router,
    body::Body,
    extract::{
        DefaultBodyLimit, FromRequestParts as _, MatchedPath, RawPathParams, Request, State,
        rejection::RawPathParamsRejection,
    },
    http::{Extensions, HeaderMap, HeaderName, HeaderValue, header},
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse as _, Response},
};
use futures_util::FutureExt as _;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use lambda_http::RequestExt as _;
use purser_domain::{AccessToken, Error, ErrorKind, Result, ValidationError};
use std::{
    any::Any,
    future::Future,
    panic::AssertUnwindSafe,
    time::{Duration, Instant},
};
use tracing::{Instrument as _, error, info, info_span, warn};

/// Settings of [`with_middleware`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApiSettings {
    /// The maximum length of a request body, in bytes.
    pub body_limit: usize,
}

impl Default for ApiSettings {
    fn default() -> Self {
        Self { body_limit: 65_536 }
    }
}

impl ApiSettings {
    /// Reads `BODY_LIMIT_BYTES`, with the same range as in `template.yaml`.
    pub fn from_env(env: &mut Env) -> Self {
        let body_limit = env.parse_number("BODY_LIMIT_BYTES", Self::default().body_limit, 1_024..=1_048_576);
        Self { body_limit }
    }
}

/// Adds the middleware to a function's router. Unknown routes, and wrong methods on known routes, return 404
/// `not_found` (`docs/decisions.md` §9).
pub fn with_middleware(router: Router, settings: ApiSettings) -> Router {
    let router = router
        .fallback(unknown_route)
        .method_not_allowed_fallback(unknown_route)
        // axum's own limit would respond with axum's own error body.
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn_with_state(settings, apply_limits_and_log_request));
    with_compression(router)
}

async fn unknown_route() -> Failure {
    ErrorKind::NotFound.into()
}

async fn apply_limits_and_log_request(
    State(settings): State<ApiSettings>,
    mut request: Request,
    next: Next,
) -> Response {
    let started = Instant::now();
    let id = RequestId::for_request(request.extensions());
    let trace = TraceId::for_request(request.extensions(), request.headers(), Clock::system().now());
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let route = route.as_ref().map_or("none", MatchedPath::as_str);
    let deadline = time_left(request.extensions());
    let has_token = has_access_token(request.headers());
    request.extensions_mut().insert(id.clone());
    // The extensions of a direct request already contain the ids of the request that caused the direct request.
    let caller = request.extensions_mut().insert(CallerIds {
        request_id: id.to_string(),
        trace_id: trace.to_string(),
    });

    let span = info_span!("request", request.id = %id, trace.id = %trace);
    async {
        if let Some(CallerIds { request_id, trace_id }) = caller {
            info!(
                request.id = %id,
                caller.request.id = request_id,
                caller.trace.id = trace_id,
                "direct.request"
            );
        }
        let work = async { Ok(next.run(buffer_body(request, settings.body_limit).await?).await) };
        let reply = run_within(deadline, catch_panic(work)).await;
        let mut response = reply.unwrap_or_else(|error| Failure::from(error).into_response());
        add_headers_and_request_id(&mut response, &id, &trace);
        if has_token
            && response
                .headers()
                .get(header::WWW_AUTHENTICATE)
                .is_some_and(|scheme| scheme == "Bearer")
        {
            let challenge = HeaderValue::from_static(r#"Bearer error="invalid_token""#);
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
        let failure = response.extensions().get::<Failure>();
        let slug = failure.map(|failure| failure.error().kind().slug());
        let latency_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let status = response.status().as_u16();
        info!(request.id = %id, %method, route, status, error = slug, latency_ms, "request");
        if let Some(failure) = failure {
            log_failure_cause(failure, &id, route);
        }
        response
    }
    .instrument(span)
    .await
}

/// Returns whether a request has an access token. After `invalid_token` (RFC 6750 §3.1), a client refreshes an access
/// token, but can't refresh an agent key.
pub fn has_access_token(headers: &HeaderMap) -> bool {
    let value = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = value.and_then(|value| value.split_once(' '));
    token.is_some_and(|(_, token)| AccessToken::has_token_prefix(token.trim()))
}

/// Reads the whole body into memory, or returns 413 if it exceeds the limit.
async fn buffer_body(request: Request, limit: usize) -> Result<Request> {
    let (mut parts, body) = request.into_parts();
    // axum's extractors would return their own error body for a path that is not UTF-8.
    if let Err(RawPathParamsRejection::InvalidUtf8InPathParam(_)) =
        RawPathParams::from_request_parts(&mut parts, &()).await
    {
        return Err(ErrorKind::NotFound.into());
    }
    // Rejects a body before reading it if the `Content-Length` exceeds the limit.
    let announced = parts.headers.get(header::CONTENT_LENGTH);
    let announced = announced.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|length| length > limit) {
        tokio::spawn(discard_body(body));
        return Err(ErrorKind::RequestTooLarge { limit }.into());
    }
    let bytes = match Limited::new(body, limit).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => return Err(ErrorKind::RequestTooLarge { limit }.into()),
        Err(_) => return Err(Error::invalid(vec![ValidationError::at_path("", "must arrive whole")])),
    };
    Ok(Request::from_parts(parts, Body::from(bytes)))
}

/// Reads the rest of a rejected body for at most two seconds. If the server closes a connection with unread
/// bytes, TCP resets the connection, and the response may be lost.
async fn discard_body(mut body: Body) {
    const LINGER: Duration = Duration::from_secs(2);
    let rest = async { while matches!(body.frame().await, Some(Ok(_))) {} };
    let _ = tokio::time::timeout(LINGER, rest).await;
}

/// Returns the time until Lambda's deadline, minus the time to send the response; `None` outside Lambda.
fn time_left(extensions: &Extensions) -> Option<Duration> {
    const MARGIN: Duration = Duration::from_millis(300);
    let deadline = extensions
        .lambda_context_ref()
        .map(|context| context.deadline)
        .filter(|deadline| *deadline > 0)?;
    // The system clock, because Lambda's deadline is in real time and the local stack's clock may be shifted.
    let now = Duration::from_micros(Clock::system().now().micros().unsigned_abs());
    Some(
        Duration::from_millis(deadline)
            .saturating_sub(now)
            .saturating_sub(MARGIN),
    )
}

async fn run_within(limit: Option<Duration>, work: impl Future<Output = Result<Response>>) -> Result<Response> {
    let Some(limit) = limit else { return work.await };
    tokio::time::timeout(limit, work)
        .await
        .unwrap_or_else(|elapsed| Err(Error::internal("responding before the function's deadline", elapsed)))
}

/// Turns a panic into an error, so that the panic fails one request and not the Lambda instance.
async fn catch_panic(work: impl Future<Output = Result<Response>>) -> Result<Response> {
    // Safe, because the future is dropped after a panic.
    let response = AssertUnwindSafe(work).catch_unwind().await;
    response.unwrap_or_else(|panic| Err(Error::internal("handling the request", panic_response(&*panic))))
}

fn panic_response(payload: &(dyn Any + Send)) -> String {
    format!(
        "the handler panicked: {}",
        panic_text(payload).unwrap_or("see the log line `panic`")
    )
}

/// Adds the common headers to a response, and the request id to the body of an error.
fn add_headers_and_request_id(response: &mut Response, id: &RequestId, trace: &TraceId) {
    // The response to a failure may be a page instead of JSON (`Failure::into_page_response`).
    let is_json = |headers: &HeaderMap| {
        headers
            .get(header::CONTENT_TYPE)
            .is_some_and(|kind| kind == "application/json")
    };
    let envelope = response
        .extensions()
        .get::<Failure>()
        .filter(|_| is_json(response.headers()))
        .and_then(|failure| error_body_with_request_id(failure, id));
    if let Some(body) = envelope {
        *response.body_mut() = body;
    }
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::from_str(id.as_str()) {
        headers.insert(HeaderName::from_static("x-request-id"), id);
    }
    if let Ok(root) = HeaderValue::try_from(format!("Root={trace}")) {
        headers.insert(HeaderName::from_static("x-amzn-trace-id"), root);
    }
    if is_json(headers) {
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json; charset=utf-8"),
        );
    }
    for (name, value) in DEFAULT_HEADERS {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    for (name, value) in FIXED_HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

/// Headers that a handler can override. `Content-Security-Policy` prevents a browser from loading resources for the
/// response and from framing it.
const DEFAULT_HEADERS: [(HeaderName, &str); 3] = [
    (header::CACHE_CONTROL, "no-store"),
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (header::REFERRER_POLICY, "no-referrer"),
];

/// Headers of every response. `Strict-Transport-Security` (RFC 6797) is valid for one year. Browsers ignore it on plain
/// HTTP.
const FIXED_HEADERS: [(HeaderName, &str); 2] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::STRICT_TRANSPORT_SECURITY, "max-age=31536000; includeSubDomains"),
];

fn error_body_with_request_id(failure: &Failure, id: &RequestId) -> Option<Body> {
    let envelope = ErrorBody {
        request_id: Some(id.to_string()),
        ..ErrorBody::from(failure.error().kind())
    };
    serde_json::to_vec(&envelope).ok().map(Body::from)
}

fn log_failure_cause(failure: &Failure, id: &RequestId, route: &str) {
    let error = failure.error();
    if matches!(error.kind(), ErrorKind::Internal) {
        error!(request.id = %id, route, cause = %error, "request.failed");
    } else if error.cause().is_some() {
        warn!(request.id = %id, route, cause = %error, "request.failed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Reply, lambda::boot::json_subscriber, parse_json_body, telemetry::metrics::NAMESPACE};
    use axum::{
        Extension, Json,
        extract::Path,
        http::StatusCode,
        middleware::map_response,
        response::Html,
        routing::{get, post},
    };
    use bytes::Bytes;
    use lambda_http::Context;
    use serde_json::{Value, json};
    use std::{
        io,
        sync::{Arc, Mutex},
    };
    use tower::ServiceExt as _;

    fn app() -> Router {
        let routes = Router::new()
            .route("/ok", get(|| async { Json(json!({"ok": true})) }))
            .route(
                "/kept",
                get(|| async { ([(header::CACHE_CONTROL, "public")], Json(json!({}))) }),
            )
            .route(
                "/name",
                get(|Extension(id): Extension<RequestId>| async move { id.to_string() }),
            )
            .route(
                "/echo",
                post(|body: Bytes| async move { parse_json_body(&body).map(Json).map_err(Failure::from) }),
            )
            .route("/things/{id}", get(|Path(id): Path<String>| async move { id }))
            .route("/late", get(late))
            .route("/panics", get(panics))
            .route("/panics/{text}", get(panics_with))
            .route("/broken", get(broken))
            .merge(pages());
        with_middleware(routes, ApiSettings { body_limit: 16 })
    }

    /// A router of pages that replaces failures by pages, as in the dashboard.
    fn pages() -> Router {
        let page = |response: Response| async move {
            match response.extensions().get::<Failure>().cloned() {
                Some(failure) => {
                    let told = ErrorBody::from(failure.error().kind());
                    failure.into_page_response(Html(format!("<p>{}</p>", told.message)))
                }
                None => response,
            }
        };
        let policy = || {
            (
                header::CONTENT_SECURITY_POLICY,
                HeaderValue::from_static("default-src 'none'"),
            )
        };
        Router::new()
            .route(
                "/page",
                get(move || async move {
                    (
                        [(header::CACHE_CONTROL, HeaderValue::from_static("private")), policy()],
                        Html("<p>yes</p>"),
                    )
                }),
            )
            .route(
                "/page/style",
                get(|| async { ([(header::CONTENT_TYPE, "text/css")], "p {}") }),
            )
            .route("/page/broken", get(broken))
            .layer(map_response(page))
    }

    async fn late() -> Reply {
        tokio::time::sleep(Duration::from_mins(1)).await;
        Ok(().into_response())
    }

    async fn panics() -> Reply {
        panic!("a bug")
    }

    async fn panics_with(Path(text): Path<String>) -> Reply {
        panic!("a bug with {text}")
    }

    async fn broken() -> Reply<()> {
        Err(Error::internal("reading the policy", "connection reset").into())
    }

    fn request(method: &str, path: &str, body: &'static str) -> Request {
        Request::builder()
            .method(method)
            .uri(path)
            .body(Body::from(body))
            .unwrap()
    }

    const TRACE: &str = "1-68a8f5c0-000000000000000000000087";

    fn in_lambda(request: Request, deadline_in: Duration) -> Request {
        let mut context = Context::default();
        context.request_id = "lambda-1".to_owned();
        context.xray_trace_id = Some(format!("Root={TRACE};Parent=53995c3f42cd8ad8;Sampled=0"));
        let now = Duration::from_micros(Clock::system().now().micros().unsigned_abs());
        context.deadline = u64::try_from(now.saturating_add(deadline_in).as_millis()).unwrap();
        request.with_lambda_context(context)
    }

    async fn send(request: Request) -> Response {
        app().oneshot(request).await.unwrap()
    }

    async fn json_of(response: Response) -> Value {
        serde_json::from_slice(&response.into_body().collect().await.unwrap().to_bytes()).unwrap()
    }

    const CLOSED: &str = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

    #[tokio::test]
    async fn every_response_has_the_common_headers() {
        for (path, status) in [("/ok", 200), ("/nowhere", 404), ("/panics", 500), ("/broken", 500)] {
            let response = send(in_lambda(request("GET", path, ""), Duration::from_secs(10))).await;
            assert_eq!(response.status().as_u16(), status);
            let headers = response.headers();
            assert_eq!(headers["x-request-id"], "lambda-1");
            assert_eq!(headers["x-amzn-trace-id"], format!("Root={TRACE}"));
            assert_eq!(headers[header::CONTENT_TYPE], "application/json; charset=utf-8");
            assert_eq!(headers[header::CACHE_CONTROL], "no-store");
            assert_eq!(headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
            assert_eq!(
                headers[header::STRICT_TRANSPORT_SECURITY],
                "max-age=31536000; includeSubDomains"
            );
            assert_eq!(headers[header::CONTENT_SECURITY_POLICY], CLOSED);
            assert_eq!(headers[header::REFERRER_POLICY], "no-referrer");
            let length = headers[header::CONTENT_LENGTH].to_str().unwrap().to_owned();
            let body = response.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(length, body.len().to_string(), "{path}");
        }
        assert_eq!(
            send(request("GET", "/kept", "")).await.headers()[header::CACHE_CONTROL],
            "public"
        );
    }

    #[tokio::test]
    async fn pages_keep_headers_that_they_set_themselves() {
        const HTML: &str = "text/html; charset=utf-8";
        let rows = [
            ("/page", 200, HTML, "private", "default-src 'none'", "<p>yes</p>"),
            ("/page/style", 200, "text/css", "no-store", CLOSED, "p {}"),
            (
                "/page/broken",
                500,
                HTML,
                "no-store",
                CLOSED,
                "<p>an unexpected error on our side; the same request can be sent again</p>",
            ),
        ];
        for (path, status, kind, caching, policy, text) in rows {
            let response = send(in_lambda(request("GET", path, ""), Duration::from_secs(10))).await;
            let headers = response.headers();
            let header = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap());
            assert_eq!(response.status().as_u16(), status, "{path}");
            assert_eq!(header(header::CONTENT_TYPE), Some(kind), "{path}");
            assert_eq!(header(header::CACHE_CONTROL), Some(caching), "{path}");
            assert_eq!(header(header::CONTENT_SECURITY_POLICY), Some(policy), "{path}");
            assert_eq!(headers["x-request-id"], "lambda-1");
            assert_eq!(headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
            let length = headers[header::CONTENT_LENGTH].to_str().unwrap().to_owned();
            let body = response.into_body().collect().await.unwrap().to_bytes();
            assert_eq!((&body[..], length), (text.as_bytes(), text.len().to_string()), "{path}");
        }
    }

    #[tokio::test]
    async fn requests_outside_lambda_get_unique_ids() {
        let [first, second] = [
            send(request("GET", "/name", "")).await,
            send(request("GET", "/name", "")).await,
        ];
        assert_ne!(first.headers()["x-request-id"], second.headers()["x-request-id"]);
        let header = first.headers()["x-request-id"].clone();
        assert_eq!(header.to_str().unwrap().len(), 36);
        assert_eq!(first.into_body().collect().await.unwrap().to_bytes(), header.as_bytes());
    }

    #[tokio::test]
    async fn unknown_routes_and_methods_return_not_found() {
        for (method, path) in [
            ("GET", "/nowhere"),
            ("POST", "/ok"),
            ("GET", "/echo"),
            ("GET", "/things/%ff"),
        ] {
            let request = in_lambda(request(method, path, ""), Duration::from_secs(10));
            let response = send(request).await;
            assert_eq!(response.status(), StatusCode::NOT_FOUND, "{method} {path}");
            let expected = json!({
                "error": "not_found",
                "message": "not found, or not visible to this caller",
                "request_id": "lambda-1",
            });
            assert_eq!(json_of(response).await, expected);
        }
    }

    #[tokio::test]
    async fn oversized_bodies_are_rejected_before_json_parsing() {
        let rows = [
            (r#"{"a":"12345678"}"#, 200, Value::Null),
            (r#"{"a":"123456789"}"#, 413, json!("request_too_large")),
            ("00000000000000000", 413, json!("request_too_large")),
            ("", 400, json!("invalid_request")),
            ("{", 400, json!("invalid_request")),
        ];
        for (body, status, slug) in rows {
            let response = send(request("POST", "/echo", body)).await;
            assert_eq!(response.status().as_u16(), status, "{body}");
            let answer = json_of(response).await;
            assert_eq!(answer["error"], slug);
            assert_eq!(
                answer["limit_bytes"],
                if status == 413 { json!(16) } else { Value::Null }
            );
        }
    }

    #[tokio::test]
    async fn requests_get_a_response_before_the_lambda_timeout() {
        let late = in_lambda(request("GET", "/late", ""), Duration::from_millis(400));
        assert!(time_left(late.extensions()).unwrap() <= Duration::from_millis(100));
        let response = send(late).await;
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(json_of(response).await["error"], "internal_error");
        // The deadline is over before the request begins. A handler that does not wait still responds.
        assert_eq!(
            send(in_lambda(request("GET", "/ok", ""), Duration::ZERO))
                .await
                .status(),
            StatusCode::OK
        );
    }

    #[tokio::test]
    async fn a_panic_fails_one_request_without_revealing_details() {
        let app = app();
        for (path, status) in [("/panics", 500), ("/ok", 200)] {
            let response = app.clone().oneshot(request("GET", path, "")).await.unwrap();
            assert_eq!(response.status().as_u16(), status);
            assert!(!json_of(response).await.to_string().contains("bug"));
        }
    }

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Lines {
        /// The log lines, without fields that differ between runs.
        fn read(&self) -> Vec<Value> {
            let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
            let line = |line: &str| {
                let mut line: Value = serde_json::from_str(line).unwrap();
                let members = line.as_object_mut().unwrap();
                assert!(members.remove("timestamp").unwrap().as_str().unwrap().ends_with('Z'));
                members.remove("latency_ms");
                line
            };
            text.lines().map(line).collect()
        }
    }

    /// The additional line of a failed request has the cause. No line contains secrets of the request.
    #[tokio::test]
    async fn each_request_is_logged_once() {
        let lines = Lines::default();
        let writer = lines.clone();
        let _guard =
            tracing::subscriber::set_default(json_subscriber("warn,purser=info", NAMESPACE, move || writer.clone()));
        for path in [
            "/things/secret?x=secret",
            "/nowhere/secret",
            "/broken",
            "/page/broken",
            "/panics/secret",
        ] {
            let mut request = in_lambda(request("GET", path, "secret"), Duration::from_secs(10));
            request
                .headers_mut()
                .insert(header::AUTHORIZATION, HeaderValue::from_static("secret"));
            send(request).await;
        }
        let span = json!({"name": "request", "request.id": "lambda-1", "trace.id": TRACE});
        let line = |level: &str, message: &str, rest: Value| {
            let mut line = json!({
                "level": level, "target": "purser_api::http::router", "span": span, "message": message,
                "request.id": "lambda-1",
            });
            for (name, value) in rest.as_object().unwrap() {
                line[name] = value.clone();
            }
            line
        };
        let expected = vec![
            line(
                "INFO",
                "request",
                json!({"method": "GET", "route": "/things/{id}", "status": 200}),
            ),
            line(
                "INFO",
                "request",
                json!({"method": "GET", "route": "none", "status": 404, "error": "not_found"}),
            ),
            line(
                "INFO",
                "request",
                json!({"method": "GET", "route": "/broken", "status": 500, "error": "internal_error"}),
            ),
            line(
                "ERROR",
                "request.failed",
                json!({
                    "route": "/broken",
                    "cause": "internal_error while reading the policy: connection reset",
                }),
            ),
            line(
                "INFO",
                "request",
                json!({"method": "GET", "route": "/page/broken", "status": 500, "error": "internal_error"}),
            ),
            line(
                "ERROR",
                "request.failed",
                json!({
                    "route": "/page/broken",
                    "cause": "internal_error while reading the policy: connection reset",
                }),
            ),
            line(
                "INFO",
                "request",
                json!({"method": "GET", "route": "/panics/{text}", "status": 500, "error": "internal_error"}),
            ),
            line(
                "ERROR",
                "request.failed",
                json!({
                    "route": "/panics/{text}",
                    "cause": "internal_error while handling the request: the handler panicked: see the log line `panic`",
                }),
            ),
        ];
        assert_eq!(lines.read(), expected);
    }
}
