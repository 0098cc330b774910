//! The calls through a proxy, and the capacity that they consumed.

use serde_json::Value;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A call to a service behind a proxy, or to the scripted node.
#[derive(Clone, Debug)]
pub struct Call {
    /// The name of the operation, for example `TransactWriteItems` or `eth_call`.
    pub operation: String,
    /// The request's body.
    pub request: Value,
    /// The time at which the call was forwarded.
    pub started: Instant,
    /// The time of the response.
    pub ended: Instant,
    /// The consumed database capacity.
    pub units: Units,
}

/// Capacity in tenths of a unit, because eventually consistent reads consume half units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Units {
    /// Read units.
    pub read: u64,
    /// Write units.
    pub write: u64,
}

/// The calls since the last [`Calls::take`].
#[derive(Debug, Default)]
pub struct Calls(Mutex<Vec<Call>>);

impl Calls {
    /// Takes the recorded calls, in the order of their responses.
    pub fn take(&self) -> Vec<Call> {
        std::mem::take(&mut *self.0.lock().expect("not poisoned"))
    }

    /// Applies `of` to each recorded call.
    pub(crate) fn map<T>(&self, of: impl FnMut(&Call) -> T) -> Vec<T> {
        self.0.lock().expect("not poisoned").iter().map(of).collect()
    }

    /// Waits until `count` calls are recorded.
    pub async fn reach(&self, count: usize) {
        let waiting = async {
            while self.0.lock().expect("not poisoned").len() < count {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), waiting)
            .await
            .expect("that many calls are made");
    }

    /// Records a call whose response is `body`.
    pub fn note(&self, operation: String, request: Value, started: Instant, body: &[u8]) {
        let answer: Value = serde_json::from_slice(body).unwrap_or_default();
        let consumed = match &answer["ConsumedCapacity"] {
            Value::Array(tables) => tables.iter().map(tenths).sum(),
            table => tenths(table),
        };
        let units = if writes(&operation) {
            Units {
                read: 0,
                write: consumed,
            }
        } else {
            Units {
                read: consumed,
                write: 0,
            }
        };
        let call = Call {
            operation,
            request,
            started,
            ended: Instant::now(),
            units,
        };
        self.0.lock().expect("not poisoned").push(call);
    }
}

impl Call {
    /// Returns whether the call went to the node.
    pub fn is_rpc(&self) -> bool {
        self.operation.starts_with("eth_")
    }

    /// Returns whether the call writes to the database.
    pub fn writes(&self) -> bool {
        writes(&self.operation)
    }
}

impl Units {
    /// Returns the sum over several calls.
    pub fn sum<'a>(calls: impl IntoIterator<Item = &'a Call>) -> Self {
        calls.into_iter().fold(Self::default(), |sum, call| Self {
            read: sum.read + call.units.read,
            write: sum.write + call.units.write,
        })
    }
}

/// Returns whether the operation supports `ReturnConsumedCapacity`.
pub(crate) fn is_metered(operation: &str) -> bool {
    writes(operation) || matches!(operation, "GetItem" | "BatchGetItem" | "Query" | "Scan")
}

fn writes(operation: &str) -> bool {
    matches!(
        operation,
        "PutItem" | "UpdateItem" | "DeleteItem" | "TransactWriteItems"
    )
}

fn tenths(capacity: &Value) -> u64 {
    let text = capacity["CapacityUnits"].to_string();
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, "0"));
    let tenth = fraction
        .get(..1)
        .and_then(|digit| digit.parse::<u64>().ok())
        .unwrap_or(0);
    whole.parse::<u64>().unwrap_or(0) * 10 + tenth
}
