//! Writes down which function calls what of AWS, so that roles can be held to it (`infra/sam/calls.py`).
//!
//! Every function signs with an access key of its own, whose id is the function's logical id: the signature of each
//! request says who sent it. Between the functions and the database stands a listener that reads requests as DynamoDB
//! would judge them and passes them on unchanged. What the stack and the tests do themselves goes past it.
//!
//! A line is one permission that was needed, written once by each stack: `{"function", "action", "resource", "keys",
//! "within", "only_if_new"}`. A transaction needs the permissions of its items (developer guide, "Using IAM with DynamoDB
//! transactions"). Nothing of a partition key is kept but what it begins with, up to `#`.

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// Writes to one file. Clones share it, and so may other processes: a line is one write.
#[derive(Clone)]
pub(crate) struct Recorder(Arc<Mutex<Record>>);

struct Record {
    file: File,
    written: HashSet<String>,
}

impl Recorder {
    /// Adds to that file.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self(Arc::new(Mutex::new(Record {
            file,
            written: HashSet::new(),
        }))))
    }

    /// The listener in front of that database.
    pub(crate) fn in_front_of(&self, upstream: String) -> Router {
        let front = Front {
            recorder: self.clone(),
            upstream,
            client: reqwest::Client::new(),
        };
        Router::new().route("/", post(pass_on)).with_state(Arc::new(front))
    }

    /// Several secrets were asked for in one call, which takes a permission of its own beside theirs.
    pub(crate) fn secrets(&self, headers: &HeaderMap, arns: &[&str]) {
        self.write(&json!({
            "function": function(headers),
            "action": "secretsmanager:BatchGetSecretValue",
            "resource": "*",
        }));
        for arn in arns {
            self.secret(headers, arn);
        }
    }

    /// A secret was asked for.
    pub(crate) fn secret(&self, headers: &HeaderMap, arn: &str) {
        // `arn:aws:secretsmanager:<region>:<account>:secret:<name>`
        let resource = arn.rsplit(':').next().unwrap_or(arn);
        self.write(&json!({
            "function": function(headers),
            "action": "secretsmanager:GetSecretValue",
            "resource": resource,
        }));
    }

    fn write(&self, line: &Value) {
        let line = format!("{line}\n");
        let mut record = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if record.written.contains(&line) {
            return;
        }
        match record.file.write_all(line.as_bytes()) {
            Ok(()) => {
                record.written.insert(line);
            }
            // The check misses it then: what is not written down counts as never called.
            Err(error) => tracing::error!(cause = %error, "recorder.not_written"),
        }
    }
}

struct Front {
    recorder: Recorder,
    upstream: String,
    client: reqwest::Client,
}

