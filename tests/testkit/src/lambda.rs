//! Lambda's `Invoke`, by which a function calls another function.

use crate::serve;
use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

/// Lambda with functions by name. Clones share the functions.
#[derive(Clone, Default)]
pub struct Lambda(Arc<Mutex<BTreeMap<String, Function>>>);

/// Maps a request's payload to a response's payload.
type Function = Arc<dyn Fn(String) -> Pin<Box<dyn Future<Output = String> + Send>> + Send + Sync>;

impl Lambda {
    /// Registers `answer` as the function `name`.
    pub fn set<F: Future<Output = String> + Send + 'static>(
        &self,
        name: &str,
        answer: impl Fn(String) -> F + Send + Sync + 'static,
    ) {
        let function: Function = Arc::new(move |payload| Box::pin(answer(payload)));
        self.0.lock().expect("not poisoned").insert(name.to_owned(), function);
    }

    /// Serves Lambda until the runtime ends, and returns its URL.
    pub async fn serve(&self) -> String {
        serve(self.router()).await
    }

    /// Returns the routes of Lambda.
    pub fn router(&self) -> Router {
        Router::new()
            .route("/2015-03-31/functions/{name}/invocations", post(invoke))
            .with_state(self.clone())
    }
}

async fn invoke(State(lambda): State<Lambda>, Path(name): Path<String>, payload: String) -> Response {
    let known = lambda.0.lock().expect("not poisoned").get(&name).cloned();
    let Some(function) = known else {
        return refused(StatusCode::NOT_FOUND, "ResourceNotFoundException");
    };
    if serde_json::from_str::<Value>(&payload).is_err() {
        return refused(StatusCode::BAD_REQUEST, "InvalidRequestContentException");
    }
    // A separate task completes even if the caller disconnects, as in Lambda.
    match tokio::spawn(function(payload)).await {
        Ok(answer) => answer.into_response(),
        Err(_) => {
            let error = json!({"errorType": "Runtime.ExitError", "errorMessage": "RequestId: 1 Error: exited"});
            ([("x-amz-function-error", "Unhandled")], error.to_string()).into_response()
        }
    }
}

fn refused(status: StatusCode, exception: &'static str) -> Response {
    let body = json!({"Type": "User", "Message": exception}).to_string();
    (status, [("x-amzn-errortype", exception)], body).into_response()
}
