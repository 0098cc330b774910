//! A JSON-RPC client: the endpoints, and the response fields that this crate reads.
//!
//! alloy's client is not used, because it writes the URL with the API key into tracing spans and reads responses of any
//! size. alloy's receipt type supports only Ethereum's transaction types, but a deposit transaction of the OP Stack
//! (type 0x7e) can also make a payment.
//!
//! Invariant: a response is used only after the endpoint's chain id was verified.

use crate::ChainError;
use alloy::primitives::{Address, B256, Bytes};
use purser_domain::{BlockId, Causes, Log, TxHash};
use serde::{Deserialize, Deserializer, de::DeserializeOwned, de::Error as _};
use serde_json::{Value, json};
use std::{
    error::Error as StdError,
    fmt,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::time::Instant;

/// How long the second endpoint is called first after the first endpoint failed.
const REST: Duration = Duration::from_secs(30);

/// A node that responds to JSON-RPC requests: an HTTP node, or the simulation's chain (`tests/sim`). Errors contain no
/// URL.
pub trait Node: Send + Sync {
    /// Sends one request and returns the response's bytes, up to the size limit.
    fn send_rpc_request<'a>(&'a self, method: &'static str, request: &'a Value) -> Exchange<'a>;
}

/// The future response to one request.
pub type Exchange<'a> = Pin<Box<dyn Future<Output = Result<Vec<u8>, ChainError>> + Send + 'a>>;

/// The one or two endpoints of a chain. The second endpoint is called when the first fails.
pub(crate) struct Rpc {
    first: Arc<Endpoint>,
    second: Option<Arc<Endpoint>>,
    /// The time until which the second endpoint is called first, because the first endpoint failed.
    rest: Mutex<Option<Instant>>,
}

impl Rpc {
    pub(crate) fn new(chain_id: u64, node: Arc<dyn Node>) -> Self {
        Self::from_endpoints(Endpoint::new(FIRST, chain_id, node), None)
    }

    pub(crate) fn from_two_nodes(chain_id: u64, first: Arc<dyn Node>, second: Arc<dyn Node>) -> Self {
        let second = Endpoint::new(SECOND, chain_id, second);
        Self::from_endpoints(Endpoint::new(FIRST, chain_id, first), Some(second))
    }

    fn from_endpoints(first: Arc<Endpoint>, second: Option<Arc<Endpoint>>) -> Self {
        Self {
            first,
            second,
            rest: Mutex::default(),
        }
    }

    /// Returns one client per endpoint, without failover to the other endpoint.
    pub(crate) fn clients_per_endpoint(&self) -> impl Iterator<Item = Self> {
        let endpoints = [Some(&self.first), self.second.as_ref()];
        endpoints
            .into_iter()
            .flatten()
            .map(|endpoint| Self::from_endpoints(Arc::clone(endpoint), None))
    }

    /// Calls a method and parses the result. After a failure, calls the other endpoint.
    pub(crate) async fn call<T: DeserializeOwned>(&self, method: &'static str, params: Value) -> Result<T, ChainError> {
        let request = &json!({"jsonrpc": "2.0", "id": ID, "method": method, "params": params});
        self.run_with_failover(|endpoint| async move { endpoint.call_on_verified_chain(method, request).await })
            .await
    }

    pub(crate) async fn reverify_endpoint_chain_id(&self) -> Result<(), ChainError> {
        self.run_with_failover(|endpoint| async move { endpoint.reverify_chain_id().await })
            .await
    }

    /// Runs `work` with one endpoint. If `work` fails, runs all of it again with the other endpoint.
    pub(crate) async fn run_with_one_endpoint<T, F>(&self, work: impl Fn(Self) -> F) -> Result<T, ChainError>
    where
        F: Future<Output = Result<T, ChainError>>,
    {
        self.run_with_failover(|endpoint| work(Self::from_endpoints(endpoint, None)))
            .await
    }

    async fn run_with_failover<T, F>(&self, work: impl Fn(Arc<Endpoint>) -> F) -> Result<T, ChainError>
    where
        F: Future<Output = Result<T, ChainError>>,
    {
        let (item, other) = self.endpoint_order();
        match decide_failover(work(Arc::clone(item)).await, other) {
            Ok(response) => response,
            Err((failure, other)) => self.choose_failover_result(other, work(Arc::clone(other)).await, failure),
        }
    }

