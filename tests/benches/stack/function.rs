//! Calls a function as Lambda does: with an event in bytes, and a response in bytes.

use axum::Router;
use lambda_http::{Context, LambdaEvent};
use purser_api::{Boot, Clock, GatewayEvent, handle_gateway_event};
use serde_json::{Value, json};
use std::collections::BTreeMap;

#[derive(Clone)]
pub struct Function(Router);

/// An HTTP request to a function.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    pub method: &'a str,
    pub path: &'a str,
    pub query: &'a str,
    pub header: Option<(&'a str, &'a str)>,
    pub body: Option<&'a Value>,
}

impl Call<'_> {
    /// Returns the API Gateway event for the request.
    pub fn event(&self) -> Vec<u8> {
        let Self {
            method,
            path,
            query,
            header,
            body,
        } = *self;
        let mut headers = json!({
            "accept": "application/json",
            "content-type": "application/json",
            "host": "k7m2q9x4ta.execute-api.us-east-1.amazonaws.com",
            "user-agent": "purser-bench/1",
            "x-amzn-trace-id": "Root=1-68a8f5c0-00000000000000000000001c",
            "x-forwarded-for": "127.0.0.1",
            "x-forwarded-port": "443",
            "x-forwarded-proto": "https",
        });
        if let Some((name, value)) = header {
            headers[name] = value.into();
        }
        let event = json!({
            "version": "2.0",
            "routeKey": format!("{method} {path}"),
            "rawPath": path,
            "rawQueryString": query,
            "headers": headers,
            "requestContext": {
                "accountId": "123456789012",
                "apiId": "k7m2q9x4ta",
                "domainName": "k7m2q9x4ta.execute-api.us-east-1.amazonaws.com",
                "domainPrefix": "k7m2q9x4ta",
                "http": {
                    "method": method,
                    "path": path,
                    "protocol": "HTTP/1.1",
                    "sourceIp": "127.0.0.1",
                    "userAgent": "purser-bench/1",
                },
                "requestId": "Lq28XiMFoAMEVsA=",
                "routeKey": format!("{method} {path}"),
                "stage": "$default",
                "time": "22/Aug/2025:22:56:32 +0000",
                "timeEpoch": 1_755_903_392_000_u64,
            },
            "body": body.map(Value::to_string),
            "isBase64Encoded": false,
        });
        event.to_string().into_bytes()
    }
}

pub struct FunctionResponse(Vec<u8>);

impl FunctionResponse {
    /// Asserts the status, and shows the response in the error.
    #[track_caller]
    pub fn expect(&self, status: u16) {
        let expected = format!("{{\"statusCode\":{status},");
        let as_expected = self.0.starts_with(expected.as_bytes());
        assert!(as_expected, "{expected} … {}", String::from_utf8_lossy(&self.0));
    }

    /// Asserts the status, and returns the headers and the body.
    #[track_caller]
    pub fn read(&self, status: u16) -> (Value, Value) {
        self.expect(status);
        let answer: Value = serde_json::from_slice(&self.0).expect("JSON");
        let body = serde_json::from_str(answer["body"].as_str().unwrap_or_default()).unwrap_or_default();
        (answer["headers"].clone(), body)
    }
}

impl Function {
    /// Starts a function with these environment variables. `others` override them.
    pub async fn start<S, F>(start: S, variables: &BTreeMap<String, String>, others: &[(&str, &str)]) -> Self
    where
        S: FnOnce(Boot) -> F,
        F: Future<Output = Result<Router, purser_api::BootError>>,
    {
        let mut variables = variables.clone();
        for (name, value) in others {
            variables.insert((*name).to_owned(), (*value).to_owned());
        }
        let boot = Boot::new(variables.into_iter().collect(), Clock::system());
        Self(start(boot).await.expect("it starts"))
    }

    /// Calls the function with an event in bytes.
    pub async fn call(&self, event: &[u8]) -> FunctionResponse {
        let event: GatewayEvent = serde_json::from_slice(event).expect("an event");
        let mut context = Context::default();
        context.request_id = "8f507cfc-xmpl-4697-b07a-ac58fc914c95".to_owned();
        // The deadline is in the far future. Without a deadline, the function would use no timer.
        context.deadline = Clock::system().now().micros().unsigned_abs() / 1_000 + 15_000;
        context.xray_trace_id =
            Some("Root=1-68a8f5c0-00000000000000000000001c;Parent=53995c3f42cd8ad8;Sampled=1".to_owned());
        let answer = handle_gateway_event(self.0.clone(), LambdaEvent::new(event, context)).await;
        FunctionResponse(answer.to_json().get().as_bytes().to_vec())
    }
}
