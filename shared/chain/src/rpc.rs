//! JSON-RPC, the few shapes that are read of it, and the node that speaks it over HTTP.
//!
//! The client is small on purpose. alloy's own writes the address, and with it the API key, into its tracing spans, and
//! reads answers of any size; and its receipt type knows Ethereum's transaction types only, while a deposit transaction
//! of the OP Stack (type 0x7e) can settle a payment as well as any other. Here an answer is bounded, a shape holds what is
//! used, and everything else in it is ignored.

use crate::ChainError;
use alloy::primitives::{Address, B256, Bytes};
use purser_domain::{Log, Receipt, TxHash};
use reqwest::{Client, Url, redirect::Policy};
use serde::{Deserialize, Deserializer, de::DeserializeOwned, de::Error as _};
use serde_json::{Value, json};
use std::{fmt, pin::Pin, sync::Arc, time::Duration};

/// The largest answer that is read. A log is about 600 bytes of JSON and a batch that fills a block some thousand logs.
const MAX_ANSWER_BYTES: usize = 4 * 1024 * 1024;

/// Who is asked: a node over HTTP, or the simulation's chain (`tests/sim`).
///
/// Its errors hold no address.
pub trait Node: Send + Sync {
    /// Sends one request and answers the bytes of its reply, as many as are read of one at most.
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
pub(crate) struct HttpNode {
    client: Client,
    url: Url,
}

impl HttpNode {
    /// `total` bounds one call from its first byte to its last.
    pub(crate) fn new(url: &str, connect: Duration, total: Duration) -> Result<Self, ChainError> {
        let url = Url::parse(url)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https"))
            .ok_or(ChainError::Address)?;
        let builder = Client::builder()
            .connect_timeout(connect)
            .timeout(total)
            .redirect(Policy::none());
        let client = builder
            .build()
            .map_err(|error| ChainError::Client(error.without_url()))?;
        Ok(Self { client, url })
    }

    async fn post(&self, method: &'static str, request: &Value) -> Result<Vec<u8>, ChainError> {
        let unreachable = |error: reqwest::Error| ChainError::Unreachable {
            method,
            source: error.without_url().into(),
        };
        let mut response = self
            .client
            .post(self.url.clone())
            .json(request)
            .send()
            .await
            .map_err(unreachable)?;
        let status = response.status();
        if !status.is_success() {
            return Err(ChainError::Status {
                method,
                status: status.as_u16(),
            });
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
            body.extend_from_slice(&chunk);
            if body.len() > MAX_ANSWER_BYTES {
                return Err(ChainError::Malformed {
                    method,
                    what: "more than is read",
                });
            }
        }
        Ok(body)
    }
}

impl Node for HttpNode {
    fn exchange<'a>(&'a self, method: &'static str, request: &'a Value) -> Exchange<'a> {
        Box::pin(self.post(method, request))
    }
}

/// One line for each thing that the node did not do. The texts hold no address.
pub(crate) fn log_failure(error: &ChainError) {
    let cause = std::error::Error::source(error).map(tracing::field::display);
    tracing::warn!(%error, cause, "rpc.failed");
}

/// One call at a time goes over a request, so one id is enough.
const ID: u64 = 1;

/// Nothing of the address: it may hold an API key.
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

/// What is read of a block to know when it was.
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

/// A receipt, with the block that the node says it is in.
#[derive(Debug)]
pub(crate) struct Mined {
    pub(crate) receipt: Receipt,
    pub(crate) block_hash: B256,
}

impl WireReceipt {
    /// The receipt as domain values; `None` while it is in no block, and an error when it contradicts itself or is not
    /// the one that was asked for.
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
mod tests {
    use super::*;

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
