//! Repeats the recorded database and node calls of a handler without the handler, as a lower bound for its time.
//!
//! The calls are recorded, so they always match the code. Only the SDK's calls and the handler's signature are timed.

use alloy::primitives::{Address, B256, Signature};
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::operation::{
    batch_get_item::{BatchGetItemInput, builders::BatchGetItemInputBuilder},
    get_item::{GetItemInput, builders::GetItemInputBuilder},
    put_item::{PutItemInput, builders::PutItemInputBuilder},
    query::{QueryInput, builders::QueryInputBuilder},
    transact_write_items::{TransactWriteItemsInput, builders::TransactWriteItemsInputBuilder},
    update_item::{UpdateItemInput, builders::UpdateItemInputBuilder},
};
use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::{
    AttributeValue, Delete, KeysAndAttributes, Put, ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update,
};
use aws_sdk_kms::primitives::Blob as KmsBlob;
use aws_sdk_kms::types::{MessageType, SigningAlgorithmSpec};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use k256::ecdsa::SigningKey;
use purser_testkit::Call;
use serde_json::Value;
use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

/// The recorded calls of a handler. The calls of one round are concurrent.
#[derive(Clone)]
pub struct RecordedCalls(Vec<Vec<Recording>>);

#[derive(Clone)]
struct Recording {
    is_rpc: bool,
    operation: String,
    request: String,
}

/// Prepared calls, which can be sent once.
pub struct Bare {
    rounds: Vec<Vec<Request>>,
    signature: Option<B256>,
}

enum Request {
    BatchGetItem(BatchGetItemInputBuilder),
    GetItem(GetItemInputBuilder),
    PutItem(PutItemInputBuilder),
    Query(QueryInputBuilder),
    TransactWriteItems(TransactWriteItemsInputBuilder),
    UpdateItem(UpdateItemInputBuilder),
    Rpc(Vec<u8>),
}

/// The clients that repeat the recorded calls.
#[derive(Clone)]
pub struct Asker {
    pub db: Client,
    pub http: reqwest::Client,
    pub node_url: String,
    pub signer: Signer,
}

/// Where the key for signatures is: in memory or in KMS.
#[derive(Clone)]
pub enum Signer {
    Memory(SigningKey),
    Kms {
        kms: aws_sdk_kms::Client,
        key: String,
        wallet: Address,
    },
}

impl Signer {
    async fn sign(&self, digest: B256) {
        match self {
            Self::Memory(key) => {
                let signature = key.sign_prehash_recoverable(digest.as_slice()).expect("a signature");
                std::hint::black_box(signature);
            }
            Self::Kms { kms, key, wallet } => {
                let asked = kms
                    .sign()
                    .key_id(key)
                    .message_type(MessageType::Digest)
                    .message(KmsBlob::new(digest.to_vec()))
                    .signing_algorithm(SigningAlgorithmSpec::EcdsaSha256);
                let answer = asked.send().await.expect("a signature");
                let der = answer.signature().expect("a signature").as_ref();
                // KMS may return a high `s`, and never returns the parity. The handler also computes both.
                let signature = k256::ecdsa::Signature::from_der(der).expect("DER");
                let signature = signature.normalize_s().unwrap_or(signature);
                let signature = [false, true].into_iter().find(|is_odd| {
                    let signature = Signature::from_signature_and_parity(signature, *is_odd);
                    signature.recover_address_from_prehash(&digest).ok() == Some(*wallet)
                });
                std::hint::black_box(signature.expect("the wallet's signature"));
            }
        }
    }
}

impl RecordedCalls {
    pub fn new(rounds: Vec<Vec<Call>>) -> Self {
        let recording = |call: Call| Recording {
            is_rpc: call.is_rpc(),
            operation: call.operation,
            request: call.request.to_string(),
        };
        let round = |calls: Vec<Call>| calls.into_iter().map(recording).collect();
        Self(rounds.into_iter().map(round).collect())
    }

    /// Removes the node calls, because the measured request makes none.
    pub fn without_node(mut self) -> Self {
        for round in &mut self.0 {
            round.retain(|recording| !recording.is_rpc);
        }
        self.0.retain(|round| !round.is_empty());
        self
    }

    /// Returns the sort key of the recorded item whose partition key begins with `prefix`.
    pub fn sort_key(&self, prefix: &str) -> String {
        self.put(prefix, |item, _| item["sk"]["S"].as_str().map(str::to_owned))
    }

    /// Returns the rest of the recorded partition key that begins with `prefix`.
    pub fn partition(&self, prefix: &str) -> String {
        self.put(prefix, |_, rest| Some(rest.to_owned()))
    }

