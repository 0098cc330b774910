//! Records the permission that each AWS call of a function needs, for `infra/sam/calls.py`.
//!
//! Every function signs with an access key whose id is the function's logical id. Proxies in front of AWS read the id
//! from the signature.
//!
//! Each line of the file is a needed permission:
//! `{"function", "action", "resource", "keys", "attributes", "within", "only_if_new"}`. Only the prefix of a partition
//! key, up to `#`, is recorded.

use purser_testkit::{Fate, Moment, Proxy, ProxyConfig, Step};
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// Appends lines to a file. Several processes may share the file, because each line is a single write.
#[derive(Clone)]
pub(crate) struct IamRecorder(Arc<Mutex<Record>>);

struct Record {
    file: File,
    written: HashSet<String>,
}

/// Returns the URL of a recording proxy in front of `url`; `url` itself without a recorder.
pub(crate) async fn recorder_url(recorder: Option<&IamRecorder>, url: String) -> String {
    match recorder {
        Some(recorder) => recorder.start_proxy(url).await,
        None => url,
    }
}

impl IamRecorder {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self(Arc::new(Mutex::new(Record {
            file,
            written: HashSet::new(),
        }))))
    }

    /// Starts a recording proxy in front of an AWS service. Returns the proxy's URL.
    pub(crate) async fn start_proxy(&self, upstream: String) -> String {
        let proxy = Proxy::start(upstream, ProxyConfig::default()).await;
        let recorder = self.clone();
        proxy.follow(move |step| {
            if step.moment == Moment::Arrived {
                recorder.record(step);
            }
            Fate::PassOn
        });
        proxy.url
    }

    fn record(&self, step: &Step<'_>) {
        let operation = step.call.split(' ').next().unwrap_or_default();
        if let Some(function) = invoked_function(step.path) {
            self.write(&Need::new("InvokeFunction", function.to_owned(), []).json_for(step.signer));
            return;
        }
        if step.path == "/v2/email/outbound-emails" {
            self.write(&Need::new("SendEmail", "NoticesSender".to_owned(), []).json_for(step.signer));
            return;
        }
        for need in required_permissions(operation, step.request) {
            self.write(&need.json_for(step.signer));
        }
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
            // The check of the roles fails for each call that was not recorded.
            Err(error) => tracing::error!(cause = %error, "iam_recorder.not_written"),
        }
    }
}

/// A permission that a request needs.
#[derive(Debug, PartialEq, Eq)]
struct Need {
    action: String,
    resource: String,
    /// The prefixes of the partition keys; empty if the request names none, as in a scan.
    keys: BTreeSet<String>,
    /// The attributes that an update changes or compares.
    attributes: BTreeSet<String>,
    /// The kind of transaction that contains the request.
    within: Option<&'static str>,
    /// Whether the condition of a `PutItem` prevents the replacement of an item.
    only_if_new: bool,
}

impl Need {
    /// Returns the permission to read the secret `arn`.
    fn for_secret(arn: &str) -> Self {
        // The format is `arn:aws:secretsmanager:<region>:<account>:secret:<name>`.
        let name = arn.rsplit(':').next().unwrap_or(arn);
        Self::new("GetSecretValue", name.to_owned(), [])
    }

    fn new(action: &str, resource: String, keys: impl IntoIterator<Item = String>) -> Self {
        Self {
            action: action.to_owned(),
            resource,
            keys: keys.into_iter().collect(),
            attributes: BTreeSet::new(),
            within: None,
            only_if_new: false,
        }
    }

    /// Returns the permission to read or write one item.
    fn for_item(action: &str, request: &Value) -> Self {
        let item = request.get("Item").or_else(|| request.get("Key"));
        let condition = find_text(request, "ConditionExpression");
        Self {
            attributes: if action == "UpdateItem" {
                attributes(request)
            } else {
                BTreeSet::new()
            },
            only_if_new: action == "PutItem" && condition == Some("attribute_not_exists(pk)"),
            ..Self::new(
                action,
                text(request, "TableName"),
                [item.map_or_else(unknown, partition)],
            )
        }
    }

