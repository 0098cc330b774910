//! A Secrets Manager endpoint that knows the stack's few secrets: `GetSecretValue` of the real wire protocol, with the
//! two stages that a rotation moves, and `BatchGetSecretValue`.

use crate::recorder::Recorder;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

/// The secrets by ARN. Clones hold the same ones.
#[derive(Clone)]
pub(crate) struct Secrets(Arc<RwLock<BTreeMap<String, Versions>>>);

/// A secret's values, as the stages name them.
#[derive(Default)]
struct Versions {
    current: Option<String>,
    /// What was current before the last rotation; nothing before the first.
    previous: Option<String>,
}

impl Secrets {
    /// Secrets that were never rotated.
    pub(crate) fn new(values: BTreeMap<String, String>) -> Self {
        let versions = values.into_iter().map(|(arn, value)| {
            let versions = Versions {
                current: Some(value),
                previous: None,
            };
            (arn, versions)
        });
        Self(Arc::new(RwLock::new(versions.collect())))
    }

    /// Gives a secret a new value. The present one becomes the previous one, and the previous one is gone.
    pub(crate) fn rotate(&self, arn: &str, value: String) {
        let mut secrets = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let versions = secrets.entry(arn.to_owned()).or_default();
        versions.previous = versions.current.replace(value);
    }

    /// Every value, the previous ones included.
    pub(crate) fn values(&self) -> Vec<String> {
        let secrets = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let versions = secrets.values();
        let values = versions.flat_map(|versions| [versions.current.clone(), versions.previous.clone()]);
        values.flatten().collect()
    }

    /// A secret's value at a stage.
    fn value(&self, arn: &str, stage: &str) -> Option<String> {
        let secrets = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let versions = secrets.get(arn)?;
        match stage {
            "AWSCURRENT" => versions.current.clone(),
            "AWSPREVIOUS" => versions.previous.clone(),
            _ => None,
        }
    }

    /// The endpoint. Where there is a recorder, it is told who asks for what.
    pub(crate) fn router(&self, recorder: Option<Recorder>) -> Router {
        Router::new()
            .route("/", post(answer))
            .with_state((self.clone(), recorder))
    }
}

type Answering = (Secrets, Option<Recorder>);

async fn answer(State((secrets, recorder)): State<Answering>, headers: HeaderMap, body: Bytes) -> Response {
    let target = headers.get("x-amz-target").and_then(|value| value.to_str().ok());
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    match target {
        Some("secretsmanager.GetSecretValue") => one(&secrets, recorder, &headers, &request),
        Some("secretsmanager.BatchGetSecretValue") => several(&secrets, recorder, &headers, &request),
        _ => reply(StatusCode::BAD_REQUEST, &json!({"__type": "UnknownOperationException"})),
    }
}

fn several(secrets: &Secrets, recorder: Option<Recorder>, headers: &HeaderMap, request: &Value) -> Response {
    let ids = request.get("SecretIdList").and_then(Value::as_array);
    let ids: Vec<&str> = ids.into_iter().flatten().filter_map(Value::as_str).collect();
    if let Some(recorder) = recorder {
        recorder.secrets(headers, &ids);
    }
    let (mut values, mut errors) = (Vec::new(), Vec::new());
    for id in ids {
        match secrets.value(id, "AWSCURRENT") {
            Some(value) => values.push(entry(id, &value, "AWSCURRENT")),
            None => errors.push(json!({
                "SecretId": id,
                "ErrorCode": "ResourceNotFoundException",
                "Message": "Secrets Manager can't find the specified secret.",
            })),
        }
    }
    reply(StatusCode::OK, &json!({"SecretValues": values, "Errors": errors}))
}

fn one(secrets: &Secrets, recorder: Option<Recorder>, headers: &HeaderMap, request: &Value) -> Response {
    let id = request.get("SecretId").and_then(Value::as_str).unwrap_or_default();
    let stage = request.get("VersionStage").and_then(Value::as_str);
    let stage = stage.unwrap_or("AWSCURRENT");
    if let Some(recorder) = recorder {
        recorder.secret(headers, id);
    }
    match secrets.value(id, stage) {
        Some(value) => reply(StatusCode::OK, &entry(id, &value, stage)),
        // An unknown secret, and a known one without that stage, are the same error in Secrets Manager.
        None => reply(
            StatusCode::BAD_REQUEST,
            &json!({
                "__type": "ResourceNotFoundException",
                "Message": format!("Secrets Manager can't find the specified secret value for staging label: {stage}"),
            }),
        ),
    }
}

fn entry(id: &str, value: &str, stage: &str) -> Value {
    json!({"ARN": id, "Name": id, "SecretString": value, "VersionStages": [stage]})
}

fn reply(status: StatusCode, body: &Value) -> Response {
    (
        status,
        [(header::CONTENT_TYPE, "application/x-amz-json-1.1")],
        body.to_string(),
    )
        .into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rotation_keeps_one_value_before_the_current_one() {
        let secrets = Secrets::new([("arn:a".to_owned(), "one".to_owned())].into());
        let check = |stage, value: Option<&str>| assert_eq!(secrets.value("arn:a", stage).as_deref(), value, "{stage}");
        check("AWSCURRENT", Some("one"));
        check("AWSPREVIOUS", None);
        secrets.rotate("arn:a", "two".to_owned());
        check("AWSCURRENT", Some("two"));
        check("AWSPREVIOUS", Some("one"));
        secrets.rotate("arn:a", "three".to_owned());
        check("AWSCURRENT", Some("three"));
        check("AWSPREVIOUS", Some("two"));
        check("AWSPENDING", None);
        assert_eq!(secrets.value("arn:b", "AWSCURRENT"), None);
    }
}
