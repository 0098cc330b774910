//! A batch of messages as SQS's event source mapping passes it, and the answer that says which of them stay.

use purser_domain::{Error, Result};
use serde::Deserialize;
use serde_json::{Value, json};

/// A batch.
#[derive(Debug, Deserialize)]
pub(crate) struct Batch {
    #[serde(rename = "Records")]
    pub(crate) records: Vec<Record>,
}

/// A message. It has no `Debug`: a body is not for the log.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Record {
    pub(crate) message_id: String,
    pub(crate) receipt_handle: String,
    pub(crate) body: String,
    #[serde(rename = "eventSourceARN")]
    pub(crate) queue_arn: String,
}

impl std::fmt::Debug for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Record").field(&self.message_id).finish()
    }
}

impl Batch {
    /// Reads the event of a call.
    pub(crate) fn read(event: Value) -> Result<Self> {
        serde_json::from_value(event).map_err(|_| Error::internal("reading a batch", "it has another form"))
    }
}

/// The answer that leaves these messages in their queue (developer guide, "Implementing partial batch responses").
pub(crate) fn answer(left: &[String]) -> Value {
    let left: Vec<Value> = left.iter().map(|id| json!({"itemIdentifier": id})).collect();
    json!({"batchItemFailures": left})
}