    fn json_for(self, function: &str) -> Value {
        let service = match self.action.as_str() {
            "InvokeFunction" => "lambda",
            "PutEvents" => "events",
            "CreateKey" | "Decrypt" | "Encrypt" | "GetPublicKey" | "Sign" | "TagResource" => "kms",
            "ChangeMessageVisibility" | "SendMessage" => "sqs",
            "SendEmail" => "ses",
            action if action.ends_with("SecretValue") => "secretsmanager",
            _ => "dynamodb",
        };
        json!({
            "function": function,
            "action": format!("{service}:{}", self.action),
            "resource": self.resource,
            "keys": self.keys,
            "attributes": self.attributes,
            "within": self.within,
            "only_if_new": self.only_if_new,
        })
    }
}

/// Returns the function in the path of a Lambda `Invoke` call.
fn invoked_function(path: &str) -> Option<&str> {
    path.strip_prefix("/2015-03-31/functions/")?
        .strip_suffix("/invocations")
}

/// Returns the permissions that a request needs. For an unknown operation, the key is `?`, which no role has.
fn required_permissions(operation: &str, request: &Value) -> Vec<Need> {
    match operation {
        "TransactWriteItems" => {
            let items = list(request, "TransactItems").iter().filter_map(Value::as_object);
            let need = |(kind, item): (&String, &Value)| Need {
                within: Some("TransactWriteItems"),
                ..Need::for_item(&format!("{kind}Item"), item)
            };
            items.flatten().map(need).collect()
        }
        // IAM evaluates all keys of one table together.
        "BatchGetItem" => {
            let tables = request.get("RequestItems").and_then(Value::as_object);
            let need = |(table, requested): (&String, &Value)| {
                Need::new(operation, table.clone(), list(requested, "Keys").iter().map(partition))
            };
            tables.into_iter().flatten().map(need).collect()
        }
        "Query" | "Scan" => {
            let table = text(request, "TableName");
            vec![match (find_text(request, "IndexName"), operation) {
                (Some(index), _) => Need::new(operation, format!("{table}/index/{index}"), []),
                (None, "Query") => Need::new(operation, table, [partition_prefix(request)]),
                (None, _) => Need::new(operation, table, []),
            }]
        }
        // Creating a key with tags needs a second permission (KMS developer guide, "Controlling access to tags").
        "CreateKey" => [("CreateKey", "*"), ("TagResource", "WalletKeys")]
            .map(|(action, resource)| Need::new(action, resource.to_owned(), []))
            .into(),
        "GetPublicKey" | "Sign" => vec![Need::new(operation, "WalletKeys".to_owned(), [])],
        // The stack has only one key for encryption.
        "Decrypt" | "Encrypt" => vec![Need::new(operation, "WebhookSecretsKey".to_owned(), [])],
        "ChangeMessageVisibility" | "SendMessage" => {
            let url = text(request, "QueueUrl");
            let queue = url.rsplit('/').next().unwrap_or_default();
            vec![Need::new(operation, queue.to_owned(), [])]
        }
        // The stack has only one event bus.
        "PutEvents" => vec![Need::new(operation, "EventBus".to_owned(), [])],
        "GetSecretValue" => vec![Need::for_secret(&text(request, "SecretId"))],
        // IAM needs `BatchGetSecretValue`, and the permission to read each secret.
        "BatchGetSecretValue" => {
            let ids = list(request, "SecretIdList").iter().filter_map(Value::as_str);
            let all = Need::new(operation, "*".to_owned(), []);
            [all].into_iter().chain(ids.map(Need::for_secret)).collect()
        }
        _ => vec![Need::for_item(operation, request)],
    }
}

/// Returns the attributes in an update's key and expressions (DynamoDB developer guide, "Expressions").
fn attributes(request: &Value) -> BTreeSet<String> {
    const WORDS: [&str; 14] = [
        "SET",
        "ADD",
        "REMOVE",
        "DELETE",
        "AND",
        "OR",
        "NOT",
        "IN",
        "BETWEEN",
        "if_not_exists",
        "attribute_exists",
        "attribute_not_exists",
        "size",
        "contains",
    ];
    let key = request.get("Key").and_then(Value::as_object);
    let key = key.into_iter().flat_map(|key| key.keys().cloned());
    let expressions = [
        find_text(request, "UpdateExpression"),
        find_text(request, "ConditionExpression"),
    ];
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || ['_', '#', ':'].contains(&c);
    let words = expressions.into_iter().flatten();
    let words = words.flat_map(|expression| expression.split(move |c| !is_of_name(c)));
    let words = words.filter(|word| !word.is_empty() && !word.starts_with(':') && !WORDS.contains(word));
    let placeholders = request.get("ExpressionAttributeNames");
    let attributes = words.map(|word| {
        let named = placeholders.and_then(|placeholders| find_text(placeholders, word));
        named.unwrap_or(word).to_owned()
    });
    key.chain(attributes).collect()
}

