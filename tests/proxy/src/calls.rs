//! What went through a proxy, and what it cost.

use serde_json::Value;
use std::sync::Mutex;
use std::time::Instant;

/// One call of the database.
#[derive(Clone, Debug)]
pub struct Call {
    /// `TransactWriteItems`, for one.
    pub operation: String,
    /// When it was sent on.
    pub started: Instant,
    /// When it was answered.
    pub ended: Instant,
    /// What it consumed.
    pub units: Units,
}

/// Capacity, in tenths of a unit: eventually consistent reads cost halves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Units {
    /// Read units.
    pub read: u64,
    /// Write units.
    pub write: u64,
}

/// The calls since they were last taken.
#[derive(Debug, Default)]
pub struct Calls(Mutex<Vec<Call>>);

impl Calls {
    /// The calls, in the order in which they were answered; and starts anew.
    pub fn take(&self) -> Vec<Call> {
        std::mem::take(&mut *self.0.lock().expect("not poisoned"))
    }

    pub(crate) fn note(&self, operation: String, started: Instant, body: &[u8]) {
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
            started,
            ended: Instant::now(),
            units,
        };
        self.0.lock().expect("not poisoned").push(call);
    }
}

impl Call {
    /// Whether it changes anything.
    pub fn writes(&self) -> bool {
        writes(&self.operation)
    }
}

impl Units {
    /// What several calls consumed.
    pub fn of<'a>(calls: impl IntoIterator<Item = &'a Call>) -> Self {
        calls.into_iter().fold(Self::default(), |sum, call| Self {
            read: sum.read + call.units.read,
            write: sum.write + call.units.write,
        })
    }
}

/// Operations that know `ReturnConsumedCapacity`.
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
