//! A Secrets Manager endpoint that knows the stack's few secrets: `GetSecretValue` of the real wire protocol.

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Serves these secrets, by id or ARN.
pub(crate) fn endpoint(secrets: BTreeMap<String, String>) -> Router {
    let secrets = Arc::new(secrets);
    Router::new().route(
        "/",
        post(move |headers: HeaderMap, body: Bytes| async move { answer(&secrets, &headers, &body) }),
    )
}

fn answer(secrets: &BTreeMap<String, String>, headers: &HeaderMap, body: &Bytes) -> Response {
    let target = headers.get("x-amz-target").and_then(|value| value.to_str().ok());
    if target != Some("secretsmanager.GetSecretValue") {
        return reply(StatusCode::BAD_REQUEST, &json!({"__type": "UnknownOperationException"}));
    }
    let request: Value = serde_json::from_slice(body).unwrap_or_default();
    let id = request.get("SecretId").and_then(Value::as_str).unwrap_or_default();
    match secrets.get(id) {
        Some(value) => reply(StatusCode::OK, &json!({"ARN": id, "Name": id, "SecretString": value})),
        None => reply(StatusCode::BAD_REQUEST, &json!({"__type": "ResourceNotFoundException"})),
    }
}

fn reply(status: StatusCode, body: &Value) -> Response {
    (
        status,
        [(header::CONTENT_TYPE, "application/x-amz-json-1.1")],
        body.to_string(),
    )
        .into_response()
}