async fn pass_on(State(front): State<Arc<Front>>, mut headers: HeaderMap, body: Bytes) -> Response {
    let target = headers.get("x-amz-target").and_then(|value| value.to_str().ok());
    let operation = target.and_then(|target| target.rsplit('.').next()).unwrap_or_default();
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    let function = function(&headers);
    for need in needs(operation, &request) {
        front.recorder.write(&need.by(&function));
    }
    headers.remove(header::HOST);
    headers.remove(header::CONTENT_LENGTH);
    let sent = front
        .client
        .post(&front.upstream)
        .headers(headers)
        .body(body)
        .send()
        .await;
    let answer = async {
        let answer = sent?;
        let (status, headers) = (answer.status(), answer.headers().clone());
        Ok::<_, reqwest::Error>((status, headers, answer.bytes().await?))
    };
    match answer.await {
        Ok((status, headers, body)) => {
            let mut passed = (status, body).into_response();
            for name in ["content-type", "x-amz-crc32", "x-amzn-requestid"] {
                if let Some(value) = headers.get(name) {
                    passed.headers_mut().insert(name, value.clone());
                }
            }
            passed
        }
        Err(error) => (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
    }
}

/// Who signed: the access key id in `AWS4-HMAC-SHA256 Credential=<id>/<date>/…`.
fn function(headers: &HeaderMap) -> String {
    let signature = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let credential = signature.and_then(|text| text.split_once("Credential=")?.1.split_once('/'));
    credential.map_or("?", |(id, _)| id).to_owned()
}

/// One permission that a request needs.
#[derive(Debug, PartialEq, Eq)]
struct Need {
    action: String,
    resource: String,
    /// What the partition keys begin with; none where none is named, as in a scan or on an index.
    keys: BTreeSet<String>,
    /// The transaction around it.
    within: Option<&'static str>,
    /// Of a put: whether it can overwrite nothing.
    only_if_new: bool,
}

impl Need {
    fn of(action: &str, resource: String, keys: impl IntoIterator<Item = String>) -> Self {
        Self {
            action: action.to_owned(),
            resource,
            keys: keys.into_iter().collect(),
            within: None,
            only_if_new: false,
        }
    }

    /// A read or a write of one item.
    fn of_item(action: &str, request: &Value) -> Self {
        let item = request.get("Item").or_else(|| request.get("Key"));
        let condition = text_of(request, "ConditionExpression");
        Self {
            only_if_new: action == "PutItem" && condition == Some("attribute_not_exists(pk)"),
            ..Self::of(
                action,
                text(request, "TableName"),
                [item.map_or_else(unknown, partition)],
            )
        }
    }

    fn by(self, function: &str) -> Value {
        json!({
            "function": function,
            "action": format!("dynamodb:{}", self.action),
            "resource": self.resource,
            "keys": self.keys,
            "within": self.within,
            "only_if_new": self.only_if_new,
        })
    }
}

/// What a request is allowed by. A request that is not understood needs a key that no role has: `?`.
fn needs(operation: &str, request: &Value) -> Vec<Need> {
    match operation {
        "TransactWriteItems" => {
            let items = list(request, "TransactItems").iter().filter_map(Value::as_object);
            let need = |(kind, item): (&String, &Value)| Need {
                within: Some("TransactWriteItems"),
                ..Need::of_item(&format!("{kind}Item"), item)
            };
            items.flatten().map(need).collect()
        }
        // Of one table in one call all keys are judged together.
        "BatchGetItem" => {
            let tables = request.get("RequestItems").and_then(Value::as_object);
            let need = |(table, asked): (&String, &Value)| {
                Need::of(operation, table.clone(), list(asked, "Keys").iter().map(partition))
            };
            tables.into_iter().flatten().map(need).collect()
        }
        "Query" | "Scan" => {
            let table = text(request, "TableName");
            vec![match (text_of(request, "IndexName"), operation) {
                (Some(index), _) => Need::of(operation, format!("{table}/index/{index}"), []),
                (None, "Query") => Need::of(operation, table, [queried(request)]),
                (None, _) => Need::of(operation, table, []),
            }]
        }
        _ => vec![Need::of_item(operation, request)],
    }
}

/// What the partition key of an item begins with.
fn partition(item: &Value) -> String {
    let pk = item.get("pk").and_then(|pk| text_of(pk, "S"));
    pk.map_or_else(unknown, beginning)
}

/// What the partition key begins with in `pk = :pk AND …`.
fn queried(request: &Value) -> String {
    let condition = text(request, "KeyConditionExpression");
    let name = condition.strip_prefix("pk = ").and_then(|rest| rest.split(' ').next());
    let values = request.get("ExpressionAttributeValues");
    let value = name.and_then(|name| text_of(values?.get(name)?, "S"));
    value.map_or_else(unknown, beginning)
}

fn beginning(pk: &str) -> String {
    pk.split_inclusive('#').next().unwrap_or(pk).to_owned()
}

fn unknown() -> String {
    "?".to_owned()
}

fn text_of<'a>(value: &'a Value, name: &str) -> Option<&'a str> {
    value.get(name).and_then(Value::as_str)
}

