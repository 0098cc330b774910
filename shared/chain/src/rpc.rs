//! JSON-RPC: the fields that are read of it, and a node over HTTP.
//!
//! The client is small on purpose. alloy's own writes the address, and with it the API key, into its tracing spans, and
//! reads answers of any size; and its receipt type knows Ethereum's transaction types only, while a deposit transaction
//! of the OP Stack (type 0x7e) can settle a payment as well as any other. Here answers are bounded, and only the fields
//! that are used are read.

use crate::ChainError;
use alloy::primitives::{Address, B256, Bytes};
use aws_smithy_runtime_api::client::{
    http::{HttpConnector as _, SharedHttpConnector},
    orchestrator::HttpRequest,
};
use aws_smithy_types::body::SdkBody;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use percent_encoding::percent_decode_str;
use purser_domain::{Causes, Log, Receipt, TxHash};
use serde::{Deserialize, Deserializer, de::DeserializeOwned, de::Error as _};
use serde_json::{Value, json};
use std::{error::Error as StdError, fmt, pin::Pin, sync::Arc, time::Duration};
use tokio::time::timeout;
use url::Url;

/// The largest answer that is read. A log is about 600 bytes of JSON; a batch that fills a block has some thousand.
const MAX_ANSWER_BYTES: usize = 4 * 1024 * 1024;

/// What is called: a node over HTTP, or the simulation's chain (`tests/sim`).
///
/// Its errors hold no address.
pub trait Node: Send + Sync {
    /// Sends one request and returns the bytes of its reply, at most as many as are read of one.
    fn exchange<'a>(&'a self, method: &'static str, request: &'a Value) -> Exchange<'a>;
}

/// The reply to one request.
pub type Exchange<'a> = Pin<Box<dyn Future<Output = Result<Vec<u8>, ChainError>> + Send + 'a>>;

/// Calls of one node.
pub(crate) struct Rpc(Arc<dyn Node>);

impl Rpc {
    pub(crate) fn new(node: Arc<dyn Node>) -> Self {
        Self(node)
    }

    /// Calls one method.
    pub(crate) async fn call<T: DeserializeOwned>(&self, method: &'static str, params: Value) -> Result<T, ChainError> {
        let answer = self.answer(method, params).await;
        if let Err(error) = &answer {
            log_failure(error);
        }
        answer
    }

    async fn answer<T: DeserializeOwned>(&self, method: &'static str, params: Value) -> Result<T, ChainError> {
        let request = json!({"jsonrpc": "2.0", "id": ID, "method": method, "params": params});
        let body = self.0.exchange(method, &request).await?;
        let malformed = |what| ChainError::Malformed { method, what };
        let mut reply: Value = serde_json::from_slice(&body).map_err(|_| malformed("something that is not JSON"))?;
        if reply.get("id").and_then(Value::as_u64) != Some(ID) {
            return Err(malformed("no reply to this call"));
        }
        if let Some(error) = reply.get("error").filter(|error| !error.is_null()) {
            let code = error
                .get("code")
                .and_then(Value::as_i64)
                .ok_or_else(|| malformed("an error without a code"))?;
            return Err(ChainError::Refused { method, code });
        }
        let result = reply
            .get_mut("result")
            .map(Value::take)
            .ok_or_else(|| malformed("neither a result nor an error"))?;
        serde_json::from_value(result).map_err(|_| malformed("a result of another shape"))
    }
}

/// A node over HTTP.
pub struct HttpNode {
    http: SharedHttpConnector,
    /// Without user and password.
    url: String,
    /// The user and password of the address, as a header (RFC 7617).
    authorization: Option<String>,
    timeout: Duration,
}

impl HttpNode {
    /// `timeout` bounds one call from its first byte to its last.
    pub fn new(http: SharedHttpConnector, url: &str, timeout: Duration) -> Result<Self, ChainError> {
        let mut url = Url::parse(url)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https"))
            .ok_or(ChainError::Address)?;
        let authorization = basic(&url)?;
        // Neither fails where there is a host.
        let bare = url.set_username("").and_then(|()| url.set_password(None));
        bare.map_err(|()| ChainError::Address)?;
        url.set_fragment(None);
        Ok(Self {
            http,
            url: url.into(),
            authorization,
            timeout,
        })
    }

