//! Passes the stream records of the embedded database to a function, as Lambda's event source mapping does.
//!
//! The embedded database also emits records for writes that change nothing, and its ARNs name no account. This module
//! corrects both.

use dynoxide::Database;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex};

/// The tables' streams, with separate positions for `events` and `history`. Clones share the positions.
#[derive(Clone)]
pub struct Streams(Arc<Shared>);

struct Shared {
    database: Database,
    published: Mutex<Places>,
    /// Held during [`Streams::fold`], so that concurrent callers wait for each other.
    folded: tokio::sync::Mutex<Places>,
}

/// The next shard iterator of each table.
type Places = BTreeMap<String, String>;

const BATCH: usize = 100;

impl Streams {
    /// Creates the streams of these tables.
    pub(crate) fn new(database: Database, tables: &[String]) -> Self {
        let places = tables.iter().map(|table| (table.clone(), beginning(&database, table)));
        let places: Places = places.collect();
        Self(Arc::new(Shared {
            database,
            published: Mutex::new(places.clone()),
            folded: tokio::sync::Mutex::new(places),
        }))
    }

    /// Returns up to 100 further records of each table.
    pub fn next_batches(&self) -> Vec<Vec<Value>> {
        self.0.next_batches(&mut self.0.published.lock().expect("not poisoned"))
    }

    /// Passes the remaining records to the functions `history` and `events` through `call`. Returns the number of
    /// records that failed `tries` times and were given up.
    pub async fn deliver<F: Future<Output = Option<Value>>>(&self, tries: u32, call: impl Fn(Value) -> F) -> usize {
        let mut given_up = self.fold(tries, &call).await;
        loop {
            let batches = self.next_batches();
            if batches.is_empty() {
                return given_up;
            }
            for batch in batches {
                given_up += deliver_batch(batch, tries, &call).await;
            }
        }
    }

    /// Passes the remaining records to the function `history` through `call`. Returns the number of records that failed
    /// `tries` times and were given up.
    pub async fn fold<F: Future<Output = Option<Value>>>(&self, tries: u32, call: impl Fn(Value) -> F) -> usize {
        let mut places = self.0.folded.lock().await;
        let mut given_up = 0;
        loop {
            let batches = self.0.next_batches(&mut places);
            if batches.is_empty() {
                return given_up;
            }
            for batch in batches {
                given_up += deliver_window(journal_event(&batch, SHARD), tries, &call).await;
            }
        }
    }
}

impl Shared {
    fn next_batches(&self, places: &mut Places) -> Vec<Vec<Value>> {
        let mut batches = Vec::new();
        for (table, place) in places.iter_mut() {
            let request = json!({"ShardIterator": place, "Limit": BATCH});
            let request = serde_json::from_value(request).expect("a request");
            let answer = self.database.get_records(request).expect("the stream is read");
            let answer = serde_json::to_value(&answer).expect("JSON");
            let next = answer["NextShardIterator"].as_str().expect("the stream goes on");
            next.clone_into(place);
            let records = answer["Records"].as_array().into_iter().flatten();
            let is_change = |record: &&Value| record["dynamodb"]["NewImage"] != record["dynamodb"]["OldImage"];
            let records: Vec<Value> = records.filter(is_change).map(|record| passed(table, record)).collect();
            if !records.is_empty() {
                batches.push(records);
            }
        }
        batches
    }
}

const SHARD: &str = "shardId-00000001";

/// Returns a batch as a mapping of `history` passes it, with a tumbling window (developer guide, "Implementing stateful
/// `DynamoDB` stream processing in Lambda").
///
/// # Panics
///
/// If the batch is empty.
pub fn journal_event(records: &[Value], shard: &str) -> Value {
    json!({
        "Records": records, "shardId": shard, "eventSourceARN": records[0]["eventSourceARN"],
        "window": {"start": "2026-11-21T00:00:00Z", "end": "2026-11-21T00:15:00Z"}, "state": {},
        "isFinalInvokeForWindow": false, "isWindowTerminatedEarly": false,
    })
}

