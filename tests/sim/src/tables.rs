//! In-process DynamoDB, called with the SDK's request bodies. Each run has a separate engine, because the engine
//! becomes slower with each transaction.

use dynoxide::types::AttributeValue;
use dynoxide::{Database, errors::DynoxideError};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

pub(crate) use purser_testkit::{AUDIT, CATALOG, DECISIONS, LEDGER, THROTTLE, USAGE, WEBHOOKS};

pub(crate) type Item = HashMap<String, AttributeValue>;

/// The partition key `pk` and the sort key `sk`.
pub(crate) type Key = (String, String);

/// The rows of a table, by key.
pub(crate) type Rows = BTreeMap<Key, Arc<Item>>;

/// An HTTP status and a body.
pub(crate) type Answer = (u16, Vec<u8>);

pub(crate) struct Tables(Database);

impl Tables {
    pub(crate) fn new() -> Self {
        Self(purser_testkit::database())
    }

    pub(crate) fn call(&self, operation: &str, body: &[u8]) -> Answer {
        let db = &self.0;
        match operation {
            "GetItem" => answered(body, |request| db.get_item(request)),
            "BatchGetItem" => answered(body, |request| db.batch_get_item(request)),
            "Query" => answered(body, |request| db.query(request)),
            "Scan" => answered(body, |request| db.scan(request)),
            "PutItem" => answered(body, |request| db.put_item(request)),
            "UpdateItem" => answered(body, |request| db.update_item(request)),
            "DeleteItem" => answered(body, |request| db.delete_item(request)),
            "TransactWriteItems" => answered(body, |request| db.transact_write_items(request)),
            other => panic!("the simulation knows no operation {other}"),
        }
    }

    /// Returns every row of a table or an index.
    pub(crate) fn rows(&self, table: &str, index: Option<&str>) -> Rows {
        let request = json!({"TableName": table, "IndexName": index, "ConsistentRead": index.is_none()});
        let request = serde_json::from_value(request).expect("a request");
        let answer = self.0.scan(request).expect("a scan");
        assert!(
            answer.last_evaluated_key.is_none(),
            "one page holds all that a run writes"
        );
        let items = answer.items.unwrap_or_default();
        items.into_iter().map(|item| (key_of(&item), Arc::new(item))).collect()
    }

    pub(crate) fn row(&self, table: &str, (pk, sk): &Key) -> Option<Arc<Item>> {
        let request = json!({"TableName": table, "Key": {"pk": {"S": pk}, "sk": {"S": sk}}, "ConsistentRead": true});
        let request = serde_json::from_value(request).expect("a request");
        self.0.get_item(request).expect("a row or none").item.map(Arc::new)
    }
}

fn answered<Q: DeserializeOwned, R: serde::Serialize>(
    body: &[u8],
    carry_out: impl FnOnce(Q) -> Result<R, DynoxideError>,
) -> Answer {
    let request = serde_json::from_slice(body).expect("what the SDK writes");
    match carry_out(request) {
        Ok(answer) => (200, serde_json::to_vec(&answer).expect("an answer")),
        Err(error) => (error.status_code(), error.to_json().into_bytes()),
    }
}

fn key_of(item: &Item) -> Key {
    (text(item, "pk").to_owned(), text(item, "sk").to_owned())
}

/// Returns the table and key of each row that a call may write.
pub(crate) fn written(operation: &str, body: &Value) -> Vec<(String, Key)> {
    let of = |write: &Value| {
        let key = write.get("Item").or_else(|| write.get("Key"))?;
        let part = |name: &str| key[name]["S"].as_str().unwrap_or_default().to_owned();
        Some((write["TableName"].as_str()?.to_owned(), (part("pk"), part("sk"))))
    };
    match operation {
        "PutItem" | "UpdateItem" | "DeleteItem" => of(body).into_iter().collect(),
        "TransactWriteItems" => {
            let actions = body["TransactItems"].as_array().into_iter().flatten();
            let actions = actions.flat_map(|action| action.as_object().into_iter().flat_map(|action| action.values()));
            actions.filter_map(of).collect()
        }
        _ => Vec::new(),
    }
}

pub(crate) fn text<'a>(item: &'a Item, name: &str) -> &'a str {
    match item.get(name) {
        Some(AttributeValue::S(text)) => text,
        _ => "",
    }
}

/// Returns a number attribute; zero if it is absent.
pub(crate) fn number(item: &Item, name: &str) -> i64 {
    match item.get(name) {
        Some(AttributeValue::N(digits)) => digits.parse().expect("a whole number"),
        _ => 0,
    }
}

pub(crate) fn bytes<'a>(item: &'a Item, name: &str) -> &'a [u8] {
    match item.get(name) {
        Some(AttributeValue::B(bytes)) => bytes,
        _ => &[],
    }
}

pub(crate) fn list<'a>(item: &'a Item, name: &str) -> &'a [AttributeValue] {
    match item.get(name) {
        Some(AttributeValue::L(values)) => values,
        _ => &[],
    }
}

/// Formats a row as text. Equal rows have equal texts.
pub(crate) fn words(item: &Item) -> String {
    let sorted: BTreeMap<&String, String> = item.iter().map(|(name, value)| (name, word(value))).collect();
    format!("{sorted:?}")
}

/// Formats a value as text. Equal values have equal texts.
fn word(value: &AttributeValue) -> String {
    match value {
        AttributeValue::M(members) => words(members),
        AttributeValue::L(values) => format!("{:?}", values.iter().map(word).collect::<Vec<_>>()),
        other => format!("{other:?}"),
    }
}