/// Returns the prefix of an item's partition key.
fn partition(item: &Value) -> String {
    let pk = item.get("pk").and_then(|pk| find_text(pk, "S"));
    pk.map_or_else(unknown, key_beginning)
}

/// Returns the prefix of the partition key in a query's `pk = :pk AND …`.
fn partition_prefix(request: &Value) -> String {
    let condition = text(request, "KeyConditionExpression");
    let name = condition.strip_prefix("pk = ").and_then(|rest| rest.split(' ').next());
    let values = request.get("ExpressionAttributeValues");
    let value = name.and_then(|name| find_text(values?.get(name)?, "S"));
    value.map_or_else(unknown, key_beginning)
}

fn key_beginning(pk: &str) -> String {
    pk.split_inclusive('#').next().unwrap_or(pk).to_owned()
}

fn unknown() -> String {
    "?".to_owned()
}

fn find_text<'a>(value: &'a Value, name: &str) -> Option<&'a str> {
    value.get(name).and_then(Value::as_str)
}

fn text(value: &Value, name: &str) -> String {
    find_text(value, name).map_or_else(unknown, str::to_owned)
}

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asserts the permissions that a request needs: action, resource and keys.
    #[track_caller]
    fn check(operation: &str, request: &Value, needed: &[(&str, &str, &[&str])]) {
        let needs = required_permissions(operation, request);
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
    fn an_update_item_call_needs_permission_for_each_attribute_it_names() {
        let update = json!({
            "TableName": "T",
            "Key": {"pk": {"S": "L#1#2"}, "sk": {"S": "#W"}},
            "UpdateExpression": "SET pver = :stamp, aver = if_not_exists(aver, :agent) ADD #total :delta REMOVE x",
            "ConditionExpression": "attribute_exists(pk) AND (NOT hz <= :at OR y BETWEEN :a AND :b)",
            "ExpressionAttributeNames": {"#total": "total"},
        });
        let [need] = <[Need; 1]>::try_from(required_permissions("UpdateItem", &update)).unwrap();
        let named: Vec<&str> = need.attributes.iter().map(String::as_str).collect();
        assert_eq!(named, ["aver", "hz", "pk", "pver", "sk", "total", "x", "y"]);
    }

    #[test]
    fn the_iam_recorder_derives_the_permissions_of_each_dynamodb_call() {
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
        let arn = |name: &str| format!("arn:aws:secretsmanager:us-east-1:000000000000:secret:{name}");
        check(
            "GetSecretValue",
            &json!({"SecretId": arn("A"), "VersionStage": "AWSCURRENT"}),
            &[("GetSecretValue", "A", &[])],
        );
        check(
            "BatchGetSecretValue",
            &json!({"SecretIdList": [arn("A"), arn("B")]}),
            &[
                ("BatchGetSecretValue", "*", &[]),
                ("GetSecretValue", "A", &[]),
                ("GetSecretValue", "B", &[]),
            ],
        );
        // No role has the key `?`, so an unknown operation makes the IAM check fail.
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
    fn unconditional_puts_are_recognized_as_overwriting() {
        let put = |condition: Option<&str>| {
            let item = json!({"pk": {"S": "A#1"}});
            Need::for_item(
                "PutItem",
                &json!({"TableName": "T", "Item": item, "ConditionExpression": condition}),
            )
        };
        assert!(put(Some("attribute_not_exists(pk)")).only_if_new);
        for condition in [None, Some("attribute_not_exists(pk) OR ttl < :now")] {
            assert!(!put(condition).only_if_new, "{condition:?}");
        }
    }
}