    fn put(&self, prefix: &str, part: impl Fn(&Value, &str) -> Option<String>) -> String {
        let requests = self.0.iter().flatten().filter(|recording| !recording.is_rpc);
        for request in requests {
            let request: Value = serde_json::from_str(&request.request).expect("JSON");
            let puts = request["TransactItems"].as_array().into_iter().flatten();
            let items = puts.map(|action| &action["Put"]["Item"]).chain([&request["Item"]]);
            for item in items {
                let rest = item["pk"]["S"].as_str().and_then(|key| key.strip_prefix(prefix));
                if let Some(part) = rest.and_then(|rest| part(item, rest)) {
                    return part;
                }
            }
        }
        panic!("nothing is put at {prefix}")
    }

    pub fn with(&self, exchanged: &[(&str, &str)]) -> Self {
        let mut recorded = self.clone();
        for recording in recorded.0.iter_mut().flatten() {
            for (from, to) in exchanged {
                recording.request = recording.request.replace(from, to);
            }
        }
        recorded
    }

    pub fn bare(&self) -> Bare {
        let round = |recordings: &Vec<Recording>| recordings.iter().map(Request::from_recording).collect();
        Bare {
            rounds: self.0.iter().map(round).collect(),
            signature: None,
        }
    }
}

impl Bare {
    pub fn and_sign(self, digest: B256) -> Self {
        Self {
            signature: Some(digest),
            ..self
        }
    }

    /// Sends all calls, and makes the signatures.
    pub async fn ask(self, asker: &Asker) {
        for round in self.rounds {
            together(round.into_iter().map(|request| request.ask(asker))).await;
        }
        if let Some(digest) = self.signature {
            asker.signer.sign(digest).await;
        }
    }
}

