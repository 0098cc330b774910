//! What is done to a call, and the errors that services answer with.
//!
//! A script is asked twice about each call: when it has arrived, and when it has been carried out. So a call can be failed
//! before it took effect and after it did, and whoever made it can't tell which.

use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// A call at one of its moments.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// Its name: `TransactWriteItems LedgerTable`, `GetSecretValue`, or `eth_call`.
    pub call: &'a str,
    /// Where it stands.
    pub moment: Moment,
    /// What was sent.
    pub request: &'a Value,
    /// Whose access key signed it; `?` where none did.
    pub signer: &'a str,
}

/// Where a call stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Moment {
    /// It has arrived and was not sent on yet.
    Arrived,
    /// It took effect, and its answer was not handed back yet.
    CarriedOut,
}

/// What becomes of a call at one of its moments.
pub enum Fate {
    /// Nothing.
    PassOn,
    /// It takes so much longer.
    Wait(Duration),
    /// This is answered, and it goes no further. A text is answered as it is, anything else as JSON.
    Answer(u16, Value),
    /// Its honest answer is changed.
    Edit(Box<dyn FnOnce(&mut Value) + Send>),
    /// The connection breaks without an answer.
    HangUp,
    /// The connection breaks in the middle of the answer.
    CutOff,
    /// It is never answered.
    Silence,
}

impl Fate {
    /// DynamoDB's "later": `ProvisionedThroughputExceededException`, `ThrottlingException` or `RequestLimitExceeded`.
    pub fn throttled(exception: &str) -> Self {
        Self::Answer(400, exception_of(exception, "slow down"))
    }

    /// DynamoDB's own failure.
    pub fn server_error() -> Self {
        Self::Answer(500, exception_of("InternalServerError", "the answer was lost"))
    }

    /// A transaction holds the item, or one of the items, that the call writes.
    pub fn conflict(request: &Value) -> Self {
        Self::Answer(
            400,
            match request["TransactItems"].as_array() {
                Some(actions) => cancelled(&vec![true; actions.len()]),
                None => conflict(),
            },
        )
    }

    /// A `BatchGetItem` of which nothing was read.
    pub fn unprocessed(request: &Value) -> Self {
        Self::Answer(
            200,
            json!({"Responses": {}, "UnprocessedKeys": request["RequestItems"]}),
        )
    }

    /// Another `result` than the node's.
    pub fn result(result: Value) -> Self {
        Self::Edit(Box::new(move |reply| reply["result"] = result))
    }
}

pub(crate) type Script = Box<dyn FnMut(&Step<'_>) -> Fate + Send>;

/// Loses so many transactions before they took effect, and then so many after it.
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

/// The operation, and of a call of the database the tables that it names.
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

/// Why a single write is refused (API reference, `TransactionConflictException`).
pub(crate) fn conflict() -> Value {
    exception_of("TransactionConflictException", "Transaction is ongoing for the item")
}

/// Why a transaction is refused: for each action, whether another one holds its item.
pub(crate) fn cancelled(taken: &[bool]) -> Value {
    let code = |taken: &bool| if *taken { "TransactionConflict" } else { "None" };
    let codes: Vec<&str> = taken.iter().map(code).collect();
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
