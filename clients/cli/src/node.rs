//! A client for a chain node (Ethereum JSON-RPC). The URL is never printed, because it may contain an API key.

use crate::USER_AGENT;
use crate::bazaar::is_this_machine;
use purser_client::http_client;
use reqwest::Response;
use serde_json::{Value, json};
use std::time::Duration;
use url::Url;

const TIMEOUT: Duration = Duration::from_secs(20);
/// The maximum length of a response, in bytes. A transaction may have many logs.
const MAX_RESPONSE_BYTES: usize = 4 * 1024 * 1024;

/// A client for one node.
pub(crate) struct Node {
    http: reqwest::Client,
    address: Url,
}

impl Node {
    /// Creates a client for the node at this URL. The URL must be `https`, or `http` on a loopback host.
    pub(crate) fn for_address(address: &str) -> Result<Self, &'static str> {
        let (http, address) =
            connection(address).ok_or("the node's address must be https://…, or http:// to this machine")?;
        Ok(Self { http, address })
    }

    /// Calls a JSON-RPC method and returns the result, which may be null.
    pub(crate) async fn call(&self, method: &str, parameters: Value) -> Result<Value, String> {
        let broken = |error: reqwest::Error| format!("the node can't be asked: {}", error.without_url());
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters});
        let request = self.http.post(self.address.clone()).json(&body);
        let response = request.send().await.map_err(broken)?;
        if !response.status().is_success() {
            return Err(format!("the node answered HTTP {}", response.status().as_u16()));
        }
        let bytes = read_body(response, MAX_RESPONSE_BYTES).await.map_err(broken)?;
        let bytes = bytes.ok_or("the node's answer is longer than 4 MiB")?;
        let reply = serde_json::from_slice::<Value>(&bytes);
        let mut reply = reply.map_err(|_| "the node's answer is no JSON".to_owned())?;
        let is_ours = reply.get("id") == Some(&json!(1));
        let result = reply.get_mut("result").filter(|_| is_ours).map(Value::take);
        result.ok_or_else(|| format!("the node refused `{method}`"))
    }
}

/// Returns an HTTP client and the parsed URL, which must be `https`, or `http` on a loopback host.
pub(crate) fn connection(address: &str) -> Option<(reqwest::Client, Url)> {
    let address = Url::parse(address).ok()?;
    let is_allowed = match address.scheme() {
        "https" => true,
        "http" => is_this_machine(&address),
        _ => false,
    };
    let http = http_client(USER_AGENT).timeout(TIMEOUT);
    is_allowed
        .then(|| http.build().ok())
        .flatten()
        .map(|http| (http, address))
}

/// Reads the body of a response. Returns `None` if the body is longer than `max` bytes.
pub(crate) async fn read_body(mut response: Response, max: usize) -> reqwest::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if bytes.len().saturating_add(chunk.len()) > max {
            return Ok(None);
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(Some(bytes))
}