    /// Connects to the first endpoint and verifies the chain id. After a failure, which is logged, the next call
    /// verifies the chain id.
    pub(crate) async fn warm_up(&self) {
        let _alone = self.first.checking.lock().await;
        let _logged = self.first.verify_chain_id().await;
    }

    /// Returns the endpoint to call first, and the endpoint to call if the first fails.
    fn endpoint_order(&self) -> (&Arc<Endpoint>, Option<&Arc<Endpoint>>) {
        match &self.second {
            None => (&self.first, None),
            Some(second) if self.backoff_end().is_some_and(|deadline| Instant::now() < deadline) => {
                (second, Some(&self.first))
            }
            Some(second) => (&self.first, Some(second)),
        }
    }

    /// Returns the last called endpoint's `result`. If both endpoints failed, chooses the error to report.
    fn choose_failover_result<T>(
        &self,
        other: &Endpoint,
        result: Result<T, ChainError>,
        failure: ChainError,
    ) -> Result<T, ChainError> {
        match result {
            Ok(response) => {
                if matches!(failure, ChainError::Unreachable { .. } | ChainError::Status { .. }) {
                    self.set_or_clear_backoff(other.name == SECOND);
                }
                Ok(response)
            }
            // Prefers a rejection, because the error code may show the caller how to change the request.
            Err(rejection @ ChainError::Refused { .. }) => Err(rejection),
            Err(_) => Err(failure),
        }
    }

    fn backoff_end(&self) -> Option<Instant> {
        *self.rest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_or_clear_backoff(&self, starts_backoff: bool) {
        let deadline = if starts_backoff {
            Instant::now().checked_add(REST)
        } else {
            None
        };
        *self.rest.lock().unwrap_or_else(PoisonError::into_inner) = deadline;
    }
}

/// Returns the final result, or the failure and the endpoint to call next. A wrong chain id is final, because a
/// failover must not hide a configuration error.
fn decide_failover<T>(
    result: Result<T, ChainError>,
    other: Option<&Arc<Endpoint>>,
) -> Result<Result<T, ChainError>, (ChainError, &Arc<Endpoint>)> {
    match (result, other) {
        (Err(failure), Some(other)) if !matches!(failure, ChainError::WrongChain { .. }) => Err((failure, other)),
        (response, _) => Ok(response),
    }
}

struct Endpoint {
    /// The endpoint's name for logging, without the URL.
    name: &'static str,
    chain_id: u64,
    node: Arc<dyn Node>,
    /// Whether the endpoint's chain id was verified. Never reset.
    is_verified: AtomicBool,
    /// Held during the verification of the chain id.
    checking: tokio::sync::Mutex<()>,
    /// The number of failed verifications of the chain id.
    failures: AtomicU32,
}

impl Endpoint {
    fn new(name: &'static str, chain_id: u64, node: Arc<dyn Node>) -> Arc<Self> {
        Arc::new(Self {
            name,
            chain_id,
            node,
            is_verified: AtomicBool::new(false),
            checking: tokio::sync::Mutex::default(),
            failures: AtomicU32::new(0),
        })
    }

    /// Verifies the chain id once. Concurrent calls share one verification and the error.
    async fn verify_chain_id_once(&self) -> Result<(), ChainError> {
        if self.is_verified.load(Relaxed) {
            return Ok(());
        }
        let failures = self.failures.load(Relaxed);
        let _alone = self.checking.lock().await;
        if self.is_verified.load(Relaxed) {
            return Ok(());
        }
        if self.failures.load(Relaxed) != failures {
            let source = "a concurrent check of the chain id failed".into();
            return Err(ChainError::Unreachable {
                method: CHAIN_ID,
                source,
            });
        }
        self.verify_chain_id_counting_failures().await
    }

    async fn reverify_chain_id(&self) -> Result<(), ChainError> {
        let _alone = self.checking.lock().await;
        self.verify_chain_id_counting_failures().await
    }

    async fn verify_chain_id_counting_failures(&self) -> Result<(), ChainError> {
        let checked = self.verify_chain_id().await;
        if checked.is_err() {
            self.failures.fetch_add(1, Relaxed);
        }
        checked
    }

