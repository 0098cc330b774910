//! The scripts that a proxy applies to calls, and the error responses of AWS services.
//!
//! A script runs twice for each call: before the call is forwarded, and after it took effect. The caller can't
//! distinguish failures at these two moments.

use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// A call, either when it arrives or when it has taken effect.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// The call's name: the operation, and for DynamoDB its tables, such as `TransactWriteItems LedgerTable`.
    pub call: &'a str,
    /// Whether the call has been carried out.
    pub moment: Moment,
    /// The request.
    pub request: &'a Value,
    /// The path of the request, which is `/` except for Lambda's `Invoke`.
    pub path: &'a str,
    /// The id of the access key that signed the call; `?` if the call is unsigned.
    pub signer: &'a str,
}

/// When the script runs for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Moment {
    /// The call has arrived and is not forwarded yet.
    Arrived,
    /// The call took effect, and its response is not returned yet.
    CarriedOut,
}

/// What the proxy does with a call.
pub enum Fate {
    /// The call is forwarded unchanged.
    PassOn,
    /// The call is delayed.
    Wait(Duration),
    /// The call is not forwarded and gets this response. A string is sent unchanged, any other value as JSON.
    Answer(u16, Value),
    /// The response is changed.
    Edit(Box<dyn FnOnce(&mut Value) + Send>),
    /// The connection breaks without a response.
    HangUp,
    /// The connection breaks in the middle of the response.
    CutOff,
    /// The call never gets a response.
    Silence,
}

impl Fate {
    /// A throttling error: `ProvisionedThroughputExceededException`, `ThrottlingException` or `RequestLimitExceeded`.
    pub fn throttled(exception: &str) -> Self {
        Self::Answer(400, exception_of(exception, "slow down"))
    }

    /// A transaction that is cancelled because its last item is throttled. `code` is the cancellation reason.
    pub fn throttled_transaction(request: &Value, code: &'static str) -> Self {
        let mut codes = vec!["None"; request["TransactItems"].as_array().map_or(0, Vec::len)];
        if let Some(last) = codes.last_mut() {
            *last = code;
        }
        Self::Answer(400, cancelled(&codes))
    }

    /// DynamoDB's internal error.
    pub fn server_error() -> Self {
        Self::Answer(500, exception_of("InternalServerError", "the answer was lost"))
    }

    /// A conflict with another transaction on an item that the call writes.
    pub fn conflict(request: &Value) -> Self {
        Self::Answer(
            400,
            match request["TransactItems"].as_array() {
                Some(actions) => cancelled(&vec!["TransactionConflict"; actions.len()]),
                None => conflict(),
            },
        )
    }

    /// A `BatchGetItem` response in which all keys are unprocessed.
    pub fn unprocessed(request: &Value) -> Self {
        Self::Answer(
            200,
            json!({"Responses": {}, "UnprocessedKeys": request["RequestItems"]}),
        )
    }

    /// Replaces the node's `result`.
    pub fn result(result: Value) -> Self {
        Self::Edit(Box::new(move |reply| reply["result"] = result))
    }
}

pub(crate) type Script = Box<dyn FnMut(&Step<'_>) -> Fate + Send>;

/// Returns a script that fails `requests` transactions before they take effect, and then `answers` transactions after
/// they took effect.
pub(crate) fn losing(mut requests: u32, mut answers: u32) -> Script {
    Box::new(move |step| {
        let left = match step.moment {
            Moment::Arrived => &mut requests,
            Moment::CarriedOut => &mut answers,
        };
        if !step.call.starts_with("TransactWriteItems") || *left == 0 {
            return Fate::PassOn;
        }
        *left -= 1;
        Fate::server_error()
    })
}

/// Returns a call's name: the operation, and for the database also its tables.
pub(crate) fn name_of(operation: &str, request: &Value) -> String {
    let mut tables = BTreeSet::new();
    tables.extend(request["TableName"].as_str());
    tables.extend(
        request["RequestItems"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(table, _)| table.as_str()),
    );
    let actions = request["TransactItems"].as_array().into_iter().flatten();
    let actions = actions.flat_map(|action| action.as_object().into_iter().flatten());
    tables.extend(actions.filter_map(|(_, action)| action["TableName"].as_str()));
    let tables: Vec<&str> = tables.into_iter().collect();
    format!("{operation} {}", tables.join("+")).trim_end().to_owned()
}

/// Returns the error of a single write that conflicts with a transaction (API reference,
/// `TransactionConflictException`).
pub(crate) fn conflict() -> Value {
    exception_of("TransactionConflictException", "Transaction is ongoing for the item")
}

/// Returns the error of a cancelled transaction, with a reason code for each action.
pub(crate) fn cancelled(codes: &[&str]) -> Value {
    let reasons: Vec<Value> = codes.iter().map(|code| json!({"Code": code})).collect();
    json!({
        "__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
        "Message": format!("Transaction cancelled, please refer cancellation reasons for specific reasons [{}]", codes.join(", ")),
        "CancellationReasons": reasons,
    })
}

fn exception_of(name: &str, message: &str) -> Value {
    json!({"__type": format!("com.amazonaws.dynamodb.v20120810#{name}"), "message": message})
}
