//! A JSON-RPC node for the tests: it speaks just enough HTTP, answers what the test says, and remembers what it was asked.

use aws_smithy_http_client::{
    Connector,
    tls::{Provider, rustls_provider::CryptoMode},
};
use aws_smithy_runtime_api::client::http::SharedHttpConnector;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

/// What the node does with one call.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// Answers with a result.
    Result(Value),
    /// Refuses with a JSON-RPC error.
    Refused(i64),
    /// Answers with an HTTP status and nothing else.
    Status(u16),
    /// Answers with this text.
    Body(String),
    /// Never answers.
    Silence,
    /// Closes the connection.
    HangUp,
}

/// A call as it came: method and parameters.
type Call = (String, Value);

/// What it is called over.
pub(crate) fn http() -> SharedHttpConnector {
    let tls = Provider::Rustls(CryptoMode::AwsLc);
    SharedHttpConnector::new(Connector::builder().tls_provider(tls).build())
}

/// A running node; it ends with the test's runtime.
pub(crate) struct Node {
    pub(crate) url: String,
    calls: Arc<Mutex<Vec<Call>>>,
}

type Script = Arc<Mutex<dyn FnMut(&str, &Value) -> Answer + Send>>;

impl Node {
    pub(crate) async fn start(script: impl FnMut(&str, &Value) -> Answer + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let calls = Arc::new(Mutex::new(Vec::new()));
        let script: Script = Arc::new(Mutex::new(script));
        let seen = Arc::clone(&calls);
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(serve(socket, Arc::clone(&script), Arc::clone(&seen)));
            }
        });
        Self { url, calls }
    }

    /// What was asked, in order.
    pub(crate) fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap().clone()
    }

    /// How often a method was called.
    pub(crate) fn count(&self, method: &str) -> usize {
        self.calls().iter().filter(|(called, _)| called == method).count()
    }
}

/// One request per connection.
async fn serve(mut socket: TcpStream, script: Script, calls: Arc<Mutex<Vec<Call>>>) {
    let Some(request) = read_request(&mut socket).await else {
        return;
    };
    let method = request["method"].as_str().unwrap().to_owned();
    let params = request["params"].clone();
    calls.lock().unwrap().push((method.clone(), params.clone()));
    let answer = (script.lock().unwrap())(&method, &params);
    let (status, body) = match answer {
        Answer::Result(result) => (
            200,
            json!({"jsonrpc": "2.0", "id": request["id"], "result": result}).to_string(),
        ),
        Answer::Refused(code) => {
            let error = json!({"code": code, "message": "no"});
            (
                200,
                json!({"jsonrpc": "2.0", "id": request["id"], "error": error}).to_string(),
            )
        }
        Answer::Status(status) => (status, String::new()),
        Answer::Body(body) => (200, body),
        Answer::Silence => std::future::pending().await,
        Answer::HangUp => return,
    };
    let head = format!(
        "HTTP/1.1 {status} Said\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    // The client may have gone away, which is its right.
    let _sent = socket.write_all(format!("{head}{body}").as_bytes()).await;
}

async fn read_request(socket: &mut TcpStream) -> Option<Value> {
    let mut bytes = Vec::new();
    loop {
        if socket.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
        let text = String::from_utf8_lossy(&bytes);
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let length = head
            .lines()
            .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
        if body.len() >= length.unwrap_or(0) {
            return serde_json::from_str(body).ok();
        }
    }
}