    async fn verify_chain_id(&self) -> Result<(), ChainError> {
        let request = json!({"jsonrpc": "2.0", "id": ID, "method": CHAIN_ID, "params": []});
        let Quantity(found) = self.call(CHAIN_ID, &request).await?;
        let expected = self.chain_id;
        if found != expected {
            let wrong = ChainError::WrongChain { expected, found };
            self.log_failure(&wrong);
            return Err(wrong);
        }
        self.is_verified.store(true, Relaxed);
        Ok(())
    }

    /// Sends one request while the chain id is verified. Fails if the verification or the request fails.
    async fn call_on_verified_chain<T: DeserializeOwned>(
        &self,
        method: &'static str,
        request: &Value,
    ) -> Result<T, ChainError> {
        let (right, response) = tokio::join!(self.verify_chain_id_once(), self.call(method, request));
        right.and(response)
    }

    /// Sends one request. The caller must verify the chain id before it uses the response.
    async fn call<T: DeserializeOwned>(&self, method: &'static str, request: &Value) -> Result<T, ChainError> {
        let response = self.send_and_parse(method, request).await;
        if let Err(error) = &response {
            self.log_failure(error);
        }
        response
    }

    async fn send_and_parse<T: DeserializeOwned>(
        &self,
        method: &'static str,
        request: &Value,
    ) -> Result<T, ChainError> {
        let body = self.node.send_rpc_request(method, request).await?;
        let malformed = |what| ChainError::Malformed { method, what };
        let mut reply: Value = serde_json::from_slice(&body).map_err(|_| malformed("a body that is not JSON"))?;
        if reply.get("id").and_then(Value::as_u64) != Some(ID) {
            return Err(malformed("a response to another call"));
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
        serde_json::from_value(result).map_err(|_| malformed("a result with an unexpected format"))
    }

    fn log_failure(&self, error: &ChainError) {
        let cause = StdError::source(error).map(|cause| tracing::field::display(Causes(cause)));
        tracing::warn!(endpoint = self.name, %error, cause, "rpc.failed");
    }
}

const CHAIN_ID: &str = "eth_chainId";
const FIRST: &str = "first";
const SECOND: &str = "second";

/// Each HTTP request contains one call, so a constant id is enough.
const ID: u64 = 1;

/// Omits the URL, because the URL may contain an API key.
impl fmt::Debug for Rpc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rpc(..)")
    }
}

/// A JSON-RPC number: `0x` and hexadecimal digits (execution API, "Quantities").
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

#[derive(Debug, Deserialize)]
pub(crate) struct WireHeader {
    pub(crate) hash: B256,
    pub(crate) number: Quantity,
    /// The block's time, in seconds since the Unix epoch.
    pub(crate) timestamp: Quantity,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WireLog {
    address: Address,
    topics: Vec<B256>,
    data: Bytes,
    log_index: Quantity,
    transaction_hash: B256,
    block_hash: B256,
    block_number: Quantity,
    #[serde(default)]
    removed: bool,
}

impl WireLog {
    pub(crate) fn into_log(self) -> (TxHash, BlockId, Log) {
        let block = BlockId {
            number: self.block_number.0,
            hash: self.block_hash,
        };
        let log = Log {
            address: self.address,
            topics: self.topics,
            data: self.data.into(),
            index: self.log_index.0,
            removed: self.removed,
        };
        (TxHash::from_b256(self.transaction_hash), block, log)
    }
}

/// The used fields of a transaction. A pending transaction has no block.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WireTransaction {
    hash: B256,
    block_hash: Option<B256>,
    block_number: Option<Quantity>,
}

impl WireTransaction {
    /// Returns the transaction's block. Fails if the transaction is not the requested one.
    pub(crate) fn into_block(self, tx_hash: TxHash) -> Result<Option<BlockId>, &'static str> {
        if self.hash != tx_hash.to_b256() {
            return Err("another transaction");
        }
        let (Some(hash), Some(Quantity(number))) = (self.block_hash, self.block_number) else {
            return Ok(None);
        };
        Ok(Some(BlockId { number, hash }))
    }
}

/// The logs of a transaction, from the response of `eth_getTransactionReceipt`.
#[derive(Debug, Deserialize)]
pub(crate) struct WireReceiptLogs {
    pub(crate) logs: Vec<WireLog>,
}

/// The fields of a receipt that show whether the transaction failed.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WireReceipt {
    transaction_hash: B256,
    status: Quantity,
}

