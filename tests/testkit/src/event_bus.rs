//! An `EventBridge` bus with the wire protocol of `PutEvents`.

use crate::serve;
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

const MAX_ENTRIES: usize = 10;

/// An event bus that stores the accepted entries in order. Clones share all state.
#[derive(Clone)]
pub struct EventBus(Arc<Shared>);

struct Shared {
    name: String,
    taken: Mutex<Vec<Entry>>,
    rules: Mutex<Vec<Rule>>,
    fault: Mutex<Fault>,
}

/// An entry that the bus accepted.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The field `Source`.
    pub source: String,
    /// The field `DetailType`.
    pub detail_type: String,
    /// The field `Detail`, parsed from JSON.
    pub detail: Value,
}

/// A fault of the bus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// No fault.
    #[default]
    None,
    /// Responds to every call with 500.
    Down,
    /// Rejects every n-th entry of a call.
    Refuses(usize),
    /// Accepts every entry but responds with 500, as if the response were lost.
    LosesAnswers,
}

struct Rule {
    matches: Box<dyn Fn(&Entry) -> bool + Send + Sync>,
    target: Box<dyn Fn(&Entry) + Send + Sync>,
}

impl EventBus {
    /// Creates an empty bus.
    pub fn new(name: &str) -> Self {
        Self(Arc::new(Shared {
            name: name.to_owned(),
            taken: Mutex::default(),
            rules: Mutex::default(),
            fault: Mutex::default(),
        }))
    }

    /// Adds a rule that passes each matching entry to a target.
    pub fn on(
        &self,
        matches: impl Fn(&Entry) -> bool + Send + Sync + 'static,
        target: impl Fn(&Entry) + Send + Sync + 'static,
    ) {
        let rule = Rule {
            matches: Box::new(matches),
            target: Box::new(target),
        };
        self.0.rules.lock().expect("not poisoned").push(rule);
    }

    /// Sets the fault of all later calls.
    pub fn set_fault(&self, fault: Fault) {
        *self.0.fault.lock().expect("not poisoned") = fault;
    }

    /// Returns all accepted entries in order, including duplicates.
    pub fn taken(&self) -> Vec<Entry> {
        self.0.taken.lock().expect("not poisoned").clone()
    }

    /// Takes the accepted entries, so that a long run does not keep all entries in memory.
    pub fn take_accepted(&self) -> Vec<Entry> {
        std::mem::take(&mut *self.0.taken.lock().expect("not poisoned"))
    }

    /// Serves the bus until the runtime ends, and returns its URL.
    pub async fn serve(&self) -> String {
        let router = Router::new().route("/", post(put_events)).with_state(self.clone());
        serve(router).await
    }

    fn take(&self, entry: Entry) {
        for rule in self.0.rules.lock().expect("not poisoned").iter() {
            if (rule.matches)(&entry) {
                (rule.target)(&entry);
            }
        }
        self.0.taken.lock().expect("not poisoned").push(entry);
    }
}

async fn put_events(State(bus): State<EventBus>, headers: HeaderMap, body: String) -> Response {
    let target = headers.get("x-amz-target").and_then(|value| value.to_str().ok());
    let request: Value = serde_json::from_str(&body).unwrap_or_default();
    let (Some("AWSEvents.PutEvents"), Some(entries)) = (target, request["Entries"].as_array()) else {
        return refused(StatusCode::BAD_REQUEST, "UnknownOperationException");
    };
    if entries.is_empty() || entries.len() > MAX_ENTRIES {
        return refused(StatusCode::BAD_REQUEST, "ValidationException");
    }
    let fault = *bus.0.fault.lock().expect("not poisoned");
    if fault == Fault::Down {
        return refused(StatusCode::INTERNAL_SERVER_ERROR, "InternalException");
    }
    let mut answers = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let refuses = matches!(fault, Fault::Refuses(each) if (index + 1).is_multiple_of(each));
        answers.push(match read(&bus, entry) {
            Ok(_) if refuses => json!({"ErrorCode": "ThrottlingException", "ErrorMessage": "slow down"}),
            Ok(entry) => {
                bus.take(entry);
                json!({"EventId": format!("event-{index}")})
            }
            Err(code) => json!({"ErrorCode": code, "ErrorMessage": code}),
        });
    }
    if fault == Fault::LosesAnswers {
        return refused(StatusCode::INTERNAL_SERVER_ERROR, "InternalException");
    }
    let failed = answers
        .iter()
        .filter(|answer| answer.get("ErrorCode").is_some())
        .count();
    let answer = json!({"FailedEntryCount": failed, "Entries": answers}).to_string();
    ([("content-type", "application/x-amz-json-1.1")], answer).into_response()
}

fn read(bus: &EventBus, entry: &Value) -> Result<Entry, &'static str> {
    let text = |name: &str| entry[name].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    if entry["EventBusName"].as_str() != Some(&bus.0.name) {
        return Err("InvalidArgument");
    }
    let detail: Option<Value> = text("Detail").and_then(|text| serde_json::from_str(&text).ok());
    Ok(Entry {
        source: text("Source").ok_or("InvalidArgument")?,
        detail_type: text("DetailType").ok_or("InvalidArgument")?,
        detail: detail.filter(Value::is_object).ok_or("MalformedDetail")?,
    })
}

fn refused(status: StatusCode, exception: &'static str) -> Response {
    let body = json!({"__type": exception, "message": exception}).to_string();
    (status, [("x-amzn-errortype", exception)], body).into_response()
}