fn text(value: &Value, name: &str) -> String {
    text_of(value, name).map_or_else(unknown, str::to_owned)
}

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a request needs: action, resource, keys.
    #[track_caller]
    fn check(operation: &str, request: &Value, needed: &[(&str, &str, &[&str])]) {
        let needs = needs(operation, request);
        let needs: Vec<(&str, &str, Vec<&str>)> = needs
            .iter()
            .map(|need| {
                let keys = need.keys.iter().map(String::as_str).collect();
                (need.action.as_str(), need.resource.as_str(), keys)
            })
            .collect();
        let needed: Vec<(&str, &str, Vec<&str>)> = needed
            .iter()
            .map(|(action, resource, keys)| (*action, *resource, keys.to_vec()))
            .collect();
        assert_eq!(needs, needed, "{operation}");
    }

    #[test]
    fn a_request_needs_what_iam_would_ask_for() {
        let key = |pk: &str| json!({"pk": {"S": pk}, "sk": {"S": "#"}});
        check(
            "GetItem",
            &json!({"TableName": "T", "Key": key("A#1")}),
            &[("GetItem", "T", &["A#"])],
        );
        check(
            "UpdateItem",
            &json!({"TableName": "T", "Key": key("WALLETS")}),
            &[("UpdateItem", "T", &["WALLETS"])],
        );
        check(
            "BatchGetItem",
            &json!({"RequestItems": {"T": {"Keys": [key("A#1"), key("AP#2")]}}}),
            &[("BatchGetItem", "T", &["A#", "AP#"])],
        );
        let items = json!([
            {"Put": {"TableName": "T", "Item": key("A#1")}},
            {"Update": {"TableName": "T", "Key": key("L#1#2")}},
            {"Delete": {"TableName": "T", "Key": key("B#1#2")}},
            {"ConditionCheck": {"TableName": "U", "Key": key("SVC#1")}},
        ]);
        check(
            "TransactWriteItems",
            &json!({"TransactItems": items}),
            &[
                ("PutItem", "T", &["A#"]),
                ("UpdateItem", "T", &["L#"]),
                ("DeleteItem", "T", &["B#"]),
                ("ConditionCheckItem", "U", &["SVC#"]),
            ],
        );
        let values = json!({":pk": {"S": "L#1#2"}, ":kind": {"S": "E#"}});
        check(
            "Query",
            &json!({"TableName": "T", "KeyConditionExpression": "pk = :pk AND begins_with(sk, :kind)", "ExpressionAttributeValues": values}),
            &[("Query", "T", &["L#"])],
        );
        check(
            "Query",
            &json!({"TableName": "T", "IndexName": "owner", "KeyConditionExpression": "#owner = :owner"}),
            &[("Query", "T/index/owner", &[])],
        );
        check("Scan", &json!({"TableName": "T"}), &[("Scan", "T", &[])]);
        let on_index = json!({"TableName": "T", "IndexName": "hold"});
        check("Scan", &on_index, &[("Scan", "T/index/hold", &[])]);
        // What is not understood is allowed by no role.
        check(
            "ExecuteStatement",
            &json!({"Statement": "SELECT"}),
            &[("ExecuteStatement", "?", &["?"])],
        );
        check(
            "Query",
            &json!({"TableName": "T", "KeyConditionExpression": "begins_with(pk, :pk)"}),
            &[("Query", "T", &["?"])],
        );
    }

    #[test]
    fn a_put_that_can_overwrite_is_told_from_one_that_cannot() {
        let put = |condition: Option<&str>| {
            let item = json!({"pk": {"S": "A#1"}});
            Need::of_item(
                "PutItem",
                &json!({"TableName": "T", "Item": item, "ConditionExpression": condition}),
            )
        };
        assert!(put(Some("attribute_not_exists(pk)")).only_if_new);
        for condition in [None, Some("attribute_not_exists(pk) OR ttl < :now")] {
            assert!(!put(condition).only_if_new, "{condition:?}");
        }
    }

    #[test]
    fn the_signature_says_who_asks() {
        let check = |authorization: Option<&str>, id| {
            let mut headers = HeaderMap::new();
            if let Some(text) = authorization {
                headers.insert(header::AUTHORIZATION, text.parse().unwrap());
            }
            assert_eq!(function(&headers), id);
        };
        let signed =
            "AWS4-HMAC-SHA256 Credential=AgentsFunction/20261121/us-east-1/dynamodb/aws4_request, SignedHeaders=host";
        check(Some(signed), "AgentsFunction");
        check(Some("Bearer x"), "?");
        check(None, "?");
    }
}