impl WireReceipt {
    /// Returns whether the transaction failed. Fails if the receipt belongs to another transaction.
    pub(crate) fn has_failed(&self, tx_hash: TxHash) -> Result<bool, &'static str> {
        if self.transaction_hash != tx_hash.to_b256() {
            return Err("the receipt of another transaction");
        }
        match self.status.0 {
            0 => Ok(true),
            1 => Ok(false),
            _ => Err("a status that is neither 0 nor 1"),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::HttpNode;
    use aws_smithy_http_client::Connector;
    use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
    use aws_smithy_runtime_api::client::http::SharedHttpConnector;
    use purser_testkit::{Reply, ScriptedNode};

    pub(crate) fn http() -> SharedHttpConnector {
        let tls = Provider::Rustls(CryptoMode::AwsLc);
        SharedHttpConnector::new(Connector::builder().tls_provider(tls).build())
    }

    const CHAIN: u64 = 84_532;

    /// Returns a node of the right chain that sends this reply to all other calls.
    async fn node(reply: Reply) -> ScriptedNode {
        of_chain("0x14a34", reply).await
    }

    async fn of_chain(id: &'static str, reply: Reply) -> ScriptedNode {
        ScriptedNode::start(move |method, _| match method {
            CHAIN_ID => Reply::Result(json!(id)),
            _ => reply.clone(),
        })
        .await
    }

    /// Returns a node that sends this reply to all calls, including the call for the chain id.
    async fn failing(reply: Reply) -> ScriptedNode {
        ScriptedNode::start(move |_, _| reply.clone()).await
    }

    fn over(first: &ScriptedNode, second: &ScriptedNode) -> Rpc {
        let node = |node: &ScriptedNode| -> Arc<dyn Node> {
            Arc::new(HttpNode::new(http(), &node.url, Duration::from_secs(1)).unwrap())
        };
        Rpc::from_two_nodes(CHAIN, node(first), node(second))
    }

    async fn asked(rpc: &Rpc) -> String {
        match rpc.call::<Value>("eth_blockNumber", json!([])).await {
            Ok(response) => response.to_string(),
            Err(error) => error.to_string(),
        }
    }

    fn counts(node: &ScriptedNode) -> [usize; 2] {
        [CHAIN_ID, "eth_blockNumber"].map(|method| node.count(method))
    }

    /// The chain id of the second endpoint is verified too.
    #[tokio::test]
    async fn the_second_endpoint_takes_over_after_a_failure() {
        let item = Reply::Result(json!(1));
        let rows = [
            (item.clone(), "1", [0, 0]),
            (Reply::HangUp, "2", [1, 1]),
            (Reply::Silence, "2", [1, 1]),
            (Reply::Status(429), "2", [1, 1]),
            (Reply::Status(503), "2", [1, 1]),
            (Reply::Refused(-32_005), "2", [1, 1]),
            (Reply::Body("<html>".to_owned()), "2", [1, 1]),
        ];
        for (reply, response, asked_second) in rows {
            let (first, second) = (node(reply.clone()).await, node(Reply::Result(json!(2))).await);
            assert_eq!(asked(&over(&first, &second)).await, response, "{reply:?}");
            assert_eq!(counts(&second), asked_second, "{reply:?}");
        }
        // The first endpoint does not even respond to the call for the chain id.
        for reply in [Reply::HangUp, Reply::Status(429)] {
            let (first, second) = (failing(reply).await, node(Reply::Result(json!(2))).await);
            assert_eq!(asked(&over(&first, &second)).await, "2");
        }
    }

    #[tokio::test]
    async fn responses_of_an_endpoint_on_another_chain_are_never_used() {
        const WRONG: &str = "the RPC serves chain 8453 instead of 84532";
        let (right, wrong) = (Reply::Result(json!(1)), Reply::Result(json!(2)));
        let down = failing(Reply::Status(503)).await;
        let elsewhere = of_chain("0x2105", wrong).await;
        let said = asked(&over(&down, &elsewhere)).await;
        assert_eq!(said, "`eth_chainId` returned HTTP status 503");
        // The second endpoint does not hide the wrong chain id of the first endpoint.
        assert_eq!(asked(&over(&elsewhere, &node(right).await)).await, WRONG);
    }

    /// A node in memory that the test can switch off.
    struct Switched {
        answer: u64,
        is_on: AtomicBool,
        calls: AtomicU32,
    }

    impl Switched {
        fn new(response: u64) -> Arc<Self> {
            Arc::new(Self {
                answer: response,
                is_on: AtomicBool::new(true),
                calls: AtomicU32::new(0),
            })
        }

        fn switch(&self, is_on: bool) {
            self.is_on.store(is_on, Relaxed);
        }

        fn take_calls(&self) -> u32 {
            self.calls.swap(0, Relaxed)
        }
    }

    impl Node for Switched {
        fn send_rpc_request<'a>(&'a self, method: &'static str, _: &'a Value) -> Exchange<'a> {
            let result = if method == CHAIN_ID {
                json!("0x14a34")
            } else {
                self.calls.fetch_add(1, Relaxed);
                json!(self.answer)
            };
            let response = if self.is_on.load(Relaxed) {
                Ok(json!({"id": 1, "result": result}).to_string().into_bytes())
            } else {
                Err(ChainError::Status { method, status: 503 })
            };
            Box::pin(async { response })
        }
    }

    /// A failed endpoint is called before `REST` is over if the other endpoint also fails.
    #[tokio::test(start_paused = true)]
    async fn a_failed_endpoint_is_skipped_for_a_while() {
        let (first, second) = (Switched::new(1), Switched::new(2));
        let rpc = Rpc::from_two_nodes(CHAIN, first.clone(), second.clone());
        // Makes three calls, and returns how often each endpoint was called.
        let thrice = async |response: &str| {
            for _ in 0..3 {
                assert_eq!(asked(&rpc).await, response);
            }
            (first.take_calls(), second.take_calls())
        };
        assert_eq!(thrice("1").await, (3, 0));
        first.switch(false);
        assert_eq!(thrice("2").await, (1, 3));
        // The first endpoint works again, and is called after `REST` or when the second endpoint fails.
        first.switch(true);
        assert_eq!(thrice("2").await, (0, 3));
        tokio::time::advance(REST).await;
        assert_eq!(thrice("1").await, (3, 0));
        first.switch(false);
        assert_eq!(thrice("2").await, (1, 3));
        first.switch(true);
        second.switch(false);
        assert_eq!(thrice("1").await, (3, 1));
    }

    #[tokio::test]
    async fn a_node_rejection_is_reported_before_other_failures() {
        let refused = "`eth_blockNumber` was rejected with JSON-RPC code -32602";
        let rows = [
            (Reply::Refused(-32_602), Reply::Status(503), refused),
            (Reply::Status(503), Reply::Refused(-32_602), refused),
            (
                Reply::Status(429),
                Reply::HangUp,
                "`eth_blockNumber` returned HTTP status 429",
            ),
        ];
        for (first, second, error) in rows {
            let rpc = over(&node(first).await, &node(second).await);
            assert_eq!(asked(&rpc).await, error);
        }
    }

    #[tokio::test]
    async fn each_node_endpoint_can_be_called_separately() {
        let (first, second) = (node(Reply::Result(json!(1))).await, node(Reply::Result(json!(2))).await);
        let rpc = over(&first, &second);
        for _ in 0..2 {
            let each: Vec<Rpc> = rpc.clients_per_endpoint().collect();
            let [item, other] = &each[..] else {
                panic!("{}", each.len())
            };
            assert_eq!(
                (asked(item).await, asked(other).await),
                ("1".to_owned(), "2".to_owned())
            );
        }
        assert_eq!((counts(&first), counts(&second)), ([1, 2], [1, 2]));
    }

    #[tokio::test]
    async fn concurrent_calls_share_one_chain_id_check_and_its_failure() {
        let (down, right) = (failing(Reply::Status(503)).await, node(Reply::Result(json!(1))).await);
        for (node, answers) in [(&down, 0), (&right, 3)] {
            let rpc = over(node, node).clients_per_endpoint().next().unwrap();
            let (a, b, c) = tokio::join!(asked(&rpc), asked(&rpc), asked(&rpc));
            assert_eq!([a, b, c].iter().filter(|response| *response == "1").count(), answers);
            assert_eq!(counts(node), [1, 3]);
        }
    }

    #[test]
    fn rpc_quantities_are_parsed_strictly() {
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