    async fn post(&self, method: &'static str, request: &Value) -> Result<Vec<u8>, ChainError> {
        let request = self.request(request).ok_or(ChainError::Address)?;
        let unreachable = |source| ChainError::Unreachable { method, source };
        match timeout(self.timeout, self.answer_to(request, method)).await {
            Ok(answer) => answer,
            Err(late) => Err(unreachable(late.into())),
        }
    }

    fn request(&self, request: &Value) -> Option<HttpRequest> {
        let mut post = HttpRequest::new(SdkBody::from(request.to_string()));
        post.set_method("POST").ok()?;
        post.set_uri(self.url.clone()).ok()?;
        let headers = post.headers_mut();
        headers.insert("content-type", "application/json");
        if let Some(authorization) = &self.authorization {
            headers.insert("authorization", authorization.clone());
        }
        Some(post)
    }

    async fn answer_to(&self, request: HttpRequest, method: &'static str) -> Result<Vec<u8>, ChainError> {
        let unreachable = |source| ChainError::Unreachable { method, source };
        let response = self
            .http
            .call(request)
            .await
            .map_err(|error| unreachable(error.into()))?;
        let status = response.status();
        if !status.is_success() {
            return Err(ChainError::Status {
                method,
                status: status.as_u16(),
            });
        }
        match Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect().await {
            Ok(body) => Ok(body.to_bytes().into()),
            Err(error) if error.is::<LengthLimitError>() => Err(ChainError::Malformed {
                method,
                what: "more than is read",
            }),
            Err(error) => Err(unreachable(error)),
        }
    }
}

impl Node for HttpNode {
    fn exchange<'a>(&'a self, method: &'static str, request: &'a Value) -> Exchange<'a> {
        Box::pin(self.post(method, request))
    }
}

/// The user and the password in an address, as a header value; `None` where it holds neither.
fn basic(url: &Url) -> Result<Option<String>, ChainError> {
    if url.username().is_empty() && url.password().is_none() {
        return Ok(None);
    }
    let decoded = |text| percent_decode_str(text).decode_utf8().map_err(|_| ChainError::Address);
    let (user, password) = (decoded(url.username())?, decoded(url.password().unwrap_or_default())?);
    let pair = BASE64_STANDARD.encode(format!("{user}:{password}"));
    Ok(Some(format!("Basic {pair}")))
}

/// One log line for each failed call. The texts hold no address.
pub(crate) fn log_failure(error: &ChainError) {
    let cause = StdError::source(error).map(|cause| tracing::field::display(Causes(cause)));
    tracing::warn!(%error, cause, "rpc.failed");
}

/// Each HTTP request carries one call, so one id is enough.
const ID: u64 = 1;

/// Shows nothing of the address: it may hold an API key.
impl fmt::Debug for Rpc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rpc(..)")
    }
}

/// A number on the wire: `0x` and hexadecimal digits (execution API, "Quantities").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quantity(pub(crate) u64);

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digits = text
            .strip_prefix("0x")
            .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        digits
            .and_then(|digits| u64::from_str_radix(digits, 16).ok())
            .map(Self)
            .ok_or_else(|| D::Error::custom("quantity"))
    }
}

/// What is read of a block.
#[derive(Debug, Deserialize)]
pub(crate) struct WireBlock {
    /// Its hash.
    pub(crate) hash: B256,
}

/// What is read of a block to know its time.
#[derive(Debug, Deserialize)]
pub(crate) struct WireHeader {
    pub(crate) hash: B256,
    pub(crate) number: Quantity,
    /// In seconds.
    pub(crate) timestamp: Quantity,
}

/// What is read of a log that was searched for.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WireFound {
    pub(crate) address: Address,
    pub(crate) topics: Vec<B256>,
    pub(crate) transaction_hash: B256,
    #[serde(default)]
    pub(crate) removed: bool,
}

