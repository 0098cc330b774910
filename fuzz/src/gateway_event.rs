//! The gateway's event: whatever a caller sends, the function gets a request, and the caller gets an answer from us.
//!
//! The input is an event as Lambda passes it, for a function with one route that reads its path, query, body and
//! headers. Every valid event is answered by that route or by our own 400, 404 or 413, in the envelope and with the
//! request's id.

use axum::extract::Path;
use axum::http::{HeaderMap, Uri};
use axum::{Router, body::Bytes, routing::any};
use lambda_http::{Context, LambdaEvent};
use purser_api::{
    ApiSettings, Failure, GatewayEvent, Precondition, Query, answer, json_body, presented_key, with_middleware,
};
use serde_json::Value;
use std::sync::LazyLock;
use tokio::runtime::{Builder, Runtime};

const LIMIT: usize = 1_024;

/// See the module's documentation.
pub fn gateway_event(bytes: &[u8]) {
    static RUNTIME: LazyLock<Runtime> =
        LazyLock::new(|| Builder::new_current_thread().build().expect("a runtime of one thread"));
    static FUNCTION: LazyLock<Router> = LazyLock::new(|| {
        let router = Router::new().route("/things/{id}", any(thing));
        with_middleware(router, ApiSettings { body_limit: LIMIT })
    });

    let Ok(event) = serde_json::from_slice::<GatewayEvent>(bytes) else {
        return;
    };
    let mut context = Context::default();
    context.request_id = "fuzz-1".to_owned();
    let answered = RUNTIME.block_on(answer(FUNCTION.clone(), LambdaEvent::new(event, context)));
    let body: Value = serde_json::from_str(&answered.body).unwrap_or(Value::Null);
    assert_eq!(answered.headers.get("x-request-id").map(String::as_str), Some("fuzz-1"));
    match answered.status_code {
        200 => {}
        400 | 404 | 413 => {
            assert!(
                body["error"].is_string() && body["message"].is_string(),
                "{}",
                answered.body
            );
            assert_eq!(body["request_id"], "fuzz-1");
            let kind = answered.headers.get("content-type").map(String::as_str);
            assert_eq!(kind, Some("application/json; charset=utf-8"));
        }
        other => panic!("{other}: {}", answered.body),
    }
}

async fn thing(Path(id): Path<String>, uri: Uri, headers: HeaderMap, body: Bytes) -> Result<(), Failure> {
    // The router has parsed the path; the parameter is always a single segment.
    assert!(uri.path().starts_with("/things/"), "{uri} leads to {id:?}");
    assert!(body.len() <= LIMIT);
    let mut query = Query::of(&uri);
    query.limit("limit", 25, 100);
    query.text("slug");
    query.finish()?;
    // Neither header may cause a panic; their meaning is checked by the target `headers`.
    let _ = (presented_key(&headers), Precondition::of(&headers));
    if !body.is_empty() {
        json_body(&body)?;
    }
    Ok(())
}
