//! Secrets Manager: `GetSecretValue` with the real wire protocol and the two stages that a rotation moves, and
//! `BatchGetSecretValue`.

use crate::serve;
use axum::Router;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// Secrets by ARN. Clones share them.
#[derive(Clone, Default)]
pub struct SecretsManager(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    secrets: BTreeMap<String, Versions>,
    /// The false answer to every call, if any.
    lie: Option<(u16, String)>,
    asked: Vec<Value>,
}

/// A secret's values, by stage.
struct Versions {
    current: String,
    /// The value before the last rotation; `None` before the first.
    previous: Option<String>,
}

impl SecretsManager {
    /// Secrets that were never rotated.
    pub fn new<N: Into<String>, V: Into<String>>(values: impl IntoIterator<Item = (N, V)>) -> Self {
        let manager = Self::default();
        for (arn, value) in values {
            manager.store(&arn.into(), &value.into(), None);
        }
        manager
    }

    /// Serves it for as long as the runtime runs, and returns its URL.
    pub async fn serve(&self) -> String {
        serve(self.router()).await
    }

    /// Its routes.
    pub fn router(&self) -> Router {
        let manager = self.clone();
        let answer = async move |headers: HeaderMap, body: String| manager.answer(&headers, &body);
        Router::new().route("/", post(answer))
    }

    /// Stores a secret with these values.
    pub fn store(&self, arn: &str, current: &str, previous: Option<&str>) {
        let versions = Versions {
            current: current.to_owned(),
            previous: previous.map(str::to_owned),
        };
        self.state().secrets.insert(arn.to_owned(), versions);
    }

    /// Gives a secret a new value. The current one becomes the previous one, and the previous one is deleted.
    pub fn rotate(&self, arn: &str, value: String) {
        let mut state = self.state();
        let versions = state.secrets.get_mut(arn).expect("a secret that is there");
        versions.previous = Some(std::mem::replace(&mut versions.current, value));
    }

    /// Every value, the previous ones included.
    pub fn values(&self) -> Vec<String> {
        let state = self.state();
        let values = state.secrets.values();
        let values = values.flat_map(|versions| [Some(versions.current.clone()), versions.previous.clone()]);
        values.flatten().collect()
    }

    /// From now on answers every call with this.
    pub fn lie(&self, status: u16, body: &str) {
        self.state().lie = Some((status, body.to_owned()));
    }

    /// From now on answers correctly again.
    pub fn behave(&self) {
        self.state().lie = None;
    }

    /// The requests since the last call of this.
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
    fn value(&self, arn: &str, stage: &str) -> Option<&str> {
        let versions = self.secrets.get(arn)?;
        match stage {
            "AWSCURRENT" => Some(&versions.current),
            "AWSPREVIOUS" => versions.previous.as_deref(),
            _ => None,
        }
    }

    fn several(&self, request: &Value) -> Value {
        let ids = request["SecretIdList"].as_array().into_iter().flatten();
        let (mut values, mut errors) = (Vec::new(), Vec::new());
        for id in ids.filter_map(Value::as_str) {
            match self.value(id, "AWSCURRENT") {
                Some(value) => values.push(entry(id, value, "AWSCURRENT")),
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
        let stage = request["VersionStage"].as_str().unwrap_or("AWSCURRENT");
        let missing = format!("Secrets Manager can't find the specified secret value for staging label: {stage}");
        match self.value(id, stage) {
            Some(value) => (200, entry(id, value, stage)),
            // An unknown secret and a missing stage are the same error in Secrets Manager.
            None => (400, json!({"__type": "ResourceNotFoundException", "Message": missing})),
        }
    }
}

fn entry(id: &str, value: &str, stage: &str) -> Value {
    json!({"ARN": id, "Name": id, "SecretString": value, "VersionStages": [stage]})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rotation_keeps_one_value_before_the_current_one() {
        let manager = SecretsManager::new([("arn:a", "one")]);
        let check = |stage, value: Option<&str>| assert_eq!(manager.state().value("arn:a", stage), value, "{stage}");
        check("AWSCURRENT", Some("one"));
        check("AWSPREVIOUS", None);
        manager.rotate("arn:a", "two".to_owned());
        check("AWSCURRENT", Some("two"));
        check("AWSPREVIOUS", Some("one"));
        manager.rotate("arn:a", "three".to_owned());
        check("AWSCURRENT", Some("three"));
        check("AWSPREVIOUS", Some("two"));
        check("AWSPENDING", None);
        assert_eq!(manager.state().value("arn:b", "AWSCURRENT"), None);
    }
}
