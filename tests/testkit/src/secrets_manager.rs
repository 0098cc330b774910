//! Secrets Manager's `GetSecretValue` and `BatchGetSecretValue`.

use crate::serve;
use axum::Router;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// Secrets Manager with secrets by ARN. Clones share the secrets.
#[derive(Clone, Default)]
pub struct SecretsManager(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    secrets: BTreeMap<String, String>,
    /// The error response to every call; `None` if calls succeed.
    lie: Option<(u16, String)>,
    asked: Vec<Value>,
}

impl SecretsManager {
    /// Creates Secrets Manager with these secrets.
    pub fn new<N: Into<String>, V: Into<String>>(values: impl IntoIterator<Item = (N, V)>) -> Self {
        let manager = Self::default();
        for (arn, value) in values {
            manager.store(&arn.into(), &value.into());
        }
        manager
    }

    /// Serves Secrets Manager until the runtime ends, and returns its URL.
    pub async fn serve(&self) -> String {
        serve(self.router()).await
    }

    /// Returns the routes of Secrets Manager.
    pub fn router(&self) -> Router {
        let manager = self.clone();
        let answer = async move |headers: HeaderMap, body: String| manager.answer(&headers, &body);
        Router::new().route("/", post(answer))
    }

    /// Sets the value of a secret.
    pub fn store(&self, arn: &str, value: &str) {
        self.state().secrets.insert(arn.to_owned(), value.to_owned());
    }

    /// Returns the values of all secrets.
    pub fn values(&self) -> Vec<String> {
        self.state().secrets.values().cloned().collect()
    }

    /// Responds to every later call with this status and body.
    pub fn lie(&self, status: u16, body: &str) {
        self.state().lie = Some((status, body.to_owned()));
    }

    /// Returns the secrets again after [`Self::lie`].
    pub fn behave(&self) {
        self.state().lie = None;
    }

    /// Takes the requests since the last call of this method.
    pub fn asked(&self) -> Vec<Value> {
        std::mem::take(&mut self.state().asked)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("not poisoned")
    }

    fn answer(&self, headers: &HeaderMap, body: &str) -> Response {
        let request: Value = serde_json::from_str(body).expect("the SDK writes JSON");
        let mut state = self.state();
        let (status, body) = match &state.lie {
            Some((status, body)) => (*status, body.clone()),
            None => {
                let target = headers.get("x-amz-target").and_then(|target| target.to_str().ok());
                let (status, body) = match target {
                    Some("secretsmanager.GetSecretValue") => state.one(&request),
                    Some("secretsmanager.BatchGetSecretValue") => (200, state.several(&request)),
                    _ => (400, json!({"__type": "UnknownOperationException"})),
                };
                (status, body.to_string())
            }
        };
        state.asked.push(request);
        let status = StatusCode::from_u16(status).expect("a status");
        (status, [(header::CONTENT_TYPE, "application/x-amz-json-1.1")], body).into_response()
    }
}

impl State {
    fn several(&self, request: &Value) -> Value {
        let ids = request["SecretIdList"].as_array().into_iter().flatten();
        let (mut values, mut errors) = (Vec::new(), Vec::new());
        for id in ids.filter_map(Value::as_str) {
            match self.secrets.get(id) {
                Some(value) => values.push(entry(id, value)),
                None => errors.push(json!({
                    "SecretId": id,
                    "ErrorCode": "ResourceNotFoundException",
                    "Message": "Secrets Manager can't find the specified secret.",
                })),
            }
        }
        json!({"SecretValues": values, "Errors": errors})
    }

    fn one(&self, request: &Value) -> (u16, Value) {
        let id = request["SecretId"].as_str().unwrap_or_default();
        match self.secrets.get(id) {
            Some(value) => (200, entry(id, value)),
            None => {
                let missing = "Secrets Manager can't find the specified secret.";
                (400, json!({"__type": "ResourceNotFoundException", "Message": missing}))
            }
        }
    }
}

fn entry(id: &str, value: &str) -> Value {
    json!({"ARN": id, "Name": id, "SecretString": value, "VersionStages": ["AWSCURRENT"]})
}