/// What is read of a receipt. A transaction that is not in a block yet has no receipt, or one without a block.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WireReceipt {
    transaction_hash: B256,
    block_hash: Option<B256>,
    block_number: Option<Quantity>,
    status: Quantity,
    logs: Vec<WireLog>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireLog {
    address: Address,
    topics: Vec<B256>,
    data: Bytes,
    log_index: Quantity,
    transaction_hash: B256,
    #[serde(default)]
    removed: bool,
}

/// A receipt, with the hash of the block that the node says it is in.
#[derive(Debug)]
pub(crate) struct Mined {
    pub(crate) receipt: Receipt,
    pub(crate) block_hash: B256,
}

impl WireReceipt {
    /// The receipt as domain values; `None` while it is in no block, and an error when it contradicts itself or is not
    /// the requested one.
    pub(crate) fn into_mined(self, asked: TxHash) -> Result<Option<Mined>, &'static str> {
        if self.transaction_hash != asked.b256() {
            return Err("the receipt of another transaction");
        }
        let (Some(block_hash), Some(Quantity(block_number))) = (self.block_hash, self.block_number) else {
            return Ok(None);
        };
        let succeeded = match self.status.0 {
            0 => false,
            1 => true,
            _ => return Err("a status that is neither 0 nor 1"),
        };
        if self
            .logs
            .iter()
            .any(|log| log.removed || log.transaction_hash != self.transaction_hash)
        {
            return Err("logs that are not the receipt's own");
        }
        let logs = self.logs.into_iter().map(|log| Log {
            address: log.address,
            topics: log.topics,
            data: log.data.into(),
            index: log.log_index.0,
            removed: log.removed,
        });
        let receipt = Receipt {
            tx_hash: asked,
            succeeded,
            block_number,
            logs: logs.collect(),
        };
        Ok(Some(Mined { receipt, block_hash }))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use aws_smithy_http_client::Connector;
    use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};

    /// The HTTP client that nodes are called with.
    pub(crate) fn http() -> SharedHttpConnector {
        let tls = Provider::Rustls(CryptoMode::AwsLc);
        SharedHttpConnector::new(Connector::builder().tls_provider(tls).build())
    }

    #[test]
    fn an_address_may_hold_who_is_asked_as() {
        let check = |address: &str, url: &str, authorization: Option<&str>| {
            let node = HttpNode::new(http(), address, Duration::from_secs(1)).unwrap();
            let request = node.request(&json!({})).unwrap();
            assert_eq!(request.uri(), url, "{address}");
            assert_eq!(request.headers().get("authorization"), authorization, "{address}");
        };
        check(
            "https://node.example/v2/key?a=b#c",
            "https://node.example/v2/key?a=b",
            None,
        );
        check("https://node.example", "https://node.example/", None);
        // RFC 7617, section 2.
        let aladdin = Some("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        check(
            "https://Aladdin:open%20sesame@node.example:8545/",
            "https://node.example:8545/",
            aladdin,
        );
        check(
            "https://key@node.example/",
            "https://node.example/",
            Some("Basic a2V5Og=="),
        );
        for address in ["ftp://node.example", "node.example", "https://%ff@node.example", ""] {
            let refused = HttpNode::new(http(), address, Duration::from_secs(1));
            assert!(matches!(refused.err(), Some(ChainError::Address)), "{address}");
        }
    }

    #[test]
    fn quantities_are_read_strictly() {
        let cases = [
            (json!("0x0"), Some(0)),
            (json!("0x14a34"), Some(84_532)),
            (json!("0xffffffffffffffff"), Some(u64::MAX)),
            (json!("0x10000000000000000"), None),
            (json!("0x"), None),
            (json!("0x+1"), None),
            (json!("10"), None),
            (json!(10), None),
            (json!(""), None),
            (Value::Null, None),
        ];
        for (value, number) in cases {
            assert_eq!(
                serde_json::from_value::<Quantity>(value.clone()).ok(),
                number.map(Quantity),
                "{value}"
            );
        }
    }
}