/// Sets the time at which the event's records were written to `at`, in seconds since 1970.
pub fn written_at(mut event: Value, at: u64) -> Value {
    for record in event["Records"].as_array_mut().into_iter().flatten() {
        record["dynamodb"]["ApproximateCreationDateTime"] = json!(at);
    }
    event
}

async fn deliver_window<F: Future<Output = Option<Value>>>(
    event: Value,
    tries: u32,
    call: &impl Fn(Value) -> F,
) -> usize {
    for _ in 0..tries {
        // A response without the window's state counts as a failure.
        if call(event.clone())
            .await
            .is_some_and(|answer| answer["state"].is_object())
        {
            return 0;
        }
    }
    event["Records"].as_array().map_or(0, Vec::len)
}

async fn deliver_batch<F: Future<Output = Option<Value>>>(
    batch: Vec<Value>,
    tries: u32,
    call: &impl Fn(Value) -> F,
) -> usize {
    let mut given_up = 0;
    // The remaining batches, each with the number of failed attempts. The last element is next.
    let mut rest = vec![(batch, 0)];
    while let Some((records, failed)) = rest.pop() {
        if records.is_empty() {
            continue;
        }
        if failed == tries {
            given_up += records.len();
            continue;
        }
        match call(json!({"Records": records})).await {
            // After a failed call, the batch is split into two halves.
            None if records.len() > 1 => {
                let (first, second) = records.split_at(records.len() / 2);
                rest.push((second.to_vec(), failed));
                rest.push((first.to_vec(), failed));
            }
            None => rest.push((records, failed + 1)),
            // Records from the lowest failed sequence number on are delivered again (developer guide, "Partial batch
            // responses").
            Some(answer) => {
                let failures = answer["batchItemFailures"].as_array().into_iter().flatten();
                let places = failures.filter_map(|failure| failure["itemIdentifier"].as_str());
                let Some(first) = places.min() else { continue };
                let is_first = |record: &Value| record["dynamodb"]["SequenceNumber"].as_str() == Some(first);
                let index = records.iter().position(is_first).unwrap_or(0);
                let failed = if index == 0 { failed + 1 } else { 0 };
                rest.push((records[index..].to_vec(), failed));
            }
        }
    }
    given_up
}

fn beginning(database: &Database, table: &str) -> String {
    let streams = serde_json::from_value(json!({"TableName": table})).expect("a request");
    let streams = database.list_streams(streams).expect("streams are listed");
    let streams = serde_json::to_value(&streams).expect("JSON");
    let arn = streams["Streams"][0]["StreamArn"]
        .as_str()
        .expect("the table has a stream")
        .to_owned();
    let described = serde_json::from_value(json!({"StreamArn": arn})).expect("a request");
    let described = database.describe_stream(described).expect("the stream is described");
    let described = serde_json::to_value(&described).expect("JSON");
    let shard = &described["StreamDescription"]["Shards"][0]["ShardId"];
    let asked = json!({"StreamArn": arn, "ShardId": shard, "ShardIteratorType": "TRIM_HORIZON"});
    let asked = serde_json::from_value(asked).expect("a request");
    let answer = database.get_shard_iterator(asked).expect("the stream has a beginning");
    let answer = serde_json::to_value(&answer).expect("JSON");
    answer["ShardIterator"].as_str().expect("an iterator").to_owned()
}

/// Returns a record as an event source mapping passes it.
fn passed(table: &str, record: &Value) -> Value {
    let mut record = record.clone();
    record["awsRegion"] = json!("us-east-1");
    record["eventSourceARN"] = json!(format!(
        "arn:aws:dynamodb:us-east-1:123456789012:table/{table}/stream/2026-11-21T00:00:00.000"
    ));
    record
}