/// Awaits all futures concurrently, like `tokio::join!`.
async fn together(asked: impl Iterator<Item = impl Future<Output = ()>>) {
    let mut asked: Vec<Pin<Box<_>>> = asked.map(Box::pin).collect();
    poll_fn(|context| {
        asked.retain_mut(|one| one.as_mut().poll(context).is_pending());
        if asked.is_empty() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

impl Request {
    fn from_recording(recording: &Recording) -> Self {
        if recording.is_rpc {
            return Self::Rpc(recording.request.clone().into_bytes());
        }
        let request: Value = serde_json::from_str(&recording.request).expect("JSON");
        let table = text(&request, "TableName");
        match recording.operation.as_str() {
            "BatchGetItem" => {
                let tables = request["RequestItems"].as_object().expect("tables").iter();
                let wanted = tables.map(|(table, wanted)| {
                    let keys = wanted["Keys"].as_array().expect("keys").iter().map(item).collect();
                    let wanted = KeysAndAttributes::builder()
                        .set_keys(Some(keys))
                        .set_consistent_read(wanted["ConsistentRead"].as_bool());
                    (table.clone(), wanted.build().expect("keys"))
                });
                let input = BatchGetItemInput::builder();
                Self::BatchGetItem(input.set_request_items(Some(wanted.collect())))
            }
            "GetItem" => Self::GetItem(
                GetItemInput::builder()
                    .set_table_name(table)
                    .set_key(optional_item(&request["Key"]))
                    .set_consistent_read(request["ConsistentRead"].as_bool()),
            ),
            "PutItem" => Self::PutItem(
                PutItemInput::builder()
                    .set_table_name(table)
                    .set_item(optional_item(&request["Item"]))
                    .set_condition_expression(text(&request, "ConditionExpression"))
                    .set_expression_attribute_names(names(&request))
                    .set_expression_attribute_values(values(&request))
                    .set_return_values_on_condition_check_failure(on_failure(&request)),
            ),
            "Query" => Self::Query(
                QueryInput::builder()
                    .set_table_name(table)
                    .set_key_condition_expression(text(&request, "KeyConditionExpression"))
                    .set_expression_attribute_names(names(&request))
                    .set_expression_attribute_values(values(&request))
                    .set_limit(request["Limit"].as_i64().map(|limit| limit.try_into().expect("few")))
                    .set_scan_index_forward(request["ScanIndexForward"].as_bool())
                    .set_consistent_read(request["ConsistentRead"].as_bool()),
            ),
            "TransactWriteItems" => {
                let actions = request["TransactItems"].as_array().expect("actions");
                let input = TransactWriteItemsInput::builder();
                Self::TransactWriteItems(input.set_transact_items(Some(actions.iter().map(action).collect())))
            }
            "UpdateItem" => Self::UpdateItem(
                UpdateItemInput::builder()
                    .set_table_name(table)
                    .set_key(optional_item(&request["Key"]))
                    .set_update_expression(text(&request, "UpdateExpression"))
                    .set_condition_expression(text(&request, "ConditionExpression"))
                    .set_expression_attribute_names(names(&request))
                    .set_expression_attribute_values(values(&request)),
            ),
            other => panic!("{other} is not among the calls of an agent's operation"),
        }
    }

    async fn ask(self, asker: &Asker) {
        let Asker { db, http, node_url, .. } = asker;
        match self {
            Self::BatchGetItem(input) => drop(input.send_with(db).await.expect("an answer")),
            Self::GetItem(input) => drop(input.send_with(db).await.expect("an answer")),
            Self::PutItem(input) => drop(input.send_with(db).await.expect("an answer")),
            Self::Query(input) => drop(input.send_with(db).await.expect("an answer")),
            Self::TransactWriteItems(input) => drop(input.send_with(db).await.expect("an answer")),
            Self::UpdateItem(input) => drop(input.send_with(db).await.expect("an answer")),
            Self::Rpc(body) => {
                let asked = http
                    .post(node_url)
                    .header("content-type", "application/json")
                    .body(body);
                let answer = asked.send().await.expect("an answer").bytes().await.expect("a body");
                let answer: Value = serde_json::from_slice(&answer).expect("JSON");
                assert!(answer["error"].is_null());
            }
        }
    }
}

fn action(action: &Value) -> TransactWriteItem {
    let (kind, action) = action
        .as_object()
        .and_then(|action| action.iter().next())
        .expect("an action");
    let builder = TransactWriteItem::builder();
    let (table, condition) = (text(action, "TableName"), text(action, "ConditionExpression"));
    let (names, values, on_failure) = (names(action), values(action), on_failure(action));
    match kind.as_str() {
        "Put" => {
            let put = Put::builder()
                .set_table_name(table)
                .set_item(optional_item(&action["Item"]))
                .set_condition_expression(condition)
                .set_expression_attribute_names(names)
                .set_expression_attribute_values(values)
                .set_return_values_on_condition_check_failure(on_failure);
            builder.put(put.build().expect("a put")).build()
        }
        "Update" => {
            let update = Update::builder()
                .set_table_name(table)
                .set_key(optional_item(&action["Key"]))
                .set_update_expression(text(action, "UpdateExpression"))
                .set_condition_expression(condition)
                .set_expression_attribute_names(names)
                .set_expression_attribute_values(values)
                .set_return_values_on_condition_check_failure(on_failure);
            builder.update(update.build().expect("an update")).build()
        }
        "Delete" => {
            let delete = Delete::builder()
                .set_table_name(table)
                .set_key(optional_item(&action["Key"]))
                .set_condition_expression(condition);
            builder.delete(delete.build().expect("a deletion")).build()
        }
        other => panic!("{other} is not among the actions of an agent's operation"),
    }
}

fn text(value: &Value, name: &str) -> Option<String> {
    value[name].as_str().map(str::to_owned)
}

fn on_failure(value: &Value) -> Option<ReturnValuesOnConditionCheckFailure> {
    value["ReturnValuesOnConditionCheckFailure"].as_str().map(Into::into)
}

fn names(value: &Value) -> Option<HashMap<String, String>> {
    let names = value["ExpressionAttributeNames"].as_object()?.iter();
    let name = |(name, value): (&String, &Value)| (name.clone(), value.as_str().expect("a name").to_owned());
    Some(names.map(name).collect())
}

fn values(value: &Value) -> Option<HashMap<String, AttributeValue>> {
    optional_item(&value["ExpressionAttributeValues"])
}

fn optional_item(value: &Value) -> Option<HashMap<String, AttributeValue>> {
    value.is_object().then(|| item(value))
}

fn item(value: &Value) -> HashMap<String, AttributeValue> {
    let members = value.as_object().expect("an item").iter();
    members.map(|(name, value)| (name.clone(), attribute(value))).collect()
}

fn attribute(value: &Value) -> AttributeValue {
    let (kind, value) = value
        .as_object()
        .and_then(|value| value.iter().next())
        .expect("an attribute");
    let text = || value.as_str().expect("a text").to_owned();
    match kind.as_str() {
        "S" => AttributeValue::S(text()),
        "N" => AttributeValue::N(text()),
        "B" => AttributeValue::B(Blob::new(BASE64_STANDARD.decode(text()).expect("base64"))),
        "BOOL" => AttributeValue::Bool(value.as_bool().expect("a truth")),
        "L" => AttributeValue::L(value.as_array().expect("a list").iter().map(attribute).collect()),
        "M" => AttributeValue::M(item(value)),
        "SS" => {
            let texts = value.as_array().expect("a set").iter();
            AttributeValue::Ss(texts.map(|text| text.as_str().expect("a text").to_owned()).collect())
        }
        other => panic!("{other} is not among the attributes of our items"),
    }
}
